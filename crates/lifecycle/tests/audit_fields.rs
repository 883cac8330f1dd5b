//! What the audit lines say, by name, as people outside read them. Fields are in the order of the line;
//! time, actor, source and ids are added where the line is written.

use crate::support::{
    Domain, Enrolled, Minted, NODE, ROOT, START, activate, check, confirm_failed, confirm_keeping, contact,
    create_replica_token, create_tenant, enroll, granted, issuer, local, only, operator, refused_with,
    remove_replica, replica, revoke, set_policy, span,
};
use lifecycle::names::{Fingerprint, KeyHash, Label, Labels, ProfileName, ReplicaId, Source, Title};
use lifecycle::registry::{
    AcceptRollback, Actor, AlertKind, AuditGap, AuditSink, Change, Checkpoint, Claim, Command,
    CorroborateClock, Describe, Event, ForwardingGapCause, Import, ImportRootList, IssueRepairBundle, Issuer,
    IssuerKind, NodeSigner, RaiseAlert, Refusals, RefusedRecovery, RefusedRenewal, Register, Relabel, Rewrap,
    Role, RootList, ServerCertificate, SkipForwarding, Tenants, Underlay,
};
use lifecycle::registry::{Confirmation, event};
use serde_json::{Value, json};

/// The line of an event, as an object.
fn line(event: &Event) -> Value {
    let fields = event.fields();
    let count = fields.len();
    let line: serde_json::Map<String, Value> = fields
        .into_iter()
        .map(|(name, field)| (name.to_owned(), serde_json::to_value(field).unwrap()))
        .collect();
    assert_eq!(line.len(), count, "a name stands twice in {line:?}");
    Value::Object(line)
}

#[track_caller]
fn says(domain: &mut Domain, when: (Actor, Command), name: &'static str, expected: Value) {
    let applied = domain.give(when.0, when.1);
    let event = applied.events.iter().find(|event| event.name() == name).unwrap();
    assert_eq!(line(event), expected);
}

#[test]
fn a_founded_domain_names_its_root_and_its_issuer() {
    let mut domain = Domain::unfounded();
    let command = domain.found();
    let Command::InitializeDomain(found) = &command else { unreachable!() };
    let expected = json!({
        "domain": "fleet.example",
        "cluster_id": found.cluster.to_string(),
        "root_fingerprint": format!("SHA256:{}", found.root_fingerprint.hex()),
        "issuer": "i1",
        "issuer_fingerprint": format!("SHA256:{}", found.issuer.fingerprint.hex()),
    });
    says(&mut domain, (local(), command), "domain.founded", expected);
}

#[test]
fn a_created_token_names_its_id_its_maker_and_its_end() {
    let mut domain = Domain::founded();
    let alice = domain.operator("alice", Role::Operator, Tenants::All);
    let create = domain.token_request();
    let expected = json!({
        "token_id": create.token.to_string(),
        "created_by": "user:alice",
        "expires_at": "2027-01-15T09:00:00Z",
        "tenant": "default",
        "pinned_node": null,
        "profile": null,
    });
    says(&mut domain, (alice, Command::CreateToken(create)), "enrollment_token.created", expected);
    assert_eq!(START.to_string(), "2027-01-15T08:00:00Z");
}

#[test]
fn a_revoked_or_expired_token_names_its_id() {
    let mut domain = Domain::founded();
    let (revoked, expired) = (domain.mint(), domain.mint());
    let revoke = (local(), Command::RevokeToken { token: revoked.id });
    let expected = json!({ "token_id": revoked.id.to_string() });
    says(&mut domain, revoke, "enrollment_token.revoked", expected);
    domain.pass(span("1h"));
    let expected = json!({ "token_id": expired.id.to_string() });
    says(&mut domain, (Actor::Reconciler, Command::Tidy), "enrollment_token.expired", expected);
}

#[test]
fn an_enrolled_host_names_token_endpoint_and_fingerprints() {
    let mut domain = Domain::founded();
    let (token, wireguard) = (domain.mint_pinned(&crate::support::node("rack-7")), domain.wireguard());
    let mut request = domain.request(token);
    request.wireguard = Some(wireguard);
    request.underlay =
        Some(Underlay { ipv6: "2001:db8::7".parse().ok(), ipv4: "192.0.2.7".parse().ok(), port: 51820 });
    let request = domain.prepare(request);
    let certificate = request.prepared.clone().unwrap().certificate;
    let expected = json!({
        "host_id": "rack-7",
        "node_id": "rack-7",
        "token_id": token.id.to_string(),
        "enrolled_by": "system:enrollment-service",
        "tenant": "default",
        "profile": "default",
        "underlay_endpoint": "[2001:db8::7]:51820",
        "wireguard_pubkey_fingerprint": format!("SHA256:{}", wireguard.fingerprint.hex()),
        "mtls_cert_fingerprint": format!("SHA256:{}", certificate.fingerprint.hex()),
        "cert_serial": certificate.serial.as_str(),
        "spiffe_id": "spiffe://fleet.example/tenant/default/agent/rack-7",
        "not_after": "2027-01-16T08:00:00Z",
        "denied_serials": [],
    });
    says(&mut domain, enroll(request), "host.enrolled", expected);
}

