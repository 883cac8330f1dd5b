"""Where hosts are reached, among whom they are, and what the control plane does when somebody overdoes it."""

import struct
import time

import pytest

import hosts
import native
from light_streams import DATA, LightStream, Reader, frame
from machine import ENLIST, run, until
from overlays import Fleet, Host, Key


@pytest.fixture
def fleet(plane):
    with Fleet(plane) as hosts:
        yield hosts


BAD = [
    {"ipv4": "0.0.0.0", "port": 51820},
    {"ipv4": "224.0.0.1", "port": 51820},
    {"ipv4": "255.255.255.255", "port": 51820},
    {"ipv4": "169.254.0.1", "port": 51820},
    {"ipv4": "192.0.2.1", "port": 0},
    {"ipv6": "::", "port": 51820},
    {"ipv6": "ff02::1", "port": 51820},
    {"ipv6": "fe80::1", "port": 51820},
    {"ipv6": "::ffff:192.0.2.1", "port": 51820},
]


def test_an_endpoint_must_be_one_that_others_can_send_to(plane, fleet):
    """Refused on the live stream and at both enrollments, with the token unspent; loopback is for callers on loopback."""
    host = fleet.host()
    for number, bad in enumerate(BAD):
        if number % 4 == 0:
            host = fleet.host(join=False)
        assert host.refused(underlay=native.pb.Underlay(**bad)) == "endpoint_invalid", bad
    for bad in BAD:
        token = plane.mint()
        with native.door(plane) as door:
            import certs

            key = certs.ec_key()
            refused = door.refused(
                token["token"], certs.csr(key), wireguard_public_key=Key().text, underlay=native.pb.Underlay(**bad)
            )
            assert refused.code == "endpoint_invalid", bad
        assert plane.token_state(token["token_id"]) == "unused"
        plfm = hosts.mint(plane)
        answer = hosts.ask(plane, hosts.request(plfm["token"], underlay_endpoint=bad))
        assert (answer.status, answer.code) == (400, "endpoint_invalid"), (bad, answer)
        assert hosts.unused(plane, plfm["token_id"])


def test_an_endpoint_that_a_host_only_names_keeps_nobody_out_and_a_change_is_told(plane, fleet):
    """Whoever names an address first may be lying: another host that names it too is a peer there all the same."""
    watcher = fleet.host(wants={"ipv4": "192.0.2.10", "port": 51820})
    host = fleet.host(wants={"ipv4": "192.0.2.11", "port": 51820})
    until(lambda: host.id in watcher.others(), "the host")
    taken = native.pb.Underlay(ipv4="192.0.2.10", port=51820)
    assert host.refused(underlay=taken) == ""
    until(lambda: watcher.peers[host.id].ipv4 == bytes([192, 0, 2, 10]), "the same endpoint")
    host.wants = {"ipv4": "192.0.2.12", "ipv6": "2001:db8::12", "port": 51821}
    host.join(revision=max(host.revision, 1))
    until(lambda: watcher.peers[host.id].port == 51821, "the new endpoint")
    assert watcher.peers[host.id].ipv6 == bytes.fromhex("20010db8000000000000000000000012")
    both = ["[2001:db8::12]:51821", "192.0.2.12:51821"]
    assert host.shown()["underlay_endpoints"] == both
    status = next(item for item in plane.items("/v1/overlay") if item["node_id"] == host.id)
    assert status["underlay_endpoints"] == both
    line = [line for line in plane.audit("host.endpoint_changed") if line["node_id"] == host.id]
    assert [entry["underlay_endpoint"] for entry in line] == ["192.0.2.10:51820", "[2001:db8::12]:51821"]
    assert not watcher.lost


