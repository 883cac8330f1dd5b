"""A new intermediate, signed where the root key is kept."""

import datetime

import pytest

import certs
import evidence
from certs import x509
from machine import ENLIST, run, secret, tool
from plane import ControlPlane


@pytest.fixture(scope="module")
def founded(programs):
    """A domain that was founded and never run."""
    return ControlPlane().found()


@pytest.fixture
def files(founded, place):
    """What lies on the machine with the root key: key, certificate and a request made by openssl."""
    secret(place / "root.key", founded.founded["root_key_pem"])
    (place / "root.pem").write_bytes(founded.bundle)
    request(place)
    return place


def request(place, *arguments) -> None:
    options = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=whatever", *arguments)
    tool("openssl", "req", "-new", "-nodes", "-keyout", place / "new.key", "-out", place / "new.csr", *options)


def sign(place, *arguments, **changed):
    """The command, with other files where a test wants them. It is told of a control plane that is not there."""
    names = {"root_key": "root.key", "root_cert": "root.pem", "csr": "new.csr", "out": "new.pem", **changed}
    flags = [part for flag, name in names.items() for part in ("--" + flag.replace("_", "-"), place / name)]
    env = {"ENLIST_DIR": "/nonexistent", "ENLIST_SERVER": "https://127.0.0.1:1"}
    return run(ENLIST, "ca", "sign-intermediate", *flags, *arguments, "--json", env=env)


def refused(done, code: str, word: str) -> None:
    """Bad input is usage: exit 2, a code, the file's name and a remedy."""
    assert done.code == 2, done
    error = done.error()
    assert error["code"] == code and word in error["message"] and error["hint"], done
    assert "PRIVATE" not in done.err and done.out == "", done


def test_the_certificate_is_an_intermediate_that_verifies(files):
    """For the request's key, path length 0, a year long, with a name of its own; the report agrees with it."""
    done = sign(files)
    assert done.code == 0, done
    out = files / "new.pem"
    assert out.stat().st_mode & 0o777 == 0o644
    [made] = certs.certificates(out.read_bytes())
    [root] = certs.certificates((files / "root.pem").read_bytes())
    assert certs.verifies(out.read_bytes(), certs.pem(root), "-x509_strict")
    extensions = made.extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and constraints.value.ca and constraints.value.path_length == 0
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical and usage.value.key_cert_sign and usage.value.crl_sign
    csr = x509.load_pem_x509_csr((files / "new.csr").read_bytes())
    assert certs.public_der(made.public_key()) == certs.public_der(csr.public_key())
    [name] = made.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert name.value.startswith("test.example Enlist Intermediate CA ")
    left = made.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < left <= datetime.timedelta(days=365)
    report = done.json()
    assert report["fingerprint"] == "sha256:" + certs.fingerprint(made)
    assert report["not_after"] == made.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert report["subject"] == f"CN={name.value}" and report["out"] == str(out)


def grant(place, issuer, name: str, extensions: str):
    """openssl, with the key of the CA in `issuer`, signs a new key in a directory of its own."""
    below = place / name
    below.mkdir()
    request(below, "-subj", f"/CN={name}")
    (below / "extensions").write_text(extensions)
    signer = ("-CA", issuer / "new.pem", "-CAkey", issuer / "new.key", "-set_serial", "7", "-days", "9")
    files = ("-in", below / "new.csr", "-extfile", below / "extensions", "-out", below / "new.pem")
    tool("openssl", "x509", "-req", *signer, *files)
    return below


