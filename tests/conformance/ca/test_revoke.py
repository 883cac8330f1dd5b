"""Revocation cuts: sockets close, handshakes are refused, and it holds after a kill. D14, D15, D34, I3."""

import datetime
import json
import sys

import certs
import native
import pytest
import rolls
from certs import openssl_ca
from machine import ENLIST, missing, missing_pkilint, run, scratch, tool, until
from plane import ControlPlane

REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"


@pytest.fixture
def node(plane):
    made = native.enroll(plane)
    made.confirm()
    return made


def revoke(plane, node, reason="compromised"):
    answer = plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": reason})
    assert answer.status == 200, answer
    return answer.json()


def test_a_revoked_node_is_cut_off_and_stays_so(plane_of_its_own):
    plane = plane_of_its_own
    node = native.enroll(plane)
    bystander = native.enroll(plane)
    with node.door() as door, bystander.door() as other:
        live, untouched = door.live(node.id), other.live(bystander.id)
        live.next("welcome")
        untouched.next("welcome")
        assert revoke(plane, node)["state"] == "revoked"
        live.wait_end()
        assert native.alert(plane, node.files) == REVOKED
        with node.door() as again:
            with pytest.raises(native.Refused):
                again.renew(certs.good_csr())
        untouched.heartbeat()
        untouched.next("ack")
        untouched.close()
    plane.kill()
    plane.start()
    assert native.alert(plane, node.files) == REVOKED
    assert native.alert(plane, bystander.files) is None


def test_every_certificate_of_the_node_is_denied(plane, node):
    renewed = node.renewed()
    revoke(plane, node)
    assert native.alert(plane, node.files) == native.alert(plane, renewed.files) == REVOKED


def test_a_connection_ends_with_its_certificate(plane_of_its_own):
    """D34."""
    plane = plane_of_its_own
    plane.policy("profile.default.lifetime", "60s")
    node = native.enroll(plane)
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")

        def over():
            live.heartbeat()
            return live.ended.wait(2.0)

        until(over, "the connection ends", patience=120.0)
    assert native.alert(plane, node.files) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"


def test_an_operator_who_is_removed_is_cut(plane):
    out = scratch("op")
    plane.cli("operator", "add", "mallory", "--role", "viewer", "--out", out)
    files = out / "cert.pem", out / "key.pem"
    assert native.alert(plane, files) is None
    plane.cli("operator", "remove", "mallory")
    assert native.alert(plane, files) == REVOKED
    assert plane.cli("operator", "remove", "mallory", ok=False).code == 3


def test_the_list_of_revocations_is_public_and_openssl_obeys_it(plane, node):
    """Proves TASK-18."""
    bystander = native.enroll(plane)
    place = scratch("crl")
    before = plane.https("GET", "/v1/ca/crl")
    assert before.status == 200 and before.headers["content-type"] == "application/pkix-crl"
    revoke(plane, node)
    crl = place / "crl.pem"
    crl.write_bytes(plane.https("GET", "/v1/ca/crl?format=pem").body)
    anchors = place / "ca.pem"
    anchors.write_bytes(plane.cli("ca", "export").json()["pem"].encode())
    shown = tool("openssl", "crl", "-in", crl, "-noout", "-text", "-CAfile", anchors)
    assert "verify OK" in shown.err + shown.out
    assert node.serial.upper() in shown.out.upper()
    for one, good in ((node, False), (bystander, True)):
        leaf = place / f"{one.id}.pem"
        leaf.write_text(one.answer.certificate)
        checked = tool("openssl", "verify", "-crl_check", "-CRLfile", crl, "-CAfile", anchors, leaf, check=False)
        assert (checked.code == 0) == good, checked
        assert good or "certificate revoked" in checked.err + checked.out
    blocks = plane.cli("ca", "crl").json()["pem"]
    assert blocks.count("BEGIN X509 CRL") == len(plane.cli("ca", "show").json()["issuers"]) + 1 == 3, "and the root's"
    assert plane.https("GET", "/v1/ca/crl?issuer=nobody").status == 404
    assert plane.https("GET", "/v1/ca/crl?format=xml").status == 400


def test_numbers_of_lists_rise(plane):
    def number():
        pem = plane.https("GET", "/v1/ca/crl?format=pem").body
        text = tool("openssl", "crl", "-noout", "-crlnumber", stdin=pem).out
        return int(text.strip().split("=")[1].removeprefix("0x"), 16)

    numbers = []
    for _ in range(3):
        node = native.enroll(plane)
        revoke(plane, node)
        numbers.append(number())
    assert numbers == sorted(set(numbers))


def test_revoking_an_issuer_denies_everything_under_it(plane_of_its_own):
    """D14: an issuer can be revoked too."""
    plane = plane_of_its_own
    node = native.enroll(plane)
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        issuer = plane.api("GET", "/v1/ca").json()["issuers"][0]["id"]
        assert plane.cli("ca", "revoke", "nobody", ok=False).code == 3
        plane.cli("ca", "revoke", issuer, "--reason", "stolen", "--yes")
        live.wait_end()
    assert native.alert(plane, node.files) == REVOKED
    with native.door(plane) as door:
        assert door.refused(plane.token(), certs.good_csr()).code == "issuer_unavailable"
    # Nobody is told that a host is well which cannot come in.
    told = plane.node(node.id)
    assert told["health"]["reason"] == "identity_revoked_or_fenced" and "issuer" in told["health"]["evidence"]
    assert not told["schedulable"] and "identity_revoked_or_fenced" in told["excluded"]
    plane.stop()
    plane.start()
    assert native.alert(plane, node.files) == REVOKED
    assert run(ENLIST, "ca", "show", "--dir", plane.dir, "--json").json()["issuers"][0]["state"] == "revoked"


