"""Hosts claim their place in the overlay on the live stream, and are told of each other."""

import base64

import pytest

import native
from machine import until
from overlays import Fleet, Host, Key


@pytest.fixture
def fleet(plane):
    with Fleet(plane) as hosts:
        yield hosts


def test_a_host_that_enrolled_without_a_key_joins_later(plane, fleet):
    """Proves PLFM-21: it is given an address, everybody hears of it, and the trail says so."""
    first = fleet.host()
    before = first.others()
    second = fleet.host(join=False)
    assert not second.welcome.overlay and len(second.welcome.overlay_challenge) == 32
    assert not second.frames, "nothing is told before the claim"
    second.join()
    until(lambda: first.others() == before | {second.id}, "the first hears of the second")
    until(lambda: second.others() == before | {first.id}, "the second hears of all")
    answer = second.answers[-1]
    assert (answer.prefix_length, answer.mtu, answer.keepalive_s) == (64, 1420, 0)
    assert first.address_of(second) == answer.address and answer.address.startswith("fd")
    told = first.peers[second.id]
    assert told.wireguard_public_key == second.key.public
    assert (told.ipv4, told.ipv6, told.port) == (b"\x7f\0\0\1", b"", 51820)
    line = next(line for line in plane.audit("host.overlay_joined") if line["node_id"] == second.id)
    assert line["host_id"] == second.id and line["overlay_ipv6"] == answer.address
    assert line["wireguard_pubkey_fingerprint"] == second.key.fingerprint
    assert line["underlay_endpoint"] == "127.0.0.1:51820"
    shown = second.shown()
    assert shown["address"] == answer.address and shown["wireguard_public_key"] == second.key.text
    second.close()
    again = Host(second.node, second.key).open()
    fleet.hosts.append(again)
    assert again.welcome.overlay, "a key is on record"
    again.join()
    assert again.answers[-1].address == answer.address
    joined = [line for line in plane.audit("host.overlay_joined") if line["node_id"] == second.id]
    assert len(joined) == 1, "what is on record is confirmed, and no news"


def test_the_place_is_answered_before_the_peers(plane, fleet):
    """A host that has no place yet drops what it is told of peers: whoever joins or comes back hears of its place first."""
    for number in range(30):
        wants = {"ipv4": "127.0.0.1", "port": 1000 + number}
        key = Key()
        enrolling = {"wireguard_public_key": key.text, "underlay": native.pb.Underlay(**wants)} if number % 2 else {}
        node = native.enroll(plane, **enrolling)
        node.confirm()
        with Host(node, key, wants=wants).open() as host:
            host.join()
            assert host.arrived[:2] == ["overlay_answer", "overlay_peers"], (number, host.arrived)
    host = fleet.host()
    plane.cli("node", "quarantine", host.id, "--reason", "odd")
    until(lambda: not host.peers, "no peers")
    before = len(host.arrived)
    plane.cli("node", "release", host.id)
    until(lambda: host.peers, "its peers")
    assert "overlay_answer" not in host.arrived[before + 1 :], host.arrived[before:]


def test_a_key_must_be_proven(plane, fleet):
    """A proof of another key, for another node, against another challenge, or none, and the host stays out."""
    host = fleet.host(join=False)
    challenge = host.welcome.overlay_challenge
    other = Key()
    bent = [
        {"proof": b""},
        {"proof": other.proof(challenge, host.id, host.key.public)},
    ]
    for claim in bent:
        assert host.refused(**claim) == "wireguard_key_unproven", claim
    assert plane.node(host.id)["overlay"]["address"] is None
    assert not host.frames
    second = fleet.host(join=False)
    assert second.refused(proof=second.key.proof(challenge, host.id)) == "wireguard_key_unproven"
    elsewhere = second.key.proof(Key().public, second.id)
    assert second.refused(proof=elsewhere) == "wireguard_key_unproven"
    assert not [line for line in plane.audit("host.overlay_joined") if line["node_id"] in (host.id, second.id)]
    assert host.join().address


