"""What a host has stored is judged by its contents: a version that somebody else sent it keeps nothing from it. D13.

The control plane is the real one; whoever stole a server issuer is played by gRPC's own library, and sends versions that the control
plane has not reached, or has just reached.
"""

import json

import pytest

import certs
from faults import Patient
from impostors import Crossing, behind, home
from machine import scratch, until
from native import pb
from rogue import Rogue, Thief
from rolls import prepare_root, status
from root_lists import below_new_root, denied


@pytest.fixture
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture
def plane(crossing):
    with behind(crossing) as made:
        yield made


@pytest.fixture
def patient(plane, crossing):
    home(plane, crossing)
    made = Patient(plane, plane.token(), ENLIST_AGENT_CHECK_INTERVAL="1s")
    made.start().wait_connected()
    until(lambda: adopted(plane), "the host has what the control plane sends")
    yield made
    made.stop()
    made.note_secrets()


def adopted(plane) -> bool:
    adoption = plane.cli("ca", "roll", "status").json()["adoption"]
    return (adoption["current"], adoption["total"]) == (1, 1)


def stored(patient, name: str) -> bytes:
    file = patient.current / name
    return file.read_bytes() if file.exists() else b""


def held(patient, name: str) -> set:
    return {certs.fingerprint(one) for one in certs.certificates(stored(patient, name))}


def versions(patient) -> tuple:
    meta = json.loads(stored(patient, "meta.json"))
    return meta["bundle_version"], meta["node_issuers_version"]


def said(patient) -> int | None:
    """The number of the bundle that the host tells: it may be in memory alone."""
    return (patient.status() or {}).get("trust", {}).get("bundle_version")


def deceived(plane, crossing, patient, version: int, issuers_version: int, issuers: bytes, bundle: bytes) -> None:
    """The host meets the thief, and has these versions from then on; it cannot reach the control plane yet."""
    offer = pb.Bundle(
        version=version,
        pem=bundle.decode(),
        node_issuers=issuers.decode(),
        node_issuers_version=issuers_version,
    )
    with Rogue(plane, pushes=(pb.LiveDown(bundle=offer),)) as rogue:
        crossing.lead(rogue.port)
        until(lambda: said(patient) == version, "it says the thief's version", 60)
        until(lambda: stored(patient, "node-issuers.pem") == issuers, "it has stored what the thief sent", 60)
        crossing.refuse()


def test_a_list_reaches_a_host_that_has_its_version_from_a_thief(plane, crossing, patient):
    """The thief withholds it: the host says the version with which it comes, and has no list."""
    (version, number), issuers = versions(patient), stored(patient, "node-issuers.pem")
    deceived(plane, crossing, patient, version + 1, number + 1, issuers, plane.bundle)
    file = denied(plane, Thief(plane).certificate)
    plane.cli("ca", "import-crl", "--file", file)
    assert not adopted(plane)
    home(plane, crossing)
    until(lambda: stored(patient, "root-crls.pem") == file.read_bytes(), "the list is on the host", 60)
    assert versions(patient) == (version + 1, number + 1)
    until(lambda: adopted(plane), "and only now it counts")


def test_a_host_counts_for_a_new_root_once_it_has_it_whatever_version_it_says(plane, crossing, patient):
    """Otherwise `activate` would cut it off."""
    (version, number), issuers, old = versions(patient), stored(patient, "node-issuers.pem"), plane.bundle
    crossing.refuse()
    prepare_root(plane)
    now = plane.cli("ca", "roll", "status").json()["bundle_version"]
    assert now > version
    deceived(plane, crossing, patient, now, now + number - version, issuers, old)
    assert not adopted(plane)
    home(plane, crossing)
    until(lambda: adopted(plane), "the host counts", 60)
    assert len(held(patient, "bundle.pem")) == 2, "and has both roots"
    assert status(plane)["stage"] == "prepared"


def test_a_list_that_is_lost_on_the_host_is_sent_again(plane, crossing, patient):
    """Emptied while it runs, emptied and removed while it does not; on one connection more than once."""

    def imported() -> bytes:
        """A list that counts: the control plane has heard that this one is stored, and waits for no other answer of the host."""
        file = denied(plane, Thief(plane).certificate)
        plane.cli("ca", "import-crl", "--file", file)
        until(lambda: adopted(plane), "the host counts")
        return file.read_bytes()

    def is_there() -> bool:
        return stored(patient, "root-crls.pem") == text

    for time in ("once", "again"):
        # Another each time: a host that has counted for a version counts for it for good, whatever it says of its files later.
        text = imported()
        assert is_there()
        (patient.current / "root-crls.pem").write_bytes(b"")
        until(is_there, f"it is sent {time}", 60)
    for lose in (lambda path: path.write_bytes(b""), lambda path: path.unlink()):
        assert patient.stop() == 0
        lose(patient.current / "root-crls.pem")
        patient.start().wait_connected()
        until(is_there, "it is sent after a start", 60)
    until(lambda: adopted(plane), "the host counts")


