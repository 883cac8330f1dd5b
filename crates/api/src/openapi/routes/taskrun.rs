//! The taskrun door.

use crate::code;
use crate::doors::taskrun::{
    EnrollWorker, EnrolledWorker, RenewWorker, RenewedWorker, RevokeWorker, RevokedWorker, WorkerItem,
    WorkerList,
};
use crate::openapi::Route;
use crate::openapi::route::Method::{Get, Post};
use crate::openapi::route::RouteAnswer::Json;
use crate::openapi::shape::{of, query};
use crate::rest::page::PageQuery;

pub(super) const ROUTES: &[Route] = &[
    Route::new(
        Post,
        "/v1/enroll",
        "enroll_worker",
        "Redeem a bootstrap token for a worker's certificate",
        Json(200, of::<EnrolledWorker>),
    )
    .body(of::<EnrollWorker>)
    .public()
    .errors(&[
        code::TOKEN_MALFORMED,
        code::TOKEN_INVALID,
        code::TOKEN_EXPIRED,
        code::TOKEN_REVOKED,
        code::TOKEN_USED,
        code::CSR_INVALID,
        code::KEY_KIND_NOT_ALLOWED,
        code::IDEMPOTENCY_KEY_INVALID,
        code::WORKER_ID_IN_USE,
        code::WORKER_REVOKED,
        code::ATTESTOR_NOT_ALLOWED,
        code::PROFILE_NOT_FOUND,
        code::RATE_LIMITED,
        code::UNAVAILABLE,
        code::ISSUER_UNAVAILABLE,
        code::ISSUER_REFUSED,
        code::ISSUER_MISBEHAVED,
    ]),
    Route::new(
        Post,
        "/v1/renew",
        "renew_worker",
        "Renew a certificate with the current one",
        Json(200, of::<RenewedWorker>),
    )
    .body(of::<RenewWorker>)
    .for_nodes()
    .errors(&[
        code::CSR_INVALID,
        code::KEY_KIND_NOT_ALLOWED,
        code::KEY_IN_USE,
        code::CERTIFICATE_SUPERSEDED,
        code::NOT_YOUR_NODE,
        code::PROFILE_NOT_FOUND,
        code::WORKER_REVOKED,
        code::TOO_MANY_CERTIFICATES,
        code::ISSUER_UNAVAILABLE,
        code::ISSUER_REFUSED,
        code::ISSUER_MISBEHAVED,
    ]),
    Route::new(Get, "/v1/workers", "list_workers", "List workers of a tenant", Json(200, of::<WorkerList>))
        .query(query::<PageQuery>)
        .errors(&[code::TENANT_NOT_FOUND]),
    Route::new(Get, "/v1/workers/{id}", "show_worker", "Show a worker", Json(200, of::<WorkerItem>))
        .errors(&[code::WORKER_NOT_FOUND, code::TENANT_NOT_FOUND]),
    Route::new(
        Post,
        "/v1/workers/{id}/revoke",
        "revoke_worker",
        "Revoke a worker",
        Json(200, of::<RevokedWorker>),
    )
    .body(of::<RevokeWorker>)
    .errors(&[code::WORKER_NOT_FOUND, code::TENANT_NOT_FOUND]),
];