#[test]
fn what_an_enrollment_lacks_is_null_and_what_it_denies_is_listed() {
    let mut domain = Domain::founded();
    let first = domain.enroll();
    let token = domain.mint_pinned(&first.node);
    let request = domain.request(token);
    let request = domain.prepare(request);
    let events = check(&mut domain, enroll(request), granted(&["host.enrolled"]));
    let line = line(&events[0]);
    assert_eq!(line["underlay_endpoint"], Value::Null);
    assert_eq!(line["wireguard_pubkey_fingerprint"], Value::Null);
    assert_eq!(line["denied_serials"], json!([first.serial.as_str()]));
}

#[test]
fn an_endpoint_without_ipv6_is_written_with_ipv4() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let mut request = domain.request(token);
    request.underlay = Some(Underlay { ipv6: None, ipv4: "192.0.2.7".parse().ok(), port: 51820 });
    let request = domain.prepare(request);
    let events = check(&mut domain, enroll(request), granted(&["host.enrolled"]));
    assert_eq!(line(&events[0])["underlay_endpoint"], "192.0.2.7:51820");
}

#[test]
fn a_burned_token_and_a_counted_refusal_read_alike() {
    let mut domain = Domain::founded();
    let wireguard = domain.wireguard();
    let (first, second) = (domain.mint(), domain.mint());
    domain.enroll_with(first, |request| request.wireguard = Some(wireguard));
    let mut request = domain.request(second);
    request.wireguard = Some(wireguard);
    let burned =
        check(&mut domain, enroll(request), refused_with("wireguard_key_in_use", &["enrollment.refused"]));
    let refusals = Refusals {
        reason: "token_invalid".to_owned(),
        network: Some(Source::Address([192, 0, 2, 0].into())),
        count: 7,
        samples: vec!["rack-7".to_owned()],
        recovery: None,
        alert: None,
        renewal: None,
    };
    let expected = json!({
        "reason": "token_invalid",
        "network": "192.0.2.0",
        "count": 7,
        "samples": ["rack-7"],
    });
    let when = (Actor::Reconciler, Command::RecordRefusals(refusals));
    says(&mut domain, when, "enrollment.refused", expected);
    for name in ["reason", "count", "samples"] {
        assert!(line(&burned[0]).get(name).is_some(), "{name}");
    }
}

#[test]
fn a_refused_renewal_names_the_node_and_its_certificate() {
    let mut domain = Domain::founded();
    let node = domain.active();
    for known in [true, false] {
        let renewal = RefusedRenewal {
            node: known.then(|| node.node.clone()),
            serial: known.then(|| node.serial.clone()),
        };
        let refusals = Refusals {
            reason: "csr_invalid".to_owned(),
            network: None,
            count: 4,
            samples: vec!["attempt-1".to_owned()],
            recovery: None,
            renewal: Some(renewal),
            alert: None,
        };
        let expected = json!({
            "node_id": known.then(|| node.node.as_str()),
            "cert_serial": known.then(|| node.serial.as_str()),
            "reason": "csr_invalid",
            "count": 4,
            "samples": ["attempt-1"],
        });
        let when = (Actor::Reconciler, Command::RecordRefusals(refusals));
        says(&mut domain, when, "certificate.refused", expected);
    }
}

#[test]
fn every_line_about_a_host_has_both_of_its_names() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let (id, serial) = (enrolled.node.as_str(), enrolled.serial.as_str());
    let confirm = || (enrolled.actor(), crate::support::confirm_ok(&enrolled.node));
    let both = json!({ "host_id": id, "node_id": id });
    let with_serial = json!({ "host_id": id, "node_id": id, "cert_serial": serial });
    says(&mut domain.clone(), confirm(), "host.confirmed", with_serial);
    says(&mut domain, confirm(), "host.active", both);
}

