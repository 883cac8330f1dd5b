//! What handlers are given: the caller, the body and the query, each checked.

use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::body::{BodyError, too_large};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::error::Wording;
use api::{code, header};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::HeaderMap;
use http::request::Parts;
use http_body_util::BodyExt;
use journal::View;
use lifecycle::names::{Span, TenantId};
use lifecycle::registry::{Act, Actor, Tenants, permissions};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// An authenticated caller and how its request is recorded.
pub struct Caller {
    pub actor: Actor,
    pub origin: Provenance,
    tenant_header: Option<String>,
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let missing = || Failure::internal("a request without its connection", &"");
        let peer = parts.extensions.get::<ConnectionPeer>().cloned().ok_or_else(missing)?;
        let origin = parts.extensions.get::<Provenance>().cloned().ok_or_else(missing)?;
        let actor = authenticate::authenticate(app, &peer, &parts.headers).await?;
        if !parts.method.is_safe() {
            check_kind(&parts.headers)?;
            check_named_kind(parts)?;
        }
        authenticate::first_use(app, &origin, &actor).await?;
        Ok(Self {
            actor,
            origin,
            tenant_header: named_tenant(Wording::of(parts.uri.path()), &parts.headers)?,
        })
    }
}

/// The tenant that the headers name. The probectl API has a name of its own for that header beside ours; a request that
/// names two tenants is about none.
pub fn named_tenant(wording: Wording, headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let names: &[&str] = match wording {
        Wording::Probectl => &[header::TENANT, header::PROBECTL_TENANT],
        Wording::Enlist | Wording::Taskrun => &[header::TENANT],
    };
    let wrong = |what| Failure::new(code::BAD_REQUEST, what);
    let mut named: Option<String> = None;
    for value in names.iter().flat_map(|name| headers.get_all(*name)) {
        let text = value.to_str().map_err(|_| wrong("the tenant in the header is not a tenant name"))?;
        if named.as_deref().is_some_and(|before| before != text) {
            return Err(wrong("the headers name two tenants"));
        }
        named = Some(text.to_owned());
    }
    Ok(named)
}

impl Caller {
    /// The caller of a gRPC method.
    pub async fn of_call<T>(app: &App, request: &tonic::Request<T>) -> Result<Self, Failure> {
        let missing = || Failure::internal("a request without its connection", &"");
        let peer = request.extensions().get::<ConnectionPeer>().ok_or_else(missing)?;
        let origin = request.extensions().get::<Provenance>().cloned().ok_or_else(missing)?;
        let headers = request.metadata().as_ref();
        let actor = authenticate::authenticate(app, peer, headers).await?;
        authenticate::first_use(app, &origin, &actor).await?;
        Ok(Self { actor, origin, tenant_header: named_tenant(Wording::Enlist, headers)? })
    }

    /// The tenant a request is about: as named, else the operator's only one, else `default`.
    pub fn tenant(&self, app: &App, named: Option<&str>) -> Result<TenantId, Failure> {
        if let Some(name) = named.or(self.tenant_header.as_deref()) {
            return TenantId::parse(name).map_err(bad);
        }
        let only = match permissions(&app.view().state, &self.actor).map(|granted| granted.tenants) {
            Some(Tenants::Only(names)) if names.len() == 1 => names.into_iter().next(),
            _ => None,
        };
        Ok(only.unwrap_or_else(TenantId::default_tenant))
    }

    /// For an API whose requests are about one tenant: which one, and the view in which the caller may see it.
    pub fn scope(&self, app: &App, act: Act) -> Result<(Arc<View>, TenantId), Failure> {
        let (view, seen) = authenticate::reader(app, &self.actor, act)?;
        let tenant = self.tenant(app, None)?;
        self.narrowed(app, seen, Some(tenant.as_str()))?;
        Ok((view, tenant))
    }

    /// The tenants a list shows: those the caller may see, narrowed to the one it names.
    pub fn narrowed(&self, app: &App, seen: Tenants, named: Option<&str>) -> Result<Tenants, Failure> {
        let Some(name) = named.or(self.tenant_header.as_deref()) else { return Ok(seen) };
        let name = TenantId::parse(name).map_err(bad)?;
        if seen.include(&name) && app.view().state.tenants.contains_key(&name) {
            Ok(Tenants::Only([name].into()))
        } else {
            Err(lifecycle::registry::Rejection::TenantNotFound { tenant: name }.into())
        }
    }
}

