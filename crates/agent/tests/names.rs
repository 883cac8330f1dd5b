//! The names that a control plane has a host map: never in silence, never its own, and gone when they are taken back.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs;

use api::agent::EndpointProfile;
use world::host::Host;
use world::plane::Plane;
use world::running::{Running, until};

const OTHERS: &str = "127.0.0.1 localhost\n";

#[test]
fn names_of_the_control_plane_come_with_a_warning_and_go_with_the_profile() {
    let (plane, host) = (Plane::start(), Host::new());
    let file = host.file("hosts", OTHERS);
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
    let mut command = host.command(&["run"]);
    command.env("ENLIST_AGENT_HOSTS_FILE", &file).env("ENLIST_AGENT_HOSTS", "own.example=10.0.0.1");
    let run = Running::of(&host, command);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());

    let names = [
        ("cp.example", "10.0.0.2"),
        ("own.example", "10.6.6.6"),
        ("localhost4", "10.6.6.6"),
        ("all.example", "255.255.255.255"),
    ];
    let hosts = names.map(|(name, address)| (name.to_owned(), address.to_owned())).into();
    let profile = EndpointProfile { id: "site-a".to_owned(), hosts, ..EndpointProfile::default() };
    plane.record().lives.send_profile(profile);
    let text = || fs::read_to_string(&file).unwrap();
    until("the name", || text().contains("10.0.0.2 cp.example\n"));
    assert!(text().contains("10.0.0.1 own.example\n"), "what agent.toml says wins: {}", text());
    assert!(!text().contains("10.6.6.6") && !text().contains("255"), "{}", text());
    let warned =
        |log: String| log.lines().any(|line| line.contains("WARN") && line.contains("cp.example=10.0.0.2"));
    assert!(warned(run.log()), "{}", run.log());
    assert!(host.path("endpoint_profile.json").exists());

    plane.record().lives.send_profile(EndpointProfile::default());
    until("the name is gone", || !text().contains("cp.example"));
    assert!(text().contains("10.0.0.1 own.example\n"), "{}", text());
    assert!(!host.path("endpoint_profile.json").exists());
    until("nobody speaks of it", || host.status().document()["endpoint_profile"].is_null());
}
