//! A host that has lost the use of its certificate, against a control plane on loopback: it comes back by itself, or
//! says why not.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use lifecycle::names::{Span, Timestamp};
use serde_json::{Value, json};
use world::host::{Ended, Host};
use world::plane::{Fault, Plane};
use world::running::{Running, until};

fn enrolled() -> (Arc<Plane>, Host) {
    let (plane, host) = (Plane::start(), Host::new());
    let run = host.enroll(&plane, "good", &[]);
    assert_eq!(run.exit, 0, "{run:?}");
    (plane, host)
}

/// A host whose certificate has ended.
fn ended() -> (Arc<Plane>, Host) {
    let (plane, host) = (Plane::start(), Host::new());
    plane.change(|record| {
        (record.lifetime, record.renew_after) = (Some(Span::from_secs(4)), Some(Span::from_secs(4)));
    });
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
    // By the second, as certificates have it.
    let end = Timestamp::parse(host.status().document()["cert_not_after"].as_str().unwrap()).unwrap();
    until("the end of the certificate", || now() >= end.plus(Span::from_secs(1)));
    plane.change(|record| (record.lifetime, record.renew_after) = (None, None));
    (plane, host)
}

fn now() -> Timestamp {
    Timestamp::from_secs(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs())
}

fn token(host: &Host) -> String {
    fs::read_to_string(host.path("recovery/token")).unwrap_or_default()
}

fn reasons(host: &Host) -> Vec<String> {
    serde_json::from_value(host.status().document()["reasons"].clone()).unwrap()
}

fn is_named(host: &Host, class: &str) -> bool {
    reasons(host).iter().any(|reason| reason == class)
}

#[test]
fn enrolling_gives_what_brings_the_host_back() {
    let (_plane, host) = enrolled();
    assert_eq!(token(&host), "recovery-1\n");
    let mode = |name: &str| fs::metadata(host.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("recovery"), mode("recovery/token")), (0o700, 0o600));
}

#[test]
fn a_grant_on_the_standing_connection_is_kept_and_then_acknowledged() {
    let (plane, host) = enrolled();
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    assert_eq!(plane.record().lives.hellos[0].1.recovery_kept, "t-1");
    assert!(plane.record().lives.evidence[0].recovery_ready);
    plane.change(|record| {
        let grant = plane.grant(record);
        record.lives.send_grant(grant);
    });
    plane.wait("the word", |record| record.lives.kept == ["t-2"]);
    assert_eq!(token(&host), "recovery-2\n");
}

#[test]
fn an_ended_certificate_is_recovered_at_the_start_under_one_undertaking() {
    let (plane, host) = ended();
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    let record = plane.record();
    assert_eq!(record.recoveries.len(), 1);
    let (node, _, undertaking) = record.recoveries[0].clone();
    assert_eq!(node, "n-1");
    let later = record.undertakings.iter().rev().take(2).filter(|id| **id == undertaking).count();
    assert_eq!(later, 2, "confirm and connection: {:?}", record.undertakings);
    drop(record);
    until("the next token", || token(&host) == "recovery-2\n");
    plane.wait("the word", |record| record.lives.kept.iter().any(|id| id == "t-2"));
    until("well", || host.status().document()["last_recovery"]["ok"] == true);
    let status = host.status().document();
    assert_eq!(status["last_recovery"]["correlation_id"], undertaking);
    assert_eq!((&status["state"], &status["recovery_ready"]), (&json!("active"), &json!(true)));
    assert!(!host.path("recovery/attempt.json").exists());
    assert!(!run.log().contains("recovery-1") && !run.log().contains("recovery-2"), "{}", run.log());
    // Between the token that was used and the next one nothing is amiss.
    let told = run.log() + &diagnostics(&host);
    assert!(!told.contains("recovery_enrollment_blocked"), "{told}");
    assert!(told.contains("cert_expired") && !told.contains("enrolls again"), "{told}");
    run.kill();
    assert_eq!(host.status().document()["last_recovery"], status["last_recovery"], "without the daemon");
    plane.change(|record| record.lives.evidence.clear());
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    let evidence = plane.record().lives.evidence[0].clone();
    assert!(evidence.last_recovery.is_some_and(|last| last.ok), "after a restart");
}

#[test]
fn a_token_that_was_spoilt_is_told_and_another_is_asked_for() {
    let (plane, host) = enrolled();
    let mut command = host.command(&["run"]);
    command.env("ENLIST_AGENT_CHECK_INTERVAL", "1s");
    let _run = Running::of(&host, command);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    fs::write(host.path("recovery/token"), "spoilt\n").unwrap();
    plane.wait("the request", |record| record.lives.kept.iter().any(String::is_empty));
    until("not ready", || host.status().document()["recovery_ready"] == false);
    plane.wait("the word", |record| record.lives.evidence.last().is_some_and(|told| !told.recovery_ready));
    plane.change(|record| {
        let grant = plane.grant(record);
        record.lives.send_grant(grant);
    });
    until("ready", || host.status().document()["recovery_ready"] == true);
    plane.wait("the word", |record| record.lives.evidence.last().is_some_and(|told| told.recovery_ready));
}

