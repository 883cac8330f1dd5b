"""Renewal: a new key each time, and no lost answer strands a node. D10, D11, D32, I2, I3, I12."""

import concurrent.futures
import socket
import time

import certs
import native
import pytest
from daemons import Daemon
from machine import until


@pytest.fixture
def node(plane):
    made = native.enroll(plane)
    made.confirm()
    return made


def shown(plane, node):
    return plane.api("GET", f"/v1/nodes/{node.id}").json()


def status(plane, node):
    return {item["serial"]: item["status"] for item in shown(plane, node)["certificates"]}


def test_a_renewal_gives_a_new_certificate_for_a_new_key(plane, node):
    renewed = node.renewed()
    old, new = certs.certificate(node.answer.certificate), certs.certificate(renewed.answer.certificate)
    assert certs.uris(old) == certs.uris(new)
    assert certs.public_der(renewed.key) != certs.public_der(node.key)
    assert certs.serial(new) == renewed.serial != node.serial
    assert certs.verifies(certs.pem(new), (renewed.answer.chain + renewed.answer.bundle).encode())
    assert shown(plane, node)["cert_serial"] == renewed.serial
    lines = [line for line in plane.audit() if line["event_type"] == "certificate.renewed"]
    assert lines[-1]["node_id"] == node.id and lines[-1]["cert_serial"] == renewed.serial


def test_both_are_good_until_the_new_one_is_seen(plane, node):
    renewed = node.renewed()
    assert status(plane, node) == {node.serial: "live", renewed.serial: "live"}
    assert native.alert(plane, node.files) is None
    node.confirm()
    assert status(plane, node) == {node.serial: "live", renewed.serial: "live"}
    renewed.confirm()
    assert status(plane, node) == {node.serial: "superseded", renewed.serial: "live"}
    # It may finish what it began, and no more than that.
    node.confirm()
    with node.door() as door:
        assert door.renewal_refused(certs.good_csr()).code == "certificate_superseded"
    lines = [line for line in plane.audit() if line["event_type"] == "certificate.superseded"]
    assert lines[-1]["cert_serial"] == node.serial and lines[-1]["node_id"] == node.id


def test_a_handshake_alone_is_not_being_seen(plane, node):
    renewed = node.renewed()
    assert native.alert(plane, renewed.files) is None
    assert status(plane, node)[node.serial] == "live"


def test_the_same_key_again_gets_the_same_certificate(plane, node):
    key = certs.ec_key()
    first, second = node.renewed(key), node.renewed(key)
    assert first.answer.certificate == second.answer.certificate
    first.confirm()
    with node.door() as door:
        assert door.renewal_refused(certs.csr(key)).code in ("certificate_superseded", "key_in_use")
    with first.door() as door:
        assert door.renewal_refused(certs.csr(key)).code == "key_in_use"


