//! Enrolling against a control plane on loopback, faults included.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use api::agent::ConfirmStatus;
use world::host::{Host, ended};
use world::plane::{Fault, Plane};

#[test]
fn a_token_becomes_an_identity() {
    let (plane, host) = (Plane::start(), Host::new());
    let token = host.file("token", "good\n");
    let ca = host.file("ca.pem", &plane.root_pem());
    host.settings("# ours\ncheck_interval = '30s' # often\n[hosts]\ncp = '10.0.0.1'\n");
    let run =
        host.run(&["enroll", "--server", &plane.url, "--ca-file", &ca, "--token-file", &token, "--json"]);
    assert_eq!(run.exit, 0, "{run:?}");
    let document = run.document();
    assert_eq!(document["node_id"], "n-1");
    assert_eq!(document["spiffe_id"], "spiffe://test.example/tenant/default/agent/n-1");
    assert_eq!(document["state"], "active");
    assert_eq!(document["already_enrolled"], false);
    assert_eq!(document["dir"], host.dir().to_str().unwrap());

    let mode = |name: &str| fs::metadata(host.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode("identity/current/key.pem"), 0o600);
    for name in ["cert.pem", "chain.pem", "bundle.pem"] {
        assert_eq!(mode(&format!("identity/current/{name}")), 0o644);
    }
    assert_eq!(fs::read_link(host.path("identity/current")).unwrap().to_str(), Some("0000000001"));
    assert!(!host.path("pending").exists() && !host.path("unconfirmed").exists());
    let settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    let expected = format!(
        "# ours\ncheck_interval = '30s' # often\nserver = [\"{}\", \"https://second.example:8443\"]\nca_file = {ca:?}\n\
         [hosts]\ncp = '10.0.0.1'\n",
        plane.url
    );
    assert_eq!(settings, expected);
    let node = "spiffe://test.example/tenant/default/agent/n-1".to_owned();
    assert_eq!(plane.record().confirms, [(ConfirmStatus::Ok, String::new(), node)]);

    let status = host.status();
    assert_eq!((status.exit, &status.document()["state"]), (1, &"enrolled".into()), "{status:?}");
    assert_eq!(status.document()["reasons"], serde_json::json!(["daemon_stopped"]));
    assert_eq!(status.document()["renew_at"], document["renew_at"]);
    assert_eq!(status.document()["cert_serial"], document["cert_serial"]);
}

#[test]
fn a_valid_identity_leaves_the_token_unspent() {
    let (plane, host) = (Plane::start(), Host::new());
    assert_eq!(host.enroll(&plane, "first", &[]).exit, 0);
    let keys = ["private.key", "next.key"].map(|name| host.path("wireguard").join(name));
    fs::create_dir(host.path("wireguard")).unwrap();
    for key in &keys {
        fs::write(key, "of the node").unwrap();
    }
    let again = host.enroll(&plane, "second", &[]);
    assert_eq!((again.exit, &again.document()["already_enrolled"]), (0, &true.into()));
    // Not even a token or trust is asked for.
    let bare = host.run(&["enroll"]);
    assert!(bare.exit == 0 && bare.stdout.starts_with("already enrolled as n-1"), "{bare:?}");
    assert_eq!(plane.calls(), (1, 1));
    assert!(keys.iter().all(|key| key.exists()));

    let replaced = host.enroll(&plane, "second", &["--replace"]);
    assert_eq!((replaced.exit, &replaced.document()["node_id"]), (0, &"n-2".into()), "{replaced:?}");
    assert!(host.path("identity/0000000001").exists(), "the previous one is kept");
    assert!(keys.iter().all(|key| !key.exists()), "its WireGuard key is not the next node's");
}

#[test]
fn killed_after_the_token_was_spent_it_gets_the_same_identity_again() {
    let (plane, host) = (Plane::start(), Host::new());
    plane.set(Fault::HoldsEnroll);
    let mut run = host.begin_enroll(&plane, "good");
    plane.wait_for_enrolls(1);
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!((host.status().exit, &host.status().document()["state"]), (1, &"pending".into()));
    assert_eq!(host.status().document()["reasons"], serde_json::json!(["enrollment_pending"]));
    // Everybody who is asked says the one thing that helps.
    let dir = host.dir();
    let dir = dir.to_str().unwrap();
    for (command, exit) in [("status", 1), ("doctor", 1), ("run", 2)] {
        let told = host.run(&[command, "--dir", dir]);
        let said = format!("{}{}", told.stdout, told.stderr);
        assert_eq!(told.exit, exit, "{told:?}");
        assert!(said.contains("`enlist-agent enroll` command again, with the same token"), "{told:?}");
        assert!(!said.contains("token create"), "{told:?}");
    }

    plane.set(Fault::None);
    let again = host.enroll(&plane, "good", &[]);
    assert_eq!((again.exit, &again.document()["node_id"]), (0, &"n-1".into()), "{again:?}");
    // By a stranger's key the token is spent.
    let other = Host::new().enroll(&plane, "good", &[]);
    assert_eq!((other.exit, other.code().as_str()), (3, "token_used"));
}

#[test]
fn killed_between_keeping_and_tidying_it_only_tidies() {
    let (plane, host) = (Plane::start(), Host::new());
    plane.set(Fault::HoldsEnroll);
    let mut run = host.begin_enroll(&plane, "good");
    plane.wait_for_enrolls(1);
    run.kill().unwrap();
    run.wait().unwrap();
    plane.set(Fault::None);
    let copy = host.dir().with_extension("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["key.pem", "request.json"] {
        fs::copy(host.path("pending").join(name), copy.join(name)).unwrap();
    }
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
    fs::rename(&copy, host.path("pending")).unwrap();
    let again = host.enroll(&plane, "good", &["--replace"]);
    assert_eq!((again.exit, &again.document()["already_enrolled"]), (0, &true.into()), "{again:?}");
    assert!(!host.path("pending").exists());
    assert_eq!(plane.record().enrolls, 2);
}

