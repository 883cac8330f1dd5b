//! The operator API.

use crate::code;
use crate::openapi::route::Method::{Delete, Get, Post, Put};
use crate::openapi::route::Route;
use crate::openapi::route::RouteAnswer::{Empty, Json, Text};
use crate::openapi::shape::{of, page, query};
use crate::rest::alerts::{AlertItem, AlertQuery};
use crate::rest::audit::{AuditLine, AuditQuery, AuditVerify};
use crate::rest::bootstrap::{BootstrapItem, IssueBootstrapRequest, IssuedBootstrap};
use crate::rest::ca::{
    AbandonRollRequest, AbandonedRoll, ActivateIssuerRequest, BundleQuery, Ca, CrlQuery,
    ImportRootListRequest, OfferedTrust, PrepareRollRequest, RetireIssuer, RevokeIssuer, RewrapRequest,
    Rewrapped, Roll, StepCaSettings,
};
use crate::rest::cluster::{
    Cluster, CreateReplicaTokenRequest, JoinClusterRequest, JoinedCluster, MintedReplicaToken,
    RemoveReplicaRequest,
};
use crate::rest::health::{Alive, Health};
use crate::rest::nodes::{
    Decommission, Drain, ImportNode, IntoVcluster, IssueRepairBundleRequest, LabelNode, NodeDetail, NodeItem,
    NodeQuery, Quarantine, RegisterNodeRequest, RegisterNodesRequest, RegisteredNodes, RepairBundle, Revoke,
    RotateRequest,
};
use crate::rest::operators::{
    AddOperatorRequest, AddedOperator, CreateOperatorKeyRequest, CreatedKey, KeyItem, OperatorItem,
    RemovedOperator, RenewOperatorRequest, RenewedOperator,
};
use crate::rest::overlay::{OverlayStatusItem, OverlayStatusQuery};
use crate::rest::page::PageQuery;
use crate::rest::policy::{PolicyItem, PolicyList, SetPolicyRequest};
use crate::rest::server_clock::{AcceptClockRequest, ServerClock};
use crate::rest::tenants::{CreateTenantRequest, TenantItem};
use crate::rest::tokens::{CreateTokenRequest, MintedToken, TokenItem, TokenQuery};
use crate::rest::vclusters::{
    ConfigurationDocument, CreateVclusterRequest, VclusterDefaults, VclusterDetail, VclusterItem,
};

