//! The operator API described for machines. Built from the table of routes, so what is served and what is
//! described cannot part: the server tests its router against [`routes`], and a golden file shows each change.

mod operation;
mod route;
mod routes;
mod shape;

pub use route::{Access, Method, Route};
pub use routes::routes;

use shape::Schemas;
use utoipa::openapi::path::{HttpMethod, PathsBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem};

pub(crate) const BEARER: &str = "api_key";
pub(crate) const MTLS: &str = "client_certificate";

const DESCRIPTION: &str = "\
The same API is served on the TLS port, with a client certificate or an API key, and on the operator socket in the \
data directory, where the peer's user id is the credential.\n\n\
Every answer carries `X-Request-Id`; a caller's own is kept if it is 1 to 128 visible ASCII characters. \
`X-Correlation-Id` is recorded. Unknown fields in requests are refused. Bodies over 64 KiB are refused, except \
documents (512 KiB) and batches (4 MiB). \
Times are RFC 3339 in UTC, durations `90s`, `15m`, `1h`, `7d`. \
Every error has a code with a page of its own in the documentation.";

/// The whole document.
pub fn document() -> OpenApi {
    let mut schemas = Schemas::new();
    let paths = routes().fold(PathsBuilder::new(), |paths, route| {
        let method = match route.method {
            Method::Get => HttpMethod::Get,
            Method::Post => HttpMethod::Post,
            Method::Put => HttpMethod::Put,
            Method::Patch => HttpMethod::Patch,
            Method::Delete => HttpMethod::Delete,
        };
        paths.path(route.path, PathItem::new(method, operation::of(route, &mut schemas)))
    });
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key from `enlist operator key create`."))
        .build();
    let certificate = SecurityScheme::MutualTls {
        description: Some("A client certificate from `enlist operator add`, or a node's own where a node asks about itself.".to_owned()),
        extensions: None,
    };
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .security_scheme(MTLS, certificate)
        .build();
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Enlist operator API")
                .version("v1")
                .description(Some(DESCRIPTION))
                .build(),
        )
        .paths(paths.build())
        .components(Some(components))
        .build()
}

/// As served at `/openapi.json` and committed as `docs/openapi.json`.
pub fn json() -> Result<String, serde_json::Error> {
    document().to_pretty_json().map(|json| json + "\n")
}
