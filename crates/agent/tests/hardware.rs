//! A host that is let in by what its machine is known by, and the configuration that it then has.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs;
use std::sync::Arc;

use lifecycle::names::{Span, Timestamp};
use serde_json::{Value, json};
use world::host::Host;
use world::plane::{Fault, Plane};
use world::running::{Running, until};

/// A machine with one card and the serial number that many have.
fn machine(host: &Host, plane: &Plane) {
    let root = host.dir().with_extension("sys");
    fs::create_dir_all(root.join("class/net/eth0/device")).unwrap();
    fs::create_dir_all(root.join("class/dmi/id")).unwrap();
    fs::write(root.join("class/net/eth0/address"), "52:54:00:AB:CD:EF\n").unwrap();
    fs::write(root.join("class/dmi/id/board_serial"), "To Be Filled By O.E.M.\n").unwrap();
    fs::write(root.join("class/dmi/id/product_serial"), "SN-1\n").unwrap();
    host.settings(&format!(
        "server = {:?}\nca_pin = {:?}\nattestor = \"hardware\"\nsysfs_root = {root:?}\n",
        plane.url,
        plane.pin()
    ));
}

fn enrolled() -> (Arc<Plane>, Host) {
    let (plane, host) = (Plane::start(), Host::new());
    machine(&host, &plane);
    let run = host.run(&["enroll", "--json"]);
    assert_eq!(run.exit, 0, "{run:?}");
    (plane, host)
}

fn reasons(host: &Host) -> Vec<Value> {
    host.status().document()["reasons"].as_array().cloned().unwrap_or_default()
}

#[test]
fn no_token_is_needed_and_a_placeholder_is_not_sent() {
    let (plane, host) = enrolled();
    let sent = plane.record().machines[0].0.clone();
    assert_eq!(sent.macs, ["52:54:00:ab:cd:ef"]);
    assert_eq!((sent.bmc_serial.as_str(), sent.system_uuid.as_str()), ("SN-1", ""));
    let again = host.run(&["enroll", "--json"]);
    assert_eq!(again.document()["already_enrolled"], true);
    let checks = host.run(&["doctor", "--json"]).document()["checks"].clone();
    let check = checks.as_array().unwrap().iter().find(|check| check["name"] == "hardware").unwrap().clone();
    assert!(check["ok"] == true && check["warning"].as_str().unwrap().contains("board_serial"), "{check}");
}

#[test]
fn a_token_that_is_given_comes_first_and_the_machine_is_told_beside_it() {
    let (plane, host) = (Plane::start(), Host::new());
    machine(&host, &plane);
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
    assert_eq!(plane.record().machines.len(), 1);
    let other = Host::new();
    assert_eq!(other.enroll(&plane, "better", &[]).exit, 0);
    assert_eq!(plane.record().machines.len(), 1, "said only where the settings say so");
}

