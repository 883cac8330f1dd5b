//! The daemon against a control plane on loopback: connected, renewing, obeying, ending.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use lifecycle::names::Span;
use tonic::Status;
use world::host::{Host, ended};
use world::plane::{Fault, Plane};
use world::running::{Running, until};

fn enrolled() -> (Arc<Plane>, Host) {
    let (plane, host) = (Plane::start(), Host::new());
    let run = host.enroll(&plane, "good", &[]);
    assert_eq!(run.exit, 0, "{run:?}");
    (plane, host)
}

fn current(host: &Host) -> String {
    fs::read_link(host.path("identity/current")).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn it_connects_beats_reports_and_ends_when_asked() {
    let (plane, host) = enrolled();
    let mut run = Running::start(&host);
    plane.wait("evidence and heartbeats", |record| {
        record.lives.heartbeats >= 2 && !record.lives.evidence.is_empty()
    });
    let hello = plane.record().lives.hellos[0].clone();
    assert_eq!((hello.1.node_id.as_str(), hello.1.bundle_version), ("n-1", 1));
    assert_eq!(hello.1.instance_id.len(), 32);
    let evidence = plane.record().lives.evidence[0].clone();
    assert_eq!((evidence.cert_serial, evidence.bundle_version), (hello.0, 1));

    let status = host.status();
    let document = status.document();
    assert_eq!((status.exit, &document["state"], &document["ready"]), (0, &"active".into(), &true.into()));
    assert_eq!(document["channel"], "up");
    let offset = document["clock_offset_ms"].as_i64().unwrap();
    assert!((-70_000..-50_000).contains(&offset), "{offset}");
    assert_eq!(fs::metadata(host.path("agent.sock")).unwrap().mode() & 0o777, 0o600);
    assert!(host.run(&["status"]).stdout.contains("channel      up"));

    let second = host.run(&["run", "--json"]);
    assert_eq!((second.exit, second.code().as_str()), (1, "dir_in_use"));
    assert_eq!(run.stop(), 0);
    assert!(!host.path("agent.sock").exists());
    assert_eq!(host.status().document()["channel"], "down");
}

#[test]
fn it_enrolls_by_itself_and_waits_for_the_control_plane() {
    let (plane, host) = (Plane::start(), Host::new());
    let pin = plane.pin();
    let args = ["run", "--server", &plane.url, "--ca-pin", &pin];
    plane.set(Fault::RefusesConfirm);
    let mut command = host.command(&args);
    command.env("ENLIST_AGENT_TOKEN", "good");
    let mut run = Running::of(&host, command);
    until("the identity is kept", || host.path("identity/current").exists());
    assert!(plane.record().lives.hellos.is_empty());
    plane.set(Fault::None);
    plane.wait("connected", |record| !record.lives.hellos.is_empty());
    until("confirmed", || !host.path("unconfirmed").exists());
    assert_eq!(plane.calls(), (1, 1));
    assert_eq!(run.stop(), 0);

    let other = Host::new();
    let mut command = other.command(&args);
    let refused = ended(command.arg("--json").env("ENLIST_AGENT_TOKEN", "expired").output().unwrap());
    assert_eq!((refused.exit, refused.code().as_str()), (3, "token_expired"));
    let bare = Host::new().run(&["run", "--json"]);
    assert_eq!((bare.exit, bare.code().as_str()), (2, "not_enrolled"));
}

#[test]
fn it_renews_at_the_point_with_a_new_key_and_switches() {
    let (plane, host) = (Plane::start(), Host::new());
    plane.change(|record| {
        record.lifetime = Some(Span::from_minutes(2));
        record.renew_after = Some(Span::from_secs(1));
    });
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
    let marker = host.path("renewed");
    let mut settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    let textfile = host.path("agent.prom");
    settings.push_str(&format!("on_renew = ['touch', {marker:?}]\nmetrics_textfile = {textfile:?}\n"));
    fs::write(host.path("agent.toml"), settings).unwrap();
    let mut run = Running::start(&host);
    plane.wait("a second connection, and the first one's end", |record| {
        record.lives.hellos.len() == 2 && record.lives.ended == 1
    });
    plane.wait("the new serial in evidence", |record| {
        record.lives.evidence.iter().any(|evidence| {
            evidence.cert_serial == record.lives.hellos[1].0
                && evidence.last_renewal.as_ref().is_some_and(|attempt| attempt.ok)
        })
    });
    let hellos = plane.record().lives.hellos.clone();
    assert_ne!(hellos[0].0, hellos[1].0);
    assert_eq!(current(&host), "0000000002");
    assert!(!host.path("renewal-key.pem").exists());
    until("on_renew", || marker.exists());
    until("metrics", || {
        fs::read_to_string(&textfile)
            .is_ok_and(|text| text.contains("enlist_agent_renewals_total{result=\"ok\"} 1"))
    });
    assert_eq!(host.status().document()["last_renewal"]["ok"], true);
    assert_eq!(run.stop(), 0);
}

#[test]
fn an_order_to_renew_is_done_and_answered() {
    let (plane, host) = enrolled();
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.record().lives.order_renewal("o-1");
    plane.wait("the answer", |record| record.lives.done.iter().any(|done| done.order_id == "o-1" && done.ok));
    assert_eq!(current(&host), "0000000002");
    plane.record().lives.order_renewal("o-1");
    plane.wait("the same answer", |record| record.lives.done.len() == 2);
    assert_eq!(plane.record().renews.len(), 1);
}

#[test]
fn a_bundle_is_acknowledged_and_written_only_where_it_says_something_new() {
    let (plane, host) = enrolled();
    let key = fs::read(host.path("identity/current/key.pem")).unwrap();
    let mut run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.record().lives.send_bundle(6, "garbage");
    let pem = plane.root_pem() + &plane.another_ca_pem();
    plane.record().lives.send_bundle(7, &pem);
    plane.wait("evidence of it", |record| {
        record.lives.evidence.iter().any(|evidence| evidence.bundle_version == 7)
    });
    // What is below the root is not stored.
    assert_eq!(fs::read_to_string(host.path("identity/current/bundle.pem")).unwrap(), plane.root_pem());
    assert_eq!(fs::read(host.path("identity/current/key.pem")).unwrap(), key);
    assert!(run.log().contains("bundle_not_kept"), "{}", run.log());
    // The number alone is not worth a generation: after a restart the same is offered again.
    assert_eq!(current(&host), "0000000001");
    assert_eq!(run.stop(), 0);
}

#[test]
fn a_bundle_that_nobody_trusted_vouches_for_is_refused_and_not_acknowledged() {
    let (plane, host) = enrolled();
    let before = fs::read(host.path("identity/current/bundle.pem")).unwrap();
    let mut run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    let foreign = Plane::start().root_pem();
    plane.record().lives.send_bundle(6, &foreign);
    plane.record().lives.send_bundle(7, &(plane.root_pem() + &foreign));
    plane.record().lives.send_bundle(8, &plane.another_ca_pem());
    plane.set(Fault::ForeignBundle);
    plane.record().lives.order_renewal("o-1");
    plane.wait("the renewal", |record| record.lives.done.iter().any(|done| done.ok));
    assert_eq!(current(&host), "0000000002");
    assert_eq!(fs::read(host.path("identity/current/bundle.pem")).unwrap(), before);
    let record = plane.record();
    assert!(record.lives.evidence.iter().all(|evidence| evidence.bundle_version == 1));
    assert!(record.lives.hellos.iter().all(|(_, hello)| hello.bundle_version == 1));
    drop(record);
    assert_eq!(run.log().matches("bundle_not_kept").count(), 1, "{}", run.log());
    assert_eq!(run.stop(), 0);
}

#[test]
fn a_lost_connection_is_made_again() {
    let (plane, host) = enrolled();
    let _run = Running::start(&host);
    for round in 1..=3 {
        plane.wait("connected", |record| record.lives.hellos.len() == round);
        plane.change(|record| record.lives.cut(&Status::unavailable("going down")));
    }
}

#[test]
fn killed_before_the_answer_it_asks_again_with_the_same_key() {
    let (plane, host) = enrolled();
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.set(Fault::HoldsRenew);
    plane.record().lives.order_renewal("o-1");
    plane.wait("the request", |record| record.renews.len() == 1);
    run.kill();
    assert_eq!(current(&host), "0000000001");
    assert_eq!(fs::metadata(host.path("renewal-key.pem")).unwrap().mode() & 0o777, 0o600);
    plane.set(Fault::None);
    let _run = Running::start(&host);
    plane.wait("connected again", |record| record.lives.hellos.len() == 2);
    plane.record().lives.order_renewal("o-2");
    plane.wait("the renewal", |record| record.lives.done.iter().any(|done| done.order_id == "o-2"));
    let renews = plane.record().renews.clone();
    assert_eq!(renews[0], renews[1]);
    assert_eq!(current(&host), "0000000002");
}

#[test]
fn killed_between_answer_and_proof_it_proves_the_new_certificate_first() {
    let (plane, host) = enrolled();
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.set(Fault::AwayForRenewed);
    plane.record().lives.order_renewal("o-1");
    until("the generation", || host.path("identity/0000000002").exists());
    until("switching", || host.status().document()["channel"] == "switching");
    run.kill();
    assert_eq!(current(&host), "0000000001");
    assert_eq!(host.status().document()["reasons"], serde_json::json!(["daemon_stopped"]));
    plane.set(Fault::None);
    let hellos = plane.record().lives.hellos.len();
    let _run = Running::start(&host);
    plane.wait("connected again", |record| record.lives.hellos.len() > hellos);
    until("the switch", || current(&host) == "0000000002");
    let record = plane.record();
    assert_ne!(record.lives.hellos[hellos].0, record.lives.hellos[0].0, "the old one was not used again");
    assert_eq!(record.renews.len(), 1);
}

#[test]
fn killed_around_the_switch_it_goes_on_with_the_new_certificate() {
    let (plane, host) = enrolled();
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.record().lives.order_renewal("o-1");
    plane.wait("the renewal", |record| !record.lives.done.is_empty());
    run.kill();
    // Proven, and killed just before the switch.
    let key = host.path("renewal-key.pem");
    fs::copy(host.path("identity/0000000002/key.pem"), &key).unwrap();
    fs::remove_file(host.path("identity/current")).unwrap();
    std::os::unix::fs::symlink("0000000001", host.path("identity/current")).unwrap();
    let run = Running::start(&host);
    until("the switch", || current(&host) == "0000000002");
    until("the key's file is gone", || !key.exists());
    run.kill();
    // Switched, and killed just before the key's file was removed.
    fs::copy(host.path("identity/0000000002/key.pem"), &key).unwrap();
    let _run = Running::start(&host);
    until("the key's file is gone", || !key.exists());
    plane.wait("connected", |record| record.lives.hellos.len() >= 4);
    let record = plane.record();
    assert!(record.lives.hellos[1..].iter().all(|(serial, _)| *serial == record.lives.hellos[1].0));
    assert_eq!(record.renews.len(), 1);
}

#[test]
fn a_renewed_certificate_that_is_refused_is_dropped() {
    let (plane, host) = enrolled();
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.set(Fault::RefusesRenewed);
    plane.record().lives.order_renewal("o-1");
    plane.wait("the failure is told", |record| record.lives.done.iter().any(|done| !done.ok));
    assert_eq!(plane.record().lives.done[0].detail, "unauthenticated");
    assert_eq!(current(&host), "0000000001");
    plane.set(Fault::None);
    until("another is put to use", || current(&host) != "0000000001");
    let record = plane.record();
    assert_ne!(record.renews[0], record.renews.last().unwrap().clone(), "with another key");
}

#[test]
fn a_renewed_certificate_is_kept_when_its_stream_is_refused_for_another_reason() {
    let (plane, host) = enrolled();
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.set(Fault::CrowdedForRenewed);
    plane.record().lives.order_renewal("o-1");
    until("the refusal", || run.log().contains("too_many_streams"));
    assert_eq!(host.status().document()["channel"], "switching");
    assert!(host.path("identity/0000000002").exists() && host.path("renewal-key.pem").exists());
    plane.set(Fault::None);
    until("the switch", || current(&host) == "0000000002");
    assert_eq!(plane.record().renews.len(), 1);
}

#[test]
fn a_superseded_certificate_leads_to_the_renewed_one_on_disk() {
    let (plane, host) = enrolled();
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.record().lives.order_renewal("o-1");
    plane.wait("the renewal", |record| !record.lives.done.is_empty());
    run.kill();
    // Without it nothing but the renewed one leads back.
    fs::remove_file(host.path("recovery/token")).unwrap();
    let (key, renewed) = (host.path("renewal-key.pem"), host.path("identity/0000000002/key.pem"));
    let back = || {
        fs::remove_file(host.path("identity/current")).unwrap();
        std::os::unix::fs::symlink("0000000001", host.path("identity/current")).unwrap();
    };
    // The renewed one comes to light only when the old one is refused: a stream at first.
    back();
    plane.set(Fault::Superseded);
    let run = Running::start(&host);
    until("the refusal", || run.log().contains("certificate_superseded"));
    fs::copy(&renewed, &key).unwrap();
    until("the switch", || current(&host) == "0000000002");
    until("the key's file is gone", || !key.exists());
    run.kill();
    // And then a renewal.
    back();
    plane.set(Fault::None);
    let hellos = plane.record().lives.hellos.len();
    let _run = Running::start(&host);
    plane.wait("connected with the old one", |record| record.lives.hellos.len() > hellos);
    fs::copy(&renewed, &key).unwrap();
    plane.set(Fault::Superseded);
    plane.record().lives.order_renewal("o-2");
    until("the switch", || current(&host) == "0000000002");
}

#[test]
fn a_forged_alert_makes_no_host_believe_that_it_is_revoked() {
    let (plane, host) = enrolled();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    fs::write(host.path("agent.toml"), settings.replace(&plane.url, &url)).unwrap();
    let meta = host.path("identity/current/meta.json");
    let text = fs::read_to_string(&meta).unwrap().replace("https://second.example:8443", &plane.url);
    fs::write(&meta, text).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = std::io::Read::read(&mut stream, &mut [0; 16 * 1024]);
            let _ = std::io::Write::write_all(&mut stream, &[0x15, 3, 3, 0, 2, 2, 44]);
        }
    });
    let run = Running::start(&host);
    plane.wait("connected to the next server", |record| !record.lives.hellos.is_empty());
    assert!(!run.log().contains("revoked"), "{}", run.log());
}