#[test]
fn an_alert_names_its_kind_its_node_and_the_reason() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let when = (enrolled.actor(), confirm_failed(&enrolled.node, "disk full"));
    let events = check(&mut domain, when, granted(&["alert.raised"]));
    let alert = domain.state.alerts.values().next().unwrap();
    let expected = json!({
        "alert_id": alert.id.to_string(),
        "kind": "enrollment_not_persisted",
        "node_id": enrolled.node.as_str(),
        "detail": "disk full",
    });
    assert_eq!(line(&events[0]), expected);
}

#[test]
fn operators_and_keys_are_told_with_role_and_tenants() {
    let mut domain = Domain::founded();
    says(&mut domain, (local(), create_tenant("acme")), "tenant.created", json!({ "tenant": "acme" }));
    let add = domain.add_operator("alice", Role::PlatformAdmin, Tenants::All);
    let Command::AddOperator(certificate) = &add else { unreachable!() };
    let serial = certificate.certificate.clone().unwrap().serial;
    let expected = json!({ "operator": "alice", "role": "platform-admin", "tenants": "*", "cert_serial": serial.as_str() });
    says(&mut domain, (local(), add), "operator.added", expected);
    let create = domain.key_request(Role::Viewer, only(&["acme", "default"]));
    let key = create.key;
    let expected = json!({
        "key_id": key.to_string(),
        "operator": "robot",
        "role": "viewer",
        "tenants": ["acme", "default"],
        "expires_at": "2027-01-16T08:00:00Z",
    });
    says(&mut domain, (local(), Command::CreateOperatorKey(create)), "operator_key.created", expected);
    let expected = json!({ "key_id": key.to_string(), "operator": "robot" });
    says(&mut domain, (local(), Command::RevokeOperatorKey { key }), "operator_key.revoked", expected);
    let renew = domain.renew_operator("alice");
    let Command::RenewOperator(renewal) = &renew else { unreachable!() };
    let new = renewal.certificate.clone();
    let alice = |serial: &lifecycle::names::Serial| Actor::Operator {
        name: operator("alice"),
        serial: serial.clone(),
    };
    let expected = json!({
        "operator": "alice",
        "cert_serial": new.serial.as_str(),
        "mtls_cert_fingerprint": new.fingerprint.labelled(),
        "issuer": "i1",
        "not_after": new.not_after.to_string(),
        "with_serial": serial.as_str(),
        "denied_serials": [],
    });
    says(&mut domain, (alice(&serial), renew), "operator.renewed", expected);
    let first_use = Command::UseRenewedCertificate { name: operator("alice") };
    let expected =
        json!({ "operator": "alice", "cert_serial": serial.as_str(), "replaced_by": new.serial.as_str() });
    says(&mut domain, (alice(&new.serial), first_use), "operator.certificate_replaced", expected);
    let remove = (local(), Command::RemoveOperator { name: operator("alice"), keys_made: true });
    says(&mut domain, remove, "operator.removed", json!({ "operator": "alice" }));
}

#[test]
fn policy_tells_the_key_and_both_values() {
    let mut domain = Domain::founded();
    let expected = json!({ "key": "token.max_ttl", "old": "1d", "new": "2h" });
    says(&mut domain, (local(), set_policy("token.max_ttl", "2h")), "policy.changed", expected);
    let expected = json!({ "key": "profile.gpu.lifetime", "old": null, "new": "2h" });
    says(&mut domain, (local(), set_policy("profile.gpu.lifetime", "2h")), "policy.changed", expected);
}

