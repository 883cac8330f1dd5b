//! `enlist dev` and the commands it names, as a stranger would run them.

#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const ENLIST: &str = env!("CARGO_BIN_EXE_enlist");

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(ENLIST);
    command.args(arguments);
    // Nothing of whoever runs the tests.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ENLIST_")) {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("enlist runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// One JSON document per line of a command that must succeed.
fn json(dir: &Path, arguments: &[&str]) -> Vec<Value> {
    let dir = dir.display().to_string();
    let output = run(&[&["--json", "--dir", &dir], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A control plane of `enlist dev --json`, ended with the test.
struct Dev {
    child: Child,
    told: Value,
}

impl Dev {
    fn start(dir: &Path) -> Self {
        let dir = dir.display().to_string();
        let mut command = command(&["dev", "--json", "--listen", "127.0.0.1:0", "--dir", &dir]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("enlist runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("standard output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Self { child, told: serde_json::from_str(&line).expect("JSON") }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stranger_sees_a_node_become_active_in_less_than_a_screen() {
    let base = tempfile::tempdir().expect("directory");
    let output = command(&["dev", "--once", "--listen", "127.0.0.1:0"]).env("TMPDIR", base.path()).output();
    let output = output.expect("enlist runs");
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(told.lines().count() < 25, "{told}");
    for word in ["demo enrolled with a token and is active", "Everything works", "Not for production"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(!told.contains("enroll_"), "a token that nobody can use any more: {told}");
    assert_eq!(std::fs::read_dir(base.path()).expect("directory").count(), 0, "something was left behind");
}

#[test]
fn the_commands_work_on_what_dev_made() {
    let base = tempfile::tempdir().expect("directory");
    let dir = base.path().join("dev");
    let dev = Dev::start(&dir);
    assert_eq!(dev.told["demo_node"]["state"], "active");
    let pin = dev.told["ca_pin"].as_str().expect("pin").to_owned();

    assert_eq!(json(&dir, &["node", "list"])[0]["node_id"], "demo");
    assert_eq!(json(&dir, &["node", "show", "demo"])[0]["certificates"][0]["status"], "live");
    let token = &json(&dir, &["token", "create", "--expires", "15m"])[0];
    assert_eq!(token["ca_pin"], pin);
    json(&dir, &["token", "revoke", token["token_id"].as_str().expect("id")]);
    let listed = json(&dir, &["token", "list", "--all"]);
    assert!(listed.iter().any(|item| item["token_id"] == token["token_id"] && item["state"] == "revoked"));
    json(&dir, &["tenant", "create", "acme"]);
    assert_eq!(json(&dir, &["policy", "set", "token.max_ttl", "12h"])[0]["value"], "12h");
    assert_eq!(json(&dir, &["policy", "show", "token.max_ttl"])[0]["value"], "12h");
    assert_eq!(json(&dir, &["ca", "show"])[0]["root"]["fingerprint"], pin.as_str());
    assert_eq!(json(&dir, &["audit", "verify"])[0]["ok"], true);
}

#[test]
fn an_operator_comes_over_tls_with_certificate_or_key() {
    let base = tempfile::tempdir().expect("directory");
    let dir = base.path().join("dev");
    let dev = Dev::start(&dir);
    let (url, pin) =
        (dev.told["server_url"].as_str().expect("URL"), dev.told["ca_pin"].as_str().expect("pin"));
    let out = base.path().join("alice");
    let file = |name: &str| out.join(name).display().to_string();
    json(&dir, &["operator", "add", "alice", "--role", "viewer", "--out", &out.display().to_string()]);
    let (cert, key, ca) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
    let certificate = ["--server", url, "--cert", &cert, "--key", &key, "--ca", &ca];
    let allowed = run(&[&certificate[..], &["node", "list"]].concat());
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));
    let refused = run(&[&["tenant", "create", "acme"], &certificate[..]].concat());
    assert_eq!(refused.status.code(), Some(3));

    let created = &json(&dir, &["operator", "key", "create", "ci", "--role", "viewer"])[0];
    let key_file = file("api-key");
    std::fs::write(&key_file, created["key"].as_str().expect("key")).expect("file");
    let key = ["--server", url, "--api-key-file", &key_file, "--ca-pin", pin];
    let open = run(&[&key[..], &["node", "list"]].concat());
    assert_eq!(open.status.code(), Some(1));
    assert!(text(&open.stderr).contains("key_exposed"), "{}", text(&open.stderr));
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key_file, closed).expect("mode");
    assert!(run(&[&key[..], &["node", "list"]].concat()).status.success());
    json(&dir, &["operator", "key", "revoke", created["key_id"].as_str().expect("id")]);
    assert_eq!(run(&[&key[..], &["node", "list"]].concat()).status.code(), Some(3));
}

#[test]
fn an_export_is_checked_with_nothing_but_the_pin() {
    let base = tempfile::tempdir().expect("directory");
    let dir = base.path().join("dev");
    let dev = Dev::start(&dir);
    let pin = dev.told["ca_pin"].as_str().expect("pin").to_owned();
    let export = base.path().join("export.jsonl").display().to_string();
    json(&dir, &["audit", "export", "--out", &export]);
    drop(dev);
    let good = run(&["audit", "verify", "--file", &export, "--ca-pin", &pin]);
    assert!(good.status.success(), "{}", text(&good.stderr));
    let whole = std::fs::read_to_string(&export).expect("file");
    std::fs::write(&export, whole.replacen("local:", "lokal:", 1)).expect("file");
    let bad = run(&["audit", "verify", "--file", &export, "--ca-pin", &pin, "--json"]);
    assert_eq!(bad.status.code(), Some(3));
    let verdict: Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    assert_eq!(verdict["fault"]["seq"], 1);
}

#[test]
fn every_kind_of_failure_has_its_exit_code() {
    let base = tempfile::tempdir().expect("directory");
    let nowhere = base.path().join("nowhere").display().to_string();
    for (arguments, expected) in [
        (&["node", "list", "--dir", &nowhere][..], 4),
        (&["node", "lost"], 2),
        (&["server", "check", "--dir", &nowhere], 2),
        (&["node", "list", "--server", "http://localhost", "--ca", "x", "--api-key-file", "y"], 2),
        (&["token"], 2),
        (&["--version"], 0),
    ] {
        assert_eq!(run(arguments).status.code(), Some(expected), "{arguments:?}");
    }
    let told: Value =
        serde_json::from_slice(&run(&["node", "list", "--json", "--dir", &nowhere]).stderr).expect("JSON");
    assert_eq!(told["error"]["code"], "endpoint_unreachable");
}
