"""Rolling the intermediate with the root key elsewhere, and changing the key-encryption key. D12, D13, I12."""

import concurrent.futures

import certs
import native
import pytest
from certs import x509
from impostors import Authority
from machine import ENLIST, run, scratch, until
from rolls import signed, states, status


def test_a_roll_from_beginning_to_end(plane_of_its_own):
    """Proves TASK-18."""
    plane = plane_of_its_own
    node = native.enroll(plane)
    away = native.enroll(plane)
    away.confirm()
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        csr = scratch("csr") / "next.csr"
        plane.cli("ca", "roll", "prepare", "--csr-out", csr)
        again = scratch("csr") / "again.csr"
        for _ in range(2):
            plane.cli("ca", "roll", "prepare", "--csr-out", again)
            assert csr.read_bytes() == again.read_bytes()
        other = certs.csr(certs.ec_key())
        again.write_text(other)
        refused = plane.cli("ca", "roll", "prepare", "--csr-out", again, ok=False)
        assert (refused.code, refused.error()["code"], again.read_text()) == (2, "file_exists", other)
        plane.cli("ca", "roll", "prepare", "--csr-out", again, "--force")
        assert csr.read_bytes() == again.read_bytes()
        certificate = signed(plane, csr)
        roll = plane.cli("ca", "roll", "prepare", "--cert", certificate).json()
        assert roll["stage"] == "prepared"
        people = run(ENLIST, "ca", "roll", "status", "--dir", plane.dir).out
        assert "wait until all nodes have the trust bundle" in people, people
        bundle = live.next("bundle")
        assert bundle.version == roll["bundle_version"] == 2
        assert bundle.pem.encode() == plane.bundle
        refused = plane.cli("ca", "roll", "activate", ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "not_adopted")
        live.evidence(bundle_version=2)

        def adopted():
            status = plane.cli("ca", "roll", "status").json()
            return status["missing"] == [away.id] and status["adoption"]["current"] == 1

        until(adopted, "the node that is there has it")
        assert plane.cli("ca", "roll", "activate", ok=False).code == 3
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        assert states(plane) == ["active", "retiring"]
        # Brought again it changes nothing.
        assert plane.cli("ca", "roll", "prepare", "--cert", certificate).json()["stage"] == "retiring"
        renewed = node.renewed()
        assert renewed.answer.chain != node.answer.chain
        assert certs.verifies(renewed.answer.certificate.encode(), (renewed.answer.chain + renewed.answer.bundle).encode())
        renewed.confirm()
        live.close()
    fresh = native.enroll(plane)
    fresh.confirm()
    # The one that was away comes back with what it has.
    assert native.alert(plane, away.files) is None
    refused = plane.cli("ca", "roll", "retire", ok=False)
    assert (refused.code, refused.error()["code"]) == (3, "issuer_in_use")
    assert away.id in refused.error()["message"] and fresh.id not in refused.error()["message"]
    old = next(issuer for issuer in plane.cli("ca", "show").json()["issuers"] if issuer["state"] == "retiring")
    hanging = old["leaves"] + old["other_leaves"]
    assert f"{hanging} of its certificates" in refused.error()["message"]
    back = away.renewed()
    back.confirm()

    # Everybody has renewed: what is left is a matter of minutes, and the refusal says how many.
    def only_time_is_left():
        said = plane.cli("ca", "roll", "retire", ok=False).error()
        return "all their holders have renewed" in said["message"] and "after that time" in said["hint"]

    until(only_time_is_left, "the refusal names the time")
    for one in (node, away):
        plane.api("POST", f"/v1/nodes/{one.id}/revoke")
    until(lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0, "nothing hangs on it any more")
    assert states(plane) == ["active", "retired"]
    listed = run(ENLIST, "audit", "list", "--event", "ca.retired", "--dir", plane.dir).out
    assert f"issuer={old['id']}" in listed, listed
    assert native.alert(plane, fresh.files) is None
    plane.stop()
    plane.start()
    assert native.alert(plane, fresh.files) is None
    assert plane.cli("audit", "verify").json()["ok"]



def test_what_was_sent_and_what_is_stored_are_told_apart(plane_of_its_own):
    """A renewal sends the next bundle; the host has stored it when it uses the certificate that came with it."""
    plane = plane_of_its_own
    node = native.enroll(plane)
    node.confirm()
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--csr-out", csr)
    plane.cli("ca", "roll", "prepare", "--cert", signed(plane, csr))

    def versions():
        shown = plane.node(node.id)
        return shown["bundle_version"], shown["stored_bundle_version"]

    assert versions() == (1, 1)
    renewed = node.renewed()
    assert versions() == (2, 1)
    assert status(plane)["missing"] == [node.id]
    renewed.confirm()
    assert versions() == (2, 2)
    assert status(plane)["missing"] == []

