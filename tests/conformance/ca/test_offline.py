"""What the keeper of the root key does by mistake: refused where it happens, before anything is signed, begun or overwritten.

Proves TASK-18 and D12 (rolls of issuers and of the root with an offline root key).
"""

import pytest

import certs
import evidence
from certs import x509
from machine import ENLIST, run, scratch, secret, tool
from plane import ControlPlane
from rolls import keeper, status


@pytest.fixture(scope="module")
def own(programs):
    """One whose rolls are begun and abandoned here."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def plane(own):
    yield own
    if status(own)["stage"] != "none":
        own.cli("ca", "roll", "abandon", "--yes")


def requested(plane, *options):
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", *options, "--csr-out", csr)
    return csr


def signing(command: str, place, key, root, csr, *options, json: bool = True):
    flags = ("--root-key", key, "--root-cert", root, "--csr", csr, "--out", place / "out.pem")
    more = ("--new-root-key-out", place / "new.key") if command == "sign-root" and "--new-root-key-out" not in options else ()
    done = run(ENLIST, "ca", command, *flags, *more, *options, *(("--json",) if json else ()))
    if done.code == 0 and (place / "new.key").exists():
        evidence.private_key("new root", (place / "new.key").read_bytes())
    return done


def refused(done, code: str, *words: str, exit_code: int = 2) -> dict:
    assert done.code == exit_code, done
    error = done.error()
    assert error["code"] == code and error["hint"], done
    assert all(word in error["message"] for word in words), done
    return error


def test_a_root_of_another_domain_signs_nothing(plane, place):
    """The names of both domains are said, and nothing is written."""
    other = ControlPlane(domain="other.example").found()
    key, root = keeper(other)
    for command, options in (("sign-intermediate", ()), ("sign-root", ("--new-root",))):
        csr = requested(plane, *options)
        error = refused(signing(command, place, key, root, csr), "ca_unusable", "test.example", "other.example")
        assert "test.example" in error["hint"]
        assert list(place.iterdir()) == []
        # Its own root signs them.
        done = signing(command, place, *keeper(plane), csr)
        assert done.code == 0, done
        for made in place.iterdir():
            made.unlink()
        plane.cli("ca", "roll", "abandon")


def test_the_control_plane_names_the_root_to_sign_with(plane, place):
    """A root of the same name, such as a retired one: only the control plane can tell, and says the pin of the right one."""
    key, root = keeper(ControlPlane().found())
    csr = requested(plane)
    assert signing("sign-intermediate", place, key, root, csr).code == 0
    error = refused(
        plane.cli("ca", "roll", "prepare", "--cert", place / "out.pem", ok=False), "bad_request", plane.pin, exit_code=3
    )
    assert "key of the root" in error["hint"] and "sign-intermediate" in error["hint"], error
    plane.cli("ca", "roll", "abandon")
    csr, place = requested(plane, "--new-root"), scratch("new")
    assert signing("sign-root", place, key, root, csr).code == 0
    done = plane.cli("ca", "roll", "prepare", "--new-root", "--cert", place / "out.pem", ok=False)
    error = refused(done, "bad_request", plane.pin, exit_code=3)
    assert "key of a root" in error["hint"] and "sign-root" in error["hint"], error


def test_sign_root_takes_the_csrs_of_a_root_roll_alone(plane, place):
    """One CSR, two of a use or one for both uses make no new root; and two that keep the root are said to."""
    key, root = keeper(plane)
    error = refused(signing("sign-root", place, key, root, requested(plane)), "csr_invalid", "two CSRs", "node")
    assert "sign-intermediate" in error["hint"] and "--new-root" in error["hint"]
    client = (x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]),)
    for name, text in (
        ("twice", certs.csr(certs.ec_key(), extensions=client) + certs.csr(certs.ec_key(), extensions=client)),
        ("both", certs.csr(certs.ec_key())),
    ):
        csr = scratch("csr") / name
        csr.write_text(text)
        refused(signing("sign-root", place, key, root, csr), "csr_invalid", "two CSRs")
    assert list(place.iterdir()) == [], "no key and no certificate is made in vain"
    done = signing("sign-intermediate", place, key, root, requested(plane), json=False)
    assert done.code == 0 and "sign-root" not in done.out, done
    plane.cli("ca", "roll", "abandon")
    done = signing("sign-intermediate", scratch("two"), key, root, requested(plane, "--new-root"), json=False)
    assert done.code == 0 and "enlist ca sign-root" in done.out and "--new-root" in done.out, done


def test_files_that_changed_places_are_named_and_no_alarm_is_raised(plane, place):
    """A certificate that everybody may read is no exposed key. A key that they may read is, wherever it is given."""
    key, root = keeper(plane)
    root.chmod(0o644)
    csr = requested(plane)
    for command in ("sign-intermediate", "sign-root"):
        error = refused(signing(command, place, root, key, csr), "ca_unusable", str(root), "certificate", "changed places")
        assert "exposed" not in str(error)
    error = refused(run(ENLIST, "ca", "sign-crl", "--root-key", root, "--root-cert", key, "--issuer", root, "--out", place / "l",
                        "--json"), "ca_unusable", str(root), "certificate")
    base = ("--dir", place / "d", "--domain", "x.example", "--kek", f"file:{place}/kek", "--issuer", "imported", "--json")
    error = refused(run(ENLIST, "server", "init", *base, "--ca-cert", key, "--ca-key", root), "ca_unusable", str(root), "certificate")
    assert "--ca-key" in error["hint"]
    assert list(place.iterdir()) == []
    key.chmod(0o644)
    assert signing("sign-intermediate", place, key, root, csr).error()["code"] == "key_exposed"


def test_two_new_files_have_two_names(plane, place):
    """One path for the key and for the certificates, however it is spelled."""
    key, root = keeper(plane)
    csr = requested(plane, "--new-root")
    for same in (place / "out.pem", place / "." / "out.pem", place / ".." / place.name / "out.pem"):
        done = signing("sign-root", place, key, root, csr, "--new-root-key-out", same)
        error = refused(done, "usage", "same file")
        assert "exists" not in error["message"]
    assert list(place.iterdir()) == []


def test_an_issuer_that_is_named_twice_is_denied_once(plane, place):
    key, root = keeper(plane)
    issuer = plane.cli("ca", "show").json()["issuers"][0]["id"]
    file = place / "issuer.pem"
    file.write_text(plane.cli("ca", "export", "--issuer", issuer).json()["pem"])
    flags = ("--root-key", key, "--root-cert", root, "--issuer", file, "--issuer", file, "--out", place / "list.pem")
    done = run(ENLIST, "ca", "sign-crl", *flags, "--json")
    assert done.code == 0 and [one["id"] for one in done.json()["issuers"]] == [issuer], done
    text = tool("openssl", "crl", "-in", place / "list.pem", "-noout", "-text").out
    assert text.count("Serial Number:") == 1, text


def test_a_roll_does_not_begin_where_its_csr_cannot_be_written(plane, place):
    """A directory that is not there, a directory in the file's place, another's CSR: no key is made for it."""
    old = place / "old.csr"
    old.write_text(certs.csr(certs.ec_key()))
    before = old.read_text()
    for path, code in ((place / "none" / "next.csr", "file"), (place, "file"), (old, "file_exists")):
        for command in (("roll", "prepare"), ("roll", "prepare", "--new-root"), ("migrate", "--to", "pkcs11")):
            done = plane.cli("ca", *command, "--csr-out", path, ok=False)
            assert done.code != 0 and done.error()["code"] == code, done
    assert status(plane)["stage"] == "none" and old.read_text() == before
    plane.cli("ca", "roll", "prepare", "--csr-out", old, "--force")
    assert old.read_text() == status(plane)["request"], "other CSRs are replaced when that is asked for"


def test_nothing_but_a_csr_is_ever_replaced(plane, place):
    """`--force` in the wrong place must not cost the root key."""
    key, root = keeper(plane)
    beside = secret(place / "beside", certs.csr(certs.ec_key()) + certs.key_pem(certs.ec_key()).decode())
    evidence.private_key("beside", beside.read_bytes()[beside.read_bytes().index(b"-----BEGIN PRIVATE") :])
    notes = place / "notes"
    notes.write_text("mine\n")
    for path in (key, root, beside, notes):
        before = path.read_bytes()
        for command in (("roll", "prepare"), ("migrate", "--to", "pkcs11")):
            done = plane.cli("ca", *command, "--csr-out", path, "--force", ok=False)
            error = refused(done, "file_exists", str(path))
            assert "PRIVATE" not in done.err and "another path" in error["hint"], done
        assert path.read_bytes() == before
    assert status(plane)["stage"] == "none"
