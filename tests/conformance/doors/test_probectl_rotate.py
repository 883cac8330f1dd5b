"""The probectl door: rotation by certificate and proof. D10, D11, D21, D32."""

import concurrent.futures
import datetime

import pytest

import certs
import clocks
import native
import probectl
import rolls
from certs import ec, openssl_ca, x509
from machine import scratch
from probectl import ask_rotate, enroll, proof, reasons, token


@pytest.fixture(scope="module")
def plane(programs):
    with probectl.control_plane() as running:
        yield running


@pytest.fixture
def agent(plane):
    return enroll(plane)


def refused(answer) -> None:
    assert (answer.status, answer.code) == (401, "unauthorized"), answer


def test_an_agent_rotates_with_the_certificate_it_has(plane, agent):
    """Proves PROBE-01, PROBE-11, PROBE-13, PROBE-17, PROBE-18, PROBE-19."""
    wanted = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://probectl/tenant/acme/agent/root")])
    key = certs.ec_key()
    answer = agent.ask_rotate(certs.csr(key, "somebody else", extensions=(wanted,)))
    next_one = probectl.Agent(plane, answer, key)
    assert set(next_one.told) == set(agent.told)
    for same in ("spiffe_id", "tenant_id", "agent_id", "ca_bundle"):
        assert next_one.told[same] == agent.told[same]
    assert next_one.serial != agent.serial
    assert certs.uris(next_one.leaf) == certs.uris(agent.leaf)
    assert certs.public_der(next_one.leaf.public_key()) == certs.public_der(key)
    assert abs(certs.seconds(next_one.leaf) - 86400) <= 60
    assert certs.verifies(certs.pem(next_one.leaf), next_one.told["ca_bundle"].encode(), "-purpose", "sslclient")
    assert agent.shown()["serial"] == next_one.serial
    line = plane.audit("certificate.renewed")[-1]
    assert (line["node_id"], line["cert_serial"], line["with_serial"], line["actor"]) == (
        agent.id,
        next_one.serial,
        agent.serial,
        f"node:{agent.id}",
    )


def test_the_leaf_alone_is_enough(plane, agent):
    """Proves PROBE-17: the first block is read, whatever follows it."""
    leaf = certs.pem(agent.leaf).decode()
    for cert in (leaf, leaf + "-----BEGIN CERTIFICATE-----\nrubbish"):
        csr = certs.good_csr()
        assert agent.ask_rotate(csr, cert=cert).status == 200


def test_rotating_counts_as_contact(plane, agent):
    """Proves PROBE-17, D21: it confirms an enrollment, and lets the next certificate take over."""
    assert agent.shown()["state"] == "enrolled"
    second = agent.rotated()
    shown = agent.shown()
    assert shown["state"] == "active" and shown["last_seen"]
    assert agent.statuses() == {agent.serial: "live", second.serial: "live"}
    third = second.rotated()
    assert agent.statuses() == {agent.serial: "superseded", second.serial: "live", third.serial: "live"}
    refused(agent.ask_rotate(certs.good_csr()))
    assert "certificate_superseded" in reasons(plane)


def test_the_old_certificate_finishes_what_it_began(plane, agent):
    """Proves PROBE-20: both are good at the handshake, so files can be swapped while connections go on."""
    agent.speak()
    second = agent.rotated()
    assert native.alert(plane, agent.files) is None and native.alert(plane, second.files) is None
    with native.door(plane, agent.files) as old:
        old.confirm()
        second.speak()
        assert old.confirm().node_id == agent.id, "an open connection drains"


def test_a_lost_answer_is_given_again_until_the_certificate_is_seen(plane, agent):
    """Proves PROBE-18, D11: the same certificate before it was seen, 401 after."""
    key = certs.ec_key()
    csr = certs.csr(key)
    sent = agent.cert, csr, proof(agent.key, csr)
    first, second = ask_rotate(plane, *sent), ask_rotate(plane, *sent)
    assert first.status == second.status == 200
    assert first.json()["cert_pem"] == second.json()["cert_pem"]
    probectl.Agent(plane, first, key).speak()
    refused(ask_rotate(plane, *sent))