def test_malformed_low_order_and_foreign_keys_are_refused(plane, fleet):
    """A duplicate raises `wireguard_key_conflict` at its holder; the node stays enrolled and may bring another key."""
    holder = fleet.host()
    host = fleet.host(join=False)
    assert host.refused(wireguard_public_key="no key") == "wireguard_key_invalid"
    assert host.refused(wireguard_public_key="AAAA") == "wireguard_key_invalid"
    for low in (bytes(32), b"\1" + bytes(31)):
        assert host.refused(wireguard_public_key=base64.b64encode(low).decode()) == "wireguard_key_invalid"
    host = fleet.host(join=False)
    twin = holder.key.public[:31] + bytes([holder.key.public[31] | 0x80])
    said = {"wireguard_public_key": base64.b64encode(twin).decode(), "proof": holder.key.proof(host.welcome.overlay_challenge, host.id, twin)}
    assert host.refused(**said) == "wireguard_key_invalid", "hosts would take it for the holder's"
    assert host.refused(key=holder.key) == "wireguard_key_in_use"
    raised = until(
        lambda: [a for a in plane.items("/v1/alerts") if a["kind"] == "wireguard_key_conflict" and a["node_id"] == holder.id],
        "an alert",
    )
    assert "claimed the WireGuard key" in raised[0]["detail"]
    assert plane.node(host.id)["state"] == "active"


def test_a_claim_with_another_key_needs_an_order(plane, fleet):
    """The key on record is replaced by order alone; then all peers hear of the new one, and the old one stays reserved."""
    watcher, host = fleet.host(), fleet.host()
    until(lambda: host.id in watcher.others(), "the watcher hears of the host")
    old, new = host.key, Key()
    assert host.refused(key=new) == "rekey_not_ordered"
    shown = plane.cli("node", "rotate", "--overlay", host.id)
    assert shown.code == 0, shown
    order = until(lambda: host.orders, "the order")[0]
    assert order.WhichOneof("order") == "rekey_overlay"
    thief = Key()
    assert host.refused(key=thief) == "wireguard_key_unproven", "a certificate alone"
    assert host.refused(key=thief, former_proof=thief.proof(host.welcome.overlay_challenge, host.id)) == "wireguard_key_unproven"
    both = host.former_proof(new)
    host.key = new
    host.join(former_proof=both)
    until(lambda: watcher.peers[host.id].wireguard_public_key == new.public, "the peer's new key")
    line = [line for line in plane.audit("host.rekeyed") if line["node_id"] == host.id]
    assert [entry["wireguard_pubkey_fingerprint"] for entry in line] == [new.fingerprint]
    other = fleet.host(join=False)
    assert other.refused(key=old) == "wireguard_key_in_use", "the old key stays the node's"
    third = Key()
    assert host.refused(key=third) == "rekey_not_ordered", "one order is one key"


def test_a_host_that_has_lost_its_key_is_let_in_again_by_an_operator(plane, fleet):
    """`--replace` needs no proof of the key on record, once, and the trail says so."""
    host = fleet.host()
    plane.cli("node", "rotate", "--overlay", host.id)
    host.key = Key()
    assert host.refused() == "wireguard_key_unproven" and "--replace" in host.answers[-1].detail
    plane.cli("node", "rotate", "--overlay", host.id, "--replace")
    host.join()
    ordered = [line.get("without_former_key") for line in plane.audit("host.rekey_ordered") if line["node_id"] == host.id]
    assert ordered == [None, True]
    assert plane.cli("node", "rotate", host.id, "--replace", ok=False).code == 2
    refused = plane.api("POST", f"/v1/nodes/{host.id}/rotate", {"replace": True})
    assert (refused.status, refused.code) == (400, "bad_request")


