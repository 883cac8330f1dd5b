"""`ca roll abandon`: what it asks, what it says of a root that stays certified, and the way from there to a list. D12, D13."""

import certs
import pytest
from impostors import Authority
from machine import ENLIST, run, scratch
from plane import ControlPlane
from rogue import Thief
from rolls import issuers, keeper, prepare, prepare_root, status
from root_lists import listed
from terminal import Terminal


@pytest.fixture
def plane(programs):
    with ControlPlane() as made:
        yield made


def test_certificates_that_came_back_are_given_up_only_when_it_is_confirmed(plane):
    """At a terminal by an answer, in scripts by `--yes`, in the API by the issuer's id. A CSR alone is given up at once."""
    plane.cli("ca", "roll", "prepare", "--csr-out", scratch("csr") / "next.csr")
    assert plane.cli("ca", "roll", "abandon").json()["stage"] == "none"
    prepare(plane)
    (prepared,) = [one["id"] for one in issuers(plane) if one["state"] == "prepared"]
    asked = plane.cli("ca", "roll", "abandon", ok=False)
    assert (asked.code, asked.error()["code"]) == (3, "confirmation_needed"), asked
    assert prepared in asked.error()["message"] and "new root" not in asked.error()["message"], asked
    with Terminal(ENLIST, "ca", "roll", "abandon", "--dir", plane.dir) as terminal:
        assert prepared in terminal.until("Continue? [y/N] ")
        terminal.type("n\n")
        assert terminal.end() == 3
    assert plane.api("POST", "/v1/ca/roll/abandon", {"confirm": "yes"}).code == "confirmation_needed"
    assert status(plane)["stage"] == "prepared" and plane.audit("ca.abandoned")[1:] == []
    assert plane.api("POST", "/v1/ca/roll/abandon", {"confirm": prepared}).status == 200
    assert status(plane)["stage"] == "none"


def test_programs_are_told_of_a_root_that_stays_certified(plane):
    """With the serial of its cross-certificate and the certificate itself; of issuers alone there is nothing to tell."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--new-root", "--csr-out", csr)
    early = plane.cli("ca", "roll", "abandon").json()
    assert "certified_root" not in early and "key of the new root" in early["destroy"] and early["next"], early
    key, root = keeper(plane)
    plane.cli("ca", "roll", "prepare", "--new-root", "--csr-out", csr, "--force")
    flags = ("--root-key", key, "--root-cert", root, "--csr", csr, "--new-root-key-out", key.parent / "new.key")
    signed = run(ENLIST, "ca", "sign-root", *flags, "--out", key.parent / "new.pem", "--json").json()
    plane.cli("ca", "roll", "prepare", "--new-root", "--cert", key.parent / "new.pem")
    told = plane.cli("ca", "roll", "abandon", "--yes").json()
    new, cross, *_ = certs.certificates((key.parent / "new.pem").read_bytes())
    left = told["certified_root"]
    assert left["fingerprint"] == "sha256:" + certs.fingerprint(new) and left["certified_by"] == plane.pin, left
    assert left["cross_certificate"]["serial"] == signed["cross_certificate"]["serial"] == certs.serial(cross), left
    assert left["cross_certificate"]["pem"].encode() == certs.pem(cross)
    assert "key of the new root" in told["destroy"] and told["stage"] == "none", told
    assert any("--previous" in command for command in told["next"]), "the first list of the old root is on record"
    prepare(plane)
    plain = plane.cli("ca", "roll", "abandon", "--yes").json()
    assert not {"certified_root", "destroy", "next"} & set(plain), plain


def test_the_commands_that_it_prints_deny_the_cross_certificate(plane):
    """As they are, with the names of files filled in, beside what the list on record denies, whose certificate nobody has any more;
    and the next list too needs neither certificate."""
    lost = Thief(plane).certificate
    file = scratch("crl") / "first.pem"
    file.write_bytes(listed(Authority(plane), 5, lost))
    plane.cli("ca", "import-crl", "--file", file)
    answer, _ = prepare_root(plane)
    (key, root), place = keeper(plane), scratch("recipe")
    told = run(ENLIST, "ca", "roll", "abandon", "--yes", "--dir", plane.dir)
    cross = certs.certificates(answer.read_bytes())[1]
    assert told.code == 0 and f"serial {certs.serial(cross)}" in " ".join(told.out.split()), told
    commands = [line.strip() for line in told.out.splitlines() if line.startswith("  ")]
    assert len(commands) == 4 and "--previous on-record.pem" in commands[2], told.out
    for command in commands:
        command = command.replace("--root-key FILE", f"--root-key {key}").replace("--root-cert FILE", f"--root-cert {root}")
        done = run("sh", "-c", command.replace("CERTIFICATES >", f"{answer} >"), cwd=place)
        assert done.code == 0, (command, done)
    (on_record,) = plane.cli("ca", "show").json()["lists"]
    assert set(on_record["denied"]) == {certs.serial(lost), certs.serial(cross)}, on_record
    (place / "on-record.pem").write_text(plane.cli("ca", "crl", "--roots").json()["pem"])
    (place / "third.pem").write_bytes(certs.pem(Thief(plane).certificate))
    flags = ("--root-key", key, "--root-cert", root, "--previous", "on-record.pem", "--issuer", "third.pem", "--out", "next.pem")
    done = run(ENLIST, "ca", "sign-crl", *flags, cwd=place)
    assert done.code == 0 and certs.serial(lost) in done.out and certs.serial(cross) in done.out, done
    plane.cli("ca", "import-crl", "--file", place / "next.pem")
    assert len(plane.cli("ca", "show").json()["lists"][0]["denied"]) == 3


def test_the_lists_of_the_roots_are_of_no_issuer(plane):
    assert plane.cli("ca", "crl", "--roots", "--issuer", "x", ok=False).code == 2


def test_a_data_directory_that_does_not_exist_is_named(programs):
    """By the variable that names it, too."""
    missing = scratch("none") / "nowhere"
    for flags, env, name in (((), {"ENLIST_DIR": str(missing)}, "ENLIST_DIR: "), (("--dir", missing), {}, "")):
        done = run(ENLIST, "ca", "show", "--json", *flags, env=env)
        assert done.code != 0 and done.error()["message"] == f"{name}the directory {missing} does not exist", done