#[test]
fn a_recovery_that_was_cut_short_goes_on_with_its_key_and_its_undertaking() {
    let (plane, host) = ended();
    plane.set(Fault::HoldsRecover);
    let run = Running::start(&host);
    plane.wait("the request", |record| record.recoveries.len() == 1);
    run.kill();
    plane.set(Fault::None);
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    let record = plane.record();
    assert_eq!(record.recoveries.len(), 2);
    assert_eq!(record.recoveries[0], record.recoveries[1]);
}

#[test]
fn a_stale_bundle_is_cured_by_the_word_that_recovery_is_not_needed() {
    let (plane, host) = enrolled();
    let foreign = Plane::start();
    fs::write(host.path("identity/current/bundle.pem"), foreign.root_pem()).unwrap();
    plane.set(Fault::NotNeeded);
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    assert_eq!(plane.record().recoveries.len(), 1);
    assert_eq!(plane.record().lives.hellos[0].1.bundle_version, 7);
    assert!(run.log().contains("server_tls_untrusted"), "{}", run.log());
    assert_eq!(token(&host), "recovery-1\n", "it was not used");
    let last = host.status().document()["last_recovery"].clone();
    assert_eq!((&last["ok"], &last["class"]), (&json!(true), &Value::Null), "it cured the fault");
}

#[test]
fn nothing_is_sent_where_the_recovery_bundle_does_not_vouch() {
    let (plane, host) = ended();
    fs::write(host.path("recovery/ca.pem"), Plane::start().root_pem()).unwrap();
    let _run = Running::start(&host);
    until("the class", || is_named(&host, "recovery_enrollment_blocked"));
    assert!(plane.record().recoveries.is_empty());
    assert_eq!(host.status().document()["last_recovery"]["class"], "recovery_enrollment_blocked");
}

#[test]
fn a_token_that_is_not_taken_blocks_and_is_not_tried_in_haste() {
    let (plane, host) = ended();
    fs::write(host.path("recovery/token"), "spent\n").unwrap();
    let run = Running::start(&host);
    until("the class", || is_named(&host, "recovery_enrollment_blocked"));
    assert!(plane.record().recoveries.len() <= 4, "{}", plane.record().recoveries.len());
    assert!(is_named(&host, "cert_expired"), "{:?}", reasons(&host));
    assert!(!run.log().contains("spent"));
    // A good one is taken up without a restart.
    fs::write(host.path("recovery/token"), "recovery-1\n").unwrap();
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
}

#[test]
fn a_revoked_host_does_not_help_itself() {
    let (plane, host) = ended();
    plane.set(Fault::Revoked);
    let _run = Running::start(&host);
    until("the class", || is_named(&host, "identity_revoked_or_fenced"));
    assert!(plane.record().recoveries.len() <= 1);
    assert!(host.path("revoked").exists());
}

#[test]
fn a_damaged_identity_is_recovered_by_whoever_holds_the_token() {
    let (plane, host) = enrolled();
    fs::write(host.path("identity/current/cert.pem"), "half a certif").unwrap();
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    assert_eq!(plane.record().recoveries[0].0, "n-1", "the token tells who it is");
    assert_eq!(host.status().document()["node_id"], "n-1");
}

fn diagnostics(host: &Host) -> String {
    let files = fs::read_dir(host.path("diagnostics")).into_iter().flatten();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap_or_default()).collect()
}

fn hint(ended: &Ended) -> String {
    let body: Value = serde_json::from_str(&ended.stderr).unwrap();
    body["error"]["hint"].as_str().unwrap().to_owned()
}

fn recover(host: &Host, more: &[&str]) -> Ended {
    let mut args = vec!["recover", "--json"];
    args.extend(more);
    host.run(&args)
}

#[test]
fn the_command_recovers_a_directory_without_an_identity() {
    let (plane, host) = ended();
    fs::remove_dir_all(host.path("identity")).unwrap();
    let done = recover(&host, &[]);
    assert_eq!((done.exit, &done.document()["node_id"]), (0, &json!("n-1")), "{done:?}");
    assert_eq!(done.document()["confirmed"], true);
    let last = host.status().document()["last_recovery"].clone();
    assert_eq!((&last["ok"], &last["correlation_id"]), (&json!(true), &done.document()["correlation_id"]));
    assert_eq!((token(&host).as_str(), plane.record().recoveries.len()), ("recovery-2\n", 1));
    assert_eq!(host.status().document()["reasons"], json!(["daemon_stopped"]));
}

