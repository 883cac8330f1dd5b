//! The plfm door.

use crate::code;
use crate::doors::plfm::{
    ConfirmHost, ConfirmedHost, CreateHostToken, DecommissionHost, EnrollHost, EnrolledHost, HostItem,
    HostList, HostOverlay, HostQuery, HostTokenList, HostTokenQuery, MintedHostToken, OverlayQuery,
    RevokeHost,
};
use crate::openapi::Route;
use crate::openapi::route::Method::{Delete, Get, Post};
use crate::openapi::route::RouteAnswer::{Empty, Json};
use crate::openapi::shape::{of, query};

pub(super) const ROUTES: &[Route] = &[
    // Tokens.
    Route::new(
        Post,
        "/v1/hosts/enroll-tokens",
        "create_host_token",
        "Mint an enrollment token for a host",
        Json(201, of::<MintedHostToken>),
    )
    .body(of::<CreateHostToken>)
    .errors(&[code::TENANT_NOT_FOUND, code::TOKEN_TTL_TOO_LONG, code::TOKEN_TTL_TOO_SHORT]),
    Route::new(
        Get,
        "/v1/hosts/enroll-tokens",
        "list_host_tokens",
        "List enrollment tokens, without their values",
        Json(200, of::<HostTokenList>),
    )
    .query(query::<HostTokenQuery>)
    .errors(&[code::TENANT_NOT_FOUND]),
    Route::new(
        Delete,
        "/v1/hosts/enroll-tokens/{id}",
        "revoke_host_token",
        "Revoke an unused enrollment token",
        Empty,
    )
    .errors(&[code::TENANT_NOT_FOUND, code::TOKEN_NOT_FOUND, code::TOKEN_USED]),
    // What hosts do.
    Route::new(
        Post,
        "/v1/hosts/enroll",
        "enroll_host",
        "Redeem an enrollment token for an identity and an overlay address",
        Json(201, of::<EnrolledHost>),
    )
    .public()
    .body(of::<EnrollHost>)
    .errors(&[
        code::TOKEN_MALFORMED,
        code::TOKEN_INVALID,
        code::TOKEN_EXPIRED,
        code::TOKEN_REVOKED,
        code::TOKEN_USED,
        code::CSR_INVALID,
        code::KEY_KIND_NOT_ALLOWED,
        code::IDEMPOTENCY_KEY_INVALID,
        code::WIREGUARD_KEY_INVALID,
        code::WIREGUARD_KEY_IN_USE,
        code::UNDERLAY_UNREACHABLE,
        code::ATTESTOR_NOT_ALLOWED,
        code::NODE_REVOKED,
        code::NODE_ID_IN_USE,
        code::NO_OVERLAY,
        code::PROFILE_NOT_FOUND,
        code::RATE_LIMITED,
        code::UNAVAILABLE,
        code::ISSUER_UNAVAILABLE,
        code::ISSUER_REFUSED,
        code::ISSUER_MISBEHAVED,
        code::ADDRESSES_EXHAUSTED,
    ]),
    Route::new(
        Post,
        "/v1/hosts/{id}/confirm-enrollment",
        "confirm_host",
        "Confirm an enrollment with the new certificate, or report that it could not be stored",
        Json(200, of::<ConfirmedHost>),
    )
    .for_nodes()
    .body(of::<ConfirmHost>)
    .errors(&[code::NOT_YOUR_HOST, code::ALREADY_CONFIRMED]),
    Route::new(
        Get,
        "/v1/hosts/{id}/overlay",
        "host_overlay",
        "Show the host's own overlay, or wait for a newer revision",
        Json(200, of::<HostOverlay>),
    )
    .for_nodes()
    .query(query::<OverlayQuery>)
    .errors(&[code::NOT_YOUR_HOST, code::NO_OVERLAY, code::TOO_MANY_STREAMS]),
    // What operators do.
    Route::new(Get, "/v1/hosts", "list_hosts", "List hosts", Json(200, of::<HostList>))
        .query(query::<HostQuery>)
        .errors(&[code::TENANT_NOT_FOUND]),
    Route::new(Get, "/v1/hosts/{id}", "show_host", "Show a host", Json(200, of::<HostItem>)).errors(UNKNOWN),
    act("/v1/hosts/{id}/drain", "drain_host", "Drain a host: it finishes its work and gets no new work")
        .errors(LIVING),
    act("/v1/hosts/{id}/decommission", "decommission_host", "Decommission a host")
        .body(of::<DecommissionHost>)
        .errors(&[code::TENANT_NOT_FOUND, code::NODE_NOT_FOUND, code::NODE_REVOKED, code::ACTIVE_SESSIONS]),
    act("/v1/hosts/{id}/revoke", "revoke_host", "Revoke a host").body(of::<RevokeHost>).errors(UNKNOWN),
];

const UNKNOWN: &[&code::Code] = &[code::TENANT_NOT_FOUND, code::NODE_NOT_FOUND];
const LIVING: &[&code::Code] = &[code::TENANT_NOT_FOUND, code::NODE_NOT_FOUND, code::NODE_REVOKED];

/// Something done to a host: done again it answers the same and changes nothing.
const fn act(path: &'static str, id: &'static str, summary: &'static str) -> Route {
    Route::new(Post, path, id, summary, Json(200, of::<HostItem>))
}