#[test]
fn housekeeping_has_lines_of_its_own() {
    let mut domain = Domain::founded();
    let (fingerprint, head) = (Fingerprint::new(domain.digest()), Fingerprint::new(domain.digest()));
    let (serial, not_after) = (domain.serial(), START.plus(span("90d")));
    let expected = json!({
        "cert_serial": serial.as_str(),
        "cert_fingerprint": format!("SHA256:{}", fingerprint.hex()),
        "issuer": "i1",
        "not_after": "2027-04-15T08:00:00Z",
    });
    let certificate =
        ServerCertificate { serial, fingerprint, issuer: issuer("i1"), not_after, replica: ReplicaId::FIRST };
    let when = (Actor::Reconciler, Command::RecordServerCertificate(certificate));
    says(&mut domain, when, "server_certificate.issued", expected);
    let checkpoint = Checkpoint { seq: 9, head, signature: vec![0x01, 0xfe] };
    let expected = json!({ "checkpoint_seq": 9, "checkpoint_head": head.hex(), "signature": "01fe" });
    says(
        &mut domain,
        (Actor::Reconciler, Command::RecordCheckpoint(checkpoint)),
        "audit.checkpoint",
        expected,
    );
    let gap = AuditGap { from: 3, to: 5, refilled: true };
    let expected = json!({ "from": 3, "to": 5, "refilled": true });
    says(&mut domain, (Actor::Reconciler, Command::RecordAuditGap(gap)), "audit.gap", expected);
    let (sink, cause) = (AuditSink::Loki, ForwardingGapCause::Configured);
    let expected = json!({ "sink": "loki", "from": 1, "to": 5, "cause": "configured" });
    let when = (Actor::Reconciler, Command::SkipForwarding(SkipForwarding { sink, to: 5, cause }));
    says(&mut domain, when, "audit.forwarding_gap", expected);
    let accept = AcceptRollback { directory_seq: 7, anchor_seq: None, voids_recovery: true };
    let expected = json!({ "directory_seq": 7, "anchor_seq": null });
    says(
        &mut domain,
        (Actor::Reconciler, Command::AcceptRollback(accept)),
        "directory.rollback_accepted",
        expected,
    );
    domain.key(Role::Viewer, Tenants::All);
    domain.pass(span("31d"));
    let expected = json!({ "tokens": 0, "certificates": 0, "keys": 1, "issuers": [] });
    says(&mut domain, (Actor::Reconciler, Command::Tidy), "registry.tidied", expected);
}

#[test]
fn a_renewal_names_both_serials_and_what_it_denies() {
    let mut domain = Domain::founded();
    let old = domain.active();
    let lost = domain.renew(&old);
    let renewal = domain.renewal(&old.node, KeyHash::new([7; 32]));
    let certificate = renewal.prepared.clone().unwrap();
    let expected = json!({
        "node_id": old.node.as_str(),
        "cert_serial": certificate.serial.as_str(),
        "mtls_cert_fingerprint": format!("SHA256:{}", certificate.fingerprint.hex()),
        "issuer": "i1",
        "not_after": "2027-01-16T08:00:00Z",
        "with_serial": old.serial.as_str(),
        "denied_serials": [lost.serial.as_str()],
    });
    let renew = (old.actor(), Command::Renew(Box::new(renewal)));
    says(&mut domain, renew, "certificate.renewed", expected);
    let new = Enrolled { serial: certificate.serial, ..old.clone() };
    let expected = json!({
        "node_id": old.node.as_str(),
        "cert_serial": old.serial.as_str(),
        "superseded_by": new.serial.as_str(),
        "until": "2027-01-15T08:10:00Z",
    });
    says(&mut domain, contact(&new), "certificate.superseded", expected);
}

#[test]
fn what_is_done_to_a_host_names_it_and_says_why() {
    let mut domain = Domain::founded();
    let host = domain.active();
    let (id, node) = (host.node.as_str(), || host.node.clone());
    let with = |name: &str, value: Value| {
        let mut line = json!({ "host_id": id, "node_id": id });
        line[name] = value;
        line
    };
    let both = json!({ "host_id": id, "node_id": id });
    domain.silence(&host.node);
    let line = |events: &[Event]| line(&events[0]);
    let last_seen = with("last_seen", json!("2027-01-15T08:00:00Z"));
    assert_eq!(
        line(&[Event::NodeInactive(event::NodeInactive { node: node(), last_seen: Some(START) })]),
        last_seen
    );
    let rotate = domain.give(local(), Command::Rotate { node: node() }).events;
    let order = domain.state.nodes[&host.node].rotation.as_ref().unwrap().order;
    assert_eq!(line(&rotate), json!({ "node_id": id, "order_id": order.to_string() }));
    let quarantine = Command::Quarantine { node: node(), reason: "odd".to_owned() };
    for (command, name, expected) in [
        (
            Command::Drain { node: node(), within: Some(span("30m")) },
            "host.draining",
            with("drain_by", json!("2027-01-15T08:35:00Z")),
        ),
        (Command::Undrain { node: node() }, "host.undrained", both.clone()),
        (quarantine, "host.quarantined", with("reason", json!("odd"))),
        (Command::Release { node: node() }, "host.released", both),
        (
            Command::Decommission { node: node(), force: false },
            "host.decommissioned",
            with("denied_serials", json!([host.serial.as_str()])),
        ),
        (
            Command::Reinstate { node: node(), as_registered: true },
            "host.reinstated",
            with("generation", json!(2)),
        ),
    ] {
        says(&mut domain, (local(), command), name, expected);
    }
    let other = domain.enroll();
    let id = other.node.as_str();
    let expected = json!({
        "host_id": id,
        "node_id": id,
        "revoked_by": "local:root",
        "reason": "stolen",
        "denied_serials": [other.serial.as_str()],
    });
    says(&mut domain, (local(), revoke(&other.node)), "host.revoked", expected);
}

