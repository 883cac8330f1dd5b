"""A control plane whose address is gone for good: hosts find it again by their recovery address."""

import certs
import native
import lost
from daemons import lasting_port
from faults import Patient
from machine import until
from plane import ControlPlane


def configure(plane, listen: list[int], advertise: int, recovery: int) -> None:
    """Which ports it listens on, which one it names, and where recovery is."""
    toml = plane.dir / "enlist.toml"
    ours = ("listen", "advertise", "[recovery]", "url =")
    kept = [line for line in toml.read_text().splitlines() if not line.startswith(ours)]
    addresses = ", ".join(f'"127.0.0.1:{port}"' for port in listen)
    first = [f"listen = [{addresses}]", f'advertise = ["https://127.0.0.1:{advertise}"]']
    last = ["[recovery]", f'url = "https://127.0.0.1:{recovery}"', ""]
    toml.write_text("\n".join([*first, *kept, *last]))


def test_a_host_whose_runtime_address_is_gone_finds_the_next_one():
    """After the grace period it asks its recovery address, is told where the control plane is now, and is active again with
    the certificate that it has: no token is spent.
    """
    before, after, recovery = lasting_port(), lasting_port(), lasting_port()
    plane = ControlPlane().found()
    configure(plane, [before, recovery], before, recovery)
    plane.start()
    patient = None
    try:
        plane.url = f"https://127.0.0.1:{before}"
        plane.policy("liveness.interval", "1s")
        plane.policy("liveness.grace", "4s")
        patient = Patient(plane, plane.token()).start()
        patient.wait_connected()
        patient.wait_token()
        node, serial = patient.node_id(), patient.serial()
        plane.stop()
        configure(plane, [after, recovery], after, recovery)
        plane.start()
        until(lambda: patient.connected(), "it has found the control plane", 90)
        until(lambda: plane.node(node)["state"] == "active", "its node is active")
        assert patient.serial() == serial and plane.audit("recovery.issued") == []
        until(lambda: patient.status()["ready"], "all is well", 60)
    finally:
        if patient:
            patient.stop()
            patient.note_secrets()
        plane.stop()


def test_who_asks_for_an_address_gets_no_certificate(plane_of_its_own):
    """A token that is shown with the class endpoint_unreachable is not spent while a certificate of the node is good, however
    long the node was silent; the answer names bundle and servers.
    """
    plane = plane_of_its_own
    plane.policy("liveness.grace", "1s")
    node, grant = lost.provided(plane)
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        live.close()
    until(lambda: plane.node(node.id)["state"] == "inactive", "it has been silent for too long")
    refused = lost.refused(plane, grant.token, **{"class": "endpoint_unreachable"})
    assert refused.code == "recovery_not_needed", refused
    assert plane.url.encode() in refused.details, refused
    assert plane.node(node.id)["state"] == "inactive" and plane.audit("recovery.issued") == []
    again = lost.recovered(plane, grant.token, certs.ec_key(), **{"class": "cert_expired"})
    assert again.id == node.id, "with another class it is what it was"