def test_issuers_of_nodes_from_a_thief_are_replaced_whatever_their_version(plane, crossing, patient):
    """They come with the version that the control plane reaches next."""
    version, number = versions(patient)
    true = held(patient, "node-issuers.pem")
    thief = Thief(plane)
    poison = stored(patient, "node-issuers.pem") + certs.pem(thief.certificate) + thief.own_root()
    deceived(plane, crossing, patient, version, number + 1, poison, plane.bundle)
    assert len(held(patient, "node-issuers.pem")) == len(true) + 2, "the thief's are among them"
    plane.cli("ca", "import-crl", "--file", denied(plane, thief.certificate))
    home(plane, crossing)
    until(lambda: held(patient, "node-issuers.pem") == true, "only those of the control plane are left", 60)
    assert versions(patient) == (version + 1, number + 1)


def test_the_cross_certificate_of_an_abandoned_root_vouches_for_nothing_once_it_is_denied(plane, crossing, patient):
    """As docs/ca.md says it: the old root denies it with `sign-crl`. Whoever has the new root's key cannot bring it to a host."""
    old = plane.bundle
    answer, _ = prepare_root(plane)
    until(lambda: len(held(patient, "bundle.pem")) == 2, "the host has both roots")
    plane.cli("ca", "roll", "abandon", "--yes")
    true = {certs.fingerprint(one) for one in certs.certificates(old)}
    until(lambda: held(patient, "bundle.pem") == true, "it has the old root alone")
    until(lambda: plane.bundle == old, "so has the control plane")
    root, cross, *_ = certs.certificates(answer.read_bytes())
    plane.cli("ca", "import-crl", "--file", denied(plane, cross))
    until(lambda: stored(patient, "root-crls.pem"), "the list is on the host")
    offer = pb.Bundle(version=90, pem=(old + certs.pem(root) + certs.pem(cross)).decode())
    with Rogue(plane, pushes=(pb.LiveDown(bundle=offer),)) as rogue:
        crossing.lead(rogue.port)
        heard = lambda: (patient.status() or {}).get("trust_refused") or versions(patient)[0] == 90  # noqa: E731
        until(heard, "it has read the offer", 60)
        assert held(patient, "bundle.pem") == true and patient.status()["trust_refused"]


def test_what_an_abandoned_root_has_denied_stays_denied(plane, crossing, patient):
    """Its cross-certificate still leads there from the root that hosts trust, and its list is in no generation any more. Neither the
    daemon, before and after a start, nor its recovery says anything to whoever has the denied issuer."""
    plane.policy("liveness.grace", "2s")
    patient.wait_token()
    old = {certs.fingerprint(one) for one in certs.certificates(plane.bundle)}
    answer, key = prepare_root(plane)
    thief, crl = below_new_root(plane, answer, key)
    file = scratch("crl") / "new.crl"
    file.write_bytes(crl)
    plane.cli("ca", "import-crl", "--file", file)
    until(lambda: stored(patient, "root-crls.pem") == crl, "the list of the new root is on the host")
    plane.cli("ca", "roll", "abandon", "--yes")
    until(lambda: held(patient, "bundle.pem") == old, "it has the old root alone")
    assert stored(patient, "root-crls.pem") == b"", "a generation has the lists of its roots"
    until(lambda: adopted(plane), "and that is what the control plane sends")
    with Rogue(plane, thief) as rogue:
        rogue.spiffe = patient.status()["spiffe_id"]
        crossing.lead(rogue.port)
        for start in ("this one", "the next"):
            if patient.process is None:
                patient.start()
            until(lambda: "recovery_enrollment_blocked" in patient.reasons(), f"{start} refuses it, and for recovery too", 90)
            assert "on the revocation list of the root" in patient.logs[-1].read_text()
            assert patient.stop() == 0
            patient.process = None
        done = patient.agent("recover")
        assert done.code == 4 and "on the revocation list of the root" in done.error()["message"], done
        assert rogue.heard == [], "nothing was sent there"
    home(plane, crossing)
    patient.start().wait_connected()