/// A name that cannot be one.
pub fn bad(error: lifecycle::names::Malformed) -> Failure {
    Failure::new(code::BAD_REQUEST, error.to_string())
}

/// The same, of a field that has a name.
pub fn bad_in(field: &'static str) -> impl FnOnce(lifecycle::names::Malformed) -> Failure {
    move |error| Failure::new(code::BAD_REQUEST, format!("{field}: {error}"))
}

/// A field that holds a duration.
pub fn duration(field: &str, text: Option<&str>) -> Result<Option<Span>, Failure> {
    let bad = |error| Failure::new(code::BAD_REQUEST, format!("{field}: {error}"));
    text.map(Span::parse).transpose().map_err(bad)
}

/// How much is told of what is wrong with a body.
const ERROR_LENGTH: usize = 1000;

/// A JSON body; an empty one counts as `{}`.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _app: &Arc<App>) -> Result<Self, Failure> {
        let bytes = body(request).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        parse(text).map(Json).map_err(|error| {
            // It names the field that is wrong, and that may be as long as the body.
            let told: String = error.chars().take(ERROR_LENGTH).collect();
            Failure::new(code::BAD_REQUEST, format!("the body is not as expected: {told}"))
        })
    }
}

/// The whole body of a request, which is JSON.
pub async fn body(request: Request) -> Result<bytes::Bytes, Failure> {
    let (parts, body) = request.into_parts();
    let bytes = read(body).await?;
    check_kind(&parts.headers)?;
    Ok(bytes)
}

/// Refuses what a form of another site could send, whether or not there is a body: a browser adds the
/// operator's certificate to that by itself. No program needs to name a kind other than JSON.
fn check_kind(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(kind) = headers.get(http::header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().ok().and_then(|kind| kind.split(';').next()).map(str::trim);
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Failure::new(code::UNSUPPORTED_MEDIA_TYPE, "the content type is not application/json"))
}

/// Whether a request has a body, as its connection says: over HTTP/2 no header does.
#[derive(Debug, Clone, Copy)]
pub struct HasBody(pub bool);

/// A page of another site can send a body that names no kind, without a preflight. What has no body needs none: of a page the browser
/// says so in `Origin` and `Sec-Fetch-Site`, and `cross_site` has refused it.
fn check_named_kind(parts: &Parts) -> Result<(), Failure> {
    let has_body = parts.extensions.get::<HasBody>().is_none_or(|HasBody(has_body)| *has_body);
    if has_body && !parts.headers.contains_key(http::header::CONTENT_TYPE) {
        return Err(Failure::new(
            code::UNSUPPORTED_MEDIA_TYPE,
            "there is no content type; it must be application/json",
        ));
    }
    Ok(())
}

/// What is wrong, and in which field.
fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (path, error) = (error.path().to_string(), error.inner());
        // The whole of it has no name.
        if path == "." { error.to_string() } else { format!("{path}: {error}") }
    })?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

async fn read(body: Body) -> Result<bytes::Bytes, Failure> {
    match body.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) => Err(match body_error(&error) {
            Some(BodyError::TooLarge(limit)) => Failure::new(code::TOO_LARGE, too_large(*limit)),
            Some(BodyError::TooSlow) => Failure::new(code::TIMEOUT, "the body came too slowly"),
            _ => Failure::new(code::BAD_REQUEST, "the body could not be read"),
        }),
    }
}

fn body_error(error: &axum::Error) -> Option<&BodyError> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(found) = inner.downcast_ref() {
            return Some(found);
        }
        source = inner.source();
    }
    None
}

/// A query string; unknown names are refused like unknown fields.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _app: &Arc<App>) -> Result<Self, Failure> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(query)| Query(query))
            .map_err(|error| Failure::new(code::BAD_REQUEST, error.body_text()))
    }
}

/// One segment of the path, as text.
pub struct Segment(pub String);

impl FromRequestParts<Arc<App>> for Segment {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let unreadable = |_| Failure::new(code::BAD_REQUEST, "the path is not readable");
        let path = axum::extract::Path::<String>::from_request_parts(parts, app).await.map_err(unreadable)?;
        Ok(Self(path.0))
    }
}