def test_the_key_in_use_is_no_next_key(plane, agent):
    """D11: a rotation brings a new key."""
    refused(agent.ask_rotate(certs.csr(agent.key)))
    other = enroll(plane)
    refused(agent.ask_rotate(certs.csr(other.key)))
    assert "key_in_use" in reasons(plane)


def test_a_lost_certificate_is_replaced(plane, agent):
    """D32: another key denies what was never seen."""
    lost, found = agent.rotated(), agent.rotated()
    assert agent.statuses() == {agent.serial: "live", lost.serial: "denied", found.serial: "live"}
    refused(lost.ask_rotate(certs.good_csr()))
    assert found.rotated().id == agent.id


def test_many_rotations_at_once_leave_one_certificate_unseen(plane, agent):
    """D32, with eight threads."""
    agent.speak()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: agent.ask_rotate(certs.good_csr()), range(8)))
    assert {answer.status for answer in answers} <= {200, 503}, answers
    live = [serial for serial, status in agent.statuses().items() if status == "live"]
    assert len(live) == 2 and agent.serial in live


def test_a_proof_is_over_this_request_by_this_key(plane, agent):
    """Proves PROBE-18: over another request, by another key, of another form, or none."""
    csr = certs.good_csr()
    good = proof(agent.key, csr)
    other = enroll(plane)
    raw = agent.key.sign(csr.encode(), ec.ECDSA(certs.hashes.SHA384())).hex()
    for wrong in (
        proof(agent.key, certs.good_csr()),
        proof(agent.key, csr + "\n"),
        proof(other.key, csr),
        raw,
        good[:-2],
        good + "00",
        "",
        "zz" * 70,
        "0x" + good,
        "00" * 20_000,
    ):
        refused(ask_rotate(plane, agent.cert, csr, wrong))
    # Of another agent's certificate.
    refused(ask_rotate(plane, other.cert, csr, good))
    assert "proof_invalid" in reasons(plane)
    assert agent.shown()["serial"] == agent.serial, "nothing was issued"
    assert ask_rotate(plane, agent.cert, csr, good).status == 200


def forged(agent, issuer_key, issuer: x509.Name, serial: int | None = None) -> tuple:
    """A certificate that says what the agent's says, and its key."""
    key = certs.ec_key()
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(agent.leaf.subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial or agent.leaf.serial_number)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(certs.names(agent.leaf), critical=False)
    )
    return certs.pem(builder.sign(issuer_key, certs.SHA256)).decode(), key


def test_a_certificate_of_somebody_elses_is_refused(plane, agent):
    """Proves PROBE-18: it must chain to us and its serial must be on record as this very certificate."""
    stranger = certs.ec_key()
    us = agent.leaf.issuer
    them = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    csr = certs.good_csr()
    for issuer in (us, them):
        for serial in (None, 0x1234567):
            cert, key = forged(agent, stranger, issuer, serial)
            refused(ask_rotate(plane, cert, csr, proof(key, csr)))
    server = (plane.dir / "ca" / "server.pem").read_text()
    for cert in (server, plane.bundle.decode(), "", "x", certs.key_pem(certs.ec_key()).decode()):
        refused(ask_rotate(plane, cert, csr, proof(agent.key, csr)))
    told = reasons(plane)
    assert {"certificate_unknown", "certificate_unknown_issuer", "certificate_malformed"} <= told, told


def test_an_operators_certificate_rotates_nothing(plane, place):
    """PROBE-18: only agents rotate."""
    plane.cli("operator", "add", "alice", "--role", "platform-admin", "--out", place / "alice")
    key = certs.serialization.load_pem_private_key((place / "alice" / "key.pem").read_bytes(), None)
    csr = certs.good_csr()
    refused(ask_rotate(plane, (place / "alice" / "cert.pem").read_text(), csr, proof(key, csr)))


