//! Schemas by reference: each type is described once and named where it is used.

use std::collections::BTreeMap;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{ArrayBuilder, Ref, RefOr, Schema};
use utoipa::{IntoParams, ToSchema};

pub(super) type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Registers a type with everything it refers to, and gives the reference.
pub(crate) type Shape = fn(&mut Schemas) -> Ref;

pub(super) fn of<T: ToSchema>(schemas: &mut Schemas) -> Ref {
    let mut needed = Vec::new();
    T::schemas(&mut needed);
    schemas.extend(needed);
    schemas.insert(T::name().into_owned(), T::schema());
    Ref::from_schema_name(T::name())
}

/// A page of something. Written out because all pages would otherwise share one name.
pub(super) fn page<T: ToSchema>(schemas: &mut Schemas) -> Ref {
    let item = of::<T>(schemas);
    let cursor = SchemaType::from_iter([Type::String, Type::Null]);
    let page = ObjectBuilder::new()
        .description(Some("A page of a list."))
        .property("items", ArrayBuilder::new().items(item))
        .required("items")
        .property(
            "next_cursor",
            ObjectBuilder::new()
                .schema_type(cursor)
                .description(Some("Pass it as `cursor` for the next page; null on the last one.")),
        )
        .required("next_cursor");
    let name = format!("{}Page", T::name());
    schemas.insert(name.clone(), RefOr::T(page.into()));
    Ref::from_schema_name(name)
}

pub(super) fn query<Q: IntoParams>() -> Vec<Parameter> {
    Q::into_params(|| Some(ParameterIn::Query))
}
