//! Every route of the operator API.

use super::route::Answer::{Empty, Json, Text};
use super::route::Method::{Delete, Get, Post, Put};
use super::route::Route;
use super::shape::{of, page, query};
use crate::code;
use crate::rest::audit::{AuditLine, AuditQuery, AuditVerify};
use crate::rest::ca::{BundleQuery, Ca};
use crate::rest::health::{Alive, Health};
use crate::rest::nodes::{NodeDetail, NodeItem, NodeQuery};
use crate::rest::operators::{
    AddOperator, AddedOperator, CreateOperatorKey, CreatedKey, KeyItem, OperatorItem,
};
use crate::rest::page::PageQuery;
use crate::rest::policy::{PolicyItem, PolicyList};
use crate::rest::tenants::{CreateTenant, TenantItem};
use crate::rest::tokens::{CreateToken, MintedToken, TokenItem, TokenQuery};

pub const ROUTES: &[Route] = &[
    // Tokens.
    Route::new(Post, "/v1/tokens", "create_token", "Mint an enrollment token", Json(201, of::<MintedToken>))
        .body(of::<CreateToken>)
        .errors(&[
            code::TENANT_NOT_FOUND,
            code::PROFILE_NOT_FOUND,
            code::NODE_NOT_FOUND,
            code::NODE_REVOKED,
            code::TOKEN_TTL_TOO_LONG,
            code::TOKEN_TTL_TOO_SHORT,
        ]),
    Route::new(
        Get,
        "/v1/tokens",
        "list_tokens",
        "List tokens, without their values",
        Json(200, page::<TokenItem>),
    )
    .query(query::<TokenQuery>),
    Route::new(
        Get,
        "/v1/tokens/{id}",
        "show_token",
        "Show a token, without its value",
        Json(200, of::<TokenItem>),
    )
    .errors(&[code::TOKEN_NOT_FOUND]),
    Route::new(Delete, "/v1/tokens/{id}", "revoke_token", "Revoke an unused token", Empty)
        .errors(&[code::TOKEN_NOT_FOUND, code::TOKEN_USED]),
    // Nodes.
    Route::new(Get, "/v1/nodes", "list_nodes", "List nodes", Json(200, page::<NodeItem>))
        .query(query::<NodeQuery>),
    Route::new(
        Get,
        "/v1/nodes/{id}",
        "show_node",
        "Show everything known of a node",
        Json(200, of::<NodeDetail>),
    )
    .errors(&[code::NODE_NOT_FOUND]),
    // Tenants.
    Route::new(Post, "/v1/tenants", "create_tenant", "Make a tenant", Json(201, of::<TenantItem>))
        .body(of::<CreateTenant>)
        .errors(&[code::TENANT_EXISTS]),
    Route::new(Get, "/v1/tenants", "list_tenants", "List tenants", Json(200, page::<TenantItem>))
        .query(query::<PageQuery>),
    // Policy.
    Route::new(Get, "/v1/policy", "show_policy", "Show every policy value", Json(200, of::<PolicyList>)),
    Route::new(Put, "/v1/policy", "set_policy", "Set a policy value", Json(200, of::<PolicyItem>))
        .body(of::<PolicyItem>)
        .errors(&[code::POLICY_KEY_UNKNOWN, code::POLICY_VALUE_INVALID]),
    // Certificate authority.
    Route::new(Get, "/v1/ca", "show_ca", "Show root, issuers and adoption", Json(200, of::<Ca>))
        .errors(&[code::NOT_FOUNDED]),
    Route::new(
        Get,
        "/v1/ca/bundle",
        "export_ca",
        "Export certificates to trust",
        Text("application/x-pem-file", "What verifies nodes, or with `server=true` the control plane; PEM."),
    )
    .query(query::<BundleQuery>)
    .errors(&[code::NOT_FOUNDED]),
    // Audit trail.
    Route::new(
        Get,
        "/v1/audit",
        "list_audit",
        "List audit lines, oldest first",
        Json(200, page::<AuditLine>),
    )
    .query(query::<AuditQuery>),
    Route::new(
        Get,
        "/v1/audit/export",
        "export_audit",
        "Export the audit trail",
        Text("application/x-ndjson", "Every line as JSON, the signed footer last."),
    ),
    Route::new(
        Get,
        "/v1/audit/verify",
        "verify_audit",
        "Check the audit trail",
        Json(200, of::<AuditVerify>),
    ),
    // Operators and their automation.
    Route::new(Post, "/v1/operators", "add_operator", "Add an operator", Json(201, of::<AddedOperator>))
        .body(of::<AddOperator>)
        .errors(&[
            code::OPERATOR_EXISTS,
            code::TENANT_NOT_FOUND,
            code::CSR_INVALID,
            code::ISSUER_UNAVAILABLE,
        ]),
    Route::new(Get, "/v1/operators", "list_operators", "List operators", Json(200, page::<OperatorItem>))
        .query(query::<PageQuery>),
    Route::new(Delete, "/v1/operators/{name}", "remove_operator", "Remove an operator", Empty)
        .errors(&[code::OPERATOR_NOT_FOUND]),
    Route::new(
        Post,
        "/v1/operator-keys",
        "create_operator_key",
        "Make an API key",
        Json(201, of::<CreatedKey>),
    )
    .body(of::<CreateOperatorKey>)
    .errors(&[code::TENANT_NOT_FOUND, code::OPERATOR_KEY_TTL_INVALID]),
    Route::new(
        Get,
        "/v1/operator-keys",
        "list_operator_keys",
        "List API keys, without their values",
        Json(200, page::<KeyItem>),
    )
    .query(query::<PageQuery>),
    Route::new(Delete, "/v1/operator-keys/{id}", "revoke_operator_key", "Revoke an API key", Empty)
        .errors(&[code::OPERATOR_KEY_NOT_FOUND]),
    // Live.
    Route::new(
        Get,
        "/v1/events",
        "watch_events",
        "Watch nodes as they change",
        Text(
            "text/event-stream",
            "Server-sent events `node`: `data` is a node as it is now, as in the list, whenever it has changed.",
        ),
    ),
    // The server itself.
    Route::new(Get, "/healthz", "healthz", "Does the process answer?", Json(200, of::<Alive>)).public(),
    Route::new(
        Get,
        "/readyz",
        "readyz",
        "Does it serve? 503 with the reasons if not",
        Json(200, of::<Health>),
    )
    .or(503, of::<Health>)
    .public(),
    Route::new(
        Get,
        "/metrics",
        "metrics",
        "Metrics, on the operator socket",
        Text("text/plain", "Prometheus text format."),
    ),
    Route::new(Get, "/openapi.json", "openapi", "This document", Text("application/json", "OpenAPI 3.1."))
        .public(),
];