#[test]
fn a_roll_names_issuers_and_never_a_key() {
    let mut domain = Domain::founded();
    domain.active();
    let prepare = domain.roll_request();
    let expected = json!({ "key_hash": prepare.key.hex() });
    says(&mut domain, (local(), Command::PrepareRoll(prepare)), "ca.requested", expected);
    let next = domain.next_issuer("i2");
    let expected = json!({
        "issuer": "i2",
        "issuer_fingerprint": format!("SHA256:{}", next.fingerprint.hex()),
        "subject": "CN=i2",
        "not_after": "2028-01-15T08:00:00Z",
    });
    says(&mut domain, (local(), Command::CertifyRoll(Box::new(next))), "ca.prepared", expected);
    let expected = json!({ "issuer": "i2", "before": "i1", "forced": true });
    says(&mut domain, (local(), activate("i2", true)), "ca.activated", expected);
    let sealed = |name: &str| (issuer(name), b"anew".to_vec().into());
    let mut step_ca = Domain::step_ca();
    let mut new = step_ca.new_step_ca();
    new.issuer.id = issuer("c2");
    let expected = json!({
        "step_ca": "c2",
        "step_ca_fingerprint": new.issuer.fingerprint.labelled(),
        "step_ca_url": "https://ca.example",
        "step_ca_provisioner": "enlist",
        "step_ca_key_id": "k1",
        "before": "c1",
    });
    says(&mut step_ca, (local(), Command::ChangeStepCa(Box::new(new))), "ca.step_ca_changed", expected);
    let rewrap = Rewrap {
        issuers: vec![sealed("i1"), sealed("i2")],
        audit: b"anew".to_vec(),
        roll: None,
        pending: Vec::new(),
    };
    let expected = json!({ "issuers": ["i1", "i2"] });
    says(&mut domain, (local(), Command::Rewrap(rewrap)), "ca.rewrapped", expected);
    let revoke = Command::RevokeIssuer {
        issuer: issuer("i1"),
        reason: "lost".to_owned(),
        confirm: Confirmation::NotAsked,
        asks_for_holders: false,
    };
    let expected = json!({ "issuer": "i1", "reason": "lost", "leaves": 1 });
    says(&mut domain, (local(), revoke), "ca.revoked", expected);
    domain.roll("i3");
    let retire = Command::RetireIssuer { issuer: issuer("i2"), also: Vec::new() };
    says(&mut domain, (local(), retire), "ca.retired", json!({ "issuer": "i2" }));
}

#[test]
fn a_domain_with_two_issuers_names_both() {
    let mut domain = Domain::unfounded();
    let command = domain.found_divided(NodeSigner::DomainIssuer);
    let Command::InitializeDomain(found) = &command else { unreachable!() };
    let server = found.server_issuer.as_ref().unwrap();
    let expected = json!({
        "domain": "fleet.example",
        "cluster_id": found.cluster.to_string(),
        "root_fingerprint": format!("SHA256:{}", found.root_fingerprint.hex()),
        "issuer": "n1",
        "issuer_fingerprint": format!("SHA256:{}", found.issuer.fingerprint.hex()),
        "server_issuer": "s1",
        "server_issuer_fingerprint": format!("SHA256:{}", server.fingerprint.hex()),
    });
    says(&mut domain, (local(), command), "domain.founded", expected);
}

