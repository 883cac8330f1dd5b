"""SVIDs of a real SPIRE at the control plane: whom they stand for, what the registry says of it, and bundles that are spoilt."""

import time

import pytest
from plane import ControlPlane
from spires import Spire, accepts

import certs
import native
from machine import run, until, ENLIST


@pytest.fixture(scope="module")
def spire():
    with Spire() as running:
        running.entry("/enlist/web-1")
        yield running.start_agent().wait_agent()


@pytest.fixture(scope="module")
def beside(spire):
    """A control plane that accepts the SVIDs."""
    plane = ControlPlane().found()
    accepts(plane, spire)
    plane.start()
    plane.policy("failures.per_minute", "0")
    yield plane
    plane.close()


def refused(call):
    with pytest.raises(native.Refused) as caught:
        call()
    return caught.value


def register(plane, node: str) -> None:
    plane.cli("node", "register", node)


def check(plane, svid):
    with native.door(plane, svid) as door:
        try:
            return door.stub.Check(native.pb.CheckRequest(), timeout=20)
        except native.grpc.RpcError as error:
            raise native.Refused(error) from None


def test_the_registry_says_who_an_svid_is(spire, beside):
    """A node that is not registered is refused; a registered one comes in by its SVID alone, is quarantined, drained and revoked.

    Proves PACT-37.
    """
    svid = spire.fetched()
    code = refused(lambda: check(beside, svid))
    assert (code.code, code.status) == ("node_not_registered", native.grpc.StatusCode.PERMISSION_DENIED), code
    register(beside, "web-1")
    assert check(beside, svid).state == "registered"
    door = native.door(beside, svid)
    stream = door.live("web-1")
    welcome = stream.next("welcome")
    assert (welcome.standing.state, welcome.node_id) == ("active", "web-1")
    line = next(line for line in beside.audit("host.active") if line["node_id"] == "web-1")
    assert line["actor"] == "node:web-1" and line["spiffe_id"] == "spiffe://spire.example/enlist/web-1", line
    shown = until(lambda: (n := beside.node("web-1"))["connected"] and n, "it is connected")
    leaf = certs.certificate(svid[0].read_bytes())
    assert shown["identity_provider"] == "spire"
    assert shown["spiffe_id"] == "spiffe://spire.example/enlist/web-1"
    assert shown["cert_serial"] == certs.serial(leaf)
    beside.cli("node", "quarantine", "web-1")
    assert stream.next("standing").quarantined
    beside.cli("node", "release", "web-1")
    # Cut off at once, and the next handshake is refused with alert 44.
    beside.cli("node", "revoke", "web-1", "--reason", "stolen")
    stream.wait_end()
    door.close()
    assert native.alert(beside, svid) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    beside.cli("node", "reinstate", "web-1")
    assert check(beside, svid).state == "registered"


def test_a_node_of_an_svid_gets_a_certificate_of_its_own(spire, beside):
    """By which it is the same node, and which supersedes nothing before it is used. The SVID itself is never on record."""
    svid = spire.fetched()
    with native.door(beside, svid) as door:
        key = certs.ec_key()
        renewed = door.renew(certs.csr(key), recovery_wanted=True)
        assert not renewed.recovery.token, "recovery tokens are given over the node's own certificate only"
    leaf = certs.certificate(renewed.certificate)
    assert certs.uris(leaf) == ["spiffe://test.example/tenant/default/agent/web-1"]
    serials = [held["serial"] for held in beside.node("web-1")["certificates"]]
    assert renewed.cert_serial in serials
    assert certs.serial(certs.certificate(svid[0].read_bytes())) not in serials


def test_an_svid_opens_no_operator_route_and_no_other_node(spire, beside):
    svid = spire.fetched()
    assert beside.https("GET", "/v1/nodes", certificate=svid).status in (401, 403)
    with native.door(beside, svid) as door:
        stream = door.live("another")
        assert stream.wait_end().code == "not_your_node"


def test_ca_show_names_the_cas_of_spire(spire, beside):
    issuers = [item for item in beside.api("GET", "/v1/ca").json()["issuers"] if item["kind"] == "spire"]
    assert [item["trust_domain"] for item in issuers] == ["spire.example"]
    assert issuers[0]["state"] == "active" and "unavailable" not in issuers[0]
    assert len(issuers[0]["id"]) == 16 and issuers[0]["fingerprint"].startswith(f"sha256:{issuers[0]['id']}")
    text = run(ENLIST, "ca", "show", "--dir", beside.dir).out
    assert f"issuer {issuers[0]['id']} is a CA of the trust domain spire.example" in text, text
    assert beside.api("GET", "/metrics").body.decode().count('kind="spire"') == 1