#[test]
fn without_a_card_there_is_nothing_to_send_and_the_message_says_where_it_looked() {
    let (plane, host) = (Plane::start(), Host::new());
    machine(&host, &plane);
    fs::remove_dir_all(host.dir().with_extension("sys").join("class/net/eth0/device")).unwrap();
    let run = host.run(&["enroll", "--json"]);
    assert_eq!((run.exit, run.code().as_str()), (1, "hardware_missing"));
    assert!(run.stderr.contains("class/net/*/address"), "{run:?}");
    assert_eq!(plane.calls().0, 0);
    let mut daemon = Running::start(&host);
    until("it says so", || daemon.log().contains("hardware_missing"));
    fs::create_dir(host.dir().with_extension("sys").join("class/net/eth0/device")).unwrap();
    until("the card that appeared is used", || host.path("identity/current").exists());
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_refusal_is_waited_out_under_its_class_with_the_same_key() {
    for (fault, code, class) in [
        (Fault::AlreadyActive, "already_active", "recovery_enrollment_blocked"),
        (Fault::NotRegistered, "node_not_enrolled", "recovery_enrollment_blocked"),
    ] {
        let (plane, host) = (Plane::start(), Host::new());
        machine(&host, &plane);
        plane.set(fault);
        let refused = host.run(&["enroll", "--json"]);
        assert_eq!((refused.exit, refused.code().as_str()), (3, code));
        let mut daemon = Running::start(&host);
        plane.wait_for_enrolls(4);
        until("status shows the class", || reasons(&host).contains(&class.into()));
        let log = daemon.log();
        assert!(log.contains(code) && log.contains(class) && log.contains("remedy"), "{log}");
        assert!(log.contains("To Be Filled By O.E.M."), "{log}");
        plane.set(Fault::None);
        plane.wait("connected", |record| !record.lives.hellos.is_empty());
        let machines = plane.record().machines.clone();
        assert!(machines.iter().all(|machine| machine.1 == machines[0].1), "one key for one enrollment");
        until("well", || host.status().exit == 0);
        assert_eq!(daemon.stop(), 0);
        let records = fs::read_dir(host.path("diagnostics")).unwrap();
        let told = |path| fs::read_to_string(path).unwrap_or_default().contains(class);
        assert!(records.flatten().any(|record| told(record.path())));
    }
}

#[test]
fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let (plane, host) = (Plane::start(), Host::new());
    machine(&host, &plane);
    plane.set(Fault::HoldsEnroll);
    let daemon = Running::start(&host);
    plane.wait_for_enrolls(1);
    daemon.kill();
    plane.set(Fault::None);
    let run = host.run(&["enroll", "--json"]);
    assert_eq!((run.exit, &run.document()["node_id"]), (0, &"n-1".into()), "{run:?}");
    let machines = plane.record().machines.clone();
    assert!(machines.len() == 2 && machines[0] == machines[1], "one enrollment");
}

#[test]
fn a_revoked_machine_says_so_and_ends_if_it_is_to() {
    let (plane, host) = (Plane::start(), Host::new());
    machine(&host, &plane);
    plane.set(Fault::Revoked);
    let mut daemon = Running::start(&host);
    until("status shows the class", || reasons(&host).contains(&"identity_revoked_or_fenced".into()));
    assert_eq!(daemon.stop(), 0);
    let settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    fs::write(host.path("agent.toml"), format!("{settings}exit_on_revoked = true\n")).unwrap();
    let ended = host.run(&["run", "--json"]);
    assert_eq!((ended.exit, ended.stderr.contains("node_revoked")), (3, true), "{ended:?}");
}

