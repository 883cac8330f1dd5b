//! The probectl door.

use crate::code;
use crate::doors::probectl::{
    AgentQuery, Agents, DescribeAgent, EnrollAgent, MintEnrollToken, MintedEnrollToken, ProbectlAgent,
    ProbectlIdentity, RegisterCollector, RegisteredCollector, RevokedAgent, RotateAgent,
};
use crate::openapi::route::Method::{Delete, Get, Patch, Post};
use crate::openapi::route::Route;
use crate::openapi::route::RouteAnswer::{Empty, Json};
use crate::openapi::shape::{of, query};
use crate::rest::nodes::Revoke;

pub(super) const ROUTES: &[Route] = &[
    Route::new(
        Post,
        "/enroll/agent",
        "enroll_agent",
        "Redeem a join token for an identity",
        Json(200, of::<ProbectlIdentity>),
    )
    .body(of::<EnrollAgent>)
    .public()
    .errors(&[code::UNAUTHENTICATED, code::CSR_INVALID, code::KEY_KIND_NOT_ALLOWED, code::RATE_LIMITED]),
    Route::new(
        Post,
        "/enroll/agent/rotate",
        "rotate_agent",
        "Renew an identity by proof of the current key",
        Json(200, of::<ProbectlIdentity>),
    )
    .body(of::<RotateAgent>)
    .public()
    .errors(&[
        code::UNAUTHENTICATED,
        code::CSR_INVALID,
        code::KEY_KIND_NOT_ALLOWED,
        code::RATE_LIMITED,
        code::TOO_MANY_CERTIFICATES,
    ]),
    Route::new(
        Post,
        "/v1/agents/enroll-tokens",
        "mint_enroll_token",
        "Mint a join token",
        Json(201, of::<MintedEnrollToken>),
    )
    .body(of::<MintEnrollToken>)
    .errors(&[
        code::TENANT_NOT_FOUND,
        code::NODE_NOT_FOUND,
        code::NODE_REVOKED,
        code::TOKEN_TTL_TOO_LONG,
        code::TOKEN_TTL_TOO_SHORT,
    ]),
    Route::new(Get, "/v1/agents", "list_agents", "List agents", Json(200, of::<Agents>))
        .query(query::<AgentQuery>),
    Route::new(Get, "/v1/agents/{id}", "show_agent", "Show an agent", Json(200, of::<ProbectlAgent>))
        .errors(&[code::NODE_NOT_FOUND]),
    Route::new(
        Patch,
        "/v1/agents/{id}",
        "describe_agent",
        "Change an agent's name and labels",
        Json(200, of::<ProbectlAgent>),
    )
    .body(of::<DescribeAgent>)
    .errors(&[code::NODE_NOT_FOUND]),
    Route::new(
        Delete,
        "/v1/agents/{id}",
        "delete_agent",
        "Revoke an agent and forget its name and labels",
        Empty,
    )
    .errors(&[code::NODE_NOT_FOUND]),
    Route::new(
        Post,
        "/v1/agents/{id}/revoke",
        "revoke_agent",
        "Revoke an agent",
        Json(200, of::<RevokedAgent>),
    )
    .body(of::<Revoke>)
    .errors(&[code::NODE_NOT_FOUND]),
    Route::new(
        Post,
        "/v1/collectors/register",
        "register_collector",
        "Register a collector, as an operator or with an unused token",
        Json(201, of::<RegisteredCollector>),
    )
    .body(of::<RegisterCollector>)
    .public()
    .errors(&[code::UNAUTHENTICATED, code::FORBIDDEN, code::TENANT_NOT_FOUND, code::RATE_LIMITED]),
];