#[test]
fn a_revoked_host_says_so_once_and_stays_or_ends() {
    let (plane, host) = enrolled();
    let mut run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.set(Fault::Revoked);
    plane.change(|record| record.lives.cut(&world::live::revoked()));
    until("revoked", || host.status().document()["state"] == "revoked");
    let status = host.status();
    assert_eq!(
        (status.exit, &status.document()["reasons"]),
        (1, &serde_json::json!(["revoked", "identity_revoked_or_fenced"]))
    );
    assert_eq!(run.log().matches("revoked: ").count(), 1, "{}", run.log());
    let remedy = format!("remedy: {}", agent::code::REVOKED);
    assert!(run.log().contains(&remedy), "{}", run.log());
    assert_eq!(run.stop(), 0);
    let alone = host.status();
    assert_eq!((alone.exit, &alone.document()["state"]), (1, &"revoked".into()), "the daemon is gone");

    let before = fs::read_to_string(host.path("agent.toml")).unwrap();
    fs::write(host.path("agent.toml"), format!("{before}exit_on_revoked = true\n")).unwrap();
    assert_eq!(Running::start(&host).exit(), 3);
    fs::write(host.path("agent.toml"), before).unwrap();
}

#[test]
fn a_revoked_host_enrolls_anew_with_a_token_and_nothing_more() {
    let (plane, host) = enrolled();
    let mut run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    plane.set(Fault::Revoked);
    plane.change(|record| record.lives.cut(&world::live::revoked()));
    until("the mark", || host.path("revoked").exists());
    let busy = host.run(&["enroll", "--token", "good", "--json"]);
    assert_eq!((busy.exit, busy.code().as_str()), (1, "dir_in_use"), "{busy:?}");
    assert!(busy.stderr.contains("stop the daemon first"), "{busy:?}");
    assert_eq!(run.stop(), 0);
    let bare = host.run(&["enroll", "--json"]);
    assert_eq!((bare.exit, bare.code().as_str()), (2, "token_missing"));

    plane.set(Fault::None);
    let run = host.enroll(&plane, "second", &[]);
    assert_eq!((run.exit, run.document()["already_enrolled"].as_bool()), (0, Some(false)), "{run:?}");
    assert!(!host.path("revoked").exists());
    assert_eq!(host.status().document()["reasons"], serde_json::json!(["daemon_stopped"]));

    // The same by the daemon itself.
    let serial = host.status().document()["cert_serial"].as_str().unwrap().to_owned();
    fs::write(host.path("revoked"), &serial).unwrap();
    assert_eq!(host.status().document()["state"], "revoked");
    let mut command = host.command(&["run"]);
    command.env("ENLIST_AGENT_TOKEN", "third");
    let mut run = Running::of(&host, command);
    until("another certificate", || host.status().document()["cert_serial"] != serial.as_str());
    until("active", || host.status().document()["state"] == "active");
    assert_eq!(
        host.enroll(&plane, "good", &[]).document()["already_enrolled"],
        true,
        "while the daemon runs"
    );
    assert_eq!(run.stop(), 0);
}

