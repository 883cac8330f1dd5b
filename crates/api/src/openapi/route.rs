//! What a route is: enough to serve it, to describe it, and to say how it can fail.

use super::shape::Shape;
use crate::code::{self, Code};
use utoipa::openapi::path::Parameter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// Who may ask at all. Which operator may do what is the registry's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Anyone,
    /// A node's client certificate.
    Node,
    Operator,
}

/// What comes back when all went well.
pub(crate) enum RouteAnswer {
    Json(u16, Shape),
    /// Nothing but the status.
    Empty,
    /// Something else than JSON: media type and what it holds.
    Text(&'static str, &'static str),
}

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    /// A unique name, for generated clients.
    pub id: &'static str,
    pub summary: &'static str,
    pub access: Access,
    pub(crate) query: Option<fn() -> Vec<Parameter>>,
    pub(crate) body: Option<Shape>,
    pub(crate) answer: RouteAnswer,
    /// A second answer that is not an error body.
    pub(crate) or: Option<(u16, Shape)>,
    /// What is special to it; [`Route::errors`] adds what its kind brings along.
    pub(crate) errors: &'static [&'static Code],
}

impl Route {
    pub(crate) const fn new(
        method: Method,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        answer: RouteAnswer,
    ) -> Self {
        let access = Access::Operator;
        Self { method, path, id, summary, access, query: None, body: None, answer, or: None, errors: &[] }
    }

    pub(crate) const fn public(mut self) -> Self {
        self.access = Access::Anyone;
        self
    }

    pub(crate) const fn for_nodes(mut self) -> Self {
        self.access = Access::Node;
        self
    }

    pub(crate) const fn query(mut self, query: fn() -> Vec<Parameter>) -> Self {
        self.query = Some(query);
        self
    }

    pub(crate) const fn body(mut self, body: Shape) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) const fn or(mut self, status: u16, shape: Shape) -> Self {
        self.or = Some((status, shape));
        self
    }

    pub(crate) const fn errors(mut self, errors: &'static [&'static Code]) -> Self {
        self.errors = errors;
        self
    }

    /// The names between braces in the path.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Every way in which it can fail.
    pub fn failures(&self) -> Vec<&'static Code> {
        let mut codes = self.errors.to_vec();
        if self.access != Access::Anyone {
            codes.extend([code::UNAUTHENTICATED, code::FORBIDDEN, code::CROSS_SITE]);
            codes.extend([code::RATE_LIMITED, code::UNAVAILABLE]);
        }
        if self.access == Access::Node {
            codes.push(code::STALE);
        }
        if self.body.is_some() {
            codes.extend([code::TOO_LARGE, code::UNSUPPORTED_MEDIA_TYPE, code::TIMEOUT]);
        }
        if self.access == Access::Operator && self.method != Method::Get {
            codes.push(code::UNSUPPORTED_MEDIA_TYPE);
        }
        if self.body.is_some() || self.query.is_some() || self.parameters().next().is_some() {
            codes.push(code::BAD_REQUEST);
        }
        if self.method != Method::Get {
            codes.extend([code::TRY_AGAIN, code::OUTCOME_UNKNOWN, code::REQUEST_TOO_OLD, code::NOT_FOUNDED]);
            codes.push(code::NO_QUORUM);
        }
        codes.extend([code::OVERLOADED, code::INTERNAL]);
        codes.sort_by_key(|code| (code.status, code.word));
        codes.dedup();
        codes
    }
}