#[test]
fn a_certificate_for_another_key_is_not_stored() {
    let (plane, host) = (Plane::start(), Host::new());
    plane.set(Fault::CertifiesAnotherKey);
    let run = host.enroll(&plane, "good", &[]);
    assert_eq!((run.exit, run.code().as_str()), (1, "answer_invalid"));
    assert!(!host.path("identity/current").exists() && !host.path("identity/0000000001").exists());
}

#[test]
fn a_refused_token_is_told_with_its_code_and_never_printed() {
    let (plane, host) = (Plane::start(), Host::new());
    let mut command = host.command(&["enroll", "--server", &plane.url, "--ca-pin", &plane.pin()]);
    let run =
        ended(command.env("ENLIST_AGENT_TOKEN", "expired").env("ENLIST_LOG", "trace").output().unwrap());
    assert_eq!(run.exit, 3);
    assert!(run.stderr.contains("error: token_expired: "), "{run:?}");
    assert!(run.stderr.contains("  remedy: "), "{run:?}");
    assert!(!host.path("pending").exists(), "nothing is left to ask for again");

    let secret = "enroll_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
    let mut command = host.command(&["enroll", "--server", &plane.url, "--ca-pin", &plane.pin()]);
    let run = ended(command.env("ENLIST_AGENT_TOKEN", secret).env("ENLIST_LOG", "trace").output().unwrap());
    assert_eq!(run.exit, 0, "{run:?}");
    assert!(!run.stderr.contains(secret) && !run.stdout.contains(secret));
}

#[test]
fn an_identity_that_could_not_be_confirmed_is_kept_and_confirmed_later() {
    let (plane, host) = (Plane::start(), Host::new());
    plane.set(Fault::RefusesConfirm);
    let run = host.enroll(&plane, "good", &["--timeout", "1s"]);
    assert_eq!(run.exit, 4, "{run:?}");
    let status = host.status();
    assert_eq!((status.exit, &status.document()["ready"]), (1, &false.into()));
    assert_eq!(status.document()["reasons"], serde_json::json!(["unconfirmed", "daemon_stopped"]));

    plane.set(Fault::None);
    // What the first run left behind is enough.
    let mut second = fs::read_to_string(host.path("agent.toml")).unwrap();
    second = second.replace(", \"https://second.example:8443\"", "");
    fs::write(host.path("agent.toml"), second).unwrap();
    let again = host.run(&["enroll", "--json"]);
    assert_eq!((again.exit, &again.document()["state"]), (0, &"active".into()), "{again:?}");
    assert_eq!(plane.calls(), (1, 1));
    assert_eq!(host.status().document()["reasons"], serde_json::json!(["daemon_stopped"]));
}

#[test]
fn what_could_not_be_written_is_reported_to_the_control_plane() {
    let (plane, host) = (Plane::start(), Host::new());
    plane.set(Fault::HoldsEnroll);
    let run = host.begin_enroll(&plane, "good");
    plane.wait_for_enrolls(1);
    // In the way of the switch.
    fs::create_dir(host.path("identity/current")).unwrap();
    plane.set(Fault::None);
    let run = ended(run.wait_with_output().unwrap());
    assert_eq!((run.exit, run.code().as_str()), (1, "not_persisted"), "{run:?}");
    let confirms = plane.record().confirms.clone();
    assert_eq!(confirms.len(), 1);
    assert!(confirms[0].0 == ConfirmStatus::Failed && !confirms[0].1.is_empty(), "{confirms:?}");

    let blocked = host.enroll(&plane, "good", &[]);
    assert_eq!((blocked.exit, blocked.code().as_str()), (1, "not_persisted"));
    assert_eq!(plane.record().enrolls, 1, "what cannot be kept is not asked for");
    fs::remove_dir(host.path("identity/current")).unwrap();
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
}

#[test]
fn another_control_plane_is_not_given_the_token() {
    let (plane, impostor, host) = (Plane::start(), Plane::start(), Host::new());
    let pin = plane.pin();
    let mut command = host.command(&["enroll", "--json", "--server", &impostor.url, "--ca-pin", &pin]);
    let run = ended(command.env("ENLIST_AGENT_TOKEN", "good").args(["--timeout", "1s"]).output().unwrap());
    assert_eq!((run.exit, run.code().as_str()), (4, "server_tls_untrusted"), "{run:?}");
    assert_eq!(impostor.calls(), (0, 0));
}

#[test]
fn planted_links_are_refused_before_the_token_is_spent() {
    let (plane, host) = (Plane::start(), Host::new());
    let elsewhere = host.file("elsewhere.toml", "proxy = 'x'\n");
    fs::create_dir(host.dir()).unwrap();
    symlink(&elsewhere, host.path("agent.toml")).unwrap();
    let run = host.enroll(&plane, "good", &[]);
    assert_eq!((run.exit, run.code().as_str()), (2, "config_is_link"));
    fs::remove_file(host.path("agent.toml")).unwrap();
    symlink("/tmp", host.path("identity")).unwrap();
    let run = host.enroll(&plane, "good", &[]);
    assert_eq!((run.exit, run.code().as_str()), (1, "not_persisted"));
    assert_eq!(plane.calls(), (0, 0));
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "proxy = 'x'\n");
}