pub(super) const ROUTES: &[Route] = &[
    // Tokens.
    Route::new(Post, "/v1/tokens", "create_token", "Mint an enrollment token", Json(201, of::<MintedToken>))
        .body(of::<CreateTokenRequest>)
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
    Route::new(
        Get,
        "/v1/nodes",
        "list_nodes",
        "List nodes; with `hostname`, `label` or `search` a page may be empty and not the last",
        Json(200, page::<NodeItem>),
    )
        .query(query::<NodeQuery>),
    Route::new(
        Get,
        "/v1/nodes/{id}",
        "show_node",
        "Show everything known of a node",
        Json(200, of::<NodeDetail>),
    )
    .errors(&[code::NODE_NOT_FOUND]),
    Route::new(
        Get,
        "/v1/nodes/{id}/timeline",
        "show_node_timeline",
        "List the lines of the audit trail about a node, oldest first; a page may be empty and not the last",
        Json(200, page::<AuditLine>),
    )
    .query(query::<PageQuery>)
    .errors(&[code::NODE_NOT_FOUND]),
    act("/v1/nodes/{id}/drain", "drain_node", "Drain a node: it finishes its work and gets no new work")
        .body(of::<Drain>)
        .errors(LIVING),
    act("/v1/nodes/{id}/undrain", "undrain_node", "End a node's drain").errors(LIVING),
    act(
        "/v1/nodes/{id}/quarantine",
        "quarantine_node",
        "Quarantine a node: it can authenticate and renew, nothing else",
    )
    .body(of::<Quarantine>)
    .errors(LIVING),
    act("/v1/nodes/{id}/release", "release_node", "End a node's quarantine").errors(LIVING),
    act(
        "/v1/nodes/{id}/rotate",
        "rotate_node",
        "Order a node to renew its certificate, or to replace its WireGuard key, now",
    )
    .body(of::<RotateRequest>)
    .errors(&[code::NODE_NOT_FOUND, code::NODE_REVOKED, code::NO_CERTIFICATE, code::NO_OVERLAY]),
    Route::new(
        Get,
        "/v1/overlay",
        "show_overlay",
        "List the hosts of the overlay: what each was told of its peers, and what it says of them",
        Json(200, page::<OverlayStatusItem>),
    )
    .query(query::<OverlayStatusQuery>),
    act("/v1/nodes/{id}/decommission", "decommission_node", "Decommission a node")
        .body(of::<Decommission>)
        .errors(&[code::NODE_NOT_FOUND, code::NODE_REVOKED, code::ACTIVE_SESSIONS]),
    act("/v1/nodes/{id}/revoke", "revoke_node", "Revoke a node: its certificates are refused from now on")
        .body(of::<Revoke>)
        .errors(&[code::NODE_NOT_FOUND]),
    act(
        "/v1/nodes/{id}/reinstate",
        "reinstate_node",
        "Reinstate a revoked or decommissioned node, so that it can enroll again",
    )
    .errors(&[code::NODE_NOT_FOUND]),
    act("/v1/nodes/{id}/label", "label_node", "Set and remove labels of a node")
        .body(of::<LabelNode>)
        .errors(&[code::NODE_NOT_FOUND]),
    act(
        "/v1/nodes/{id}/recovery/revoke",
        "revoke_recovery_tokens",
        "Revoke the recovery tokens of a node; its host, if it keeps any, gets a new one when it is connected",
    )
    .errors(LIVING),
    Route::new(
        Post,
        "/v1/nodes/{id}/repair-bundle",
        "issue_repair_bundle",
        "Issue a repair bundle for a host that cannot recover by itself, and quarantine the node",
        Json(200, of::<RepairBundle>),
    )
    .body(of::<IssueRepairBundleRequest>)
    .errors(&[
        code::NODE_NOT_FOUND,
        code::NODE_REVOKED,
        code::NO_CERTIFICATE,
        code::TOKEN_TTL_TOO_SHORT,
        code::TOKEN_TTL_TOO_LONG,
    ]),
    Route::new(
        Post,
        "/v1/nodes/import",
        "import_node",
        "Import a certificate that the imported CA issued",
        Json(200, of::<NodeItem>),
    )
    .body(of::<ImportNode>)
    .errors(&[
        code::CERTIFICATE_INVALID,
        code::CERTIFICATE_NOT_OURS,
        code::CERTIFICATE_EXPIRED,
        code::NODE_ID_IN_USE,
        code::NODE_REVOKED,
        code::SERIAL_IN_USE,
        code::KEY_IN_USE,
        code::PROFILE_NOT_FOUND,
        code::TENANT_NOT_FOUND,
    ]),
    Route::new(
        Post,
        "/v1/nodes",
        "register_node",
        "Register a machine by its hardware, so that it may enroll without a token",
        Json(201, of::<NodeItem>),
    )
    .body(of::<RegisterNodeRequest>)
    .errors(REGISTERING),
    Route::new(
        Post,
        "/v1/nodes/batch",
        "register_nodes",
        "Register many machines, each by itself; the body may have 4 MiB",
        Json(200, of::<RegisteredNodes>),
    )
    .body(of::<RegisterNodesRequest>),
    act("/v1/nodes/{id}/assign", "assign_node", "Assign a node that is in no vCluster to one")
        .body(of::<IntoVcluster>)
        .errors(&[
            code::NODE_NOT_FOUND,
            code::NODE_REVOKED,
            code::VCLUSTER_NOT_FOUND,
            code::ALREADY_ASSIGNED,
        ]),
    act("/v1/nodes/{id}/unassign", "unassign_node", "Take a node out of its vCluster").errors(LIVING),
    act("/v1/nodes/{id}/move", "move_node", "Move a node from its vCluster to another")
        .body(of::<IntoVcluster>)
        .errors(&[
            code::NODE_NOT_FOUND,
            code::NODE_REVOKED,
            code::VCLUSTER_NOT_FOUND,
            code::NOT_ASSIGNED,
        ]),
    Route::new(
        Put,
        "/v1/nodes/{id}/config",
        "configure_node",
        "Set the configuration document of a node, beside that of its vCluster; POST does the same",
        Json(200, of::<NodeDetail>),
    )
    .body(of::<ConfigurationDocument>)
    .errors(&[code::NODE_NOT_FOUND, code::NODE_REVOKED, code::DOCUMENT_INVALID, code::TOO_LARGE]),
    // vClusters.
    Route::new(Post, "/v1/vclusters", "create_vcluster", "Create a vCluster", Json(201, of::<VclusterItem>))
        .body(of::<CreateVclusterRequest>)
        .errors(&[code::VCLUSTER_EXISTS, code::TENANT_NOT_FOUND]),
    Route::new(Get, "/v1/vclusters", "list_vclusters", "List vClusters", Json(200, page::<VclusterItem>))
        .query(query::<PageQuery>),
    Route::new(
        Get,
        "/v1/vclusters/{name}",
        "show_vcluster",
        "Show a vCluster and its configuration",
        Json(200, of::<VclusterDetail>),
    )
    .errors(&[code::VCLUSTER_NOT_FOUND]),
    Route::new(
        Delete,
        "/v1/vclusters/{name}",
        "remove_vcluster",
        "Remove a vCluster in which no node is",
        Empty,
    )
    .errors(&[code::VCLUSTER_NOT_FOUND, code::VCLUSTER_IN_USE]),
    Route::new(
        Get,
        "/v1/vclusters/{name}/config",
        "show_vcluster_config",
        "The configuration document of a vCluster",
        Json(200, of::<ConfigurationDocument>),
    )
    .errors(&[code::VCLUSTER_NOT_FOUND]),
    Route::new(
        Put,
        "/v1/vclusters/{name}/config",
        "configure_vcluster",
        "Set the configuration document of a vCluster; POST does the same",
        Json(200, of::<VclusterItem>),
    )
    .body(of::<ConfigurationDocument>)
    .errors(&[code::VCLUSTER_NOT_FOUND, code::DOCUMENT_INVALID, code::TOO_LARGE]),
    Route::new(
        Get,
        "/v1/vcluster-defaults",
        "show_vcluster_defaults",
        "Show the configuration of nodes in no vCluster",
        Json(200, of::<VclusterDefaults>),
    ),
    Route::new(
        Put,
        "/v1/vcluster-defaults",
        "configure_vcluster_defaults",
        "Set the configuration of nodes in no vCluster; POST does the same",
        Json(200, of::<VclusterDefaults>),
    )
    .body(of::<ConfigurationDocument>)
    .errors(&[code::DOCUMENT_INVALID, code::TOO_LARGE]),
    // Alerts.
    Route::new(
        Get,
        "/v1/alerts",
        "list_alerts",
        "List open alerts, oldest first",
        Json(200, page::<AlertItem>),
    )
    .query(query::<AlertQuery>),
    Route::new(Get, "/v1/alerts/{id}", "show_alert", "Show an alert", Json(200, of::<AlertItem>))
        .errors(&[code::ALERT_NOT_FOUND]),
    Route::new(
        Post,
        "/v1/alerts/{id}/ack",
        "acknowledge_alert",
        "Acknowledge an alert",
        Json(200, of::<AlertItem>),
    )
    .errors(&[code::ALERT_NOT_FOUND]),
    // Tenants.
    Route::new(Post, "/v1/tenants", "create_tenant", "Create a tenant", Json(201, of::<TenantItem>))
        .body(of::<CreateTenantRequest>)
        .errors(&[code::TENANT_EXISTS]),
    Route::new(Get, "/v1/tenants", "list_tenants", "List tenants", Json(200, page::<TenantItem>))
        .query(query::<PageQuery>),
    // Policy.
    Route::new(Get, "/v1/policy", "show_policy", "Show every policy value", Json(200, of::<PolicyList>)),
    Route::new(Put, "/v1/policy", "set_policy", "Set a policy value", Json(200, of::<PolicyItem>))
        .body(of::<SetPolicyRequest>)
        .errors(&[code::POLICY_KEY_UNKNOWN, code::POLICY_VALUE_INVALID]),
    // Certificate authority.
    Route::new(Get, "/v1/ca", "show_ca", "Show root, issuers and adoption", Json(200, of::<Ca>))
        .errors(&[code::NOT_FOUNDED]),
    Route::new(
        Get,
        "/v1/ca/bundle",
        "export_ca",
        "Export certificates to trust",
        Text(
            "application/pem-certificate-chain",
            "What verifies nodes, or with `server=true` the control plane; PEM.",
        ),
    )
    .query(query::<BundleQuery>)
    .errors(&[code::NOT_FOUNDED]),
    Route::new(
        Get,
        "/v1/ca/crl",
        "show_crl",
        "The revocation list of an issuer, or those of all issuers and roots",
        Text("application/pkix-crl", "DER, one list; with `format=pem` PEM, all lists."),
    )
    .query(query::<CrlQuery>)
    .errors(&[code::ISSUER_NOT_FOUND, code::ISSUER_UNAVAILABLE])
    .public(),
    Route::new(
        Get,
        "/v1/ca/trust",
        "show_trust",
        "What to verify the control plane by from now on",
        Json(200, of::<OfferedTrust>),
    )
    .public(),
    Route::new(
        Post,
        "/v1/ca/bootstrap",
        "issue_bootstrap",
        "Issue a bootstrap identity",
        Json(201, of::<IssuedBootstrap>),
    )
    .body(of::<IssueBootstrapRequest>)
    .errors(&[
        code::CSR_INVALID,
        code::BOOTSTRAP_TTL_INVALID,
        code::TOO_MANY_BOOTSTRAPS,
        code::ISSUER_UNAVAILABLE,
    ]),
    Route::new(
        Get,
        "/v1/ca/bootstrap",
        "list_bootstraps",
        "List bootstrap identities",
        Json(200, page::<BootstrapItem>),
    ),
    Route::new(Delete, "/v1/ca/bootstrap/{name}", "revoke_bootstrap", "Revoke a bootstrap identity", Empty)
        .errors(&[code::BOOTSTRAP_NOT_FOUND]),
    Route::new(Get, "/v1/ca/roll", "show_roll", "Show the progress of a roll", Json(200, of::<Roll>)),
    Route::new(
        Post,
        "/v1/ca/roll/prepare",
        "prepare_roll",
        "Begin a roll, or install the issuer's signed certificate",
        Json(200, of::<Roll>),
    )
    .body(of::<PrepareRollRequest>)
    .errors(&[code::ROLL_IN_PROGRESS, code::NO_ROLL, code::ISSUER_INVALID, code::ISSUER_UNAVAILABLE]),
    Route::new(
        Post,
        "/v1/ca/roll/activate",
        "activate_issuer",
        "Activate the prepared issuer",
        Json(200, of::<Ca>),
    )
    .body(of::<ActivateIssuerRequest>)
    .errors(&[
        code::NO_ROLL,
        code::ISSUER_NOT_FOUND,
        code::ISSUER_NOT_PREPARED,
        code::NOT_ADOPTED,
        code::ISSUER_UNAVAILABLE,
    ]),
    Route::new(
        Post,
        "/v1/ca/roll/retire",
        "retire_issuer",
        "Retire the previous issuers, and the previous root",
        Json(200, of::<Ca>),
    )
    .body(of::<RetireIssuer>)
    .errors(&[code::NO_ROLL, code::ISSUER_NOT_FOUND, code::ISSUER_IN_USE, code::ROOT_IN_USE]),
    Route::new(
        Post,
        "/v1/ca/roll/abandon",
        "abandon_roll",
        "Give up a roll that is not active yet",
        Json(200, of::<AbandonedRoll>),
    )
    .body(of::<AbandonRollRequest>)
    .errors(&[code::NO_ROLL]),
    Route::new(
        Post,
        "/v1/ca/lists",
        "import_root_list",
        "Import the revocation list of a root, by which hosts refuse issuers",
        Json(200, of::<Ca>),
    )
    .body(of::<ImportRootListRequest>)
    .errors(&[code::LIST_OLDER, code::LIST_INVALID]),
    Route::new(
        Post,
        "/v1/ca/issuers/{id}/revoke",
        "revoke_issuer",
        "Revoke an issuer and every certificate that it issued",
        Json(200, of::<Ca>),
    )
    .body(of::<RevokeIssuer>)
    .errors(&[code::ISSUER_NOT_FOUND]),
    Route::new(
        Post,
        "/v1/ca/step-ca",
        "change_step_ca",
        "Change how step-ca is asked; on the operator socket only",
        Json(200, of::<Ca>),
    )
    .body(of::<StepCaSettings>)
    .errors(&[code::LOCAL_ONLY, code::ISSUER_INVALID, code::TOO_MANY_ISSUERS]),
    Route::new(
        Post,
        "/v1/ca/rewrap",
        "rewrap_keys",
        "Seal every key under another key-encryption key; on the operator socket only",
        Json(200, of::<Rewrapped>),
    )
    .body(of::<RewrapRequest>)
    .errors(&[code::LOCAL_ONLY, code::ISSUER_UNAVAILABLE]),
    // Audit trail.
    Route::new(
        Get,
        "/v1/audit",
        "list_audit",
        "List audit lines, oldest first unless asked otherwise",
        Json(200, page::<AuditLine>),
    )
    .query(query::<AuditQuery>),
    Route::new(
        Get,
        "/v1/audit/export",
        "export_audit",
        "Export the audit trail",
        Text("application/jsonl", "Every line as JSON, the signed footer last."),
    ),
    Route::new(
        Get,
        "/v1/audit/verify",
        "verify_audit",
        "Verify the audit trail",
        Json(200, of::<AuditVerify>),
    ),
    // Operators and their automation.
    Route::new(Post, "/v1/operators", "add_operator", "Add an operator", Json(201, of::<AddedOperator>))
        .body(of::<AddOperatorRequest>)
        .errors(&[
            code::OPERATOR_EXISTS,
            code::TENANT_NOT_FOUND,
            code::CSR_INVALID,
            code::ISSUER_UNAVAILABLE,
        ]),
    Route::new(Get, "/v1/operators", "list_operators", "List operators", Json(200, page::<OperatorItem>))
        .query(query::<PageQuery>),
    Route::new(
        Post,
        "/v1/operators/renew",
        "renew_operator",
        "Renew the operator's own certificate",
        Json(200, of::<RenewedOperator>),
    )
    .body(of::<RenewOperatorRequest>)
    .errors(&[
        code::CSR_INVALID,
        code::KEY_IN_USE,
        code::TOO_MANY_CERTIFICATES,
        code::ISSUER_UNAVAILABLE,
    ]),
    Route::new(
        Delete,
        "/v1/operators/{name}",
        "remove_operator",
        "Remove an operator, and revoke the API keys that carry its name or that it made, by itself or with other keys",
        Json(200, of::<RemovedOperator>),
    )
        .errors(&[code::OPERATOR_NOT_FOUND]),
    Route::new(
        Post,
        "/v1/operator-keys",
        "create_operator_key",
        "Create an API key",
        Json(201, of::<CreatedKey>),
    )
    .body(of::<CreateOperatorKeyRequest>)
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
        "Watch nodes and alerts as they change",
        Text(
            "text/event-stream",
            "Server-sent events. `node`: `data` is a node as it is now, as in the list, whenever more of it has \
             changed than the time it was last seen, and in `at` the time of its newest change. `alert`: `data` is an alert as in the list, and in `event` \
             what has happened to it: `raised`, `acknowledged` or `cleared`.",
        ),
    ),
    // Replicas of the control plane.
    Route::new(
        Get,
        "/v1/cluster",
        "show_cluster",
        "Show the replicas as the one that answers sees them, with or without a majority",
        Json(200, of::<Cluster>),
    ),
    Route::new(
        Post,
        "/v1/cluster/tokens",
        "create_replica_token",
        "Create a token that lets one replica join",
        Json(201, of::<MintedReplicaToken>),
    )
    .body(of::<CreateReplicaTokenRequest>)
    .errors(&[
        code::TOKEN_TTL_TOO_LONG,
        code::TOKEN_TTL_TOO_SHORT,
        code::TOO_MANY_TOKENS,
        code::PEER_ADDRESS_IN_USE,
        code::ISSUER_UNAVAILABLE,
    ]),
    Route::new(
        Post,
        "/v1/cluster/join",
        "join_cluster",
        "Join as a replica, by the token in the body",
        Json(200, of::<JoinedCluster>),
    )
    .body(of::<JoinClusterRequest>)
    .errors(&[
        code::TOKEN_INVALID,
        code::TOKEN_EXPIRED,
        code::TOKEN_USED,
        code::KEK_WRONG,
        code::CSR_INVALID,
        code::PEER_ADDRESS_IN_USE,
        code::TOO_MANY_REPLICAS,
        code::ISSUER_UNAVAILABLE,
    ])
    .public(),
    Route::new(
        Post,
        "/v1/cluster/replicas/{id}/remove",
        "remove_replica",
        "Remove a replica for good",
        Json(200, of::<Cluster>),
    )
    .body(of::<RemoveReplicaRequest>)
    .errors(&[code::REPLICA_NOT_FOUND, code::WOULD_LOSE_MAJORITY, code::CONFIRMATION_NEEDED]),
    // The server itself.
    Route::new(
        Get,
        "/v1/server/clock",
        "show_clock",
        "Show the clock and how far it is believed",
        Json(200, of::<ServerClock>),
    ),
    Route::new(
        Post,
        "/v1/server/clock/accept",
        "accept_clock",
        "Take the clock to be right although it jumped; on the operator socket only",
        Json(200, of::<ServerClock>),
    )
    .body(of::<AcceptClockRequest>)
    .errors(&[code::LOCAL_ONLY, code::CONFIRMATION_NEEDED, code::CLOCK_BEHIND]),
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
        Text("application/openmetrics-text", "Metrics in the text format of OpenMetrics."),
    ),
    Route::new(Get, "/openapi.json", "openapi", "This document", Text("application/json", "OpenAPI 3.1."))
        .public(),
];

const REGISTERING: &[&code::Code] = &[
    code::MAC_INVALID,
    code::NODE_ALREADY_ENROLLED,
    code::HARDWARE_IDENTITY_CONFLICT,
    code::NODE_ID_IN_USE,
    code::VCLUSTER_NOT_FOUND,
    code::PROFILE_NOT_FOUND,
    code::TENANT_NOT_FOUND,
];

/// How an act on a node that must not be gone can fail.
const LIVING: &[&code::Code] = &[code::NODE_NOT_FOUND, code::NODE_REVOKED];

/// Something done to a node: done again it answers the same and changes nothing.
const fn act(path: &'static str, id: &'static str, summary: &'static str) -> Route {
    Route::new(Post, path, id, summary, Json(200, of::<NodeItem>))
}
