//! One route as an OpenAPI operation.

use super::route::{Access, Route, RouteAnswer};
use super::shape::{self, Schemas};
use super::{BEARER, MTLS};
use crate::code::{self, Code};
use crate::error::{ErrorBody, ProbectlError, TaskrunError, Wording};
use std::collections::BTreeMap;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::{Content, Ref, Required, Response, ResponseBuilder, SecurityRequirement};

const JSON: &str = "application/json";

pub(super) fn of(route: &Route, schemas: &mut Schemas) -> Operation {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(route.id))
        .summary(Some(route.summary))
        .tag(tag(route.path));
    for name in route.parameters() {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(Object::with_type(Type::String)));
        operation = operation.parameter(parameter);
    }
    if let Some(query) = route.query {
        operation = query().into_iter().fold(operation, OperationBuilder::parameter);
    }
    if let Some(body) = route.body {
        let body = RequestBodyBuilder::new()
            .content(JSON, Content::new(Some(body(schemas))))
            .required(Some(Required::True));
        operation = operation.request_body(Some(body.build()));
    }
    operation = match route.access {
        Access::Operator => operation
            .security(SecurityRequirement::new::<_, [&str; 0], &str>(MTLS, []))
            .security(SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, [])),
        Access::Node => operation.security(SecurityRequirement::new::<_, [&str; 0], &str>(MTLS, [])),
        Access::Anyone => operation.security(SecurityRequirement::default()),
    };
    let (status, answer) = success(&route.answer, schemas);
    operation = operation.response(status.to_string(), answer);
    if let Some((status, shape)) = route.or {
        let (_, answer) = success(&RouteAnswer::Json(status, shape), schemas);
        operation = operation.response(status.to_string(), answer);
    }
    let wording = Wording::of(route.path);
    let body = match wording {
        Wording::Enlist => shape::of::<ErrorBody>(schemas),
        Wording::Probectl => shape::of::<ProbectlError>(schemas),
        Wording::Taskrun => shape::of::<TaskrunError>(schemas),
    };
    let mut failures: BTreeMap<u16, Vec<&Code>> = BTreeMap::new();
    for code in route.failures() {
        failures.entry(wording.status(code)).or_default().push(code);
    }
    failures
        .into_iter()
        .fold(operation, |operation, (status, codes)| {
            operation.response(status.to_string(), failure(&codes, &body))
        })
        .build()
}

/// The family that a path belongs to.
fn tag(path: &str) -> &str {
    let mut parts = path.split('/').skip(1);
    match parts.next() {
        Some("v1") => parts.next().unwrap_or_default(),
        Some("enroll") => "agents",
        _ => "server",
    }
}

fn success(answer: &RouteAnswer, schemas: &mut Schemas) -> (u16, Response) {
    let (status, response) = match answer {
        RouteAnswer::Json(status, shape) => {
            let done = match *status {
                200 => "Done.",
                201 => "Made.",
                _ => "Not now: the body says why.",
            };
            (
                *status,
                ResponseBuilder::new().description(done).content(JSON, Content::new(Some(shape(schemas)))),
            )
        }
        RouteAnswer::Empty => (204, ResponseBuilder::new().description("Done, or already so.")),
        RouteAnswer::Text(media, what) => {
            let content = Content::new(Some(Object::with_type(Type::String)));
            (200, ResponseBuilder::new().description(*what).content(*media, content))
        }
    };
    (
        status,
        response
            .header("X-Request-Id", header(Type::String, "Finds this request in log and audit trail."))
            .build(),
    )
}

fn failure(codes: &[&Code], body: &Ref) -> Response {
    let words: Vec<String> = codes.iter().map(|code| format!("- `{}`: {}", code.word, code.hint)).collect();
    let mut response = ResponseBuilder::new()
        .description(words.join("\n"))
        .content(JSON, Content::new(Some(body.clone())))
        .header("X-Request-Id", header(Type::String, "Finds this request in log and audit trail."));
    if codes.iter().any(|code| [code::RATE_LIMITED, code::OVERLOADED].contains(code)) {
        response = response.header("Retry-After", header(Type::Integer, "Whole seconds to wait."));
    }
    response.build()
}

fn header(kind: Type, description: &str) -> Header {
    HeaderBuilder::new().schema(Object::with_type(kind)).description(Some(description)).build()
}