#[test]
fn the_command_says_why_not() {
    let (plane, host) = enrolled();
    plane.set(Fault::NotNeeded);
    let well = recover(&host, &[]);
    assert_eq!((well.exit, well.code().as_str()), (3, "recovery_not_needed"), "{well:?}");
    plane.set(Fault::Revoked);
    assert_eq!(recover(&host, &[]).code(), "node_revoked");
    assert_eq!(host.status().document()["last_recovery"]["class"], "identity_revoked_or_fenced");
    fs::write(host.path("recovery/token"), "spent\n").unwrap();
    plane.set(Fault::None);
    let spent = recover(&host, &[]);
    assert!(spent.code().starts_with("token_") && hint(&spent).contains("repair-bundle"), "{spent:?}");
    fs::remove_file(host.path("recovery/token")).unwrap();
    let none = recover(&host, &[]);
    assert_eq!((none.exit, none.code().as_str()), (1, "recovery_enrollment_blocked"), "{none:?}");
    fs::write(host.path("recovery/token"), "recovery-1\n").unwrap();
    let open = recover(&host, &[]);
    assert_eq!(open.code(), "key_exposed", "it was made for all to read: {open:?}");
    plane.set(Fault::None);
    fs::set_permissions(host.path("recovery/token"), fs::Permissions::from_mode(0o600)).unwrap();
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    let busy = recover(&host, &[]);
    assert!(busy.code() == "dir_in_use" && hint(&busy).contains("start it again"), "{busy:?}");
}

fn bundle(plane: &Plane, host: &Host, change: impl FnOnce(&mut Value)) -> String {
    let now = now();
    let mut bundle = json!({
        "version": 1, "node_id": "n-1", "domain": "test.example", "recovery_token": "recovery-1",
        "recovery_profile_id": "p-1", "recovery_url": plane.url, "recovery_ca_pem": plane.root_pem(),
        "issued_by": "op", "issued_at": now.to_string(),
        "expires_at": now.plus(Span::from_hours(1)).to_string(), "audit_seq": 7, "audit_hash": "ab",
    });
    change(&mut bundle);
    let path = host.file("bundle.json", &bundle.to_string());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn a_repair_bundle_is_checked_and_then_enough() {
    let (plane, host) = ended();
    for (key, value, code) in [
        ("version", json!(9), "bundle_invalid"),
        ("expires_at", json!("2020-01-01T00:00:00Z"), "bundle_invalid"),
        ("recovery_url", json!("http://localhost:1"), "bundle_invalid"),
        ("node_id", json!("n-2"), "bundle_of_another"),
        ("domain", json!("other.example"), "bundle_of_another"),
    ] {
        let refused = recover(&host, &["--bundle", &bundle(&plane, &host, |bundle| bundle[key] = value)]);
        assert_eq!((refused.exit, refused.code().as_str()), (2, code), "{key}");
    }
    let path = bundle(&plane, &host, |_| ());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(recover(&host, &["--bundle", &path]).code(), "key_exposed");
    assert!(plane.record().recoveries.is_empty());
    let done = recover(&host, &["--bundle", &bundle(&plane, &host, |_| ())]);
    assert_eq!((done.exit, &done.document()["node_id"]), (0, &json!("n-1")), "{done:?}");
    let bare = Host::new();
    bare.settings("");
    let done =
        recover(&bare, &["--bundle", &bundle(&plane, &bare, |b| b["recovery_token"] = json!("recovery-2"))]);
    assert_eq!(done.exit, 0, "{done:?}");
}

#[test]
fn a_damaged_identity_still_tells_whose_bundle_fits() {
    let (plane, host) = ended();
    let others = |bundle: &mut Value| bundle["node_id"] = json!("n-2");
    for name in ["key.pem", "cert.pem"] {
        // Without the key the leaf tells, and without the leaf the token.
        fs::write(host.path("identity/current").join(name), "garbage").unwrap();
        let refused = recover(&host, &["--bundle", &bundle(&plane, &host, others)]);
        assert_eq!((refused.exit, refused.code().as_str()), (2, "bundle_of_another"), "{name}");
    }
    assert!(plane.record().recoveries.is_empty());
    let done = recover(&host, &["--bundle", &bundle(&plane, &host, |_| ())]);
    assert_eq!((done.exit, &done.document()["node_id"]), (0, &json!("n-1")), "{done:?}");
}

#[test]
fn by_a_clock_that_is_certainly_wrong_no_token_is_sent() {
    let (plane, host) = ended();
    let ahead = now().plus(Span::from_hours(1)).to_string();
    let path = bundle(&plane, &host, |bundle| bundle["issued_at"] = json!(ahead));
    let refused = recover(&host, &["--bundle", &path]);
    assert_eq!((refused.exit, refused.code().as_str()), (1, "clock_skew"), "{refused:?}");
    assert!(plane.record().recoveries.is_empty());
}