def test_a_retiring_issuer_is_revoked_only_when_it_is_confirmed(plane_of_its_own):
    """It cuts off whoever uses a certificate of it: the question says how many, and afterwards how they get in again."""
    plane = plane_of_its_own
    node, moved = native.enroll(plane), native.enroll(plane)
    node.confirm()
    moved.confirm()
    plane.cli("operator", "add", "ann", "--role", "viewer", "--out", scratch("op"))
    (old,) = rolls.issuers(plane)
    rolls.prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    moved = moved.renewed()
    moved.confirm()
    assert rolls.states(plane) == ["active", "retiring"]
    asked = plane.cli("ca", "revoke", old["id"], "--reason", "stolen", ok=False)
    assert (asked.code, asked.error()["code"], asked.error()["affected"]) == (3, "confirmation_needed", 1), asked
    assert "is retiring" in asked.error()["message"] and "operators affected (1): ann; " in asked.error()["message"], asked
    wrong = plane.api("POST", f"/v1/ca/issuers/{old['id']}/revoke", {"confirm": "yes"})
    assert (wrong.status, wrong.code) == (409, "confirmation_needed"), wrong
    assert native.alert(plane, node.files) is None
    told = run(ENLIST, "ca", "revoke", old["id"], "--reason", "stolen", "--yes", "--dir", plane.dir)
    text = " ".join(told.out.split())
    assert "enlist token create --node ID" in text and "enlist-agent enroll" in text and "enlist operator add NAME" in text, text
    assert native.alert(plane, node.files) == REVOKED and native.alert(plane, moved.files) is None
    # Nobody uses this one any more.
    (current,) = [one for one in rolls.issuers(plane) if one["state"] == "active"]
    rolls.prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    moved.renewed().confirm()
    plane.cli("ca", "revoke", current["id"])


def test_the_question_about_a_server_issuer_is_true(plane_of_its_own):
    """Nobody refuses the control plane by it: hosts go by lists of the root. The control plane is as reachable afterwards as before."""
    plane = plane_of_its_own
    node = native.enroll(plane)
    node.confirm()
    (server,) = rolls.issuers(plane, "server")
    message = plane.cli("ca", "revoke", server["id"], ok=False).error()["message"]
    assert "refuse nothing by this" in message and "refused at once" not in message and "nodes affected" not in message, message
    assert "`enlist ca sign-crl`" in message and "`enlist ca import-crl`" in message, message
    plane.cli("ca", "revoke", server["id"], "--yes")
    assert native.alert(plane, node.files) is None


def test_a_list_names_what_time_alone_has_ended(plane, node):
    """D32: a superseded certificate is refused after its drain, and the list says so by itself."""
    plane.policy("renew.drain", "2s")
    try:
        renewed = node.renewed()
        renewed.confirm()

        def listed():
            pem = plane.https("GET", "/v1/ca/crl?format=pem").body
            return node.serial.upper() in tool("openssl", "crl", "-noout", "-text", stdin=pem).out.upper()

        until(listed, "it is on the list", 150.0)
    finally:
        plane.policy("renew.drain", "10m")


def complaints(crl: bytes) -> list:
    """What pkilint has against a list of revocations."""
    if missing_pkilint():
        missing("pkilint")
    file = scratch("lint") / "list.crl"
    file.write_bytes(crl)
    linter = (sys.executable, "-m", "pkilint.bin.lint_crl", "lint", "-t", "CRL", "-p", "PKIX")
    done = tool(*linter, "-s", "ERROR", "-f", "JSON", file, check=False)
    found = json.loads(done.out)["results"]
    return [finding for result in found for finding in result["finding_descriptions"]]


@pytest.mark.parametrize("issuer", ["sealed", "imported"])
def test_pkilint_finds_no_error_in_a_list(programs, issuer):
    """Empty, with one entry, and with one for each way in which a certificate can be taken back. D14."""
    files = openssl_ca(scratch("ca"), "/O=Example/CN=Imported CA") if issuer == "imported" else ()
    options = ("--issuer", "imported", "--ca-cert", files[0], "--ca-key", files[1]) if files else ()
    with ControlPlane(init=options) as plane:

        def lint(entries: int) -> None:
            der = plane.https("GET", "/v1/ca/crl").body
            crl = certs.x509.load_der_x509_crl(der)
            assert len(crl) == entries
            assert complaints(der) == []
            lists = plane.https("GET", "/v1/ca/crl?format=pem").body.split(b"-----BEGIN")[1:]
            assert [complaints(b"-----BEGIN" + one) for one in lists] == [[]] * (1 if files else 3)

        lint(0)
        revoke(plane, native.enroll(plane))
        lint(1)
        plane.cli("node", "decommission", native.enroll(plane).id, "--force")
        lost = native.enroll(plane)
        lost.renewed()
        lost.renewed()
        plane.cli("operator", "add", "mallory", "--role", "viewer", "--out", scratch("op"))
        plane.cli("operator", "remove", "mallory")
        lint(4)


def test_pkilint_looks_at_lists():
    """The linter would find something: a list without its number and the issuer's key is not clean."""
    key, now = certs.ec_key(), datetime.datetime.now(datetime.UTC)
    name = certs.x509.Name([certs.x509.NameAttribute(certs.x509.NameOID.COMMON_NAME, "x")])
    bare = certs.x509.CertificateRevocationListBuilder().issuer_name(name).last_update(now)
    made = bare.next_update(now + datetime.timedelta(7)).sign(key, certs.SHA256)
    assert complaints(made.public_bytes(certs.serialization.Encoding.DER))
