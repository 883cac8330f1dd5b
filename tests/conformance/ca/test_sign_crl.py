"""A root's list of revoked issuers, signed where the root key is kept."""

import time

import pytest

import certs
from certs import x509
from impostors import common_name
from machine import ENLIST, run, secret, tool
from plane import ControlPlane

CLIENT, SERVER = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH


@pytest.fixture(scope="module")
def founded(programs):
    """A domain that was founded and never run."""
    return ControlPlane().found()


@pytest.fixture
def files(founded, place):
    """Key, certificate, and two issuers of the root."""
    secret(place / "root.key", founded.founded["root_key_pem"])
    (place / "root.pem").write_bytes(founded.bundle)
    requests = [(certs.ec_key(), use) for use in (CLIENT, SERVER)]
    text = "".join(certs.csr(key, extensions=(x509.ExtendedKeyUsage([use]),)) for key, use in requests)
    (place / "new.csr").write_text(text)
    flags = ("--root-key", place / "root.key", "--root-cert", place / "root.pem", "--csr", place / "new.csr")
    done = run(ENLIST, "ca", "sign-intermediate", *flags, "--out", place / "issuers.pem")
    assert done.code == 0, done
    for name, (key, _), one in zip(("node", "server"), requests, certs.certificates((place / "issuers.pem").read_bytes())):
        (place / f"{name}.pem").write_bytes(certs.pem(one))
        secret(place / f"{name}.key", certs.key_pem(key).decode())
    return place


def sign(place, *arguments, issuers=("node.pem",), **changed):
    names = {"root_key": "root.key", "root_cert": "root.pem", "out": "crl.pem", **changed}
    flags = [part for flag, name in names.items() for part in ("--" + flag.replace("_", "-"), place / name)]
    flags += [part for name in issuers for part in ("--issuer", place / name)]
    env = {"ENLIST_DIR": "/nonexistent", "ENLIST_SERVER": "https://127.0.0.1:1"}
    return run(ENLIST, "ca", "sign-crl", *flags, *arguments, "--json", env=env)


def refused(place, done, code: str, word: str) -> None:
    assert done.code == 2, done
    error = done.error()
    assert error["code"] == code and word in error["message"] and error["hint"], done
    assert "PRIVATE" not in done.err and done.out == "", done
    assert not (place / "crl.pem").exists()


def read(file) -> x509.CertificateRevocationList:
    return x509.load_pem_x509_crl(file.read_bytes())


def test_openssl_verifies_the_list_and_refuses_the_issuer_on_it(files):
    """The list is the root's; a chain check goes by it."""
    assert sign(files).code == 0
    done = tool("openssl", "crl", "-verify", "-CAfile", files / "root.pem", "-in", files / "crl.pem", "-noout")
    assert "verify OK" in done.out + done.err, done
    check = ("openssl", "verify", "-crl_check", "-CAfile", files / "root.pem", "-CRLfile", files / "crl.pem")
    done = tool(*check, files / "node.pem", check=False)
    assert done.code != 0 and "certificate revoked" in done.err, done
    assert tool(*check, files / "server.pem").code == 0


def test_the_list_says_what_it_should(files):
    """Version 2, a number, the serials, valid until the root ends, nothing critical; the report agrees."""
    before = int(time.time())
    done = sign(files, issuers=("server.pem", "node.pem"))
    after = int(time.time())
    assert done.code == 0, done
    out = files / "crl.pem"
    assert out.stat().st_mode & 0o777 == 0o644
    crl, root = read(out), certs.certificate((files / "root.pem").read_bytes())
    issuers = [certs.certificate((files / name).read_bytes()) for name in ("server.pem", "node.pem")]
    assert crl.is_signature_valid(root.public_key())
    assert crl.issuer.public_bytes() == root.subject.public_bytes()
    assert {entry.serial_number for entry in crl} == {issuer.serial_number for issuer in issuers}
    assert all(len(entry.extensions) == 0 for entry in crl)
    number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    assert before <= number <= after
    assert crl.next_update_utc == root.not_valid_after_utc
    assert before <= crl.last_update_utc.timestamp() <= after
    assert not any(extension.critical for extension in crl.extensions)
    key_id = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert crl.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == key_id
    report = done.json()
    assert (report["number"], report["out"]) == (number, str(out))
    assert report["root"] == "sha256:" + certs.fingerprint(root)
    assert [issuer["serial"] for issuer in report["issuers"]] == [certs.serial(issuer) for issuer in issuers]
    assert report["next_update"] == root.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_the_number_may_be_chosen(files):
    """As far as another can follow: what no control plane imports is not signed."""
    for number in (0, 7, 2**63 - 1):
        out = f"{number}.pem"
        assert sign(files, "--number", str(number), out=out).code == 0
        assert read(files / out).extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == number
    for number in ("-1", str(2**64), "next"):
        assert sign(files, "--number", number).code == 2
    for number in (2**63, 2**64 - 1):
        refused(files, sign(files, "--number", str(number)), "list_refused", "none could follow it")
    assert not (files / "crl.pem").exists()