#[test]
fn a_roll_of_everything_names_uses_issuers_and_roots() {
    let mut domain = Domain::divided();
    domain.active();
    let labelled = |fingerprint: Fingerprint| format!("SHA256:{}", fingerprint.hex());
    let old = domain.state.roots[0].fingerprint;
    let roll = domain.pending_roll(ROOT);
    let hashes: Vec<String> = roll.requests.iter().map(|request| request.key.hex()).collect();
    let expected = json!({ "key_hashes": hashes, "uses": ["node", "server"], "new_root": true });
    says(&mut domain, (local(), Command::BeginRoll(roll)), "ca.requested", expected);
    let answer = domain.roll_answer(2);
    let new = answer.root.as_ref().unwrap().fingerprint;
    let applied = domain.give(local(), Command::AnswerRoll(Box::new(answer.clone())));
    let lines: Vec<Value> = applied.events.iter().map(line).collect();
    let issuer_line = |place: usize, name: &str, usage: &str| {
        json!({
            "issuer": name,
            "issuer_fingerprint": labelled(answer.issuers[place].fingerprint),
            "subject": format!("CN={name}"),
            "not_after": "2028-01-15T08:00:00Z",
            "use": usage,
            "kind": "sealed",
        })
    };
    let root = json!({ "root_fingerprint": labelled(new), "not_after": "2037-01-12T08:00:00Z" });
    assert_eq!(lines, [root, issuer_line(0, "n2", "node"), issuer_line(1, "s2", "server")]);
    let activate = domain.activate_all(true);
    let applied = domain.give(local(), activate);
    let lines: Vec<Value> = applied.events.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            json!({ "root_fingerprint": labelled(new), "before": labelled(old) }),
            json!({ "issuer": "n2", "before": "n1", "forced": true }),
            json!({ "issuer": "s2", "before": "s1", "forced": true }),
        ]
    );
    let list = RootList { number: 7, denied: vec![domain.serial()], der: b"list".to_vec() };
    let expected = json!({
        "root_fingerprint": labelled(old),
        "number": 7,
        "denied_serials": [list.denied[0].as_str()],
        "issuers": ["s1"],
    });
    let (issuers, confirm) = (vec![issuer("s1")], Confirmation::NotAsked);
    let import = Command::ImportRootList(Box::new(ImportRootList {
        root: old,
        list,
        issuers,
        confirm,
        asks_for_nodes: false,
    }));
    says(&mut domain, (local(), import), "ca.list_imported", expected);
    let retire = Command::RetireRoot {
        root: old,
        force: true,
        confirm: Confirmation::NotAsked,
        counts_operators: false,
    };
    let expected = json!({ "root_fingerprint": labelled(old), "forced": true, "left_behind": 1 });
    says(&mut domain.clone(), (local(), retire), "ca.root_retired", expected);
    let confirm = Confirmation::Asked(Some(old.pin()));
    let retire = |counts_operators| {
        let confirm = confirm.clone();
        (local(), Command::RetireRoot { root: old, force: true, confirm, counts_operators })
    };
    let mut expected = json!({
        "root_fingerprint": labelled(old),
        "forced": true,
        "left_behind": 1,
        "without_new_root": 1,
    });
    says(&mut domain.clone(), retire(false), "ca.root_retired", expected.clone());
    expected["operators_left_behind"] = json!(0);
    says(&mut domain, retire(true), "ca.root_retired", expected);
}

#[test]
fn an_abandoned_roll_names_what_is_forgotten() {
    let mut domain = Domain::divided();
    domain.begin_roll(NODE);
    let expected = json!({ "issuers": [], "root_fingerprint": null });
    says(&mut domain, (local(), Command::AbandonRoll), "ca.abandoned", expected);
    domain.prepare_roll(ROOT, 2);
    let root = format!("SHA256:{}", domain.state.roots[1].fingerprint.hex());
    let expected = json!({ "issuers": ["n2", "s2"], "root_fingerprint": root });
    says(&mut domain, (local(), Command::AbandonRoll), "ca.abandoned", expected);
}

#[test]
fn an_import_names_what_was_taken_in() {
    let mut domain = Domain::founded();
    let brought = Issuer { kind: IssuerKind::Imported, ..domain.state.issuers[&issuer("i1")].clone() };
    domain.state.issuers.insert(issuer("i1"), brought);
    let import = Import {
        node: crate::support::node("dev-worker-001"),
        serial: domain.serial(),
        fingerprint: Fingerprint::new(domain.digest()),
        key: KeyHash::new(domain.digest()),
        issuer: issuer("i1"),
        not_before: START,
        not_after: START.plus(span("7d")),
    };
    let expected = json!({
        "host_id": "dev-worker-001",
        "node_id": "dev-worker-001",
        "tenant": "default",
        "profile": "taskrun",
        "mtls_cert_fingerprint": format!("SHA256:{}", import.fingerprint.hex()),
        "cert_serial": import.serial.to_string(),
        "issuer": "i1",
        "not_after": "2027-01-22T08:00:00Z",
    });
    says(&mut domain, (local(), Command::Import(Box::new(import))), "host.imported", expected);
}

#[test]
fn an_alert_that_ends_is_told_with_its_kind_and_node() {
    let mut domain = Domain::founded();
    let raise = RaiseAlert { kind: AlertKind::IssuerExpiring, node: None, detail: "30 d".to_owned() };
    check(&mut domain, (Actor::Reconciler, Command::RaiseAlert(raise)), granted(&["alert.raised"]));
    let alert = *domain.state.alerts.keys().next().unwrap();
    let expected = json!({ "alert_id": alert.to_string(), "kind": "issuer_expiring", "node_id": null });
    let acknowledge = (local(), Command::AcknowledgeAlert { alert, dated: true });
    says(&mut domain, acknowledge, "alert.acknowledged", expected.clone());
    says(&mut domain, (Actor::Reconciler, Command::ClearAlert { alert }), "alert.cleared", expected);
}

