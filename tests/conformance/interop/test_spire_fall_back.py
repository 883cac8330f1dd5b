"""What an agent beside a real SPIRE falls back on, and what it says while it has nothing to come in with."""

import pytest
from daemons import Daemon
from machine import AGENT, run, until
from plane import ControlPlane
from spires import Spire, accepts


@pytest.fixture
def site():
    """SPIRE, and a control plane that accepts its SVIDs."""
    spire = Spire()
    spire.start_server()
    plane = ControlPlane().found()
    accepts(plane, spire)
    plane.start()
    yield spire, plane
    plane.close()
    spire.close()


def agent(plane, spire) -> Daemon:
    return Daemon(plane, ENLIST_AGENT_SPIRE_SOCKET=f"unix://{spire.socket}")


def doctor(daemon) -> list[dict]:
    return run(AGENT, "doctor", "--dir", daemon.dir, "--json", env=daemon.environment).json()["checks"]


def own(daemon) -> dict:
    """The fall-back, once the host is connected by an SVID."""
    status = daemon.status()
    return (status or {}).get("fall_back") or {}


def other_than(daemon, serial: str | None) -> dict | None:
    """One reading of the fall-back, if it has a certificate other than this: between two readings it may be gone for a moment."""
    found = own(daemon)
    return found if found.get("cert_serial") not in (None, serial) else None


def test_a_reinstated_host_gets_another_certificate_at_once(site):
    """Its own was denied with the node; by the SVID it asks for another, so that it lives on when SPIRE is gone."""
    spire, plane = site
    plane.cli("node", "register", "web-1")
    spire.entry("/enlist/web-1", ttl=600)
    spire.start_agent()
    daemon = agent(plane, spire).start()
    try:
        found = until(lambda: other_than(daemon, None), "it is connected by the SVID", 90)
        before = found["cert_serial"]
        assert found["refused"] is None
        plane.cli("node", "revoke", "web-1", "--reason", "stolen")
        until(lambda: daemon.status()["state"] == "revoked", "it knows that it is revoked")
        daemon.stop()
        plane.cli("node", "reinstate", "web-1")
        daemon.start()
        after = until(lambda: other_than(daemon, before), "it has another certificate", 90)["cert_serial"]
        until(lambda: own(daemon).get("refused", "") is None, "that is good")
        until(lambda: (daemon.status() or {}).get("identity_provider") == "spire", "it goes by the SVID")
        assert "there is none to fall back on" in daemon.log()
        states = {item["serial"]: item["status"] for item in plane.api("GET", "/v1/nodes/web-1").json()["certificates"]}
        assert states[before] == "denied" and states[after] != "denied", states
        # Without SPIRE it goes on by that one.
        daemon.stop()
        spire.stop_agent()
        daemon.start()
        until(lambda: daemon.status()["identity_provider"] == "control-plane" and daemon.status()["channel"] == "up", "it goes on", 90)
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_what_a_host_without_an_svid_waits_for(site):
    """`status` and `doctor` say why there is no SVID, that the node is not registered, that SPIRE's CA is not accepted; never that
    it should enroll with a token."""
    spire, plane = site
    daemon = agent(plane, spire).start()

    def waits(code: str) -> dict:
        return until(lambda: (daemon.status() or {}).get("waiting", {}).get("code") == code and daemon.status()["waiting"], code, 90)

    try:
        waiting = waits("svid_missing")
        assert str(spire.socket) in waiting["message"] and "SPIRE" in waiting["remedy"], waiting
        checks = {check["name"]: check for check in doctor(daemon)}
        assert checks["spire"]["class"] == "svid_missing" and str(spire.socket) in checks["spire"]["evidence"], checks["spire"]
        assert "token" not in checks["identity"]["remedy"] and "svid_missing" in checks["identity"]["evidence"], checks["identity"]
        spire.entry("/enlist/web-1", ttl=600)
        spire.start_agent()
        waiting = waits("node_not_registered")
        assert "node register" in waiting["remedy"], waiting
        plane.cli("node", "register", "web-1")
        until(lambda: own(daemon).get("cert_serial"), "it is connected by the SVID", 90)
        checks = {check["name"]: check for check in doctor(daemon)}
        assert checks["spire"]["ok"] and "spiffe://spire.example/enlist/web-1" in checks["spire"]["evidence"], checks["spire"]
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_a_host_whose_spire_is_not_accepted_says_so():
    """Alert 48: the remedy is the bundle in [[spire]], and no token."""
    spire = Spire()
    spire.start_server()
    plane = ControlPlane().found()
    daemon = None
    try:
        plane.start()
        spire.entry("/enlist/web-1", ttl=600)
        spire.start_agent()
        daemon = agent(plane, spire).start()
        until(lambda: "bundle" in ((daemon.status() or {}).get("waiting") or {}).get("remedy", ""), "it says what is missing", 90)
        assert "the CA of SPIRE" in daemon.status()["waiting"]["message"]
    finally:
        if daemon:
            daemon.stop()
        plane.close()
        spire.close()