def spoiled_answers_are_refused(plane, good: list) -> None:
    """An unknown critical extension, or the serial number of another CA; signed by the true root."""
    root = Authority(plane)
    _, on_record, *_ = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")
    assert on_record.issuer == root.certificate.subject

    def signed_anew(like, serial: int | None = None, extension=None):
        builder = x509.CertificateBuilder().subject_name(like.subject).issuer_name(like.issuer)
        builder = builder.public_key(like.public_key()).serial_number(serial or x509.random_serial_number())
        builder = builder.not_valid_before(like.not_valid_before_utc).not_valid_after(like.not_valid_after_utc)
        for found in like.extensions:
            builder = builder.add_extension(found.value, found.critical)
        if extension is not None:
            builder = builder.add_extension(extension, True)
        return builder.sign(root.key, certs.SHA256)

    def answered(certificate) -> dict:
        file = scratch("answer") / "answer.pem"
        file.write_bytes(b"".join(certs.pem(one) for one in [certificate, *good[1:]]))
        refused = plane.cli("ca", "roll", "prepare", "--cert", file, ok=False)
        assert refused.code == 3, refused
        return refused.error()

    critical = answered(signed_anew(good[0], extension=unknown))
    assert critical["code"] == "bad_request" and critical["hint"], critical
    assert "critical extensions" in critical["message"] and "1.3.6.1.4.1.55555.1" in critical["message"], critical
    for owner in (root.certificate, on_record):
        taken = answered(signed_anew(good[0], serial=owner.serial_number))
        assert taken["code"] == "bad_request" and taken["hint"], taken
        assert "serial number" in taken["message"] and certs.serial(owner) in taken["message"], taken
    assert status(plane)["stage"] == "requested"


def test_what_comes_back_is_checked(plane_of_its_own):
    plane = plane_of_its_own
    place = scratch("bad")
    csr, junk = place / "next.csr", place / "junk.pem"
    junk.write_text("nothing")
    refused = plane.cli("ca", "roll", "prepare", "--cert", junk, ok=False)
    assert refused.code == 3 and refused.error()["code"] in ("bad_request", "no_roll")
    assert plane.cli("ca", "roll", "activate", ok=False).error()["code"] == "no_roll"
    plane.cli("ca", "roll", "prepare", "--csr-out", csr)
    for step in ("activate", "retire"):
        early = plane.cli("ca", "roll", step, ok=False).error()
        assert early["code"] == "no_roll" and "prepare --cert FILE" in early["hint"], early
    root = place / "root.pem"
    root.write_bytes(plane.bundle)
    assert plane.cli("ca", "roll", "prepare", "--cert", root, ok=False).error()["code"] == "bad_request"
    good = signed(plane, csr)
    spoiled_answers_are_refused(plane, certs.certificates(good.read_bytes()))
    assert plane.cli("ca", "roll", "prepare", "--cert", good).json()["stage"] == "prepared"
    again = plane.cli("ca", "roll", "prepare", "--csr-out", csr, ok=False)
    assert again.error()["code"] == "roll_in_progress"


@pytest.mark.parametrize("killed", [False, True])
def test_the_key_encryption_key_can_be_changed(plane_of_its_own, killed):
    plane = plane_of_its_own
    node = native.enroll(plane)
    node.confirm()
    place = scratch("kek")
    kek = place / "next"
    old = plane.kek_file.read_bytes()
    assert plane.cli("ca", "rewrap", "--kek", "floppy:a", ok=False).code == 3
    assert plane.cli("ca", "rewrap", "--kek", "file:relative", ok=False).code == 3
    assert plane.cli("ca", "rewrap", "--kek", f"file:{plane.dir}/keys/kek.next", ok=False).code == 3
    done = plane.cli("ca", "rewrap", "--kek", f"file:{kek}").json()
    assert len(done["kek_id"]) == 16
    assert kek.stat().st_mode & 0o777 == 0o600
    assert f"file:{kek}" in (plane.dir / "enlist.toml").read_text()
    if killed:
        plane.kill()
    else:
        plane.stop()
    # The old key is of no use any more.
    plane.kek_file.unlink()
    plane.start()
    assert native.alert(plane, node.files) is None
    native.enroll(plane).confirm()
    plane.stop()
    kek.write_bytes(old)
    refused = plane.run_to_end()
    assert refused.code == 1


def test_a_roll_and_a_change_of_key_do_not_meet(plane_of_its_own):
    """Whatever order they come in, everything can be opened afterwards."""
    plane = plane_of_its_own
    place = scratch("kek")
    for number in range(4):
        csr = place / f"{number}.csr"
        commands = [
            ("ca", "rewrap", "--kek", f"file:{place / str(number)}"),
            ("ca", "roll", "prepare", "--csr-out", csr),
        ]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda command: plane.cli(*command, ok=False), commands))
        assert [one.code for one in done] == [0, 0], done
        plane.cli("ca", "roll", "prepare", "--cert", signed(plane, csr))
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        native.enroll(plane).confirm()
    plane.cli("ca", "rewrap", "--kek", f"file:{place / 'last'}")
    plane.stop()
    plane.start()
    native.enroll(plane).confirm()
