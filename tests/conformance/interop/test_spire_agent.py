"""The agent beside a real SPIRE: it starts on the certificate of its image, is promoted, rotates, falls back, and is cut off."""

import re
import time

import pytest
from daemons import Daemon
from machine import AGENT, run, until
from plane import ControlPlane
from presence import Presence
from spires import Spire, accepts

import certs
import evidence


def bootstrap(plane, name: str = "image-1", expires: str = "90d"):
    place = plane.base / name
    issued = plane.cli("ca", "bootstrap", name, "--expires", expires, "--out", place).json()
    evidence.private_key("bootstrap", (place / "key.pem").read_bytes())
    return place, issued


def provider(daemon) -> str:
    assert daemon.process.poll() is None, daemon.log()
    status = daemon.status()
    return status["identity_provider"] if status else ""


def becomes(daemon, wanted: str, patience: float = 90.0) -> dict:
    """Its status, once it has this identity for good."""

    def found() -> dict | None:
        if provider(daemon) != wanted or (wanted == "spire" and not daemon.is_confirmed()):
            return None
        status = daemon.status()
        return status if status["identity_provider"] == wanted and status["channel"] in ("up", "down") else None

    return until(found, f"it is {wanted}", patience)


def register(plane, node: str) -> None:
    plane.cli("node", "register", node, "--mac", "52:54:00:12:34:56")


@pytest.fixture
def site():
    """SPIRE with SVIDs that live for seconds, and a control plane that accepts them."""
    spire = Spire()
    spire.start_server()
    plane = ControlPlane().found()
    accepts(plane, spire)
    plane.start()
    yield spire, plane
    plane.close()
    spire.close()


def agent(plane, spire, place=None, **more) -> Daemon:
    daemon = Daemon(plane, ENLIST_AGENT_SPIRE_SOCKET=f"unix://{spire.socket}", **more)
    if place:
        daemon.environment["ENLIST_AGENT_BOOTSTRAP_DIR"] = str(place)
    return daemon