def test_a_list_that_denies_its_own_root_is_not_signed(files):
    """Given as an issuer to a twin of the root certificate, or by an issuer that has the root's serial number."""
    root, key = certs.certificate((files / "root.pem").read_bytes()), certs.ec_key()
    root_key = certs.serialization.load_pem_private_key((files / "root.key").read_bytes(), None)

    def ca(subject, public, serial: int) -> bytes:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(root.subject).public_key(public)
        builder = builder.not_valid_before(root.not_valid_before_utc).not_valid_after(root.not_valid_after_utc)
        builder = builder.serial_number(serial).add_extension(x509.BasicConstraints(True, None), True)
        return certs.pem(builder.sign(root_key, certs.SHA256))

    (files / "twin.pem").write_bytes(ca(root.subject, root_key.public_key(), 99))
    for twin, one in (("twin.pem", "root.pem"), ("root.pem", "twin.pem")):
        refused(files, sign(files, root_cert=twin, issuers=(one,)), "issuer_invalid", "the root's own key")
    (files / "same.pem").write_bytes(ca(common_name("Issuing CA"), key.public_key(), root.serial_number))
    refused(files, sign(files, issuers=("node.pem", "same.pem")), "list_refused", "denies the root")


def test_an_issuer_named_twice_stands_there_once(files):
    assert sign(files, issuers=("node.pem", "node.pem")).code == 0
    assert len(list(read(files / "crl.pem"))) == 1


def test_a_cross_certificate_can_be_revoked_as_well(files):
    """For a new root whose key is lost to others: the old root signed it."""
    flags = ("--root-key", files / "root.key", "--root-cert", files / "root.pem", "--csr", files / "new.csr")
    (files / "new-root.key").unlink(missing_ok=True)
    new = certs.ec_key()
    secret(files / "new-root.key", certs.key_pem(new).decode())
    done = run(ENLIST, "ca", "sign-root", *flags, "--new-root-key", files / "new-root.key", "--out", files / "root-2.pem")
    assert done.code == 0, done
    root, cross, *_ = certs.certificates((files / "root-2.pem").read_bytes())
    (files / "cross.pem").write_bytes(certs.pem(cross))
    (files / "new.pem").write_bytes(certs.pem(root))
    assert sign(files, issuers=("cross.pem",)).code == 0
    assert [entry.serial_number for entry in read(files / "crl.pem")] == [cross.serial_number]
    done = sign(files, issuers=("new.pem",), out="other.pem")
    assert done.code == 2 and "has not signed" in done.error()["message"], done


def test_what_the_list_on_record_denies_is_carried_over(files):
    """With its time and without its certificate, which may be lost; named again it stands there once. The number rises by itself."""
    high = 2**40
    assert sign(files, "--number", str(high), out="first.pem").code == 0
    (files / "first.pem").write_bytes((files / "root.pem").read_bytes() + (files / "first.pem").read_bytes())
    done = sign(files, "--previous", files / "first.pem", issuers=("server.pem",))
    assert done.code == 0, done
    node, server = (certs.certificate((files / f"{name}.pem").read_bytes()) for name in ("node", "server"))
    dates = {entry.serial_number: entry.revocation_date_utc for entry in read(files / "first.pem")}
    (files / "first.pem").unlink()
    listed = {entry.serial_number: entry.revocation_date_utc for entry in read(files / "crl.pem")}
    assert set(listed) == {node.serial_number, server.serial_number}
    assert listed[node.serial_number] == dates[node.serial_number]
    report = done.json()
    assert (report["number"], report["carried_over"]) == (high + 1, [certs.serial(node)]), report
    done = sign(files, "--previous", files / "crl.pem", issuers=("node.pem",), out="third.pem")
    assert done.json()["carried_over"] == [certs.serial(server)] and len(list(read(files / "third.pem"))) == 2
    low = sign(files, "--previous", files / "crl.pem", "--number", str(high + 1), out="low.pem")
    assert low.code == 2 and "--number" in low.error()["message"] and not (files / "low.pem").exists(), low


def test_only_a_list_of_this_root_is_carried_over(files):
    """One that was changed, another root's and what is no list are refused; of several in a file the root's own counts."""
    assert sign(files, out="first.pem").code == 0
    other = ControlPlane().found()
    place = files / "other"
    place.mkdir()
    secret(place / "root.key", other.founded["root_key_pem"])
    (place / "root.pem").write_bytes(other.bundle)
    flags = ("--root-key", place / "root.key", "--root-cert", place / "root.pem", "--csr", files / "new.csr")
    assert run(ENLIST, "ca", "sign-intermediate", *flags, "--out", place / "both.pem").code == 0
    (place / "node.pem").write_bytes(certs.pem(certs.certificates((place / "both.pem").read_bytes())[0]))
    assert sign(place, out="theirs.pem").code == 0
    (files / "garbage").write_bytes(b"no list")
    for wrong in (place / "theirs.pem", files / "garbage", files / "root.pem"):
        refused(files, sign(files, "--previous", wrong, issuers=("server.pem",)), "list_invalid", wrong.name)
    (files / "two.pem").write_bytes((place / "theirs.pem").read_bytes() + (files / "first.pem").read_bytes())
    assert sign(files, "--previous", files / "two.pem", issuers=("server.pem",)).code == 0
    assert len(list(read(files / "crl.pem"))) == 2


