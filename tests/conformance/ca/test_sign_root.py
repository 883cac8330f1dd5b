"""A new root, made and cross-signed where the old root's key is kept."""

import datetime

import pytest

import certs
import evidence
from certs import x509
from machine import ENLIST, run, secret, tool
from plane import ControlPlane

CLIENT, SERVER = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH


@pytest.fixture(scope="module")
def founded(programs):
    """A domain that was founded and never run."""
    return ControlPlane().found()


@pytest.fixture
def files(founded, place):
    """Key, certificate and the requests of a node issuer and a server issuer, by openssl's sister library."""
    secret(place / "root.key", founded.founded["root_key_pem"])
    (place / "root.pem").write_bytes(founded.bundle)
    keys = {}
    for name, uses in (("node", [CLIENT]), ("server", [SERVER])):
        keys[name] = certs.ec_key()
        (place / f"{name}.key").write_bytes(certs.key_pem(keys[name]))
        (place / f"{name}.csr").write_text(asking(keys[name], uses))
    both = (place / "node.csr").read_text() + (place / "server.csr").read_text()
    (place / "new.csr").write_text(both)
    return place


def asking(key, uses: list) -> str:
    return certs.csr(key, extensions=(x509.ExtendedKeyUsage(uses),) if uses else ())


def sign(place, *arguments, **changed):
    """The command, with other files where a test wants them. It is told of a control plane that is not there."""
    names = {"root_key": "root.key", "root_cert": "root.pem", "csr": "new.csr", "out": "new.pem"}
    names |= {} if "new_root_key" in changed else {"new_root_key_out": "new-root.key"}
    names |= changed
    flags = [part for flag, name in names.items() for part in ("--" + flag.replace("_", "-"), place / name)]
    env = {"ENLIST_DIR": "/nonexistent", "ENLIST_SERVER": "https://127.0.0.1:1"}
    done = run(ENLIST, "ca", "sign-root", *flags, *arguments, "--json", env=env)
    made = place / names.get("new_root_key_out", "")
    if done.code == 0 and made.is_file():
        evidence.private_key("new root", made.read_bytes())
    return done


def refused(place, done, code: str, word: str) -> None:
    """Exit 2, a code, what is wrong and a remedy; neither a key nor a certificate is left behind."""
    assert done.code == 2, done
    error = done.error()
    assert error["code"] == code and word in error["message"] and error["hint"], done
    assert "PRIVATE" not in done.err and done.out == "", done
    assert not (place / "new.pem").exists() and not (place / "new-root.key").exists()


def made(place) -> list:
    """New root, cross-certificate, and the issuers in the order of their requests."""
    return certs.certificates((place / "new.pem").read_bytes())


def uses(certificate) -> list | None:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return None


def leaf(place, issuer: str, certificate, usage: str):
    """openssl signs a leaf with the issuer's key."""
    (place / f"{issuer}.pem").write_bytes(certs.pem(certificate))
    (place / "extensions").write_text(f"basicConstraints=critical,CA:FALSE\nextendedKeyUsage={usage}\n")
    tool("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=leaf",
         "-keyout", place / "leaf.key", "-out", place / "leaf.csr")
    out = place / f"{issuer}-leaf.pem"
    tool("openssl", "x509", "-req", "-CA", place / f"{issuer}.pem", "-CAkey", place / f"{issuer}.key", "-set_serial", "7",
         "-days", "9", "-in", place / "leaf.csr", "-extfile", place / "extensions", "-out", out)
    return out


def verify(place, root, leaf_file, purpose: str, untrusted: list, *options):
    (place / "anchor.pem").write_bytes(certs.pem(root))
    (place / "untrusted.pem").write_bytes(b"".join(certs.pem(one) for one in untrusted))
    files = ("-CAfile", place / "anchor.pem", "-untrusted", place / "untrusted.pem", leaf_file)
    return tool("openssl", "verify", "-no-CApath", "-purpose", purpose, *options, *files, check=False)


