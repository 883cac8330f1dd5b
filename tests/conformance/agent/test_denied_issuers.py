"""Issuers that a root denies: the list comes with the trust bundle, stays on the host, and is asked at every connection. D13.

The control plane is the real one, and so is `ca sign-crl`; whoever stole an issuer is played by gRPC's own library.
"""

import pytest

import certs
from faults import Patient
from impostors import Authority, Crossing, Impostor, behind, home
from machine import tool, until
from native import pb
from rogue import Rogue, Thief
from rolls import prepare
from root_lists import denied, listed, numbers

UNTRUSTED = "server_tls_untrusted"
BLOCKED = "recovery_enrollment_blocked"
SAID = "on the revocation list of the root"


@pytest.fixture(scope="module")
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture(scope="module")
def plane(crossing):
    with behind(crossing, **{"liveness.grace": "2s"}) as made:
        yield made


@pytest.fixture
def patient(plane, crossing):
    home(plane, crossing)
    made = Patient(plane, plane.token(), ENLIST_AGENT_CHECK_INTERVAL="1s")
    made.start().wait_connected()
    made.wait_token()
    yield made
    made.stop()
    made.note_secrets()


def kept(patient) -> bytes:
    file = patient.current / "root-crls.pem"
    return file.read_bytes() if file.exists() else b""


def pushed(plane, version: int, crls: bytes, bundle: bytes | None = None):
    return pb.LiveDown(bundle=pb.Bundle(version=version, pem=(bundle or plane.bundle).decode(), root_crls=crls.decode()))


def refuses(patient) -> bool:
    """In the log and in the diagnostics, with the class and the reason."""
    records = [record for record in patient.diagnostics() if record["class"] == UNTRUSTED]
    return SAID in patient.whole_log() and any(SAID in record["evidence"] and record["remedy"] for record in records)


@pytest.mark.parametrize("digest", [certs.hashes.SHA256(), certs.hashes.SHA512()], ids=lambda digest: digest.name)
def test_a_stolen_issuer_is_believed_until_its_root_denies_it(plane, crossing, patient, digest):
    """Believed first, so that the refusal is the list's; then by no connection of the host: not the daemon's, not the doctor's, not a
    recovery's. The true control plane is well again with it at once. Also one that the root signed with ecdsa-with-SHA512, as
    `openssl x509 -req -sha512` does."""
    thief = Thief(plane, digest=digest)
    with Rogue(plane, thief) as rogue:
        crossing.lead(rogue.port)
        until(lambda: rogue.heard, "nothing tells it from the control plane", 60)
        home(plane, crossing)
        patient.wait_connected()
        file = denied(plane, thief.certificate)
        plane.cli("ca", "import-crl", "--file", file)
        until(lambda: kept(patient) == file.read_bytes(), "the list is on the host")
        assert oct((patient.current / "root-crls.pem").stat().st_mode & 0o777) == "0o644"
        check = tool("openssl", "crl", "-in", patient.current / "root-crls.pem", "-noout", "-CAfile", patient.current / "bundle.pem")
        assert "verify OK" in check.err + check.out, check
        # It is stored first, and told then.
        told = lambda: patient.status()["trust"].get("crl_numbers", {})  # noqa: E731
        until(lambda: list(told().values()) == numbers(kept(patient)), "its number is told")
        trust = patient.status()["trust"]
        assert set(trust["crl_numbers"]) <= set(trust["roots"]), trust

        heard = len(rogue.heard)
        crossing.lead(rogue.port)
        until(lambda: refuses(patient), "it says so", 60)
        assert "impostor with the revoked issuer's key" in patient.whole_log()
        # Its recovery endpoint is the same, and no way out either.
        until(lambda: BLOCKED in patient.reasons(), "nor does it recover there", 60)
        assert patient.stop() == 0
        done = patient.agent("recover")
        assert done.code == 4 and SAID in done.error()["message"], done
        assert len(rogue.heard) == heard, "nothing was sent there"
    stolen = Authority(plane)
    stolen.key, stolen.certificate = thief.key, thief.certificate
    with Impostor("portal", stolen) as page:
        crossing.lead(page.port)
        (tls,) = [check for check in patient.doctor()["checks"] if check["name"] == "tls"]
        assert not tls["ok"] and tls["class"] == UNTRUSTED and SAID in tls["evidence"] and "impostor" in tls["remedy"], tls
    home(plane, crossing)
    patient.start().wait_connected()
    until(lambda: patient.doctor()["ok"], "the doctor finds nothing")


