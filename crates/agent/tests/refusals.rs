//! What is refused before a connection is made, and what `status` says of a directory.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use agent::status::{AgentState, Status};
use lifecycle::names::Timestamp;
use world::host::{Ended, Host, ended};
use world::plane::Plane;

/// Runs `enroll` with a token against a listener that must stay untouched.
fn untouched(host: &Host, scheme: &str, more: &[&str]) -> Ended {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    let mut command = host.command(&["enroll", "--json", "--server", &url]);
    let run = ended(command.env("ENLIST_AGENT_TOKEN", "secret").args(more).output().unwrap());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "it connected: {run:?}");
    assert!(!run.stderr.contains("secret"), "{run:?}");
    run
}

#[test]
fn without_trust_nothing_connects() {
    let host = Host::new();
    let run = untouched(&host, "https", &[]);
    assert_eq!((run.exit, run.code().as_str()), (2, "trust_missing"));
    assert!(!host.dir().exists(), "a wrong command leaves no trace");
}

#[test]
fn plain_http_is_refused_even_with_trust() {
    let host = Host::new();
    for more in [&["--system-roots"][..], &[], &["--ca-pin", &"ab".repeat(32)]] {
        let run = untouched(&host, "http", more);
        assert_eq!((run.exit, run.code().as_str()), (2, "plain_http_refused"));
    }
}

#[test]
fn two_kinds_of_trust_are_a_mistake() {
    let pin = "ab".repeat(32);
    let run = untouched(&Host::new(), "https", &["--system-roots", "--ca-pin", &pin]);
    assert_eq!((run.exit, run.code().as_str()), (2, "usage"));
}

#[test]
fn a_ca_file_that_is_none_is_refused() {
    let host = Host::new();
    for path in [host.file("empty.pem", ""), "/nonexistent/ca.pem".to_owned()] {
        let run = untouched(&host, "https", &["--ca-file", &path]);
        assert_eq!((run.exit, run.code().as_str()), (2, "ca_file_unusable"));
    }
}

#[test]
fn every_mistake_in_agent_toml_is_told_at_once() {
    let host = Host::new();
    host.settings("servr = 'https://a'\nca_pin = 'zz'\n[overlay]\nbackend = 'carrier-pigeon'\n");
    let run = untouched(&host, "https", &["--system-roots"]);
    assert_eq!((run.exit, run.code().as_str()), (2, "config_invalid"));
    for word in ["servr", "ca_pin", "overlay.backend", "carrier-pigeon"] {
        assert!(run.stderr.contains(word), "{word}: {run:?}");
    }
}

#[test]
fn a_missing_token_is_told_after_everything_else() {
    let host = Host::new();
    let run = host.run(&["enroll", "--json", "--server", "https://localhost:1", "--system-roots"]);
    assert_eq!((run.exit, run.code().as_str()), (2, "token_missing"));
    let run = host.run(&["enroll", "--json", "--system-roots", "--token", "t"]);
    assert_eq!((run.exit, run.code().as_str()), (2, "server_missing"));
}

#[test]
fn a_token_can_come_from_standard_input() {
    let (plane, host) = (Plane::start(), Host::new());
    let pin = plane.pin();
    let mut command = host.command(&["enroll", "--server", &plane.url, "--ca-pin", &pin, "--token", "-"]);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"piped\n").unwrap();
    let run = ended(run.wait_with_output().unwrap());
    assert!(run.exit == 0 && run.stdout.starts_with("enrolled as n-1 (active)\n"), "{run:?}");
}

#[test]
fn status_knows_each_state_of_a_directory() {
    let (plane, host) = (Plane::start(), Host::new());
    let check = |exit: i32, state: &str, reasons: &[&str]| {
        let status = host.status();
        let document = status.document();
        let said = (status.exit, document["state"].as_str().unwrap(), &document["reasons"]);
        assert_eq!(said, (exit, state, &serde_json::json!(reasons)), "{status:?}");
        assert_eq!(document["ready"], reasons.is_empty());
        assert_eq!(document["channel"], "down");
        assert!(document["disk"]["available_bytes"].as_u64().is_some());
    };
    check(1, "unenrolled", &["not_enrolled"]);
    assert!(!host.dir().exists(), "status changes nothing");
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
    check(1, "enrolled", &["daemon_stopped"]);
    for (at, state, reason) in [
        (Timestamp::from_millis(u64::MAX), AgentState::Expired, "cert_expired"),
        (Timestamp::from_secs(0), AgentState::Enrolled, "not_yet_valid"),
    ] {
        let status = Status::read(&host.dir(), at).unwrap();
        let reasons = [reason, "daemon_stopped"].map(str::to_owned);
        assert_eq!((status.state, status.reasons.as_slice()), (state, &reasons[..]));
        assert!(!status.ready && status.node_id.as_deref() == Some("n-1"));
    }

    let key = host.path("identity/current/key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    check(1, "unenrolled", &["key_exposed"]);
    let run = host.enroll(&plane, "other", &[]);
    assert_eq!((run.exit, run.code().as_str()), (1, "key_exposed"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    let other = pki::agent_key::HostKey::generate().unwrap();
    fs::write(&key, other.to_pem().as_bytes()).unwrap();
    check(1, "unenrolled", &["identity_damaged"]);
    fs::remove_dir_all(host.path("identity/0000000001")).unwrap();
    check(1, "unenrolled", &["identity_damaged"]);
    assert_eq!(plane.record().enrolls, 1);
    assert_eq!(host.enroll(&plane, "other", &[]).exit, 0);
    check(1, "enrolled", &["daemon_stopped"]);
}

#[test]
fn the_reference_pages_are_made_from_the_definition() {
    let host = Host::new();
    let script = host.run(&["completions", "bash"]);
    assert!(script.exit == 0 && script.stdout.contains("--ca-pin"));
    let page = host.run(&["man"]);
    assert!(page.exit == 0 && page.stdout.contains("token\\-file"), "{}", page.stdout);
    let pages = host.path("man1");
    let pages = pages.to_str().unwrap();
    let told = host.run(&["man", "--out", pages, "--json"]);
    assert_eq!((told.exit, &told.document()["dir"]), (0, &pages.into()), "{told:?}");
    assert!(fs::exists(format!("{pages}/enlist-agent-doctor.1")).unwrap());
    assert_eq!(host.run(&["--version"]).exit, 0);
    assert_eq!(host.run(&["enroll", "--colour", "red"]).exit, 2);
    agent::command().debug_assert();
}

#[test]
fn a_mistyped_word_is_answered_with_the_similar_one() {
    let run = Host::new().run(&["enrol"]);
    assert!(run.exit == 2 && run.stderr.contains("unrecognized subcommand 'enrol'"), "{run:?}");
    assert!(run.stderr.contains("similar subcommands exist: ") && run.stderr.contains("'enroll'"), "{run:?}");
    let run = Host::new().run(&["enroll", "--servr", "x"]);
    assert!(run.exit == 2 && run.stderr.contains("remedy: a similar argument exists: '--server'"), "{run:?}");
}
