//! The daemon's place in the overlay, against a control plane on loopback. No interface is made: the one that is named is in use.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::sync::Arc;

use api::agent::{OverlayAnswer, OverlayClaim, OverlayPeers};
use pki::wireguard::WireguardPrivate;
use world::host::Host;
use world::plane::Plane;
use world::running::{Running, until};

const SETTINGS: &str = "\n[overlay]\nenable = true\ninterface = \"lo\"\nendpoint = \"192.0.2.1\"\n";

fn enrolled() -> (Arc<Plane>, Host) {
    let (plane, host) = (Plane::start(), Host::new());
    let run = host.enroll(&plane, "good", &[]);
    assert_eq!(run.exit, 0, "{run:?}");
    let mut settings = OpenOptions::new().append(true).open(host.path("agent.toml")).unwrap();
    settings.write_all(SETTINGS.as_bytes()).unwrap();
    let challenge = WireguardPrivate::generate().unwrap().public().unwrap();
    plane.change(|record| record.lives.challenge = challenge.to_vec());
    (plane, host)
}

/// The claim that comes as the `number`th, beginning with 1.
fn claim(plane: &Plane, number: usize) -> OverlayClaim {
    plane.wait(&format!("claim {number}"), |record| record.lives.claims.len() >= number);
    plane.record().lives.claims[number - 1].clone()
}

fn place(claim: &OverlayClaim) -> OverlayAnswer {
    OverlayAnswer {
        wireguard_public_key: claim.wireguard_public_key.clone(),
        address: "fd77::5".to_owned(),
        prefix_length: 64,
        ..OverlayAnswer::default()
    }
}

fn refusal(claim: &OverlayClaim, code: &str) -> OverlayAnswer {
    OverlayAnswer {
        wireguard_public_key: claim.wireguard_public_key.clone(),
        code: code.to_owned(),
        ..OverlayAnswer::default()
    }
}

fn overlay(host: &Host) -> serde_json::Value {
    host.status().document()["overlay"].clone()
}

#[test]
fn peers_that_come_before_the_place_are_asked_for_again() {
    let (plane, host) = enrolled();
    let _run = Running::start(&host);
    let first = claim(&plane, 1);
    plane.record().lives.send_peers(OverlayPeers { revision: 5, pieces: 1, ..OverlayPeers::default() });
    plane.record().lives.send_answer(place(&first));
    assert_eq!(claim(&plane, 2).revision, 0);
    // With the place known, they are taken in, and nothing is left to ask for.
    plane.record().lives.send_peers(OverlayPeers { revision: 5, pieces: 1, ..OverlayPeers::default() });
    let beats = plane.record().lives.heartbeats;
    plane.wait("heartbeats", |record| record.lives.heartbeats > beats + 60);
    assert_eq!(plane.record().lives.claims.len(), 2);
}

#[test]
fn the_next_key_is_kept_until_it_is_certain_that_it_is_not_on_record() {
    let (plane, host) = enrolled();
    let _run = Running::start(&host);
    let first = claim(&plane, 1);
    plane.record().lives.send_answer(place(&first));
    plane.record().lives.order_rekey("o-1");
    let next = claim(&plane, 2);
    assert_ne!(next.wireguard_public_key, first.wireguard_public_key);

    plane.record().lives.send_answer(refusal(&next, "rate_limited"));
    let again = claim(&plane, 3);
    assert_eq!(again.wireguard_public_key, next.wireguard_public_key);
    assert!(host.path("wireguard/next.key").exists() && plane.record().lives.done.is_empty());

    plane.record().lives.send_answer(refusal(&next, "rekey_not_ordered"));
    assert_eq!(claim(&plane, 4).wireguard_public_key, first.wireguard_public_key);
    assert!(!host.path("wireguard/next.key").exists());
    plane.wait("the order's end", |record| record.lives.done.iter().any(|done| done.order_id == "o-1"));
}

#[test]
fn a_key_that_cannot_be_read_is_named_once_and_tried_again() {
    let (plane, host) = enrolled();
    DirBuilder::new().mode(0o700).create(host.path("wireguard")).unwrap();
    let (key, path) = (WireguardPrivate::generate().unwrap(), host.path("wireguard/private.key"));
    fs::write(&path, key.to_text().as_bytes()).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let run = Running::start(&host);
    until("the reason is shown", || overlay(&host)["reason"] == "failed");
    let shown = overlay(&host);
    assert!(shown["remedy"].as_str().unwrap().contains("chmod 600"), "{shown}");
    assert_eq!(run.log().matches("chmod 600").count(), 1, "{}", run.log());
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(claim(&plane, 1).wireguard_public_key, key.public_text().unwrap());
    assert_eq!(overlay(&host)["reason"], "waiting");
}

#[test]
fn while_it_waits_for_the_control_plane_there_is_nothing_to_report() {
    let (plane, host) = enrolled();
    let _run = Running::start(&host);
    let first = claim(&plane, 1);
    assert_eq!(overlay(&host)["reason"], "waiting");
    plane.wait("heartbeats", |record| record.lives.heartbeats >= 5);
    assert!(plane.record().lives.evidence.iter().all(|evidence| evidence.overlay.is_none()));
    // Then there is something: the interface cannot be made.
    plane.record().lives.send_answer(place(&first));
    let unavailable = |evidence: &api::agent::Evidence| {
        evidence.overlay.as_ref().is_some_and(|report| report.state == "unavailable")
    };
    plane.wait("a report", |record| record.lives.evidence.iter().any(unavailable));
    let reports = plane.record().lives.evidence.clone();
    let reasons: Vec<_> = reports.into_iter().filter_map(|one| Some(one.overlay?.reason)).collect();
    assert!(reasons.iter().all(|reason| reason != "waiting" && reason != "failed"), "{reasons:?}");
}

#[test]
fn what_a_refusal_says_to_do_is_shown() {
    let (plane, host) = enrolled();
    let run = Running::start(&host);
    let first = claim(&plane, 1);
    plane.record().lives.send_answer(refusal(&first, "endpoint_invalid"));
    until("the reason is shown", || overlay(&host)["reason"] == "failed");
    let shown = overlay(&host);
    assert_eq!(shown["remedy"].as_str(), Some(api::code::ENDPOINT_INVALID.hint), "{shown}");
    for word in ["one", "two", "three"] {
        plane.record().lives.send_answer(refusal(&first, word));
    }
    until("the last is shown", || overlay(&host)["detail"].as_str().unwrap().contains("three"));
    assert_eq!(run.log().matches("refuses this host's place").count(), 1, "{}", run.log());
}
