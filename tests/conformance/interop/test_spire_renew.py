"""Policy `spire.renew`: whether a host that comes by an SVID may have a certificate of the domain by that."""

import certs
import native
import pytest
from daemons import Daemon
from false_spire import FalseSpire, FalseSpireAgent
from machine import until
from plane import ControlPlane
from spires import accepts


@pytest.fixture(scope="module")
def spire():
    return FalseSpire()


@pytest.fixture
def plane(spire, programs):
    running = ControlPlane().found()
    accepts(running, spire)
    running.start().policy("failures.per_minute", "0")
    yield running
    running.close()


def refusals(plane, node: str) -> list[dict]:
    return [line for line in plane.audit("certificate.refused") if line["node_id"] == node and line["reason"] == "svid_renewal_off"]


def own(daemon) -> dict:
    return (daemon.status() or {}).get("fall_back") or {}


def test_a_renewal_by_svid_is_refused_and_audited(spire, plane):
    """403 `svid_renewal_off`, a line with the node and no serial; with a certificate of the domain it goes on, and with `true` again too."""
    plane.cli("node", "register", "web-1")
    files = spire.svid("/enlist/web-1")

    def renew():
        with native.door(plane, files) as door:
            return door.renew(certs.csr(certs.ec_key()))

    renew()
    plane.policy("spire.renew", "false")
    with pytest.raises(native.Refused) as refused:
        renew()
    assert refused.value.code == "svid_renewal_off", refused.value
    (line,) = until(lambda: refusals(plane, "web-1"), "it is audited")
    assert line["cert_serial"] is None and line["count"] == 1, line
    own = native.enroll(plane)
    own.confirm()
    own.renewed().confirm()
    plane.policy("spire.renew", "true")
    renew()


def test_a_host_that_may_not_renew_by_its_svid_stays_on_spire(spire, plane):
    """Its own certificate was denied with the node: it asks for another once for each connection, and lives by its SVID."""
    plane.cli("node", "register", "web-2")
    api = FalseSpireAgent(spire, "/enlist/web-2")
    daemon = Daemon(plane, ENLIST_AGENT_SPIRE_SOCKET=f"unix://{api.path}").start()
    try:
        until(lambda: (daemon.status() or {}).get("identity_provider") == "spire", "it lives by its SVID", 90)
        plane.policy("spire.renew", "false")
        plane.cli("node", "revoke", "web-2", "--reason", "stolen")
        until(lambda: daemon.status()["state"] == "revoked", "it knows that it is revoked")
        daemon.stop()
        plane.cli("node", "reinstate", "web-2")
        daemon.start()
        until(lambda: refusals(plane, "web-2"), "it was refused another certificate", 90)
        until(lambda: "lives by SPIRE alone" in daemon.log(), "it says so")
        status = until(lambda: (found := daemon.status()) and found["channel"] == "up" and found, "it is connected")
        assert status["identity_provider"] == "spire" and status["fall_back"]["refused"], status
        # It asks with the next connection again.
        daemon.stop()
        plane.policy("spire.renew", "true")
        daemon.start()
        until(lambda: own(daemon).get("cert_serial") and own(daemon)["refused"] is None, "it has a certificate that is good", 90)
        # What else it had asked in vain is counted when the control plane stops.
        plane.restart()
        assert sum(line["count"] for line in refusals(plane, "web-2")) == 1, refusals(plane, "web-2")
    finally:
        daemon.stop()
        daemon.note_secrets()
        api.close()