def test_a_leaf_below_it_verifies_and_a_further_ca_does_not(files):
    """The path length is obeyed by openssl. Proves PROBE-09."""
    assert sign(files).code == 0
    leaf = grant(files, files, "leaf", "basicConstraints=critical,CA:FALSE")
    further = grant(files, files, "further", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign")
    deep = grant(files, further, "deep", "basicConstraints=critical,CA:FALSE")
    verify = ("openssl", "verify", "-CAfile", files / "root.pem", "-untrusted", files / "new.pem")
    tool(*verify, leaf / "new.pem")
    done = tool(*verify, "-untrusted", further / "new.pem", deep / "new.pem", check=False)
    assert done.code != 0 and "path length constraint exceeded" in done.err, done


def test_two_intermediates_have_two_names(files):
    """Verifiers look for issuers by name."""
    assert sign(files).code == 0
    request(files)
    assert sign(files, out="second.pem").code == 0
    names = {certs.certificate((files / name).read_bytes()).subject for name in ("new.pem", "second.pem")}
    assert len(names) == 2


def asking(*uses) -> str:
    return certs.csr(certs.ec_key(), extensions=(x509.ExtendedKeyUsage(list(uses)),) if uses else ())


def test_each_request_is_answered_with_the_use_that_it_asks_for(files):
    """One or two in a file, in their order: the extended key usage is the one asked for and no other, and so is the name."""
    client, server = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH
    for place, wanted in enumerate(([client], [server], [None], [client, server], [server, client])):
        requests = [asking(use) if use else asking() for use in wanted]
        (files / f"{place}.csr").write_text("".join(requests))
        done = sign(files, csr=f"{place}.csr", out=f"{place}.pem")
        assert done.code == 0, done
        made = certs.certificates((files / f"{place}.pem").read_bytes())
        told = done.json()["issuers"]
        assert len(made) == len(told) == len(wanted)
        for use, csr, one, line in zip(wanted, requests, made, told):
            key = x509.load_pem_x509_csr(csr.encode()).public_key()
            assert certs.public_der(one.public_key()) == certs.public_der(key)
            stated = [found.value for found in one.extensions if found.oid == x509.ExtensionOID.EXTENDED_KEY_USAGE]
            assert [list(found) for found in stated] == ([[use]] if use else [])
            role, word = {client: ("Node", "node"), server: ("Server", "server"), None: ("Intermediate", "both")}[use]
            [name] = one.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
            assert name.value.startswith(f"test.example Enlist {role} CA ")
            assert (line["use"], line["fingerprint"]) == (word, "sha256:" + certs.fingerprint(one))
            assert certs.verifies(certs.pem(one), (files / "root.pem").read_bytes(), "-x509_strict")


def test_requests_that_no_issuer_answers_are_refused(files):
    """Both uses in one, another use, three requests, the same key twice, a bad one after a good one."""
    client, server = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH
    good = asking(client)
    for name, text, word in (
        ("both", asking(client, server), "other uses"),
        ("any", asking(x509.ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE), "other uses"),
        ("three", good + asking(server) + asking(), "more than 2"),
        ("twice", good + good, "same key"),
        ("second", good + certs.spoiled(asking(server)), "signature"),
        ("cut", good + "-----BEGIN CERTIFICATE REQUEST-----\nMII", "cut"),
    ):
        (files / name).write_text(text)
        refused(sign(files, csr=name), "csr_invalid", word)
    assert not (files / "new.pem").exists()


def test_the_key_is_read_as_it_was_printed(place):
    """With the lines around it, and whatever else `server init` said."""
    base = ("--domain", "x.example", "--kek", f"file:{place}/kek", "--listen", "127.0.0.1:0")
    done = run(ENLIST, "server", "init", "--dir", place / "d", *base)
    assert done.code == 0, done
    lines = done.out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("-----BEGIN"))
    end = next(i for i, line in enumerate(lines) if line.startswith("-----END"))
    evidence.private_key("root", ("\n".join(lines[begin : end + 1]) + "\n").encode())
    root = place / "d" / "ca" / "bundle.pem"
    request(place)
    for name, text in (("block", lines[begin - 1 : end + 2]), ("all", lines)):
        secret(place / name, "\n".join(text) + "\n")
        done = sign(place, root_key=name, root_cert=root, out=f"{name}.pem")
        assert done.code == 0, done
        assert certs.verifies((place / f"{name}.pem").read_bytes(), root.read_bytes())


def test_a_bundle_that_holds_the_root_will_do(files):
    """Such as `ca export` writes, issuers first."""
    assert sign(files).code == 0
    (files / "bundle.pem").write_bytes((files / "new.pem").read_bytes() + (files / "root.pem").read_bytes())
    done = sign(files, root_cert="bundle.pem", out="again.pem")
    assert done.code == 0, done
    assert certs.verifies((files / "again.pem").read_bytes(), (files / "root.pem").read_bytes())


def test_a_lifetime_may_be_chosen_but_not_beyond_the_root(files):
    """`--days`; the root ends after ten years."""
    assert sign(files, "--days", "30", out="short.pem").code == 0
    short = certs.certificate((files / "short.pem").read_bytes())
    assert 30 * 86400 <= certs.seconds(short) <= 30 * 86400 + 7200
    assert sign(files, "--days", "3652", out="long.pem").code == 0
    root = certs.certificate((files / "root.pem").read_bytes())
    long = certs.certificate((files / "long.pem").read_bytes())
    assert long.not_valid_after_utc <= root.not_valid_after_utc
    for days in ("0", "-1", "3653", "year"):
        assert sign(files, "--days", days, out="none.pem").code == 2
    assert not (files / "none.pem").exists()