#[test]
fn a_registered_host_names_its_token_and_what_it_is() {
    let mut domain = Domain::founded();
    let token = domain.mint_with(|create| create.name = Title::parse("Edge 1").ok());
    let register = Command::Register(Register {
        node: crate::support::node("c1"),
        claim: Claim::Token(token.hash),
        profile: ProfileName::parse("probectl").ok(),
        plane: Label::parse("flow").ok(),
        hostname: Label::parse("edge-1").ok(),
    });
    let expected = json!({
        "host_id": "c1",
        "node_id": "c1",
        "tenant": "default",
        "profile": "probectl",
        "token_id": token.id.to_string(),
        "name": "Edge 1",
        "hostname": "edge-1",
        "plane": "flow",
    });
    says(&mut domain, (Actor::Stranger, register), "host.registered", expected);
}

#[test]
fn a_described_host_names_all_that_it_is_called() {
    let mut domain = Domain::founded();
    let node = domain.enroll().node;
    let labels = [("site".to_owned(), "lon".to_owned()), ("a".to_owned(), String::new())];
    let describe = Command::Describe(Describe {
        node: node.clone(),
        name: Change::Set(Title::parse("Rack 7").unwrap()),
        labels: Change::Set(Labels::parse(labels.into()).unwrap()),
        relabel: Relabel::default(),
    });
    let expected = json!({
        "host_id": node.to_string(),
        "node_id": node.to_string(),
        "name": "Rack 7",
        "labels": ["a=", "site=lon"],
    });
    says(&mut domain, (local(), describe), "host.described", expected);
}

#[test]
fn a_recovery_names_node_token_and_certificate_and_never_the_secret() {
    let mut domain = Domain::founded();
    let node = domain.enroll();
    let mint = domain.drawn();
    let expected = json!({
        "node_id": node.node.as_str(),
        "recovery_token_id": mint.token.to_string(),
        "expires_at": "2027-04-15T08:00:00Z",
    });
    says(&mut domain, confirm_keeping(&node, None, Some(mint)), "recovery_token.rotated", expected);
    let expected = json!({ "node_id": node.node.as_str(), "recovery_token_id": mint.token.to_string() });
    says(&mut domain, confirm_keeping(&node, Some(mint.token), None), "recovery_token.kept", expected);
    domain.pass(span("25h"));
    let request = domain.recovery(mint.hash);
    let certificate = request.prepared.clone().unwrap().certificate;
    let applied = domain.give(Actor::Stranger, Command::Recover(Box::new(request)));
    let requested = json!({
        "node_id": node.node.as_str(),
        "recovery_token_id": mint.token.to_string(),
        "class": "cert_expired",
        "repair": false,
    });
    let issued = json!({
        "node_id": node.node.as_str(),
        "recovery_token_id": mint.token.to_string(),
        "cert_serial": certificate.serial.as_str(),
        "mtls_cert_fingerprint": format!("SHA256:{}", certificate.fingerprint.hex()),
        "issuer": "i1",
        "not_after": certificate.not_after.to_string(),
        "denied_serials": [node.serial.as_str()],
    });
    assert_eq!(applied.events.iter().map(line).collect::<Vec<_>>(), [requested, issued]);
    let back = Enrolled { serial: certificate.serial.clone(), ..node };
    let expected = json!({ "node_id": back.node.as_str(), "cert_serial": certificate.serial.as_str() });
    says(&mut domain, contact(&back), "recovery.resolved", expected);
}

#[test]
fn a_repair_bundle_and_a_refused_recovery_name_the_node() {
    let mut domain = Domain::founded();
    let (node, mint) = (domain.active(), domain.drawn());
    let profile = Label::parse("site-a").unwrap();
    let issue = IssueRepairBundle { node: node.node.clone(), mint, ttl: None, profile, endpoint: None };
    let expected = json!({
        "node_id": node.node.as_str(),
        "recovery_token_id": mint.token.to_string(),
        "expires_at": "2027-01-16T08:00:00Z",
        "recovery_profile_id": "site-a",
    });
    says(&mut domain, (local(), Command::IssueRepairBundle(issue)), "repair_bundle.issued", expected);
    for about in [Some(node.node), None] {
        let expected = json!({
            "node_id": about.as_ref().map(ToString::to_string),
            "reason": "token_used",
            "network": null,
            "count": 2,
            "samples": [],
        });
        let refusals = Refusals {
            reason: "token_used".to_owned(),
            network: None,
            count: 2,
            samples: Vec::new(),
            recovery: Some(RefusedRecovery { node: about }),
            alert: None,
            renewal: None,
        };
        says(
            &mut domain,
            (Actor::Reconciler, Command::RecordRefusals(refusals)),
            "recovery.refused",
            expected,
        );
    }
}

