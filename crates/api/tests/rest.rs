//! The fields that scripts rely on: all there, null where there is nothing, nothing unknown accepted.
#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use api::agent::EndpointProfile;
use api::rest::alerts::{AlertChange, AlertEvent, AlertItem};
use api::rest::ca::{Ca, Roll};
use api::rest::cluster::{
    Cluster, CreateReplicaTokenRequest, JoinClusterRequest, JoinedCluster, MintedReplicaToken,
    RemoveReplicaRequest,
};
use api::rest::nodes::{
    Decommission, Drain, NodeDetail, NodeItem, NodeLiveness, Plainly, Quarantine, Revoke,
};
use api::rest::operators::{AddOperatorRequest, CreateOperatorKeyRequest};
use api::rest::policy::{PolicyItem, PolicyList};
use api::rest::tenants::CreateTenantRequest;
use api::rest::tokens::{CreateTokenRequest, TokenItem};
use lifecycle::host::Class;
use lifecycle::names::{
    AlertId, Fingerprint, IssuerId, IssuerUse, KeyHash, Label, Labels, NodeId, ProfileName, SecretHash,
    Serial, TenantId, Timestamp, TokenId, Ulid,
};
use lifecycle::registry::{
    Alert, AlertKind, Issuer, IssuerKind, IssuerRequest, IssuerState, Node, NodeState, PendingRoll, Report,
    Root, RootList, RootState, State, Tenants, Token, TokenState,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

fn fields(item: &impl Serialize) -> Vec<String> {
    let value = serde_json::to_value(item).expect("writes as JSON");
    let mut names: Vec<String> = value.as_object().expect("is an object").keys().cloned().collect();
    names.sort();
    names
}

fn sorted(words: &str) -> Vec<String> {
    let mut names: Vec<String> = words.split(", ").map(str::to_owned).collect();
    names.sort();
    names
}

fn node() -> Node {
    let id = NodeId::parse("n1").expect("a name");
    let (tenant, profile) = (TenantId::default_tenant(), ProfileName::default_profile());
    Node::registered(id, tenant, profile, Timestamp::from_secs(0))
}

fn token(state: TokenState) -> Token {
    Token {
        id: TokenId(Ulid::new(Timestamp::from_secs(1), [0; 10])),
        hash: SecretHash::new([9; 32]),
        tenant: TenantId::default_tenant(),
        node: None,
        profile: None,
        created_by: "local:root".to_owned(),
        created_at: Timestamp::from_secs(1),
        expires_at: Timestamp::from_secs(100),
        state,
        name: None,
        labels: Labels::default(),
        replace: false,
    }
}

const NODE: &str = "node_id, hostname, labels, tenant, state, draining, quarantined, vcluster, profile, macs, spiffe_id, cert_serial, \
                    cert_not_after, last_seen, connected, enrolled_at, generation, active_sessions, health, identity_provider, \
                    schedulable, excluded";

#[test]
fn a_node_has_every_field_even_when_nothing_is_known() {
    let state = State::default();
    assert_eq!(fields(&NodeItem::of(&state, &node(), &NodeLiveness::default())), sorted(NODE));
    let more = format!(
        "{NODE}, agent_version, hardware, overlay, drain_by, rotation_ordered_at, \
         bundle_version, stored_bundle_version, evidence, recovery, quarantine, ended, certificates, alerts, capability, \
         config, registered_by, sessions"
    );
    let detail = NodeDetail::of(&state, &node(), &NodeLiveness::default(), None);
    assert_eq!(fields(&detail), sorted(&more));
    let value = serde_json::to_value(&detail).expect("writes as JSON");
    assert_eq!(value.get("health"), Some(&json!({"reason": null, "since": null, "evidence": null})));
    assert_eq!(serde_json::from_value::<NodeDetail>(value).expect("reads back"), detail);
}

#[test]
fn a_sign_of_life_that_is_not_written_down_yet_counts() {
    let seen = |written: u64, live: u64| {
        let node = Node { last_seen: Some(Timestamp::from_secs(written)), ..node() };
        let live = NodeLiveness { last_seen: Some(Timestamp::from_secs(live)), ..NodeLiveness::default() };
        NodeItem::of(&State::default(), &node, &live).last_seen
    };
    let latest = Some(Timestamp::from_secs(9).to_string());
    assert_eq!((seen(3, 9), seen(9, 3)), (latest.clone(), latest));
}

fn detail_of(node: &Node, report: Report, profile: Option<&EndpointProfile>) -> NodeDetail {
    let live = NodeLiveness { report: Some(Arc::new(report)), connected: true, ..NodeLiveness::default() };
    NodeDetail::of(&State::default(), node, &live, profile)
}

#[test]
fn evidence_has_every_field_and_null_for_what_the_host_left_out() {
    let serial = Serial::parse("1f").ok();
    let said = Report { cert_serial: serial, clock_offset_ms: -7, ..Report::blank(Timestamp::from_secs(5)) };
    let detail = serde_json::to_value(detail_of(&node(), said, None)).expect("JSON");
    let expected = json!({
        "at": "1970-01-01T00:00:05Z", "class": null, "detail": null, "correlation_id": null, "cert_serial": "1f",
        "cert_not_after": null, "bundle_version": 0, "last_renewal": null, "last_recovery": null,
        "endpoint_profile_id": null, "terminal_url": null, "diagnostic_writable": null, "free_space": [],
        "clock_offset_ms": -7, "disk_free_bytes": 0, "recovery_ready": false, "drift_count": 0,
        "observability_pressure": false,
    });
    assert_eq!((detail.get("evidence"), detail.get("connected")), (Some(&expected), Some(&json!(true))));
}

#[test]
fn the_newest_word_of_a_host_is_shown_wherever_it_was_heard() {
    let said = |seconds, class| Report { class, ..Report::blank(Timestamp::from_secs(seconds)) };
    let shown = |written, heard| {
        let node = Node { report: Some(Arc::new(written)), ..node() };
        detail_of(&node, heard, None).evidence.and_then(|evidence| evidence.class)
    };
    assert_eq!(shown(said(5, Some(Class::DiskFull)), said(9, None)), None);
    assert_eq!(shown(said(9, Some(Class::DiskFull)), said(5, None)), Some("disk_full".to_owned()));
}

#[test]
fn the_terminal_is_named_only_for_the_profile_that_the_host_lives_by() {
    let profile = EndpointProfile {
        id: "east".to_owned(),
        terminal_url: "https://terminal.example".to_owned(),
        ..EndpointProfile::default()
    };
    let shown = |id: &str| {
        let id = Label::parse(id).ok();
        let said = Report { endpoint_profile_id: id, ..Report::blank(Timestamp::from_secs(5)) };
        detail_of(&node(), said, Some(&profile)).evidence.and_then(|evidence| evidence.terminal_url)
    };
    assert_eq!((shown("east"), shown("west")), (Some(profile.terminal_url.clone()), None));
}

#[test]
fn a_silent_node_is_as_ill_as_it_last_said_and_else_out_of_reach() {
    let reason = |said: Report| {
        let silent = Node { state: NodeState::Inactive, ..node() };
        let item = detail_of(&silent, said, None).item;
        assert!(!item.schedulable && item.excluded.first().is_some_and(|word| word == "inactive"));
        item.health.reason.expect("it is not well")
    };
    let blank = || Report::blank(Timestamp::from_secs(5));
    assert_eq!(reason(blank()), "endpoint_unreachable");
    assert_eq!(reason(Report { class: Some(Class::DiskFull), ..blank() }), "disk_full");
    assert_eq!(
        reason(Report { observability_pressure: true, ..blank() }),
        "node_observability_disk_pressure"
    );
}

#[test]
fn an_alert_event_is_the_alert_and_what_has_happened_to_it() {
    let alert = Alert {
        id: AlertId(Ulid::new(Timestamp::from_secs(1), [0; 10])),
        kind: AlertKind::EnrollmentStuck,
        node: None,
        since: Timestamp::from_secs(1),
        count: 1,
        detail: "x".to_owned(),
        acknowledged: false,
        again: None,
        acknowledged_at: None,
        tenant: None,
    };
    let item = "alert_id, kind, node_id, since, count, detail, acknowledged";
    assert_eq!(fields(&AlertItem::of(&alert)), sorted(item));
    let of_tenant = Alert { tenant: Some(TenantId::default_tenant()), ..alert.clone() };
    assert_eq!(fields(&AlertItem::of(&of_tenant)), sorted(&format!("{item}, tenant")));
    let event = AlertEvent::of(AlertChange::Raised, &alert);
    assert_eq!(fields(&event), sorted(&format!("event, {item}")));
    let (again, acknowledged) =
        (Alert { count: 2, ..alert.clone() }, Alert { acknowledged: true, ..alert.clone() });
    assert_eq!(AlertChange::between(&alert, &alert), None);
    assert_eq!(AlertChange::between(&alert, &again), Some(AlertChange::Raised));
    assert_eq!(AlertChange::between(&alert, &acknowledged), Some(AlertChange::Acknowledged));
}

#[test]
fn a_token_item_never_holds_its_value_or_hash() {
    let item = TokenItem::of(&token(TokenState::Unused), Timestamp::from_secs(2));
    let expected = "token_id, tenant, node, profile, labels, state, created_by, created_at, expires_at, used_at, used_by";
    assert_eq!(fields(&item), sorted(expected));
    assert_eq!(item.state, "unused");
    assert_eq!(TokenItem::of(&token(TokenState::Unused), Timestamp::from_secs(100)).state, "expired");
}

#[test]
fn a_burned_token_was_used_by_nobody() {
    let used = TokenState::Used { at: Timestamp::from_secs(3), node: None };
    let item = TokenItem::of(&token(used), Timestamp::from_secs(4));
    assert_eq!((item.used_at.as_deref(), item.used_by), (Some("1970-01-01T00:00:03Z"), None));
}

#[test]
fn policy_lists_every_key() {
    let list = PolicyList::of(&State::default().policy);
    assert!(list.items.contains(&PolicyItem { key: "token.max_ttl".to_owned(), value: "1d".to_owned() }));
}

#[test]
fn there_is_no_ca_before_the_domain_is_founded() {
    assert_eq!(Ca::of(&State::default(), &Tenants::All, |_| String::new()), None);
}

fn issuer(id: &str, usage: IssuerUse, state: IssuerState, root: u8) -> Issuer {
    Issuer {
        id: IssuerId::parse(id).expect("an id"),
        kind: IssuerKind::Sealed,
        state,
        subject: id.to_owned(),
        certificate: Vec::new(),
        fingerprint: Fingerprint::new([1; 32]),
        not_after: Timestamp::from_secs(100),
        sealed_key: vec![1],
        revoked_at: None,
        replica: None,
        usage,
        root: Some(Fingerprint::new([root; 32])),
        step_ca: None,
    }
}

fn root(state: RootState, number: u8) -> Root {
    Root {
        certificate: vec![number],
        fingerprint: Fingerprint::new([number; 32]),
        not_after: Timestamp::from_secs(100),
        state,
        cross_certificate: None,
        since_bundle: 0,
        retired_at: None,
    }
}

fn registry(issuers: Vec<Issuer>) -> State {
    let mut state = State { roots: vec![root(RootState::Active, 7)], ..State::default() };
    for issuer in issuers {
        state.issuers.insert(issuer.id.clone(), issuer);
    }
    state
}

fn roll(state: &State) -> Roll {
    Roll::of(state, &Tenants::All, |issuer| format!("5e{}", issuer.id))
}

/// Ids follow the certificates, and say nothing of the use.
#[test]
fn a_roll_names_issuers_of_nodes_first_and_each_use_once() {
    let of = |state: IssuerState| {
        let issuers = [("c3", IssuerUse::Node), ("a1", IssuerUse::Server), ("b2", IssuerUse::Node)];
        roll(&registry(issuers.map(|(id, usage)| issuer(id, usage, state, 7)).to_vec()))
    };
    for state in [IssuerState::Retiring, IssuerState::Prepared] {
        let shown = of(state);
        assert_eq!(shown.stage, state.as_str());
        assert_eq!(shown.issuers, ["b2", "c3", "a1"]);
        assert_eq!((shown.issuer.as_deref(), shown.uses), (Some("b2"), sorted("node, server")));
    }
}

/// The next roll may begin before the last one is over.
#[test]
fn a_pending_roll_does_not_hide_what_is_retiring() {
    let mut state = registry(vec![issuer("a1", IssuerUse::Node, IssuerState::Retiring, 7)]);
    state.roots.push(root(RootState::Retiring, 6));
    let request = IssuerRequest {
        usage: IssuerUse::Server,
        kind: IssuerKind::Pkcs11,
        key: KeyHash::new([1; 32]),
        request: "a request".to_owned(),
        sealed_key: vec![1],
    };
    state.pending_roll = Some(PendingRoll { requests: vec![request], new_root: false });
    let shown = roll(&state);
    assert_eq!((shown.stage.as_str(), shown.issuers.len()), ("requested", 0));
    assert_eq!((shown.uses, shown.kinds), (sorted("server"), sorted("pkcs11")));
    assert_eq!(shown.retiring, ["a1"]);
    assert_eq!(shown.retiring_root, Some(Fingerprint::new([6; 32]).pin()));
}

#[test]
fn a_roll_says_which_issuers_a_list_of_their_root_denies() {
    let issuers = vec![
        issuer("a1", IssuerUse::Server, IssuerState::Active, 7),
        issuer("b2", IssuerUse::Node, IssuerState::Active, 7),
        issuer("c3", IssuerUse::Node, IssuerState::Prepared, 7),
        issuer("d4", IssuerUse::Server, IssuerState::Prepared, 6),
        issuer("e5", IssuerUse::Server, IssuerState::Retiring, 7),
    ];
    let mut state = registry(issuers);
    state.roots.push(root(RootState::Prepared, 6));
    let denied = ["5ea1", "5ec3", "5ed4", "5ee5"].map(|serial| Serial::parse(serial).expect("a serial"));
    let list = RootList { number: 1, denied: denied.to_vec(), der: Vec::new() };
    state.lists.insert(Fingerprint::new([7; 32]), list);
    let shown = roll(&state);
    assert_eq!((shown.denied, shown.denied_uses), (vec!["a1".to_owned(), "c3".to_owned()], sorted("server")));
}

#[test]
fn what_an_operator_of_some_tenants_sees_says_so() {
    let state = registry(Vec::new());
    let shown = |tenants: &Tenants| Ca::of(&state, tenants, |_| String::new()).expect("a CA").all_tenants;
    assert!(shown(&Tenants::All));
    assert!(!shown(&Tenants::Only([TenantId::default_tenant()].into())));
}

#[test]
fn unknown_fields_in_requests_are_refused() {
    fn refuses<T: serde::de::DeserializeOwned>(mut request: Value) {
        assert!(serde_json::from_value::<T>(request.clone()).is_ok(), "{request}");
        if let Some(object) = request.as_object_mut() {
            object.insert("expire".to_owned(), json!("1h"));
        }
        assert!(serde_json::from_value::<T>(request.clone()).is_err(), "{request}");
    }
    refuses::<CreateTokenRequest>(json!({}));
    refuses::<CreateReplicaTokenRequest>(json!({"expires": "1h"}));
    refuses::<RemoveReplicaRequest>(json!({"force": true, "confirm": "2"}));
    refuses::<JoinClusterRequest>(joining());
    refuses::<Plainly>(json!({}));
    refuses::<Drain>(json!({"within": "10m"}));
    refuses::<Quarantine>(json!({"reason": "odd"}));
    refuses::<Revoke>(json!({}));
    refuses::<Decommission>(json!({"force": true}));
    refuses::<CreateTenantRequest>(json!({"name": "acme"}));
    refuses::<PolicyItem>(json!({"key": "a", "value": "b"}));
    refuses::<AddOperatorRequest>(json!({"name": "alice", "role": "viewer", "tenant": "acme"}));
    refuses::<CreateOperatorKeyRequest>(json!({"name": "ci", "role": "viewer", "tenant": ["a", "b"]}));
}

fn joining() -> Value {
    json!({
        "token": "join_0", "csr_pem": "-----BEGIN", "kek_id": "k1", "peer": "192.0.2.2:8444",
        "urls": ["https://192.0.2.2:8443"], "version": "0.1.0",
    })
}

#[test]
fn every_field_of_a_cluster_is_written_and_null_where_nothing_is_known() {
    let replica = json!({
        "replica_id": "2", "role": "learner", "voter": false, "url": null, "peer": "192.0.2.2:8444",
        "health": "unreachable", "lag": null, "applied": null, "audit_seq": null, "audit_head": null,
        "clock_offset_ms": null, "version": null,
    });
    let cluster = json!({
        "replica_id": "1", "cluster_id": "01ARYZ6S41TSV4RRFFQ69G5FAV", "domain": "fleet.example", "epoch": 1,
        "term": 7, "leader": null, "quorum": false, "reasons": [], "feature_level": 1, "state_age_ms": 31_000,
        "replicas": [replica],
    });
    let read: Cluster = serde_json::from_value(cluster.clone()).expect("reads");
    assert_eq!(serde_json::to_value(&read).expect("writes"), cluster);
}

#[test]
fn a_request_to_remove_a_replica_needs_nothing() {
    let request: RemoveReplicaRequest = serde_json::from_value(json!({})).expect("reads");
    assert_eq!(request, RemoveReplicaRequest::default());
    assert_eq!(serde_json::to_value(&request).expect("writes"), json!({}));
}

#[test]
fn the_token_of_a_replica_is_written_and_never_printed() {
    let minted = json!({
        "token_id": "01", "token": "join_secret", "expires_at": "2027-01-15T09:00:00Z", "ca_pin": "sha256:00",
        "peer_url": "https://192.0.2.1:8444", "join_command": "enlist server join --token join_secret",
    });
    let read: MintedReplicaToken = serde_json::from_value(minted.clone()).expect("reads");
    assert_eq!(serde_json::to_value(&read).expect("writes"), minted);
    assert!(!format!("{read:?}").contains("join_secret"));
    let asked: JoinClusterRequest = serde_json::from_value(joining()).expect("reads");
    assert!(!format!("{asked:?}").contains("join_0"));
}

#[test]
fn a_replica_that_joined_is_told_who_the_others_are() {
    let joined = json!({
        "replica_id": "2", "domain": "fleet.example", "cluster_id": "01ARYZ6S41TSV4RRFFQ69G5FAV", "epoch": 1,
        "cert_pem": "-----BEGIN", "ca_pem": "-----BEGIN", "log_key_sealed": "00ff", "kek_id": "k1", "needs_hsm": false,
        "replicas": [{"replica_id": "1", "peer": "192.0.2.1:8444"}, {"replica_id": "2", "peer": "192.0.2.2:8444"}],
    });
    let read: JoinedCluster = serde_json::from_value(joined.clone()).expect("reads");
    assert_eq!(serde_json::to_value(&read).expect("writes"), joined);
}