def test_a_revoked_agent_cannot_rotate(plane, agent):
    """Proves PROBE-18, PROBE-23: nor connect."""
    second = agent.rotated()
    assert plane.api("POST", f"/v1/agents/{agent.id}/revoke", {}).json()["live_serials_revoked"] == 2
    for one in (agent, second):
        refused(one.ask_rotate(certs.good_csr()))
        assert native.alert(plane, one.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    assert "certificate_revoked" in reasons(plane)


def test_an_expired_certificate_cannot_rotate(programs):
    """Proves PROBE-18, PROBE-27: a stolen key is good for as long as its certificate, and no longer."""
    with probectl.control_plane() as plane:
        agent = enroll(plane)
        plane.stop()
        plane.start(env=clocks.shifted(25))
        try:
            refused(agent.ask_rotate(certs.good_csr()))
            assert "certificate_expired" in reasons(plane)
            later = enroll(plane)
            assert later.rotated().id == later.id
        finally:
            plane.close()
            clocks.sweep(plane.process.pid)


def test_a_bad_request_with_a_good_proof_is_told(plane, agent):
    """PROBE-18: who has proven who it is, is told what is wrong with its request."""
    for csr in ("", "x", certs.spoiled(certs.good_csr())):
        answer = agent.ask_rotate(csr)
        assert (answer.status, answer.code) == (400, "bad_request"), answer
    assert agent.rotated().id == agent.id


@pytest.mark.parametrize("kind", ["p384", "rsa", "ed25519"])
def test_other_kinds_of_keys_prove_themselves_in_their_own_way(plane, kind):
    """PROBE-18: the document speaks of ECDSA; RSA signs the same digest by PKCS#1 v1.5, Ed25519 the request itself."""
    from cryptography.hazmat.primitives.asymmetric import padding

    key = {"p384": lambda: certs.ec_key(ec.SECP384R1()), "rsa": certs.rsa_key, "ed25519": certs.ed25519_key}[kind]()
    agent = enroll(plane, key=key)
    csr = certs.good_csr()
    by = {
        "p384": lambda: proof(key, csr),
        "rsa": lambda: key.sign(csr.encode(), padding.PKCS1v15(), certs.SHA256).hex(),
        "ed25519": lambda: key.sign(csr.encode()).hex(),
    }
    refused(ask_rotate(plane, agent.cert, csr, proof(certs.ec_key(), csr)))
    assert ask_rotate(plane, agent.cert, csr, by[kind]()).status == 200


def test_quarantine_and_draining_do_not_stop_rotation(plane, agent):
    """D32: renewal is allowed in enrolled, active, inactive, draining, quarantined."""
    for act in ("drain", "quarantine"):
        assert plane.api("POST", f"/v1/nodes/{agent.id}/{act}").status == 200
    assert agent.rotated().rotated().id == agent.id


def test_a_new_intermediate_arrives_with_the_next_rotation(programs):
    """Proves PROBE-13, PROBE-14."""
    with probectl.control_plane() as plane:
        agent = enroll(plane)
        rolls.prepare(plane)
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        next_one = agent.rotated()
        old, new = certs.certificates(agent.cert)[1], certs.certificates(next_one.cert)[1]
        assert certs.fingerprint(old) != certs.fingerprint(new)
        bundle = [certs.fingerprint(cert) for cert in certs.certificates(next_one.told["ca_bundle"])]
        assert certs.fingerprint(new) in bundle
        assert certs.verifies(certs.pem(next_one.leaf), next_one.told["ca_bundle"].encode())
        assert next_one.told["spiffe_id"] == agent.told["spiffe_id"]
        next_one.speak()
        # What the old one signed goes on until it is rotated too.
        assert enroll(plane, token(plane)).rotated()


def test_another_issuer_stands_behind_the_same_routes(programs):
    """Proves PROBE-28: a CA that the operator brings signs what this door hands out."""
    cert, key = openssl_ca(scratch("ca"), "/O=Example/CN=Somebody's CA")
    with probectl.control_plane(init=("--issuer", "imported", "--ca-cert", cert, "--ca-key", key)) as plane:
        agent = enroll(plane)
        for one in (agent, agent.rotated()):
            assert certs.verifies(certs.pem(one.leaf), cert.read_bytes(), "-purpose", "sslclient")
            assert certs.verifies(certs.pem(one.leaf), one.told["ca_bundle"].encode())
            assert one.leaf.issuer == certs.certificate(cert.read_bytes()).subject