def test_another_key_replaces_what_was_lost(plane, node):
    lost, found = node.renewed(), node.renewed()
    assert status(plane, node) == {node.serial: "live", lost.serial: "denied", found.serial: "live"}
    assert native.alert(plane, lost.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    found.confirm()


def test_somebody_elses_key_is_refused(plane, node):
    other = native.enroll(plane)
    other.confirm()
    with node.door() as door:
        assert door.renewal_refused(certs.csr(other.key)).code == "key_in_use"
        assert door.renewal_refused(certs.csr(node.key)).code == "key_in_use"
        assert door.renewal_refused(certs.spoiled(certs.good_csr())).code == "csr_invalid"


def test_without_a_certificate_there_is_nothing_to_renew(plane):
    with native.door(plane) as door:
        assert door.renewal_refused(certs.good_csr()).code == "unauthenticated"


def test_an_unconfirmed_node_may_renew_which_confirms_it(plane):
    node = native.enroll(plane)
    node.renewed()
    assert shown(plane, node)["state"] == "active"


def test_twice_in_parallel_leaves_one_good_successor(plane, node):
    """D32."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        renewed = list(pool.map(lambda _: node.renewed(), range(8)))
    live = [serial for serial, what in status(plane, node).items() if what == "live"]
    assert node.serial in live and len(live) == 2
    survivor = next(one for one in renewed if one.serial in live)
    survivor.confirm()


def test_a_superseded_certificate_is_refused_after_its_drain_and_alarms(plane, node):
    """D32, D34: it is not called revoked."""
    plane.policy("renew.drain", "1s")
    try:
        renewed = node.renewed()
        renewed.confirm()

        def refused():
            found = native.alert(plane, node.files)
            # A connection that meets the end of the drain between handshake and request is cut without an alert.
            return None if found == native.CLOSED else found

        refusal = until(refused, "the old certificate is refused")
        assert refusal == "SSLV3_ALERT_BAD_CERTIFICATE"

        def alarmed():
            alerts = shown(plane, node)["alerts"]
            return next((alert for alert in alerts if alert["kind"] == "clone_suspected"), None)

        detail = until(alarmed, "the alert is raised")["detail"]
        assert node.serial in detail and "127.0.0.1" in detail
        renewed.confirm()
    finally:
        plane.policy("renew.drain", "10m")


def test_a_renewal_survives_a_kill(plane_of_its_own):
    """I10: what was handed out is on record."""
    plane = plane_of_its_own
    node = native.enroll(plane)
    renewed = node.renewed()
    plane.kill()
    plane.start()
    assert native.alert(plane, renewed.files) is None
    assert status(plane, node) == {node.serial: "live", renewed.serial: "live"}


def test_an_old_certificate_without_its_key_alarms_nobody(plane, node):
    """A certificate is public: only who holds its key says something by showing it."""
    plane.policy("renew.drain", "1s")
    try:
        node.renewed().confirm()
        until(lambda: native.alert(plane, node.files), "the old certificate is refused")
        until(lambda: shown(plane, node)["alerts"], "the alert is raised")
        (alert,) = shown(plane, node)["alerts"]
        other = native.enroll(plane)
        other.confirm()
        other.renewed().confirm()

        def refused():
            return forged(plane, other)

        until(lambda: shown(plane, other)["certificates"][0]["status"] == "superseded", "it is superseded")
        for _ in range(3):
            assert refused()
        assert native.alert(plane, node.files)
        assert shown(plane, other)["alerts"] == []
        assert alert["kind"] == "clone_suspected"
    finally:
        plane.policy("renew.drain", "10m")


def forged(plane, node) -> bool:
    """Shows a certificate and signs with another key; true if it is refused."""
    from tlslite.api import HandshakeSettings, TLSConnection, X509CertChain
    from tlslite.utils.keyfactory import parsePEMKey

    chain = X509CertChain()
    chain.parsePemList(node.files[0].read_text())
    key = parsePEMKey(certs.key_pem(certs.ec_key()).decode(), private=True)
    settings = HandshakeSettings()
    settings.minVersion = settings.maxVersion = (3, 4)
    with socket.create_connection(("127.0.0.1", plane.port), 30) as raw:
        connection = TLSConnection(raw)
        try:
            connection.handshakeClientCert(chain, key, settings=settings)
            connection.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            return not connection.read(max=1, min=1)
        except Exception:
            return True


def test_the_same_again_is_no_entry(plane, node):
    key = certs.ec_key()
    first = node.renewed(key)
    # Of this node: what was seen of another before may be written down any moment.
    lines = lambda: [line["seq"] for line in plane.audit() if line.get("node_id") == node.id]  # noqa: E731
    before = lines()
    size = (plane.dir / "log.db-wal").stat().st_size
    for _ in range(50):
        assert node.renewed(key).answer.certificate == first.answer.certificate
    assert lines() == before
    assert (plane.dir / "log.db-wal").stat().st_size <= size + 100_000


def test_one_certificate_has_so_many_connections_and_no_more(plane, node):
    """A node that opens connections without end loses its oldest, and keeps nobody else out."""
    context = plane.context(node.files)
    opened, asked = [], {}
    for _ in range(80):
        raw = socket.create_connection(("127.0.0.1", plane.port), 30)
        tls = context.wrap_socket(raw, server_hostname="127.0.0.1")
        tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert tls.recv(4096)
        opened.append(tls)
        asked[tls] = time.monotonic()

    def over(tls) -> bool:
        tls.settimeout(0.01)
        try:
            return tls.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    until(lambda: sum(over(tls) for tls in opened[:16]) == 16, "the oldest are let go")
    # Who has been quiet for ten seconds is let go for that.
    assert not any(over(tls) and time.monotonic() - asked[tls] < 9 for tls in opened[-60:])
    for tls in opened:
        tls.close()


def test_old_connections_live_for_as_long_as_the_drain_says(plane_of_its_own):
    """D24, D32: a stream that was open before a renewal goes on for `renew.drain` after the new certificate is first used,
    and no longer; which drain it is follows from the moment of that use.

    Proves GPU-13.
    """
    plane = plane_of_its_own
    long, short = native.enroll(plane), native.enroll(plane)
    with long.door() as one, short.door() as other:
        streams = {node: door.live(node.id) for node, door in ((long, one), (short, other))}
        for live in streams.values():
            assert live.next("welcome").drain_ms == 600_000
        long.renewed().confirm()
        plane.policy("renew.drain", "2s")
        for live in streams.values():
            assert live.next("welcome").drain_ms == 2_000
        renewed = short.renewed()
        streams[short].heartbeat()
        streams[short].next("ack")
        renewed.confirm()
        streams[short].heartbeat()
        streams[short].next("ack")
        until(lambda: streams[short].ended.is_set(), "the drain of two seconds has ended")
        assert native.alert(plane, short.files), "nor does its certificate open another"
        streams[long].heartbeat()
        streams[long].next("ack")
        with long.door() as again:
            live = again.live(long.id)
            live.next("welcome")


def test_an_agent_renews_without_losing_its_connection(plane_of_its_own):
    """GPU-13: the connection of the new certificate stands before that of the old one is given up, whatever the drain."""
    plane = plane_of_its_own
    for drain in ("1s", "1h"):
        plane.policy("renew.drain", drain)
        daemon = Daemon(plane, plane.token()).start()
        try:
            before, node = daemon.wait_connected().serial(), daemon.node_id()
            plane.cli("node", "rotate", node)
            until(lambda: daemon.serial() != before and daemon.connected(), "it has renewed")
            until(lambda: daemon.status()["ready"], "it is ready")
            assert "connection lost" not in daemon.log() and plane.node(node)["connected"], daemon.log()
        finally:
            daemon.stop()
            daemon.note_secrets()
