"""A stolen issuing key plays the control plane: whatever it says, hosts never come to trust another root by it, and work with
the true control plane again afterwards. The next root comes with the signature of the one before, and is taken."""

import json

import pytest

import certs
from agents import enroll_command
from faults import Patient
from impostors import Authority, Crossing, behind, home
from machine import run, scratch, secret, until
from native import pb
from plane import ControlPlane
from rogue import Rogue, Thief, cross_signed

UNTRUSTED = "server_tls_untrusted"


@pytest.fixture(scope="module")
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture(scope="module")
def plane(crossing):
    with behind(crossing, **{"liveness.grace": "2s"}) as made:
        home(made, crossing)
        yield made


@pytest.fixture
def patient(plane, crossing):
    """A host that was well, with a recovery token, and is switched off."""
    home(plane, crossing)
    made = Patient(plane, plane.token(), ENLIST_AGENT_CHECK_INTERVAL="1s")
    made.start().wait_connected()
    made.wait_token()
    made.node = made.node_id()
    made.spiffe = made.status()["spiffe_id"]
    made.stop()
    yield made
    made.stop()
    made.note_secrets()


def roots(file) -> set:
    return {certs.fingerprint(found) for found in certs.certificates(file.read_bytes())}


def trusted(patient) -> tuple:
    """By what it recognises the control plane, and by what the recovery endpoint."""
    return roots(patient.current / "bundle.pem"), roots(patient.dir / "recovery" / "ca.pem")


def token(patient) -> str:
    return (patient.dir / "recovery" / "token").read_text()


def settled(patient, before: tuple) -> bool:
    """It has refused what it was offered, or has taken it."""
    return bool((patient.status() or {}).get("trust_refused")) or trusted(patient) != before


def is_well_again(patient, plane, crossing) -> None:
    """With the true control plane: connected as before, and the refusal is over with the next renewal."""
    patient.stop()
    home(plane, crossing)
    patient.start().wait_connected()
    serial = patient.serial()
    plane.cli("node", "rotate", patient.node)
    until(lambda: patient.serial() != serial, "it is renewed")
    until(lambda: "trust_refused" not in patient.status(), "the refusal is over")
    until(lambda: patient.doctor()["ok"], "the doctor finds nothing")
    assert plane.node(patient.node)["state"] == "active"


def refused_loudly(patient) -> None:
    """In the log, in the diagnostics, in `status` and by the doctor: with a class and a remedy."""
    refused = patient.status()["trust_refused"]
    assert refused["class"] == UNTRUSTED and refused["evidence"] and refused["remedy"], refused
    (check,) = [check for check in patient.doctor()["checks"] if check["name"] == "recovery"]
    assert not check["ok"] and check["class"] == UNTRUSTED and "recovery_ca_file" in check["remedy"], check


@pytest.mark.parametrize("kind", ["own_root", "signed_root", "resigned", "resigned_beside"])
def test_a_recovery_ca_that_nothing_vouches_for_is_not_kept(plane, crossing, patient, kind):
    """Neither it nor the token that comes with it: what was kept still works. Proves GPU-05."""
    before, kept = trusted(patient), token(patient)
    thief = Thief(plane)
    with Rogue(plane, thief) as rogue:
        rogue.grant = rogue.profile(getattr(thief, kind)())
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: rogue.heard and settled(patient, before), "it was offered a recovery CA", 60)
        assert trusted(patient) == before, "the host trusts the thief's root from now on"
        assert token(patient) == kept and rogue.kept == []
        refused_loudly(patient)
    is_well_again(patient, plane, crossing)


@pytest.mark.parametrize("by", ["command", "daemon"])
@pytest.mark.parametrize("answer", ["not_needed", "issued"])
@pytest.mark.parametrize("kind", ["own_root", "signed_root", "resigned"])
def test_a_recovery_brings_no_other_root(plane, crossing, patient, by, answer, kind):
    """Neither the bundle beside `recovery_not_needed` nor the one in an answer to Recover. Proves GPU-05."""
    before, kept, serial = trusted(patient), token(patient), patient.serial()
    thief = Thief(plane)
    with Rogue(plane, thief, bundle=getattr(thief, kind)()) as rogue:
        rogue.not_needed, rogue.spiffe = answer == "not_needed", patient.spiffe
        crossing.lead(rogue.port)
        asked(patient, plane, rogue, before, by)
        assert trusted(patient) == before, "the host trusts the thief's root from now on"
        assert token(patient) == kept and patient.serial() == serial
        refused_loudly(patient)
    is_well_again(patient, plane, crossing)


@pytest.mark.parametrize("kind", ["own_root", "resigned", "resigned_beside"])
def test_a_bundle_on_the_stream_brings_no_other_root(plane, crossing, patient, kind):
    """Whoever has an issuing key puts nothing among what a host trusts, however it signs itself anew."""
    before, thief = trusted(patient), Thief(plane)
    pushed = pb.LiveDown(bundle=pb.Bundle(version=91, pem=getattr(thief, kind)().decode()))
    with Rogue(plane, thief, pushes=(pushed,)) as rogue:
        crossing.lead(rogue.port)
        patient.start()
        until(lambda: rogue.heard and settled(patient, before), "it was offered a bundle", 60)
        assert trusted(patient) == before, "the host trusts the thief from now on"
        refused_loudly(patient)
    is_well_again(patient, plane, crossing)


def asked(patient, plane, rogue, before: tuple, by: str) -> None:
    """It asks its recovery endpoint: by hand, or because it has reached nobody for too long."""
    if by == "command":
        done = patient.agent("recover")
        assert rogue.heard, done
        return
    with Crossing() as nowhere:
        nowhere.refuse()
        forget_addresses(patient, f"https://127.0.0.1:{nowhere.port}")
        patient.environment["ENLIST_AGENT_SERVER"] = f"https://127.0.0.1:{nowhere.port}"
        patient.start()
        until(lambda: rogue.heard and settled(patient, before), "it has asked for recovery", 90)
        patient.stop()
    forget_addresses(patient, plane.url)
    patient.environment["ENLIST_AGENT_SERVER"] = plane.url