def test_a_scope_of_vclusters_parts_a_tenant(plane_of_its_own):
    """Peers are those of the same vCluster; a move, an unassignment and another scope are told as a whole set."""
    plane = plane_of_its_own
    for name in ("red", "blue"):
        plane.cli("vcluster", "create", name)
    with Fleet(plane) as fleet:
        one, two, three = (fleet.host() for _ in range(3))
        one.sees(two, three)
        plane.cli("node", "assign", one.id, "red")
        plane.cli("node", "assign", two.id, "red")
        plane.policy("overlay.scope", "vcluster")
        three.sees()
        plane.cli("node", "assign", three.id, "blue")
        shown = run(ENLIST, "overlay", "status", "--dir", plane.dir).out
        assert all(name in shown for name in ("VCLUSTER", "red", "blue")), shown
        one.sees(two)
        two.sees(one)
        three.sees()
        plane.cli("node", "move", two.id, "blue")
        one.sees()
        two.sees(three)
        three.sees(two)
        plane.cli("node", "unassign", two.id)
        two.sees()
        three.sees()
        known = three.revision
        three.close()
        plane.cli("node", "move", three.id, "red")
        back = Host(three.node, three.key).open()
        fleet.hosts.append(back)
        back.join(revision=max(known, 1))
        back.sees(one)
        assert not back.frames[0].HasField("after"), "whoever knew other peers is told all of them"
        plane.policy("overlay.scope", "tenant")
        for host, others in ((one, (two, back)), (two, (one, back)), (back, (one, two))):
            host.sees(*others)


def test_the_keepalive_of_the_policy_reaches_hosts(plane_of_its_own):
    """In the answer to a claim, and again when it changes."""
    plane = plane_of_its_own
    plane.policy("overlay.keepalive", "25s")
    with Fleet(plane) as fleet:
        host = fleet.host()
        assert host.answers[0].keepalive_s == 25
        plane.policy("overlay.keepalive", "off")
        assert host.answer(2).keepalive_s == 0
    for bad in ("0s", "1500ms", "65536s", "soon"):
        assert plane.cli("policy", "set", "overlay.keepalive", bad, ok=False).code == 3


def test_claims_are_limited(plane, fleet):
    """Four at once and then one in five seconds; what comes before its time waits, and of those that wait the newest counts."""
    host = fleet.host(join=False)
    began = time.monotonic()
    assert [host.refused(proof=b"") for _ in range(4)] == ["wireguard_key_unproven"] * 4
    for proof in (b"", b"x"):
        host.claim(proof=proof)
    host.join()
    assert time.monotonic() - began > 4 and len(host.answers) == 5, host.answers
    mover = fleet.host(wants={"ipv4": "192.0.2.100", "port": 40000})
    known = len(mover.answers)
    for port in range(40001, 40021):
        mover.wants = {"ipv4": "192.0.2.100", "port": port}
        mover.claim(revision=mover.revision)
    until(lambda: mover.shown()["underlay_endpoint"] == "192.0.2.100:40020", "the newest endpoint")
    changes = [line for line in plane.audit("host.endpoint_changed") if line["node_id"] == mover.id]
    assert len(changes) <= 5 and len(mover.answers) - known <= 6, (len(changes), len(mover.answers))


def test_a_large_set_comes_in_pieces_and_who_does_not_read_it_is_ended(plane_of_its_own):
    """Whole sets are cut into pieces of about 32 KiB, and a host that comes later has every peer once. The stream of a host that
    does not read them ends after half a minute, and meanwhile the others are told as ever."""
    plane = plane_of_its_own
    plane.policy("liveness.interval", "2s")
    many = 400
    known = [peer_without_a_stream(plane, number) for number in range(many)]
    with Fleet(plane) as fleet:
        host = fleet.host()
        until(lambda: len(host.others()) == many, "all peers")
        assert host.frames[0].pieces > 1 and len(host.frames) >= host.frames[0].pieces
        assert max(frame.ByteSize() for frame in host.frames) < 40 * 1024
        assert host.others() == set(known)
        deaf = native.enroll(plane)
        deaf.confirm()
        reader = Reader()
        try:
            stream = DeafStream(reader, plane, deaf.files, deaf.id)
            assert stream.greeted.wait(30)
            key = Key()
            stream.claim(native.pb.OverlayClaim(wireguard_public_key=key.text, proof=key.proof(stream.challenge(), deaf.id)))
            until(lambda: deaf.id in host.others(), "it is on record")
            plane.cli("node", "revoke", known[0])
            until(lambda: known[0] not in host.others(), "the others are told")
            assert stream.ended.wait(90), "its stream goes on"
            assert plane.node(deaf.id)["state"] == "active", "the node is as it was"
        finally:
            reader.close()


def peer_without_a_stream(plane, number: int) -> str:
    return hosts.active(plane, underlay_endpoint={"ipv4": f"10.0.{number // 250}.{number % 250 + 1}", "port": 51820}).id


