"""The overlay as hosts learn of it: peers in the answer to an enrollment, and peers later."""

import concurrent.futures
import http.client
import json
import socket
import threading
import time

import pytest

import certs
import hosts
import native
from machine import PATIENCE, until
from plane import ControlPlane


class Waiting:
    """A host that waits for a newer overlay than it knows."""

    def __init__(self, host: hosts.Host, after: int, wait: str = "60s"):
        self.answer, self.error = None, None
        self.thread = threading.Thread(target=self._ask, args=(host, f"overlay?after={after}&wait={wait}"), daemon=True)
        self.thread.start()

    def _ask(self, host, path: str) -> None:
        try:
            self.answer = host.ask("GET", path, timeout=2 * PATIENCE)
        except (OSError, http.client.HTTPException) as error:
            self.error = error

    def end(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "it still waits"
        return self.answer


def keys(overlay: dict) -> set[str]:
    return {peer["public_key"] for peer in overlay["overlay_config"]["peers"]}


def test_a_host_is_a_peer_from_its_confirmation_on(plane):
    """Proves PLFM-17, PLFM-21, PLFM-33: `[v6]:port` or `a.b.c.d:port`, one /128, and nobody before it is `active`."""
    first = hosts.active(plane, underlay_endpoint={"ipv6": "::1", "ipv4": "127.0.0.1", "port": 51999})
    second = hosts.enroll(plane)
    told = {peer["public_key"]: peer for peer in second.answer["overlay_config"]["peers"]}
    assert told[first.wireguard] == {
        "public_key": first.wireguard,
        "endpoint": "127.0.0.1:51999",
        "allowed_ips": [f"{first.address}/128"],
    }
    assert first.answer["overlay_config"]["listen_port"] == 51999
    assert second.wireguard not in told and second.wireguard not in first.peers()
    second.confirm()
    seen = first.peers()[second.wireguard]
    assert seen == {
        "public_key": second.wireguard,
        "endpoint": "127.0.0.1:51820",
        "allowed_ips": [f"{second.address}/128"],
    }
    assert first.wireguard not in first.peers(), "nobody is a peer of itself"
    default = hosts.enroll(plane, underlay_endpoint={"ipv4": "127.0.0.1"})
    assert default.answer["overlay_config"]["listen_port"] == 51820
    assert default.shown()["underlay_endpoint"] == "127.0.0.1:51820"


def test_an_endpoint_is_of_a_family_that_both_have(plane_of_its_own):
    """Proves PLFM-33: IPv6 first, null where two hosts have none in common, in the enrollment's answer and later."""
    plane = plane_of_its_own
    four, six = {"ipv4": "192.0.2.4", "port": 4}, {"ipv6": "2001:db8::6", "port": 6}
    both = {"ipv4": "192.0.2.46", "ipv6": "2001:db8::46", "port": 46}
    named = {name: hosts.active(plane, underlay_endpoint=at) for name, at in (("four", four), ("six", six), ("both", both))}
    keys_of = {host.wireguard: name for name, host in named.items()}
    expected = {
        "four": {"six": None, "both": "192.0.2.46:46"},
        "six": {"four": None, "both": "[2001:db8::46]:46"},
        "both": {"four": "192.0.2.4:4", "six": "[2001:db8::6]:6"},
    }
    for name, host in named.items():
        assert {keys_of[key]: peer["endpoint"] for key, peer in host.peers().items()} == expected[name]
    late = hosts.enroll(plane, underlay_endpoint={"ipv6": "2001:db8::7", "port": 7})
    told = {keys_of[peer["public_key"]]: peer["endpoint"] for peer in late.answer["overlay_config"]["peers"]}
    assert told == {"four": None, "six": "[2001:db8::6]:6", "both": "[2001:db8::46]:46"}
    foreign = late.plane.https("GET", f"/v1/hosts/{named['four'].id}/overlay", certificate=late.files)
    assert (foreign.status, foreign.code) == (403, "not_your_host")
    unknown = late.plane.https("GET", "/v1/hosts/nobody/overlay", certificate=late.files)
    assert (unknown.status, unknown.code) == (403, "not_your_host")


def test_peers_are_told_of_changes(plane):
    """Proves PLFM-21, PLFM-24, PLFM-25: who waits is answered when a host comes and when one is revoked."""
    host = hosts.active(plane)
    known = host.overlay()["revision"]
    waiting = Waiting(host, known)
    comes = hosts.active(plane)
    told = waiting.end().json()
    assert told["revision"] > known and comes.wireguard in keys(told)
    waiting = Waiting(host, told["revision"])
    began = time.monotonic()
    comes.act("revoke")
    later = waiting.end().json()
    assert time.monotonic() - began < 60
    assert later["revision"] > told["revision"] and comes.wireguard not in keys(later)


def test_nothing_new_is_said_when_the_time_is_over(plane_of_its_own):
    """`wait` ends with what there is; without `after`, or with another than the present, nobody waits. 35 s are longer
    than a request's body may take: a wait is no slow request."""
    host = hosts.active(plane_of_its_own)
    known = host.overlay()
    assert host.overlay(f"?after={known['revision']}&wait=1s") == known
    for query in ("?wait=5m", f"?after={known['revision']}", "?after=0&wait=5m", "?after=999999&wait=5m"):
        assert host.overlay(query) == known
    began = time.monotonic()
    assert host.overlay(f"?after={known['revision']}&wait=35s") == known
    assert time.monotonic() - began >= 35


@pytest.mark.parametrize("query", ["wait=6m", "wait=x", "after=x", "after=-1", "after=0&wait="])
def test_an_overlay_asked_for_badly_is_400(plane, query):
    """Bad input gets a clear error."""
    host = hosts.active(plane)
    answer = host.ask("GET", f"overlay?{query}")
    assert (answer.status, answer.code) == (400, "bad_request")


def test_a_host_waits_in_four_places_at_most(plane_of_its_own):
    """The fifth is 429 `too_many_streams`; the others are answered when something happens."""
    plane = plane_of_its_own
    host = hosts.active(plane)
    known = host.overlay()["revision"]
    waiting = [Waiting(host, known) for _ in range(5)]
    refused = until(lambda: next((one for one in waiting if one.answer), None), "one was refused")
    assert (refused.answer.status, refused.answer.code) == (429, "too_many_streams")
    comes = hosts.active(plane)
    for one in waiting:
        assert one is refused or comes.wireguard in keys(one.end().json())


def test_a_wait_ends_with_the_host(plane):
    """Proves PLFM-24: a host that is revoked while it waits is cut off or told, and gets no peers."""
    host, other = hosts.active(plane), hosts.active(plane)
    waiting = Waiting(host, host.overlay()["revision"])
    host.act("revoke")
    answer = waiting.end()
    assert answer is None or answer.status in (401, 403), answer
    assert host.wireguard not in other.peers()


def test_a_wait_ends_with_the_process(plane_of_its_own):
    """SIGTERM ends in time, whoever waits."""
    plane = plane_of_its_own
    host = hosts.active(plane)
    waiting = Waiting(host, host.overlay()["revision"], "5m")
    until(lambda: host.ask("GET", "overlay").status == 200, "it is served")
    plane.stop()
    waiting.end()


def test_quarantine_takes_a_host_out_and_its_peers_away(plane):
    """Proves PLFM-35 and D36: a quarantined host is `active` in the words of the document, and neither has peers nor is one."""
    host, other = hosts.active(plane), hosts.active(plane)
    assert plane.api("POST", f"/v1/nodes/{host.id}/quarantine", {"reason": "odd"}).status == 200
    assert host.wireguard not in other.peers() and host.peers() == {}
    assert host.shown()["state"] == "active"
    assert plane.api("POST", f"/v1/nodes/{host.id}/release", {}).status == 200
    assert host.wireguard in other.peers() and other.wireguard in host.peers()


def test_draining_and_silence_leave_a_host_a_peer(plane_of_its_own):
    """Proves PLFM-26, PLFM-35: only revoke, decommission and quarantine remove it; inactive reads `active`, or `draining`."""
    plane = plane_of_its_own
    plane.policy("liveness.grace", "2s")
    host, other = hosts.active(plane), hosts.active(plane)
    revision = other.overlay()["revision"]
    with native.door(plane, host.files) as door:
        stream = door.live(host.id)
        stream.next("welcome")
        stream.close()
    until(lambda: plane.node(host.id)["state"] == "inactive", "silence was noticed")
    assert host.shown()["state"] == "active"
    for _ in range(2):
        assert host.act("drain")["state"] == "draining"
    assert host.wireguard in other.peers() and other.overlay()["revision"] == revision
    assert len([line for line in plane.audit("host.draining") if line["host_id"] == host.id]) == 1


def test_addresses_are_nobody_elses_and_rest(plane_of_its_own):
    """Proves PLFM-18, PLFM-26: from one /48 of the domain, never two alike, given back when a host goes, used again
    after `overlay.cooldown` only."""
    plane = plane_of_its_own
    fleet = [hosts.active(plane) for _ in range(6)]
    addresses = [host.address for host in fleet]
    assert len(set(addresses)) == 6 and len({":".join(address.split(":")[:3]) for address in addresses}) == 1
    fleet[0].act("decommission")
    assert fleet[0].shown()["overlay_ipv6"] is None
    assert hosts.enroll(plane).address not in addresses
    plane.policy("overlay.cooldown", "1s")
    found = []
    until(lambda: found.append(hosts.enroll(plane).address) or fleet[0].address in found, "it came back")
    assert len(set(found)) == len(found)


def test_a_host_that_lost_its_answer_gets_it_again(plane):
    """D30: the same certificate byte for byte, and of the peers of the first answer those that still are peers."""
    stays, goes = hosts.active(plane), hosts.active(plane)
    key, token = certs.ec_key(), hosts.mint(plane)["token"]
    body = hosts.request(token, certs.csr(key))
    first = hosts.ask(plane, body, "again-1")
    assert first.status == 201
    told = {peer["public_key"] for peer in first.json()["overlay_config"]["peers"]}
    assert {stays.wireguard, goes.wireguard} <= told
    goes.act("revoke")
    hosts.active(plane)
    again = hosts.ask(plane, body, "again-1")
    assert again.status == 201
    expected = first.json()
    peers = expected["overlay_config"]["peers"]
    expected["overlay_config"]["peers"] = [peer for peer in peers if peer["public_key"] != goes.wireguard]
    assert again.json() == expected
    for other in (hosts.ask(plane, body), hosts.ask(plane, body, "again-2")):
        assert (other.status, other.code) == (409, "token_used")
    host = hosts.Host(plane, first.json(), key, body)
    host.confirm()
    late = hosts.ask(plane, body, "again-1")
    assert (late.status, late.code) == (409, "token_used"), "confirmed: the answer was not lost"
    bad = hosts.ask(plane, body, "with space")
    assert (bad.status, bad.code) == (400, "idempotency_key_invalid")


def test_a_host_without_a_wireguard_key_has_no_overlay(plane):
    """A node of the native door may ask, and is told why there is nothing: 404 `no_overlay`."""
    node = native.enroll(plane)
    answer = plane.https("GET", f"/v1/hosts/{node.id}/overlay", certificate=node.files)
    assert (answer.status, answer.code) == (404, "no_overlay")


CROWD = 150
"""Hosts whose peers are more than one piece of an answer."""


@pytest.fixture(scope="module")
def crowd(programs):
    with ControlPlane() as plane, concurrent.futures.ThreadPoolExecutor(4) as several:
        yield list(several.map(lambda _: hosts.active(plane), range(CROWD)))


class Deaf:
    """Asks the same on many streams of HTTP/2, with room for `window` bytes of each answer, and takes the heads only."""

    def __init__(self, plane, window: int, streams: int, fields: dict, body: bytes = b"", files=None):
        context = plane.context(files)
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", plane.port), timeout=PATIENCE)
        self.connection = context.wrap_socket(raw, server_hostname="127.0.0.1")
        fields = {":scheme": "https", ":authority": "localhost", **fields}
        head = b"".join(b"\x10" + text(name) + text(value) for name, value in fields.items())
        said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"\x00\x04" + window.to_bytes(4, "big"))
        for stream in range(1, 2 * streams, 2):
            said += frame(1, 4, stream, head) + frame(0, 1, stream, body)
        self.connection.sendall(said)
        with self.connection.makefile("rb") as answers:
            while streams:
                start = answers.read(9)
                assert len(start) == 9, "the connection ended before all was answered"
                answers.read(int.from_bytes(start[:3], "big"))
                streams -= start[3] == 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def text(value: str) -> bytes:
    assert len(value) < 127
    return bytes([len(value)]) + value.encode()