@pytest.mark.parametrize("lost", ["root-crls.pem", "bundle.pem", "key.pem cert.pem chain.pem bundle.pem root-crls.pem meta.json"])
def test_what_was_denied_stays_denied_on_a_damaged_disk(plane, crossing, patient, lost):
    """The recovery CA alone would believe the denied issuer, and send it the recovery token."""
    thief = Thief(plane)
    file = denied(plane, thief.certificate)
    plane.cli("ca", "import-crl", "--file", file)
    until(lambda: kept(patient) == file.read_bytes(), "the list is on the host")
    assert patient.stop() == 0
    for name in lost.split():
        (patient.current / name).unlink()
    with Rogue(plane, thief) as rogue:
        crossing.lead(rogue.port)
        done = patient.agent("recover")
        assert done.code == 4 and SAID in done.error()["message"], done
        assert not rogue.heard, "nothing was sent there"
    home(plane, crossing)
    patient.start().wait_connected()
    until(lambda: kept(patient), "and its generation has the list again")


def test_an_older_list_never_takes_the_place_of_a_newer_one(plane, crossing, patient):
    """Nor another of the same number, one of another root, none at all; nor a newer one that denies less, that none could follow, or
    that denies the root itself. Whoever sends them is believed to be the control plane."""
    signer, thief = Authority(plane), Thief(plane)
    # With what the control plane of this file has denied before.
    all_denied = (thief.certificate, *getattr(plane, "denied", []))
    newest = listed(signer, 2**40, *all_denied)
    other = Authority()
    before = (patient.current / "bundle.pem").read_bytes()
    older = [listed(signer, 7), listed(signer, 2**40), listed(other, 2**41), b"", b"garbage"]
    less = [listed(signer, 2**41), listed(signer, 2**41, *all_denied[1:], Thief(plane).certificate)]
    last = [listed(signer, 2**64 - 1, *all_denied), listed(signer, 2**41, *all_denied, signer.certificate)]
    wrong = [*older, *less, *last]
    pushes = [pushed(plane, 90, newest)] + [pushed(plane, 91 + place, one) for place, one in enumerate(wrong)]
    with Rogue(plane, Thief(plane), pushes=tuple(pushes)) as rogue:
        crossing.lead(rogue.port)
        until(lambda: (patient.status() or {}).get("trust", {}).get("bundle_version") == 99, "it has read them all", 60)
        assert numbers(kept(patient)) == [2**40], "and the newest is what it kept"
        assert (patient.current / "bundle.pem").read_bytes() == before
        assert patient.whole_log().count("revocation list of a root is not kept") == 1
    assert patient.stop() == 0
    home(plane, crossing)
    patient.start().wait_connected()
    assert numbers(kept(patient)) == [2**40]


def test_a_new_root_needs_the_signature_of_the_old_one(plane, crossing, patient):
    """With a cross-certificate of the old root it is taken in one step; with a forged one, or with none, it is not."""
    old, new, stranger = Authority(plane), Authority(), Authority()
    name = old.certificate.subject
    root = Thief._ca(name, name, new.key, new.key, 1)
    cross = Thief._ca(name, name, new.key, old.key, 1)
    forged = Thief._ca(name, name, new.key, stranger.key, 1)
    both = certs.pem(old.certificate) + certs.pem(root)
    true = {certs.fingerprint(old.certificate)}

    def trusted() -> set:
        return {certs.fingerprint(one) for one in certs.certificates((patient.current / "bundle.pem").read_bytes())}

    wrong = tuple(pushed(plane, 90 + place, b"", bundle) for place, bundle in enumerate([both + certs.pem(forged), both]))
    with Rogue(plane, pushes=wrong) as rogue:
        crossing.lead(rogue.port)
        until(lambda: (patient.status() or {}).get("trust_refused"), "it was refused", 60)
        assert trusted() == true and patient.status()["trust"]["bundle_version"] < 90
    right = (pushed(plane, 92, b"", both + certs.pem(cross)),)
    with Rogue(plane, pushes=right) as rogue:
        crossing.lead(rogue.port)
        until(lambda: trusted() == true | {certs.fingerprint(root)}, "the new root is trusted beside the old one", 60)
        until(lambda: patient.status()["trust"]["bundle_version"] == 92, "and its version is told")


def test_a_control_plane_under_a_denied_issuer_gets_its_hosts_back_by_another_issuer(plane, crossing, patient):
    """The true one: its own server issuer is denied, so hosts refuse it, until it has a certificate of the next."""
    (active,) = [one for one in plane.cli("ca", "show").json()["issuers"] if (one["use"], one["state"]) == ("server", "active")]
    _, issuer, *_ = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    assert certs.fingerprint(issuer).startswith(active["id"])
    plane.cli("ca", "import-crl", "--file", denied(plane, issuer, number=2**42), "--yes")
    until(lambda: numbers(kept(patient)) == [2**42], "the list is on the host")
    crossing.refuse()
    home(plane, crossing)
    until(lambda: refuses(patient), "the host refuses it", 60)
    prepare(plane, "server")
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    patient.wait_connected(120.0)
    assert numbers(kept(patient)) == [2**42]