class DeafStream(LightStream):
    """One that has room for 24 KiB, and makes no more."""

    settings = b"\0\4" + (24 * 1024).to_bytes(4, "big")

    def challenge(self) -> bytes:
        greeted = lambda: [m.welcome for m in self.messages() if m.WhichOneof("message") == "welcome"]  # noqa: E731
        return until(greeted, "the Welcome")[0].overlay_challenge

    def claim(self, claim) -> None:
        said = native.pb.LiveUp(overlay=claim).SerializeToString()
        self.tls.setblocking(True)
        self.tls.sendall(frame(DATA, 0, 1, struct.pack(">BI", 0, len(said)) + said))
        self.tls.setblocking(False)


def test_what_was_acknowledged_before_a_kill_is_told_and_hosts_go_on_after_it(plane_of_its_own):
    """Proves PLFM-25: a revocation reaches the peers even if the control plane is killed right after its answer; after the restart
    hosts claim again against a new challenge and go on where they were."""
    plane = plane_of_its_own
    with Fleet(plane) as fleet:
        watchers = [fleet.host() for _ in range(4)]
        gone = fleet.host()
        for watcher in watchers:
            until(lambda watcher=watcher: gone.id in watcher.others(), "the host")
        assert plane.api("POST", f"/v1/nodes/{gone.id}/revoke", {}).status == 200
        plane.kill()
        for watcher in watchers:
            watcher.stream.ended.wait(60)
            until(lambda watcher=watcher: gone.id not in watcher.others(), "told before the end")
        plane.start()
        first = watchers[0]
        back = Host(first.node, first.key).open(plane)
        fleet.hosts.append(back)
        assert back.welcome.overlay_challenge != first.welcome.overlay_challenge
        stale = back.key.proof(first.welcome.overlay_challenge, back.id)
        assert back.refused(proof=stale) == "wireguard_key_unproven", "the challenge of the process before"
        back.peers, back.revision = dict(first.peers), first.revision
        back.join(revision=first.revision)
        late = fleet.host()
        until(lambda: late.id in back.others(), "news")
        assert not back.lost and gone.id not in back.others()


def test_status_shows_what_hosts_were_told_and_what_they_say(plane, fleet):
    """`enlist overlay status`, `node show` and the alerts follow from what hosts report."""
    host, other = fleet.host(), fleet.host()
    until(lambda: other.id in host.others(), "a peer")

    def status() -> dict:
        listed = plane.items("/v1/overlay")
        return next(item for item in listed if item["node_id"] == host.id)

    known = status()
    assert known["address"] == host.address and known["connected"] and known["state"] is None
    assert known["differs"] == ["not_reported"]
    until(lambda: status()["told"] == {"revision": known["revision"], "peers": known["peers"]}, "told")
    report = {
        "state": "up",
        "interface": "wg0",
        "backend": "userspace",
        "wireguard_public_key": host.key.text,
        "revision": known["revision"],
        "peers": known["peers"],
        "oldest_handshake_s": 7,
        "recent_handshakes": 1,
    }
    host.stream.evidence(overlay=native.pb.OverlayReport(**report))
    until(lambda: status()["differs"] == [], "nothing differs")
    assert status()["oldest_handshake_s"] == 7 and status()["applied"]["peers"] == known["peers"]
    shown = host.shown()
    assert (shown["state"], shown["reason"], shown["revision"]) == ("up", None, known["revision"])
    assert shown["peers"] == known["peers"]

    def alerts() -> set:
        return {alert["kind"] for alert in plane.items("/v1/alerts") if alert["node_id"] == host.id}

    host.stream.evidence(overlay=native.pb.OverlayReport(**{**report, "differences": 2}))
    until(lambda: "overlay_drift" in alerts(), "the alert")
    assert "peers" in status()["differs"]
    fault = {"state": "unavailable", "reason": "no_tun_device", "detail": "/dev/net/tun is missing"}
    host.stream.evidence(overlay=native.pb.OverlayReport(**fault))
    until(lambda: "overlay_unavailable" in alerts() and "overlay_drift" not in alerts(), "the other alert")
    assert host.shown()["reason"] == "no_tun_device" and status()["differs"] == ["unavailable"]
    host.stream.evidence(overlay=native.pb.OverlayReport(**report))
    until(lambda: not {"overlay_unavailable", "overlay_drift"} & alerts(), "over")
    listed = plane.cli("overlay", "status")
    assert host.id in listed.out and host.address in listed.out
