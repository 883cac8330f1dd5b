//! The words of the plfm door's document.
#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use api::doors::plfm::{EnrollHost, OverlayConfig, state_word};
use lifecycle::names::{Fingerprint, WireguardKey};
use lifecycle::registry::{Node, NodeState, Peer, Underlay, Wireguard};
use serde_json::json;

fn node(state: NodeState) -> Node {
    let blank = json!({
        "id": "n1", "tenant": "default", "state": state, "state_since": 0, "draining": false, "quarantined": false,
        "vcluster": null, "profile": "plfm", "generation": 1, "enrolled_at": null, "last_seen": null,
        "ever_active": false, "token": null, "idempotency": null, "wireguard": null, "address": null,
        "underlay": null, "hardware": null, "hostname": null, "agent_version": null, "serials": [],
    });
    serde_json::from_value(blank).expect("a node as it was stored first")
}

#[test]
fn states_are_told_in_the_documents_words() {
    use NodeState::{Active, Decommissioned, Enrolled, Inactive, Registered, Revoked};
    for (state, word, draining) in [
        (Registered, "registered", "registered"),
        (Enrolled, "enrolled", "enrolled"),
        (Active, "active", "draining"),
        (Inactive, "active", "draining"),
        (Revoked, "disabled", "disabled"),
        (Decommissioned, "decommissioned", "decommissioned"),
    ] {
        assert_eq!(state_word(&node(state)), word);
        assert_eq!(state_word(&Node { quarantined: true, ..node(state) }), word);
        assert_eq!(state_word(&Node { draining: true, ..node(state) }), draining);
    }
}

#[test]
fn an_overlay_is_written_as_the_document_writes_it() {
    let key = WireguardKey::new([9; 32]).expect("a key");
    let underlay =
        Underlay { ipv6: "2001:db8::1".parse().ok(), ipv4: "203.0.113.1".parse().ok(), port: 51820 };
    let address = "fd12::100".parse().expect("an address");
    let host = Node {
        wireguard: Some(Wireguard { key, fingerprint: Fingerprint::new([0; 32]) }),
        address: Some(address),
        underlay: Some(underlay),
        ..node(NodeState::Active)
    };
    let peer = Peer { key, address, underlay: Some(underlay), since: 1, vcluster: None, regrouped: 0 };
    let config = OverlayConfig::of(&host, [&peer].into_iter()).expect("has an overlay");
    let expected = json!({
        "host_overlay_ipv6": "fd12::100", "listen_port": 51820, "mtu": 1420,
        "peers": [{
            "public_key": "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=",
            "endpoint": "[2001:db8::1]:51820",
            "allowed_ips": ["fd12::100/128"],
        }],
    });
    assert_eq!(serde_json::to_value(config).expect("JSON"), expected);
    assert_eq!(OverlayConfig::of(&node(NodeState::Active), std::iter::empty()), None);
}

#[test]
fn what_a_host_sends_may_hold_more_and_hides_its_token() {
    let request = json!({
        "enrollment_token": "enroll_AbCd", "underlay_endpoint": {"ipv4": "203.0.113.1", "zone": 1},
        "wireguard_public_key": "", "mtls_csr": "", "later": true,
    });
    let request: EnrollHost = serde_json::from_value(request).expect("unknown fields are ignored");
    assert!(!format!("{request:?}").contains("AbCd"));
}