def test_leaves_verify_by_the_old_root_through_the_cross_certificate_and_by_the_new_one(files):
    """With either root as the only anchor; without the cross-certificate the old root does not do."""
    assert sign(files).code == 0
    root, cross, node, server = made(files)
    [old] = certs.certificates((files / "root.pem").read_bytes())
    for name, issuer, usage, purpose in (
        ("node", node, "clientAuth", "sslclient"),
        ("server", server, "serverAuth", "sslserver"),
    ):
        file = leaf(files, name, issuer, usage)
        # As the control plane presents them.
        sent = [issuer, cross, old, root]
        for anchor in (old, root):
            done = verify(files, anchor, file, purpose, sent, "-x509_strict")
            assert done.code == 0, done
        assert verify(files, old, file, purpose, [issuer, root]).code != 0
        assert verify(files, root, file, purpose, [issuer]).code == 0
        # The issuer of one use is none of the other, whatever its leaves say.
        other, wrong = ("serverAuth", "sslserver") if name == "node" else ("clientAuth", "sslclient")
        done = verify(files, root, leaf(files, name, issuer, other), wrong, sent)
        assert done.code != 0 and "purpose" in done.err, done


def test_the_certificates_say_what_they_should(files):
    """Same name, another key, path lengths, usages, dates; the report agrees with them."""
    done = sign(files)
    assert done.code == 0, done
    root, cross, node, server = made(files)
    [old] = certs.certificates((files / "root.pem").read_bytes())
    for one in (root, cross):
        assert one.subject.public_bytes() == one.issuer.public_bytes() == old.subject.public_bytes()
        constraints = one.extensions.get_extension_for_class(x509.BasicConstraints)
        # Below a cross-certificate may come the next one, which some libraries count.
        length = 1 if one is root else None
        assert constraints.critical and constraints.value.ca and constraints.value.path_length == length
        usage = one.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical and usage.value.key_cert_sign and usage.value.crl_sign
        assert uses(one) is None
    assert certs.public_der(root.public_key()) == certs.public_der(cross.public_key())
    assert certs.public_der(root.public_key()) != certs.public_der(old.public_key())
    root.verify_directly_issued_by(root)
    cross.verify_directly_issued_by(old)
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever the library raises)
        root.verify_directly_issued_by(old)
    assert cross.not_valid_after_utc == old.not_valid_after_utc
    left = root.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=3651) < left <= datetime.timedelta(days=3652)
    assert (uses(node), uses(server)) == ([CLIENT], [SERVER])
    for issuer, name in ((node, "node"), (server, "server")):
        issuer.verify_directly_issued_by(root)
        constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints)
        assert constraints.critical and constraints.value.ca and constraints.value.path_length == 0
        csr = x509.load_pem_x509_csr((files / f"{name}.csr").read_bytes())
        assert certs.public_der(issuer.public_key()) == certs.public_der(csr.public_key())
        [common] = issuer.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        assert common.value.startswith(f"test.example Enlist {name.capitalize()} CA ")
    report = done.json()
    stamp = "%Y-%m-%dT%H:%M:%SZ"
    assert report["ca_pin"] == report["root"]["fingerprint"] == "sha256:" + certs.fingerprint(root)
    assert report["root"]["not_after"] == root.not_valid_after_utc.strftime(stamp)
    assert report["cross_certificate"]["fingerprint"] == "sha256:" + certs.fingerprint(cross)
    assert report["cross_certificate"]["not_after"] == cross.not_valid_after_utc.strftime(stamp)
    told = [(issuer["use"], issuer["fingerprint"]) for issuer in report["issuers"]]
    assert told == [("node", "sha256:" + certs.fingerprint(node)), ("server", "sha256:" + certs.fingerprint(server))]
    assert report["out"] == str(files / "new.pem") and report["key_out"] == str(files / "new-root.key")


def test_the_new_key_is_the_roots_and_for_its_owner_alone(files):
    """Mode 0600; the certificates are for everybody."""
    assert sign(files).code == 0
    key = files / "new-root.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert (files / "new.pem").stat().st_mode & 0o777 == 0o644
    loaded = certs.serialization.load_pem_private_key(key.read_bytes(), None)
    assert certs.public_der(loaded) == certs.public_der(made(files)[0].public_key())
    assert "PRIVATE" not in (files / "new.pem").read_text()