#[test]
fn a_lost_identity_comes_back_by_hardware_where_there_is_no_recovery_token() {
    let (plane, host) = enrolled();
    fs::remove_dir_all(host.path("recovery")).unwrap();
    let key = host.path("identity/current/key.pem");
    fs::remove_file(&key).unwrap();
    // The plane keeps one answer for a machine; this is another enrollment of it.
    plane.change(world::plane::Record::forget_enrollments);
    let mut daemon = Running::start(&host);
    plane.wait("enrolled again, and connected", |record| !record.lives.hellos.is_empty());
    assert_eq!((plane.calls().0, plane.record().recoveries.len()), (2, 0));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn an_ended_certificate_comes_back_by_hardware_where_there_is_no_recovery_token() {
    let (plane, host) = (Plane::start(), Host::new());
    machine(&host, &plane);
    plane.change(|record| {
        record.lifetime = Some(Span::from_secs(4));
        record.renew_after = Some(Span::from_secs(4));
    });
    assert_eq!(host.run(&["enroll", "--json"]).exit, 0);
    fs::remove_dir_all(host.path("recovery")).unwrap();
    // By the second, as certificates have it.
    let end = Timestamp::parse(host.status().document()["cert_not_after"].as_str().unwrap()).unwrap();
    let now = || Timestamp::from_secs(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs());
    until("the end of the certificate", || now() >= end.plus(Span::from_secs(1)));
    plane.change(|record| {
        record.forget_enrollments();
        (record.lifetime, record.renew_after) = (None, None);
        record.enrolls = 0;
    });
    let mut daemon = Running::start(&host);
    plane.wait_for_enrolls(1);
    until("well", || host.status().exit == 0);
    assert_eq!(host.status().document()["last_recovery"]["ok"], true);
    assert!(plane.record().recoveries.is_empty());
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn the_configuration_is_kept_shown_and_gone_on_with_while_nobody_is_there() {
    let (plane, host) = enrolled();
    let marker = host.path("told");
    let mut settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    settings.push_str(&format!("on_config = ['touch', {marker:?}]\n"));
    fs::write(host.path("agent.toml"), settings).unwrap();
    let daemon = Running::start(&host);
    plane.wait("connected", |record| !record.lives.hellos.is_empty());
    assert!(plane.record().lives.hellos[0].1.config_wanted);
    let observe = r#"{"enforcement_mode":"observe","whitelists":[],"regulated":false}"#;
    plane.record().lives.send_config(0, "", observe, "");
    let config = || host.status().document()["config"].clone();
    until("the defaults", || config()["enforcement_mode"] == "observe");
    let status = host.status().document();
    assert!(status["vcluster"].is_null() && status["config_state"]["cached"] == false, "{status}");
    assert!(host.run(&["status"]).stdout.contains("maintenance mode"));
    until("on_config", || marker.exists());

    plane.record().lives.send_config(7, "ml", r#"{"a": 1, "b": {"c": 2}}"#, r#"{"b": {"d": 3}}"#);
    until("the vCluster's", || host.status().document()["vcluster"] == "ml");
    let merged = json!({"a": 1, "b": {"c": 2, "d": 3}});
    assert_eq!(config(), merged);
    let shown = || serde_json::from_slice::<Value>(&fs::read(host.path("config/current.json")).unwrap());
    assert_eq!(shown().unwrap(), merged);
    plane.record().lives.send_config(8, "ml", "{", "");
    until("what is no document is refused", || daemon.log().contains("the configuration is not kept"));
    daemon.kill();

    let status = host.status().document();
    assert_eq!((&status["config"], &status["config_state"]["cached"]), (&merged, &true.into()));
    let settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    fs::write(host.path("agent.toml"), settings.replace(&plane.url, "https://localhost:1")).unwrap();
    fs::write(host.path("config/current.json"), "{\"half\":").unwrap();
    let text = fs::read_to_string(host.path("identity/current/meta.json")).unwrap();
    fs::write(host.path("identity/current/meta.json"), text.replace(&plane.url, "https://localhost:1"))
        .unwrap();
    let mut daemon = Running::start(&host);
    until("the daemon without a control plane", || {
        let status = host.status().document();
        status["config"] == merged && status["reasons"].to_string().contains("endpoint_unreachable")
    });
    assert_eq!(shown().unwrap(), merged, "made again");
    assert!(host.run(&["status"]).stdout.contains("cached"));
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_damaged_cache_is_asked_for_again() {
    let (plane, host) = enrolled();
    let mut daemon = Running::start(&host);
    plane.wait("connected", |record| !record.lives.hellos.is_empty());
    plane.record().lives.send_config(7, "ml", "{}", "");
    until("kept", || host.path("config/current.json").exists());
    assert_eq!(daemon.stop(), 0);
    let mut daemon = Running::start(&host);
    plane.wait("again", |record| record.lives.hellos.len() == 2);
    assert_eq!(plane.record().lives.hellos[1].1.config_sequence, 7);
    assert_eq!(daemon.stop(), 0);
    fs::write(host.path("config/received.json"), "{}").unwrap();
    let mut daemon = Running::start(&host);
    plane.wait("and again", |record| record.lives.hellos.len() == 3);
    assert_eq!(plane.record().lives.hellos[2].1.config_sequence, 0);
    assert_eq!(daemon.stop(), 0);
}