#[test]
fn the_lines_of_a_cluster_name_the_replica() {
    let mut domain = Domain::founded();
    let first = domain.announce(1, true);
    let certificate = first.certificate.clone().unwrap();
    let expected = json!({
        "replica_id": "1",
        "peer": "r1:8444",
        "urls": ["https://r1.example:8443"],
        "cert_serial": certificate.serial.as_str(),
        "not_after": certificate.not_after.to_string(),
    });
    let when = (replica(1), Command::AnnounceReplica(first));
    says(&mut domain, when, "cluster.announced", expected);
    let drawn = domain.drawn();
    let minted = Minted { id: drawn.token, hash: drawn.hash };
    let expected = json!({
        "token_id": minted.id.to_string(),
        "created_by": "local:root",
        "expires_at": "2027-01-15T09:00:00Z",
    });
    says(&mut domain, (local(), create_replica_token(minted, "1h")), "cluster.token_created", expected);
    let join = domain.join(minted);
    let joined = join.certificate.clone();
    let expected = json!({
        "replica_id": "2",
        "peer": "r2:8444",
        "urls": ["https://r2.example:8443"],
        "token_id": minted.id.to_string(),
        "cert_serial": joined.serial.as_str(),
        "mtls_cert_fingerprint": format!("SHA256:{}", joined.fingerprint.hex()),
        "not_after": joined.not_after.to_string(),
    });
    says(&mut domain, (Actor::Stranger, Command::JoinReplica(join)), "cluster.joined", expected);
    let expected = json!({ "replica_id": "2", "denied_serials": [joined.serial.as_str()] });
    says(&mut domain, (local(), remove_replica(2)), "cluster.removed", expected);
}

/// A certificate that is denied by a renewal is named: who reads the trail knows all that is refused.
#[test]
fn what_the_renewal_of_a_replica_denies_is_in_its_line() {
    let mut domain = Domain::cluster(1);
    let first = domain.state.replicas[&ReplicaId(1)].serial.clone().unwrap();
    let lines: Vec<Value> = (0..2)
        .map(|_| {
            let renewed = domain.announce(1, true);
            line(&domain.give(replica(1), Command::AnnounceReplica(renewed)).events[0])
        })
        .collect();
    assert_eq!(lines[0].get("denied_serials"), None);
    assert_eq!(lines[1]["denied_serials"], json!([first.as_str()]));
}

#[test]
fn the_server_certificate_of_another_replica_than_the_first_names_it() {
    let mut domain = Domain::cluster(2);
    let (actor, command) = domain.server_certificate("i1");
    let Command::RecordServerCertificate(own) = command else { unreachable!() };
    let own = ServerCertificate { replica: ReplicaId(2), ..own };
    let applied = domain.give(actor, Command::RecordServerCertificate(own));
    assert_eq!(line(&applied.events[0])["replica_id"], "2");
}

#[test]
fn a_clock_that_was_accepted_because_others_agree_names_the_replica_and_those() {
    let mut domain = Domain::cluster(3);
    let (from, to) = (domain.now.minus(span("10m")), domain.now);
    let agreeing = vec![ReplicaId(2), ReplicaId(3)];
    let found = CorroborateClock { replica: ReplicaId(1), from, to, agreeing };
    let expected = json!({
        "from": from.to_string(),
        "to": to.to_string(),
        "offset": "+10m",
        "replica_id": "1",
        "agreeing_replicas": ["2", "3"],
    });
    says(&mut domain, (Actor::Reconciler, Command::CorroborateClock(found)), "clock.accepted", expected);
}

#[test]
fn an_accepted_rollback_says_how_many_recovery_tokens_are_void() {
    let mut domain = Domain::founded();
    domain.provided();
    domain.provided();
    let accept = AcceptRollback { directory_seq: 7, anchor_seq: Some(9), voids_recovery: true };
    let expected = json!({ "directory_seq": 7, "anchor_seq": 9, "recovery_tokens_voided": 2 });
    let when = (Actor::Reconciler, Command::AcceptRollback(accept));
    says(&mut domain, when, "directory.rollback_accepted", expected);
}