#[test]
fn a_spent_token_does_not_end_a_revoked_host() {
    let (plane, host) = enrolled();
    let serial = host.status().document()["cert_serial"].as_str().unwrap().to_owned();
    fs::write(host.path("revoked"), &serial).unwrap();
    plane.set(Fault::Revoked);
    let mut command = host.command(&["run"]);
    command.env("ENLIST_AGENT_TOKEN", "expired");
    let mut run = Running::of(&host, command);
    until("it says so", || run.log().contains("not enrolled again"));
    until("it stays", || host.status().document()["channel"] == "down" && host.path("agent.sock").exists());
    assert_eq!(
        host.status().document()["reasons"],
        serde_json::json!(["revoked", "identity_revoked_or_fenced"])
    );
    assert_eq!(run.stop(), 0);
}

#[test]
fn trouble_is_told_with_all_servers_and_a_remedy() {
    let (plane, host) = enrolled();
    let dead = |name: &str| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("https://{name}:{}", listener.local_addr().unwrap().port())
    };
    let (one, two) = (dead("localhost"), dead("127.0.0.1"));
    let settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    fs::write(host.path("agent.toml"), settings.replace(&plane.url, &one)).unwrap();
    let meta = host.path("identity/current/meta.json");
    let text = fs::read_to_string(&meta).unwrap().replace(&plane.url, &two);
    fs::write(&meta, text.replace("https://second.example:8443", &two)).unwrap();
    let mut run = Running::start(&host);
    until("the line", || run.log().contains("endpoint_unreachable"));
    let log = run.log();
    assert!(log.contains(&one) && log.contains(&two) && log.contains("remedy: check address"), "{log}");
    assert_eq!(run.stop(), 0);
}

