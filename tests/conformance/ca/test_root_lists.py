"""A list of revocations for every CA of a chain: the root's is there from the first day on, or the operator is told how to sign it."""

import tarfile

import pytest

import certs
import native
import rolls
from certs import x509
from machine import ENLIST, ROOT, run, scratch, secret, tool
from old_directory import KEK, under_own_root
from plane import ControlPlane


def lists(pem: str | bytes) -> list[x509.CertificateRevocationList]:
    pem = pem if isinstance(pem, bytes) else pem.encode()
    parts = [b"-----BEGIN" + part for part in pem.split(b"-----BEGIN")[1:]]
    return [x509.load_pem_x509_crl(part) for part in parts]


def names(pem) -> list[str]:
    return [one.issuer.rfc4514_string() for one in lists(pem)]


def complaint(plane, node) -> str:
    """What openssl says to a certificate, its chain and all lists; nothing if it verifies."""
    place = scratch("chain")
    (place / "crl.pem").write_text(plane.cli("ca", "crl").json()["pem"])
    (place / "root.pem").write_text(plane.cli("ca", "export", "--server").json()["pem"])
    (place / "chain.pem").write_text(node.answer.chain)
    (place / "leaf.pem").write_text(node.answer.certificate)
    trust = ("-CAfile", place / "root.pem", "-untrusted", place / "chain.pem", place / "leaf.pem")
    done = tool("openssl", "verify", "-crl_check_all", "-CRLfile", place / "crl.pem", *trust, check=False)
    return "" if done.code == 0 else done.err


def revoke(plane, node) -> None:
    assert plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "test"}).status == 200


@pytest.mark.parametrize("issuer", ["sealed", "ephemeral"])
def test_a_domain_has_the_list_of_its_root_from_the_first_day(issuer):
    """`ca crl` and the public answer have one list for each CA; hosts are sent none that denies nobody."""
    with ControlPlane(init=("--issuer", issuer)) as plane:
        pem = plane.https("GET", "/v1/ca/crl?format=pem").body
        assert names(plane.cli("ca", "crl").json()["pem"]) == names(pem)
        root = certs.certificate(plane.bundle)
        of_root = [one for one in lists(pem) if one.issuer == root.subject]
        assert len(lists(pem)) == 3 and len(of_root) == 1
        assert of_root[0].is_signature_valid(root.public_key()) and len(of_root[0]) == 0
        assert of_root[0].next_update_utc == root.not_valid_after_utc
        alone = plane.https("GET", "/v1/ca/crl?format=pem&roots=true").body
        assert lists(alone) == of_root and lists(plane.cli("ca", "crl", "--roots").json()["pem"]) == of_root
        assert plane.api("GET", "/v1/ca/trust").json()["root_crls"] == ""
        for query in ("roots=true", "format=pem&roots=true&issuer=x"):
            assert plane.https("GET", f"/v1/ca/crl?{query}").code == "bad_request"


def test_a_whole_chain_verifies_by_the_lists_also_after_the_root_was_rolled(plane_of_its_own):
    """The new root's list comes with it; a revoked issuer's list is left out."""
    plane = plane_of_its_own
    node, stolen = native.enroll(plane), native.enroll(plane)
    assert (complaint(plane, node), complaint(plane, stolen)) == ("", "")
    revoke(plane, stolen)
    assert "certificate revoked" in complaint(plane, stolen)
    old = rolls.issuers(plane)[0]["id"]
    rolls.prepare_root(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    newcomer = native.enroll(plane)
    assert (complaint(plane, node), complaint(plane, newcomer)) == ("", "")
    assert "certificate revoked" in complaint(plane, stolen)
    assert "roots_without_list" not in plane.cli("ca", "crl").json()
    plane.cli("ca", "revoke", old, "--yes")
    assert "unable to get certificate CRL" in complaint(plane, node)
    assert complaint(plane, newcomer) == ""


def signed_and_imported(plane, key, root) -> None:
    """What the note of `ca crl` says to do."""
    done = plane.cli("ca", "crl")
    (missing,) = done.json()["roots_without_list"]
    assert missing == "sha256:" + certs.fingerprint(certs.certificate(root.read_bytes()))
    said = " ".join(done.err.split())
    assert "`enlist ca sign-crl --root-key" in said and "`enlist ca import-crl --file root-crl.pem`" in said, done
    out = scratch("list") / "root-crl.pem"
    done = run(ENLIST, "ca", "sign-crl", "--root-key", key, "--root-cert", root, "--out", out)
    assert done.code == 0, done
    assert plane.cli("ca", "import-crl", "--file", out).json()["changed"]
    done = plane.cli("ca", "crl")
    assert "roots_without_list" not in done.json() and done.err == "", done


def test_an_imported_issuer_gets_the_list_of_its_root_from_where_the_key_is(place):
    """An offline root above an imported issuer: told what is missing, it is signed and imported, and the chain verifies."""
    root, root_key = place / "root.pem", place / "root.key"
    issuer, key, csr, extensions = place / "issuer.pem", place / "issuer.key", place / "issuer.csr", place / "ca.ext"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    tool("openssl", "req", "-x509", "-new", *curve, "-keyout", root_key, "-subj", "/CN=Root", "-days", "90", "-out", root)
    tool("openssl", "req", "-new", *curve, "-keyout", key, "-subj", "/CN=Issuer", "-out", csr)
    extensions.write_text("basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n")
    signer = ("-CA", root, "-CAkey", root_key, "-set_serial", "9", "-extfile", extensions)
    tool("openssl", "x509", "-req", "-in", csr, *signer, "-days", "60", "-out", issuer)
    issuer.write_bytes(issuer.read_bytes() + root.read_bytes())
    secret(root_key, root_key.read_text())
    with ControlPlane(init=("--issuer", "imported", "--ca-cert", issuer, "--ca-key", key)) as plane:
        node = native.enroll(plane)
        assert "unable to get certificate CRL" in complaint(plane, node)
        signed_and_imported(plane, root_key, root)
        assert complaint(plane, node) == ""


def test_an_imported_root_signs_its_list_itself(place):
    cert, key = certs.openssl_ca(place, "/CN=Imported CA")
    with ControlPlane(init=("--issuer", "imported", "--ca-cert", cert, "--ca-key", key)) as plane:
        node = native.enroll(plane)
        done = plane.cli("ca", "crl")
        assert done.err == "" and len(lists(done.json()["pem"])) == 1 and "roots_without_list" not in done.json(), done
        assert complaint(plane, node) == ""


def test_a_directory_of_an_older_version_is_told_to_sign_the_list_of_its_root():
    plane = ControlPlane("old.example", kek="env:ENLIST_KEK", env=KEK)
    try:
        with tarfile.open(ROOT / "tests" / "fixtures" / "directory-1.tar.gz") as archive:
            archive.extractall(plane.base, filter="data")
        for path in (plane.dir, *plane.dir.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        under_own_root(plane)
        plane.start("--accept-clock")
        done = run(ENLIST, "ca", "crl", "--roots", "--dir", plane.dir)
        assert (done.code, done.out) == (0, "") and "no list of a root is on record" in " ".join(done.err.split()), done
        key, root = rolls.keeper(plane)
        signed_and_imported(plane, key, root)
        assert [event["denied_serials"] for event in plane.audit("ca.list_imported")] == [[]]
    finally:
        plane.close()