def test_tenants_do_not_see_each_other(plane, fleet):
    """Whatever a host claims, it is told of hosts of its own tenant, and only of those."""
    plane.cli("tenant", "create", "acme")
    ours, theirs = fleet.host(), fleet.host(tenant="acme")
    second = fleet.host(tenant="acme")
    theirs.sees(second)
    second.sees(theirs)
    until(lambda: ours.frames, "frames")
    assert not {theirs.id, second.id} & ours.others()
    # A revision of another tenant's overlay is no way in.
    second.join(revision=max(1, second.revision))
    second.sees(theirs)


def test_deltas_follow_the_set_and_cost_what_they_tell(plane, fleet):
    """One change is one small message, whatever the number of peers; a host that comes back goes on where it was."""
    hosts = [fleet.host() for _ in range(4)]
    watcher = fleet.host()
    until(lambda: {host.id for host in hosts} <= watcher.others(), "all peers")
    seen = len(watcher.frames)
    late = fleet.host()
    until(lambda: late.id in watcher.others(), "the newcomer")
    told = [frame for frame in watcher.frames[seen:] if any(peer.node_id == late.id for peer in frame.peers)]
    assert len(told) == 1 and told[0].HasField("after") and len(told[0].peers) == 1, told
    plane.cli("node", "revoke", late.id)
    until(lambda: late.id not in watcher.others(), "the newcomer is gone")
    assert list(watcher.frames[-1].gone) == [late.id] and not watcher.frames[-1].peers
    known, peers = watcher.revision, dict(watcher.peers)
    watcher.close()
    plane.cli("node", "revoke", hosts[0].id)
    back = Host(watcher.node, watcher.key).open()
    fleet.hosts.append(back)
    back.peers, back.revision = peers, known
    back.join(revision=known)
    until(lambda: hosts[0].id not in back.others(), "what it missed")
    assert all(frame.HasField("after") for frame in back.frames) and not back.lost
    assert not any(host.lost for host in fleet.hosts)


def test_quarantine_is_an_empty_set_and_release_the_whole_one(plane, fleet):
    """A host in quarantine has no peers and is nobody's; released, it has them again without a claim."""
    watcher, host = fleet.host(), fleet.host()
    until(lambda: host.id in watcher.others() and watcher.id in host.others(), "each other")
    plane.cli("node", "quarantine", host.id, "--reason", "odd")
    until(lambda: host.id not in watcher.others(), "nobody's peer")
    until(lambda: not host.peers, "no peers")
    assert host.revision == 0 and not host.frames[-1].HasField("after")
    plane.cli("node", "release", host.id)
    until(lambda: host.id in watcher.others() and watcher.id in host.others(), "each other again")
    joining = fleet.host(join=False)
    plane.cli("node", "quarantine", joining.id, "--reason", "odd")
    assert joining.refused() == "node_quarantined", "a node in quarantine is given nothing"


def test_a_host_that_left_a_quarantine_while_it_was_away_gets_everything(plane, fleet):
    """The empty set leaves no place among the changes to go on from."""
    watcher, host = fleet.host(), fleet.host()
    until(lambda: watcher.id in host.others(), "a peer")
    plane.cli("node", "quarantine", host.id, "--reason", "odd")
    until(lambda: not host.peers, "no peers")
    known = host.revision
    host.close()
    plane.cli("node", "release", host.id)
    back = Host(host.node, host.key).open()
    fleet.hosts.append(back)
    back.revision = known
    back.join(revision=known)
    until(lambda: watcher.id in back.others(), "its peers")


def test_a_native_enrollment_registers_the_key(plane, fleet):
    """The key of the enrollment is on record; the claim only confirms it."""
    key = Key()
    node = native.enroll(plane, wireguard_public_key=key.text, underlay=native.pb.Underlay(ipv4="127.0.0.1", port=51820))
    node.confirm()
    host = Host(node, key).open()
    fleet.hosts.append(host)
    assert host.welcome.overlay
    host.join()
    assert host.shown()["address"] == host.address
    assert not [line for line in plane.audit("host.overlay_joined") if line["node_id"] == host.id]