def test_the_new_root_signs_the_next_one(files):
    """What this command makes, it accepts; and `sign-intermediate` works with it."""
    assert sign(files).code == 0
    done = sign(files, root_key="new-root.key", root_cert="new.pem", new_root_key_out="third.key", out="third.pem")
    assert done.code == 0, done
    third = certs.certificates((files / "third.pem").read_bytes())
    third[1].verify_directly_issued_by(made(files)[0])


def test_a_key_that_was_made_elsewhere_will_do(files):
    """P-384 by openssl; no key file is written."""
    tool("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", files / "own.key")
    (files / "own.key").chmod(0o600)
    done = sign(files, new_root_key="own.key")
    assert done.code == 0 and "key_out" not in done.json(), done
    root, cross, *_ = made(files)
    [old] = certs.certificates((files / "root.pem").read_bytes())
    own = certs.serialization.load_pem_private_key((files / "own.key").read_bytes(), None)
    assert certs.public_der(root.public_key()) == certs.public_der(own)
    file = leaf(files, "node", made(files)[2], "clientAuth")
    for anchor in (old, root):
        assert verify(files, anchor, file, "sslclient", [made(files)[2], cross], "-x509_strict").code == 0


def test_a_root_of_another_make_keeps_its_name(place):
    """Whatever attributes it has, in whatever order: the name is what ties the two roots together."""
    tool("openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", place / "root.key")
    subject = "/DC=org/DC=example/O=Example/OU=a/OU=b/CN=Corporate Root"
    options = ("-key", place / "root.key", "-subj", subject, "-days", "100", "-out", place / "root.pem")
    tool("openssl", "req", "-x509", "-new", *options, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    key = certs.ec_key()
    (place / "node.key").write_bytes(certs.key_pem(key))
    (place / "new.csr").write_text(asking(key, [CLIENT]) + asking(certs.ec_key(), [SERVER]))
    (place / "root.key").chmod(0o600)
    done = sign(place)
    assert done.code == 0, done
    root, cross, issuer, _ = made(place)
    old = certs.certificate((place / "root.pem").read_bytes())
    assert root.subject.public_bytes() == cross.subject.public_bytes() == old.subject.public_bytes()
    assert uses(issuer) == [CLIENT] and done.json()["issuers"][0]["use"] == "node"
    file = leaf(place, "node", issuer, "clientAuth")
    for anchor in (old, root):
        assert verify(place, anchor, file, "sslclient", [issuer, cross]).code == 0


def test_a_lifetime_may_be_chosen(files):
    """The cross-certificate ends with the old root, however long the new one lives."""
    assert sign(files, "--days", "7305").code == 0
    root, cross, *_ = made(files)
    assert 7305 * 86400 <= certs.seconds(root) <= 7305 * 86400 + 7200
    [old] = certs.certificates((files / "root.pem").read_bytes())
    assert cross.not_valid_after_utc == old.not_valid_after_utc
    done = sign(files, "--days", "20", out="short.pem", new_root_key_out="short.key")
    assert done.code == 0, done
    short = certs.certificates((files / "short.pem").read_bytes())
    assert all(one.not_valid_after_utc <= short[0].not_valid_after_utc for one in short)
    for days in ("0", "-1", "9132", "year"):
        assert sign(files, "--days", days, out="none.pem", new_root_key_out="none.key").code == 2
    assert not (files / "none.pem").exists() and not (files / "none.key").exists()


def test_the_old_key_is_refused(files):
    """A new root with the old key would be no new root."""
    refused(files, sign(files, new_root_key="root.key"), "ca_unusable", "key of the old one")


def test_a_key_that_cannot_be_a_roots_is_refused(files):
    """Garbage, one that others may read, a weak one, and both flags or none."""
    secret(files / "garbage", "no key")
    refused(files, sign(files, new_root_key="garbage"), "ca_unusable", "garbage")
    secret(files / "weak.key", certs.key_pem(certs.rsa_key(1024)).decode())
    refused(files, sign(files, new_root_key="weak.key"), "ca_unusable", "weak.key")
    (files / "open.key").write_bytes(certs.key_pem(certs.ec_key()))
    (files / "open.key").chmod(0o644)
    done = sign(files, new_root_key="open.key")
    assert done.code == 1 and "key_exposed" in done.err, done
    assert sign(files, new_root_key="weak.key", new_root_key_out="new-root.key").code == 2
    base = ("--root-key", files / "root.key", "--root-cert", files / "root.pem", "--csr", files / "new.csr")
    assert run(ENLIST, "ca", "sign-root", *base, "--out", files / "new.pem").code == 2
    assert not (files / "new.pem").exists() and not (files / "new-root.key").exists()


def test_a_key_that_is_not_the_roots_is_refused(files):
    """Neither another key, nor an issuer in the root's place."""
    for name in ("node.key", "root.key"):
        (files / name).chmod(0o600)
    refused(files, sign(files, root_key="node.key"), "ca_unusable", "root.pem")
    assert sign(files, out="first.pem", new_root_key_out="first.key").code == 0
    node = certs.certificates((files / "first.pem").read_bytes())[2]
    (files / "issuer.pem").write_bytes(certs.pem(node))
    refused(files, sign(files, root_key="node.key", root_cert="issuer.pem"), "ca_unusable", "no root")


def test_requests_that_cannot_be_answered_are_refused(files):
    """Unreadable, three, for both uses at once, for a third use, twice the same key, the key of a root, a bad signature."""
    node, server = (files / "node.csr").read_text(), (files / "server.csr").read_text()
    root = certs.serialization.load_pem_private_key((files / "root.key").read_bytes(), None)
    cases = {
        "empty": ("", "empty"),
        "garbage": ("-----BEGIN CERTIFICATE REQUEST-----\nno\n", "garbage"),
        "three": (node + server + certs.good_csr(), "more than 2"),
        "both-uses": (asking(certs.ec_key(), [CLIENT, SERVER]), "other uses"),
        "third-use": (asking(certs.ec_key(), [x509.ExtendedKeyUsageOID.CODE_SIGNING]), "other uses"),
        "second-bad": (node + asking(certs.ec_key(), [CLIENT, SERVER]), "other uses"),
        "twice": (node + node, "same key"),
        "own": (node + asking(root, [SERVER]), "key of the CA that would sign"),
        "spoiled": (node + certs.spoiled(server), "signature"),
    }
    for name, (text, word) in cases.items():
        (files / name).write_text(text)
        refused(files, sign(files, csr=name), "csr_invalid", word)


def test_the_new_roots_own_key_cannot_be_an_issuers(files):
    """A request made with the key that becomes the root's."""
    key = certs.ec_key()
    secret(files / "own.key", certs.key_pem(key).decode())
    (files / "own.csr").write_text(asking(key, [CLIENT]) + (files / "server.csr").read_text())
    refused(files, sign(files, csr="own.csr", new_root_key="own.key"), "csr_invalid", "key of the CA that would sign")


def test_nothing_is_overwritten_and_nothing_half_done_is_left(files):
    """An --out that exists costs no key file; a key file that exists is kept, and no certificate is written."""
    (files / "there").write_text("precious")
    done = sign(files, out="there")
    refused(files, done, "file_exists", "there")
    done = sign(files, new_root_key_out="there")
    refused(files, done, "file_exists", "there")
    assert (files / "there").read_text() == "precious"
    done = sign(files, out="new-root.key")
    refused(files, done, "usage", "new-root.key")
    done = sign(files, out="nowhere/new.pem")
    assert done.code == 1 and "nowhere" in done.error()["message"], done
    assert not (files / "new-root.key").exists()


def test_the_text_says_the_next_step(files):
    """For people: the pin, where the key is, and the command to paste."""
    flags = ("--root-key", "root.key", "--root-cert", "root.pem", "--csr", "new.csr", "--out", "new.pem")
    done = run(ENLIST, "ca", "sign-root", *flags, "--new-root-key-out", "new-root.key", cwd=files)
    assert done.code == 0, done
    evidence.private_key("new root", (files / "new-root.key").read_bytes())
    assert "ca roll prepare --new-root --cert new.pem" in done.out
    assert "sha256:" + certs.fingerprint(made(files)[0]) in done.out and "PRIVATE" not in done.out


def test_flags_that_reach_a_control_plane_mean_nothing_here(files):
    """They would be ignored, so they are refused."""
    assert sign(files, "--server", "https://localhost:1").code == 2
    assert not (files / "new.pem").exists() and not (files / "new-root.key").exists()