def logged(daemon, text: str) -> float:
    """When the log says this for the first time, in seconds of that day."""
    line = until(lambda: next((line for line in daemon.log().splitlines() if text in line), None), f"the log says {text!r}")
    hours, minutes, seconds = re.search(r"T(\d\d):(\d\d):([\d.]+)", line).groups()
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def test_from_the_image_to_spire_and_back(site):
    """Starts on the bootstrap certificate, is promoted when SPIRE comes up, rotates every few seconds with its stream up, falls back
    when SPIRE is gone for good, is promoted again, and is cut off when revoked.

    Proves PACT-37, PACT-42.
    """
    spire, plane = site
    place, issued = bootstrap(plane)
    assert issued["spiffe_id"] == "spiffe://test.example/bootstrap/image-1"
    register(plane, "web-1")
    entry = spire.entry("/enlist/web-1", ttl=16)
    began = time.time() % 86400
    daemon = agent(plane, spire, place).start()
    try:
        status = becomes(daemon, "bootstrap")
        assert status["spiffe_id"] == issued["spiffe_id"] and status["cert_serial"] == issued["cert_serial"]
        assert plane.node("web-1")["identity_provider"] == "none", "the shared identity is no node's"
        read = logged(daemon, "authenticated with the bootstrap identity")
        comes = time.time() % 86400
        spire.start_agent()
        status = becomes(daemon, "spire")
        assert status["spiffe_id"] == "spiffe://spire.example/enlist/web-1" and status["node_id"] == "web-1"
        times = {
            "agent starts": 0.0,
            "authenticated by the bootstrap identity, default configuration read": read - began,
            "SPIRE's agent is started": comes - began,
            "certificate of the node's own, by the SVID": logged(daemon, "certificate issued to the node of an SVID") - began,
            "bootstrap identity discarded": logged(daemon, "the bootstrap identity is discarded") - began,
            "connected by the SVID": logged(daemon, "identity: spire") - began,
        }
        print("\nboot timeline:")
        for what, when in times.items():
            print(f"  T+{when:.2f} s  {what}")
        shown = plane.node("web-1")
        assert (shown["state"], shown["identity_provider"]) == ("active", "spire")
        # Rotations every few seconds: the stream is never away for long.
        serials = set()

        def rotated() -> bool:
            serials.add(plane.node("web-1")["cert_serial"])
            return len(serials) >= 4

        with Presence(plane, "web-1") as presence:
            until(rotated, "three rotations were seen", 120)
        assert presence.longest <= 1.0, presence.longest
        assert provider(daemon) == "spire"
        # SPIRE is gone for good: the host's own certificate takes over, at the latest ten seconds after the SVID's end. That it does so
        # before, test_spire_gone.py shows with SVIDs that live for longer.
        with Presence(plane, "web-1") as presence:
            presence.since("spire", 60)
            spire.stop_agent()
            fell = presence.since("control-plane", 60)
        late = fell - presence.ends["spire"]
        assert late < 10, f"{late:.1f} s after the end of the SVID"
        assert presence.longest <= 1.0, presence.longest
        until(lambda: provider(daemon) == "control-plane", "it says so itself")
        assert daemon.status()["spiffe_id"] == "spiffe://test.example/tenant/default/agent/web-1"
        # And again.
        spire.start_agent()
        becomes(daemon, "spire")
        # No key of an SVID is on the disk.
        keys = [file.read_bytes() for file in daemon.all_files() if file.name == "key.pem"]
        own = {certs.public_der(certs.certificate(file.read_bytes())) for file in daemon.dir.glob("identity/*/cert.pem")}
        assert {certs.public_der(certs.serialization.load_pem_private_key(key, None)) for key in keys} <= own
        plane.cli("node", "revoke", "web-1", "--reason", "stolen")
        until(lambda: daemon.status()["state"] == "revoked", "it knows that it is revoked")
        until(lambda: not plane.node("web-1")["connected"], "it is cut off")
        spire.remove(entry)
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_a_fleet_moves_over_without_enrolling_anyone_twice(site):
    """Registered nodes come in by their SVIDs, get a certificate of the domain by that, and live on when SPIRE is switched off: no token
    and no enrollment.

    Proves PACT-37.
    """
    spire, plane = site
    spire.entry("/enlist/db-1", ttl=20)
    spire.start_agent().wait_agent()
    register(plane, "db-1")
    daemon = agent(plane, spire).start()
    try:
        becomes(daemon, "spire")
        assert plane.audit("host.enrolled") == [] and plane.audit("certificate.renewed")
        spire.stop_agent()
        becomes(daemon, "control-plane")
        daemon.stop()
        daemon.environment.pop("ENLIST_AGENT_SPIRE_SOCKET")
        daemon.start().wait_connected()
        assert plane.node("db-1")["state"] == "active" and provider(daemon) == "control-plane"
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_a_site_that_never_has_spire_works_all_the_same(site):
    """With a socket that is not there, an enrolled host lives on its own certificate and nothing is wrong with it.

    Proves PACT-42, PACT-37.
    """
    spire, plane = site
    place, _ = bootstrap(plane)
    daemon = agent(plane, spire, place, token=plane.token()).start()
    evidence.token(daemon.environment["ENLIST_AGENT_TOKEN"])
    try:
        daemon.wait_connected()
        status = daemon.status()
        assert status["identity_provider"] == "control-plane" and status["ready"], status
        assert run(AGENT, "status", "--dir", daemon.dir).code == 0
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_an_svid_of_a_node_that_is_not_registered_leads_nowhere_and_breaks_nothing(site):
    spire, plane = site
    spire.entry("/enlist/unknown-1")
    spire.start_agent().wait_agent()
    daemon = agent(plane, spire).start()
    try:
        # Before the first SVID it waits for that.
        waits = lambda: (status := daemon.status()) and (status.get("waiting") or {}).get("code") == "node_not_registered" and status
        status = until(waits, "it says what it waits for")
        assert status["identity_provider"] == "none", status
        register(plane, "unknown-1")
        becomes(daemon, "spire")
    finally:
        daemon.stop()
        daemon.note_secrets()
