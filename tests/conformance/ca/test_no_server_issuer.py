"""A control plane whose server issuer is of no use: it starts, says so, and is repaired on its own machine. D13."""

import certs
import clocks
import pytest
from agents import enroll, listed
from daemons import Daemon, lasting_port
from machine import ENLIST, run, scratch, secret, until
from operators import make_key
from plane import ControlPlane
from rolls import issuers, prepare, states
from root_lists import denied

REASON = "server_certificate_missing"


@pytest.fixture
def plane(programs):
    made = ControlPlane().found()
    made.listen = ("--listen", f"127.0.0.1:{lasting_port()}")
    try:
        yield made.start(*made.listen)
    finally:
        made.close()


def readiness(plane) -> tuple:
    answer = plane.api("GET", "/readyz")
    return answer.status, answer.json()["reasons"]


def presented(plane):
    """The leaf on disk, and its issuer."""
    leaf, issuer, *_ = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    return leaf, issuer


def repaired(plane, left=(200, [])) -> None:
    """A new server issuer over the operator socket, signed where the root key is; `left` is what `/readyz` says then."""
    old, _ = presented(plane)
    (issuer,) = certs.certificates(prepare(plane, "server").read_bytes())
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    until(lambda: presented(plane)[0] != old, "the control plane has a certificate of the new issuer")
    assert certs.fingerprint(presented(plane)[1]) == certs.fingerprint(issuer)
    until(lambda: readiness(plane) == left, "it presents a valid certificate")


@pytest.mark.parametrize("how", ["revoked", "denied"])
def test_a_server_issuer_that_is_revoked_or_denied_is_replaced_after_a_restart(plane, how):
    """What the listener presents is kept meanwhile, so that who does not know of it stays connected; nothing else signs for it. A host
    that was told comes back with the new certificate."""
    agent = Daemon(plane, plane.token()).start().wait_connected()
    try:
        (issuer,) = issuers(plane, "server")
        if how == "revoked":
            plane.cli("ca", "revoke", issuer["id"], "--reason", "stolen", "--yes")
        else:
            plane.cli("ca", "import-crl", "--file", denied(plane, presented(plane)[1]), "--yes")
            until(lambda: (agent.current / "root-crls.pem").exists(), "the host was told")
        leaf = presented(plane)[0]
        plane.restart(*plane.listen)
        assert presented(plane)[0] == leaf and readiness(plane) == (200, [])
        assert states(plane, "server") == (["revoked"] if how == "revoked" else ["active"])
        if how == "revoked":
            agent.wait_connected()
        repaired(plane)
        agent.wait_connected(120.0)
    finally:
        agent.stop()
        agent.note_secrets()


def test_without_any_certificate_it_starts_and_is_repaired_over_the_socket(plane):
    """Revoked, and what it had issued is lost: nobody gets in over TLS, `/readyz` and the log say why, the socket works."""
    (issuer,) = issuers(plane, "server")
    plane.cli("ca", "revoke", issuer["id"], "--reason", "stolen", "--yes")
    plane.stop()
    leaf = plane.dir / "ca" / "server.pem"
    kept = leaf.read_bytes()
    leaf.unlink()
    plane.start()
    assert readiness(plane) == (503, [REASON])
    log = plane.err.read_text()
    assert "no server certificate could be issued" in log and "ca roll prepare --use server" in log
    with pytest.raises(OSError):
        plane.https("GET", "/healthz")
    leaf.write_bytes(kept)
    repaired(plane)
    assert plane.https("GET", "/readyz").status == 200


def test_a_control_plane_that_slept_for_longer_than_its_issuers_is_repaired_over_the_socket(plane):
    """400 days later both issuers and its own certificate have ended; the root has not. Hosts enroll again, and operators work."""
    plane.stop()
    later = clocks.shifted(24 * 400)
    plane.env = later
    refused = plane.run_to_end()
    assert refused.code == 1 and "clock_wrong" in refused.err, refused
    plane.start("--accept-clock")
    try:
        assert readiness(plane) == (503, ["issuer_unavailable", REASON])
        assert "no server certificate could be issued" in plane.err.read_text()
        key = secret(scratch("key") / "api.key", make_key(plane, "platform-admin")["key"])

        def reach(*arguments):
            reach = ("--server", plane.url, "--ca", plane.dir / "ca" / "bundle.pem", "--api-key-file", key)
            return run(ENLIST, *arguments, *reach, "--json", env=later)

        assert reach("node", "list").code == 4
        repaired(plane, left=(503, ["issuer_unavailable"]))
        assert reach("node", "list").code == 0
        # The issuer of nodes has ended as well.
        token = plane.cli("token", "create").json()["token"]
        place = scratch("enr") / "a"
        done = enroll(plane, place, "--timeout", "5s", token=token, env=later)
        assert done.code != 0 and not (place / "identity" / "current").exists(), done
        prepare(plane)
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        assert readiness(plane) == (200, [])
        done = enroll(plane, place, token=token, env=later)
        assert done.code == 0 and listed(plane, place)["state"] == "active", done
        assert plane.cli("audit", "verify").json()["ok"]
    finally:
        pid = plane.process.pid
        plane.stop()
        clocks.sweep(pid)