@pytest.mark.alone
@pytest.mark.parametrize("window", [0, 1, 16000])
def test_answers_that_are_not_read_are_few_and_small(crowd, window):
    """One host asks thousands of times and reads nothing, or little: it is told to wait, and nobody else notices."""
    host, other = crowd[:2]
    plane, whole = host.plane, host.ask("GET", "overlay").body
    assert len(whole) > 18000, "more than the largest window takes"
    before = plane.status("VmRSS")
    fields = {":method": "GET", ":path": f"/v1/hosts/{host.id}/overlay"}
    deaf = [Deaf(plane, window, 64, fields, files=host.files)]
    try:
        refused = host.ask("GET", "overlay")
        assert (refused.status, refused.code) == (429, "too_many_streams")
        assert int(refused.headers["Retry-After"]) > 0
        assert len(other.peers()) == CROWD - 1
        deaf += [Deaf(plane, window, 64, fields, files=host.files) for _ in range(47)]
        grown = plane.status("VmRSS") - before
        assert grown < 32 * 1024, f"{grown} KiB for {48 * 64} answers of {len(whole)} bytes that nobody reads"
        assert len(other.peers()) == CROWD - 1
    finally:
        for one in deaf:
            one.connection.close()
    until(lambda: host.ask("GET", "overlay").body == whole, "there are turns again")


@pytest.mark.parametrize("window", [0, 1, 16000])
def test_an_enrollment_is_answered_again_a_few_times_at_once(crowd, window):
    """A spent token and no certificate: who repeats the request and reads nothing is told to wait, others enroll."""
    plane, key = crowd[0].plane, certs.ec_key()
    body = hosts.request(hosts.mint(plane)["token"], certs.csr(key))
    first = hosts.ask(plane, body, "unread")
    assert first.status == 201 and len(first.body) > 18000
    fields = {":method": "POST", ":path": "/v1/hosts/enroll", "content-type": "application/json"}
    fields["idempotency-key"] = "unread"
    deaf = []
    try:
        deaf += [Deaf(plane, window, 8, fields, json.dumps(body).encode()) for _ in range(4)]
        refused = hosts.ask(plane, body, "unread")
        assert (refused.status, refused.code) == (429, "overloaded")
        assert int(refused.headers["Retry-After"]) > 0
        hosts.enroll(plane)
    finally:
        for one in deaf:
            one.connection.close()
    again = until(lambda: (answer := hosts.ask(plane, body, "unread")).status == 201 and answer, "it is answered again")
    assert again.body == first.body