def test_a_bundle_that_is_spoilt_or_gone_takes_nothing_away(spire, beside):
    """Empty, half-written, gone: what was read before stays in use, and `ca show` says what is wrong."""
    svid = spire.fetched()
    good = spire.bundle.read_bytes()

    def fault():
        issuers = beside.api("GET", "/v1/ca").json()["issuers"]
        return next(item for item in issuers if item["kind"] == "spire").get("unavailable")

    try:
        for spoilt in (b"", good[: len(good) // 2], b"not PEM at all"):
            spire.bundle.write_bytes(spoilt)
            until(fault, "the fault is shown")
            assert check(beside, svid).state
            spire.bundle.write_bytes(good)
            until(lambda: fault() is None, "the fault is over")
        spire.bundle.unlink()
        until(fault, "that it is gone is shown")
        assert check(beside, svid).state
    finally:
        spire.bundle.write_bytes(good)
    until(lambda: fault() is None, "the fault is over")


def test_a_bundle_that_is_a_mistake_is_not_used_and_says_why(spire, beside):
    """A private key in it, the domain's own bundle, a CA of another trust domain, JSON; a CA twice counts once."""
    svid = spire.fetched()
    good = spire.bundle.read_bytes()
    key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"

    def shown() -> list[dict]:
        return [item for item in beside.api("GET", "/v1/ca").json()["issuers"] if item["kind"] == "spire"]

    def ends() -> float:
        text = beside.api("GET", "/metrics").body.decode()
        (line,) = [line for line in text.splitlines() if line.startswith("enlist_issuer_not_after_seconds") and 'kind="spire"' in line]
        return float(line.rsplit(" ", 1)[1])

    before = ends()
    try:
        for mistake, words in (
            (good + key, "private key"),
            (beside.bundle, "a CA of this domain"),
            (spire.command("bundle", "show", "-format", "spiffe").encode(), "-format pem"),
        ):
            spire.bundle.write_bytes(mistake)
            until(lambda: words in (shown()[0].get("unavailable") or ""), words)
            assert check(beside, svid).state and ends() == 0
        spire.bundle.write_bytes(good + good)
        until(lambda: "unavailable" not in shown()[0], "the fault is over")
        assert len(shown()) == 1 and ends() == before > time.time()
    finally:
        spire.bundle.write_bytes(good)


def test_a_ca_that_is_taken_out_of_the_bundle_is_believed_no_more(spire, beside):
    svid = spire.fetched()
    good = spire.bundle.read_bytes()
    other = certs.openssl_ca(spire.base, "/CN=another")
    try:
        spire.bundle.write_bytes(other[0].read_bytes())
        until(lambda: native.alert(beside, svid) == "TLSV1_ALERT_UNKNOWN_CA", "the SVID is refused with alert 48")
    finally:
        spire.bundle.write_bytes(good)
    until(lambda: native.alert(beside, svid) is None, "it is accepted again")


def test_our_own_trust_domain_is_never_accepted_from_spire(spire):
    """Neither as `trust_domain` (exit 2, also by `server check`), nor by an SVID that claims to be of it."""
    plane = ControlPlane().found()
    with Spire(domain="test.example") as other:
        accepts(plane, other)
        for done in (plane.run_to_end(), run(ENLIST, "server", "check", "--dir", plane.dir)):
            assert done.code == 2 and "spire[1].trust_domain" in done.out + done.err, done
        config = plane.dir / "enlist.toml"
        config.write_text(config.read_text().replace('trust_domain = "test.example"', 'trust_domain = "spire.example"'))
        plane.start()
        try:
            other.entry("/tenant/default/agent/web-1")
            register(plane, "web-1")
            other.start_agent().wait_agent()
            assert native.alert(plane, other.fetched()) is not None, "its CA speaks for another trust domain"
        finally:
            plane.close()


def test_a_map_chooses_the_node_and_what_it_does_not_match_is_nobody(spire):
    plane = ControlPlane().found()
    accepts(plane, spire, map="/enlist/web-{node}")
    plane.start()
    try:
        register(plane, "1")
        assert check(plane, spire.fetched()).state == "registered"
    finally:
        plane.close()
    plane = ControlPlane().found()
    accepts(plane, spire, map="/other/{node}")
    plane.start()
    try:
        assert refused(lambda: check(plane, spire.fetched())).code == "node_not_registered"
    finally:
        plane.close()