def forget_addresses(patient, url: str) -> None:
    """What it was told about addresses, so that one alone is left."""
    for file in (patient.dir / "identity").glob("*/meta.json"):
        if not file.is_symlink() and not file.parent.is_symlink():
            file.write_text(json.dumps({**json.loads(file.read_text()), "servers": [url]}))


def test_the_next_root_comes_by_every_way_with_the_signature_of_the_last(plane, crossing, patient):
    """As a recovery CA, beside `recovery_not_needed`, and in the answer to Recover: also for a host that has missed the steps."""
    crossed, alone = cross_signed(plane)
    (true,) = roots_of(plane.bundle)
    next_root = certs.fingerprint(certs.certificate(alone))
    with Rogue(plane, bundle=plane.bundle + crossed + alone) as rogue:
        rogue.not_needed, rogue.spiffe = True, patient.spiffe
        rogue.grant = rogue.profile(plane.bundle + crossed + alone)
        crossing.lead(rogue.port)
        patient.start().wait_connected()
        until(lambda: len(trusted(patient)[1]) == 2, "the recovery CA has a successor")
        patient.stop()
        patient.agent("recover")
        assert trusted(patient)[0] == {true, next_root}, "roots alone are stored"
        rogue.not_needed, rogue.bundle = False, (alone + crossed).decode()
        done = patient.agent("recover")
        assert done.code == 0, done
        assert trusted(patient)[0] == {next_root}
        assert patient.status().get("trust_refused") is None


def roots_of(pem: bytes) -> set:
    return {certs.fingerprint(found) for found in certs.certificates(pem)}


def test_a_version_out_of_reach_is_not_the_last_bundle_that_a_host_takes(plane, crossing, patient):
    """The number beside a bundle is nobody's signature: after the largest of all, what the root has signed is still taken."""
    crossed, alone = cross_signed(plane)
    # The number alone would not be stored.
    stored = {"node_issuers": plane.bundle.decode(), "node_issuers_version": 2**64 - 1}
    pushed = pb.LiveDown(bundle=pb.Bundle(version=2**64 - 1, pem=plane.bundle.decode(), **stored))
    with Rogue(plane, pushes=(pushed,)) as rogue:
        crossing.lead(rogue.port)
        patient.start()

        def reported() -> bool:
            meta = json.loads((patient.current / "meta.json").read_text())
            return meta["bundle_version"] == 2**64 - 1

        until(reported, "it has kept the number", 60)
        patient.stop()
    pushed = pb.LiveDown(bundle=pb.Bundle(version=7, pem=(plane.bundle + crossed + alone).decode()))
    with Rogue(plane, pushes=(pushed,)) as true:
        crossing.lead(true.port)
        patient.start()
        until(lambda: len(trusted(patient)[0]) == 2, "the next root was taken")
    is_well_again(patient, plane, crossing)


@pytest.mark.parametrize("kind", ["own_root", "resigned"])
@pytest.mark.parametrize("trust", ["pin", "file"])
def test_an_enrollment_brings_no_other_root_than_the_one_that_was_named(plane, crossing, trust, kind):
    """The operator named the CA; whoever has the issuing key alone cannot put another in its place. Proves GPU-05."""
    place, thief = scratch("enr") / "a", Thief(plane)
    named = {"pin": ("--ca-pin", plane.pin), "file": ("--ca-file", plane.dir / "ca" / "bundle.pem")}[trust]
    with Rogue(plane, thief, bundle=getattr(thief, kind)()) as rogue:
        rogue.spiffe = "spiffe://test.example/tenant/default/agent/n-1"
        file = secret(scratch("tok") / "token", "enroll_" + "A" * 43)
        command = enroll_command(plane, place, "--json", "--token-file", file, "--timeout", "60s", server=rogue.url, trust=named)
        done = run(*command)
        assert rogue.heard and done.code == 1 and done.error()["code"] == "answer_invalid", done
    assert not (place / "identity" / "current").exists(), "nothing is stored"


def test_a_configured_recovery_ca_that_hosts_will_refuse(place):
    """`server check` and the start say so; hosts refuse it, unless their own agent.toml names it. Proves GPU-05."""
    foreign = place / "site.pem"
    foreign.write_bytes(Authority().pem)
    plane = ControlPlane().found()
    try:
        assert plane.cli("server", "check").json()["warnings"] == []
        toml = plane.dir / "enlist.toml"
        toml.write_text(toml.read_text() + f'\n[recovery]\nca_file = "{foreign}"\n')
        checked = plane.cli("server", "check").json()
        (warning,) = checked["warnings"]
        assert checked["ok"] and "recovery.ca_file" in warning and "recovery_ca_file" in warning
        plane.start()
        assert "recovery.ca_file" in plane.log()
        told, named = Patient(plane, plane.token()), Patient(plane, plane.token())
        named.environment["ENLIST_AGENT_RECOVERY_CA_FILE"] = str(foreign)
        try:
            for host in (told, named):
                host.start().wait_connected()
            until(lambda: told.status().get("trust_refused"), "it has refused")
            named.wait_token()
            assert not (told.dir / "recovery" / "ca.pem").exists()
            assert (named.dir / "recovery" / "ca.pem").read_bytes() == foreign.read_bytes()
            assert "trust_refused" not in named.status()
        finally:
            for host in (told, named):
                host.stop()
                host.note_secrets()
    finally:
        plane.close()