def test_a_key_that_is_not_the_roots_is_refused(files):
    """Neither another key, nor another domain's root, nor an intermediate in the root's place."""
    refused(sign(files, root_key="new.key"), "ca_unusable", "root.pem")
    other = ControlPlane().found()
    (files / "other.pem").write_bytes(other.bundle)
    refused(sign(files, root_cert="other.pem"), "ca_unusable", "other.pem")
    assert sign(files).code == 0
    done = sign(files, root_key="new.key", root_cert="new.pem", out="below.pem")
    refused(done, "ca_unusable", "new.pem")
    assert not (files / "below.pem").exists()


def test_a_root_key_that_others_may_read_is_refused(files):
    """As every file with a secret is."""
    for mode in (0o644, 0o640, 0o604):
        (files / "root.key").chmod(mode)
        done = sign(files)
        assert done.code == 1 and "key_exposed" in done.err and "chmod 600" in done.err, done
        assert not (files / "new.pem").exists()
    (files / "root.key").chmod(0o400)
    assert sign(files).code == 0


def test_what_is_not_what_it_should_be_is_refused(files):
    """Garbage, the wrong kind of file, an empty one, one that is missing; nothing is written."""
    (files / "garbage").write_bytes(b"\x00\xff" * 300)
    (files / "empty").write_bytes(b"")
    for name in ("garbage", "empty", "new.csr"):
        (files / name).chmod(0o600)
    for name in ("garbage", "empty", "root.key"):
        refused(sign(files, csr=name), "csr_invalid", name)
    for name in ("garbage", "empty", "new.csr"):
        refused(sign(files, root_key=name), "ca_unusable", name)
        refused(sign(files, root_cert=name), "ca_unusable", name)
    for flag in ("csr", "root_key", "root_cert"):
        assert sign(files, **{flag: "missing"}).code == 2
    assert not (files / "new.pem").exists()


def test_a_request_without_a_good_signature_or_key_is_refused(files):
    """Whoever asks must hold the key, and the key must be a good one that is not the root's."""
    good = (files / "new.csr").read_text()
    (files / "spoiled").write_text(certs.spoiled(good))
    refused(sign(files, csr="spoiled"), "csr_invalid", "signature")
    (files / "weak").write_text(certs.csr(certs.rsa_key(1024)))
    refused(sign(files, csr="weak"), "csr_invalid", "1024")
    root = certs.serialization.load_pem_private_key((files / "root.key").read_bytes(), None)
    (files / "own").write_text(certs.csr(root))
    refused(sign(files, csr="own"), "csr_invalid", "own")
    assert not (files / "new.pem").exists()


def test_a_file_that_is_there_is_not_overwritten(files):
    """Neither a certificate nor anything else."""
    assert sign(files).code == 0
    before = (files / "new.pem").read_bytes()
    refused(sign(files), "file_exists", "new.pem")
    assert (files / "new.pem").read_bytes() == before
    refused(sign(files, out="root.key"), "file_exists", "root.key")
    assert "PRIVATE KEY" in (files / "root.key").read_text()


def test_a_place_that_cannot_be_written_is_a_fault(files):
    """Exit 1, with the path."""
    done = sign(files, out="nowhere/new.pem")
    assert done.code == 1 and "nowhere" in done.error()["message"], done


def test_a_root_of_another_make_signs_as_well(place):
    """A company's own root: its organization stands in the intermediate's name, and its own name is kept."""
    tool("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", place / "root.key")
    subject = "/DC=org/DC=example/O=Example/CN=Corporate Root"
    options = ("-key", place / "root.key", "-subj", subject, "-days", "100", "-out", place / "root.pem")
    tool("openssl", "req", "-x509", "-new", *options, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    request(place)
    done = sign(place)
    assert done.code == 0, done
    assert done.json()["subject"].startswith("CN=Example Enlist Intermediate CA ")
    made = certs.certificate((place / "new.pem").read_bytes())
    root = certs.certificate((place / "root.pem").read_bytes())
    assert made.issuer.public_bytes() == root.subject.public_bytes()
    assert made.not_valid_after_utc == root.not_valid_after_utc
    assert certs.verifies(certs.pem(made), certs.pem(root))


def test_flags_that_reach_a_control_plane_mean_nothing_here(files):
    """They would be ignored, so they are refused."""
    assert sign(files, "--server", "https://localhost:1").code == 2
    assert not (files / "new.pem").exists()
