//! What a page of another web site can make a browser send, with a client certificate that the browser adds by itself, is
//! refused before anybody is authenticated: on every path, since nodes and operators have certificates alike. No answer
//! allows another site anything (there is no CORS), so what needs a preflight never comes.
//!
//! A browser names the page in `Origin`, which it has sent with every cross-site POST since 2017 at the latest, and in `Sec-Fetch-Site`; pages
//! cannot change either. A body must name its content type beside that (`http/extract.rs`): without a preflight a page cannot send JSON.

use crate::doors;
use crate::http::extract::HasBody;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{self, HeaderValue};
use http::{HeaderMap, Uri};
use http_body::Body as _;
use std::sync::Arc;

/// Paths that say the same to everybody, so that anyone may keep the answer.
const PUBLIC: &[&str] = &["/healthz", "/readyz", "/openapi.json", "/v1/ca/crl"];
/// By a page of the control plane itself, or typed by the user.
const OWN: &[&[u8]] = &[b"same-origin", b"none"];

pub async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let has_body = HasBody(!request.body().is_end_stream());
    request.extensions_mut().insert(has_body);
    let public = PUBLIC.contains(&request.uri().path());
    let mut response = match refusal(&app, &request) {
        Some(failure) => failure.into_response(),
        None => next.run(request).await,
    };
    // No browser reads gRPC, and heartbeats should not carry it.
    if is_grpc(response.headers()) {
        return response;
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !public {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn refusal(app: &App, request: &Request) -> Option<Failure> {
    let headers = request.headers();
    if !is_own_site(request.uri(), headers) {
        return Some(Failure::new(code::CROSS_SITE, "a page of another web site sent this request"));
    }
    if names(headers, header::UPGRADE, "websocket") {
        return Some(Failure::new(code::BAD_REQUEST, "this control plane serves no WebSocket"));
    }
    // Of a gRPC service by another content type: bytes that a page can send as well.
    let path = request.uri().path();
    if doors::serves_grpc(app, path) && !is_grpc(headers) {
        return Some(Failure::new(code::UNSUPPORTED_MEDIA_TYPE, "the content type is not application/grpc"));
    }
    None
}

fn is_own_site(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    sites.all(|site| OWN.contains(&site.as_bytes())) && origins.all(|origin| is_own(uri, headers, origin))
}

/// Whether the page came from the very authority that is asked. `null` is nobody's.
fn is_own(uri: &Uri, headers: &HeaderMap, origin: &HeaderValue) -> bool {
    let asked = uri.authority().map(http::uri::Authority::as_str);
    let asked = asked.or_else(|| headers.get(header::HOST)?.to_str().ok());
    let page = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://"));
    asked.zip(page).is_some_and(|(asked, page)| asked.eq_ignore_ascii_case(page))
}

/// gRPC itself: gRPC-Web is what browsers speak.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/grpc" || kind.starts_with("application/grpc+")
}

fn names(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    let lists = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split(',').any(|item| item.trim().eq_ignore_ascii_case(word))
    };
    headers.get_all(name).iter().any(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        is_own_site(&Uri::from_static("/v1/nodes"), &map)
    }

    #[test]
    fn only_its_own_pages_and_programs_are_heard() {
        let host = ("host", "cp.example:8443");
        assert!(check(&[host]), "a program");
        assert!(check(&[host, ("origin", "https://CP.example:8443"), ("sec-fetch-site", "same-origin")]));
        assert!(check(&[host, ("sec-fetch-site", "none")]), "typed");
        for origin in ["null", "https://evil.example", "https://cp.example", "http://cp.example:8443", ""] {
            assert!(!check(&[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "Same-Origin", ""] {
            assert!(!check(&[host, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!check(&[host, ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]));
        assert!(!check(&[("origin", "https://cp.example")]), "nobody was asked by name");
    }
}