def test_an_issuer_of_another_root_is_refused(files):
    """Another domain's, although every root signs issuers of such a name; one foreign among good ones is enough."""
    other = ControlPlane().found()
    secret(files / "other.key", other.founded["root_key_pem"])
    (files / "other.pem").write_bytes(other.bundle)
    flags = ("--root-key", files / "other.key", "--root-cert", files / "other.pem", "--csr", files / "new.csr")
    done = run(ENLIST, "ca", "sign-intermediate", *flags, "--out", files / "foreign-both.pem")
    assert done.code == 0, done
    foreign = certs.certificates((files / "foreign-both.pem").read_bytes())[0]
    (files / "foreign.pem").write_bytes(certs.pem(foreign))
    for issuers in (("foreign.pem",), ("node.pem", "foreign.pem")):
        refused(files, sign(files, issuers=issuers), "issuer_invalid", "foreign.pem: the given root has not signed")


def test_what_is_no_issuer_is_refused(files):
    """The root itself, a leaf, two certificates in one file, garbage, nothing."""
    (files / "extensions").write_text("basicConstraints=critical,CA:FALSE\n")
    tool("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x",
         "-keyout", files / "leaf.key", "-out", files / "leaf.csr")
    tool("openssl", "x509", "-req", "-CA", files / "root.pem", "-CAkey", files / "root.key", "-set_serial", "7",
         "-days", "9", "-in", files / "leaf.csr", "-extfile", files / "extensions", "-out", files / "leaf.pem")
    (files / "garbage").write_bytes(b"\x00\xff" * 300)
    for name, word in (
        ("root.pem", "the root itself"),
        ("leaf.pem", "not a CA"),
        ("issuers.pem", "more than one"),
        ("garbage", "garbage"),
        ("new.csr", "new.csr"),
    ):
        refused(files, sign(files, issuers=(name,)), "issuer_invalid", word)
    assert sign(files, issuers=("missing",)).code == 2
    assert not (files / "crl.pem").exists()


def test_a_list_may_deny_nobody(files):
    """For programs that want a list of the root all the same; with --previous it denies what that one does."""
    done = sign(files, issuers=())
    assert done.code == 0 and done.json()["issuers"] == [] and len(read(files / "crl.pem")) == 0, done
    assert sign(files, out="first.pem").code == 0
    done = sign(files, "--previous", files / "first.pem", issuers=(), out="next.pem")
    assert done.code == 0 and len(done.json()["carried_over"]) == len(read(files / "next.pem")) == 1, done


def test_a_key_that_is_not_the_roots_is_refused(files):
    """Nor does an issuer sign the list of its root."""
    refused(files, sign(files, root_key="node.key"), "ca_unusable", "root.pem")
    done = sign(files, root_key="node.key", root_cert="node.pem", issuers=("server.pem",))
    refused(files, done, "issuer_invalid", "has not signed")
    (files / "root.key").chmod(0o644)
    done = sign(files)
    assert done.code == 1 and "key_exposed" in done.err, done


def test_a_root_without_the_right_to_sign_lists_is_refused(place):
    """keyUsage without cRLSign."""
    cert, key = place / "root.pem", place / "root.key"
    tool("openssl", "req", "-x509", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
         "/CN=Root", "-days", "9", "-keyout", key, "-out", cert, "-addext", "keyUsage=critical,keyCertSign")
    key.chmod(0o600)
    (place / "new.csr").write_text(certs.good_csr())
    flags = ("--root-key", key, "--root-cert", cert, "--csr", place / "new.csr", "--out", place / "node.pem")
    assert run(ENLIST, "ca", "sign-intermediate", *flags).code == 0
    refused(place, sign(place), "ca_unusable", "revocation lists")


def test_a_file_that_is_there_is_not_overwritten(files):
    (files / "there").write_text("precious")
    refused(files, sign(files, out="there"), "file_exists", "there")
    assert (files / "there").read_text() == "precious"
    done = sign(files, out="nowhere/crl.pem")
    assert done.code == 1 and "nowhere" in done.error()["message"], done


def test_the_text_says_the_next_step(files):
    flags = ("--root-key", "root.key", "--root-cert", "root.pem", "--issuer", "node.pem", "--out", "crl.pem")
    done = run(ENLIST, "ca", "sign-crl", *flags, cwd=files)
    assert done.code == 0 and "ca import-crl --file crl.pem" in done.out, done


def test_flags_that_reach_a_control_plane_mean_nothing_here(files):
    """They would be ignored, so they are refused."""
    assert sign(files, "--server", "https://localhost:1").code == 2
    assert not (files / "crl.pem").exists()