#[test]
fn a_garbage_server_leads_to_few_tries_and_fewer_lines() {
    let (plane, host) = enrolled();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    fs::write(host.path("agent.toml"), settings.replace(&plane.url, &url)).unwrap();
    // The addresses that the plane told at enrollment are out of the way as well.
    let meta = host.path("identity/current/meta.json");
    let text = fs::read_to_string(&meta)
        .unwrap()
        .replace(&plane.url, &url)
        .replace("second.example:8443", "localhost:1");
    fs::write(&meta, text).unwrap();
    let mut run = Running::start(&host);
    for _ in 0..5 {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = std::io::Write::write_all(&mut stream, &b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(50));
    }
    let log = run.log();
    assert!(log.lines().count() <= 4, "{log}");
    assert_eq!(host.status().document()["channel"], "down");
    assert_eq!(run.stop(), 0);
}

#[test]
fn what_may_not_be_trusted_on_disk_is_never_used() {
    let (plane, host) = enrolled();
    // With it the host would recover instead of ending.
    fs::remove_file(host.path("recovery/token")).unwrap();
    let check = |code: &str| {
        let run = host.run(&["run", "--json"]);
        assert_eq!((run.exit, run.code().as_str()), (1, code), "{run:?}");
    };
    let (key, generation) = (host.path("identity/current/key.pem"), host.path("identity/0000000001"));
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chmod(&key, 0o644);
    check("key_exposed");
    chmod(&key, 0o600);
    chmod(&generation, 0o777);
    check("key_exposed");
    chmod(&generation, 0o700);

    let good = fs::read(&key).unwrap();
    fs::write(&key, pki::agent_key::HostKey::generate().unwrap().to_pem().as_bytes()).unwrap();
    check("identity_damaged");
    let elsewhere = host.file("key.pem", std::str::from_utf8(&good).unwrap());
    chmod(Path::new(&elsewhere), 0o600);
    fs::remove_file(&key).unwrap();
    check("identity_damaged");
    std::os::unix::fs::symlink(&elsewhere, &key).unwrap();
    check("identity_damaged");
    fs::remove_file(&key).unwrap();
    fs::write(&key, &good).unwrap();
    chmod(&key, 0o600);

    let moved = host.dir().with_extension("moved");
    fs::rename(&generation, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &generation).unwrap();
    check("identity_damaged");
    fs::remove_file(&generation).unwrap();
    fs::rename(&moved, &generation).unwrap();
    fs::rename(host.path("identity"), &moved).unwrap();
    std::os::unix::fs::symlink(&moved, host.path("identity")).unwrap();
    check("identity_damaged");
    assert!(plane.record().lives.hellos.is_empty());
}

#[test]
fn metrics_are_served_on_loopback_and_nowhere_else() {
    let (plane, host) = enrolled();
    let settings = fs::read_to_string(host.path("agent.toml")).unwrap();
    fs::write(host.path("agent.toml"), format!("{settings}metrics_listen = '0.0.0.0:9999'\n")).unwrap();
    let run = host.run(&["run", "--json"]);
    assert_eq!((run.exit, run.code().as_str()), (2, "config_invalid"));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("metrics_listen = '127.0.0.1:{port}'\nmetrics_prefix = 'host_'\n");
    fs::write(host.path("agent.toml"), settings + &listen).unwrap();
    let _run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    until("connected in the figures", || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let text = std::io::read_to_string(stream).unwrap();
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\nhost_connected 1\n")
    });
}
