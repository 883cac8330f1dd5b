"""The same enrollment again: repeated, renewed by a pin, or refused."""

import datetime

import pytest

import certs
import native
from certs import good_csr, hashes, x509
from machine import until
from plane import ControlPlane


def test_the_same_request_again_gives_the_same_certificate(plane, door):
    """Same token, key and idempotency key, unconfirmed: byte for byte the same, and one node."""
    token, key = plane.token(), certs.ec_key()
    first = door.enroll(token, certs.csr(key), "retry-1")
    for _ in range(3):
        # A CSR is signed anew each time; it is the key in it that counts.
        again = door.enroll(token, certs.csr(key), "retry-1")
        assert again == first
    assert len([n for n in plane.nodes() if n["cert_serial"] == first.cert_serial]) == 1
    assert len([line for line in plane.audit("host.enrolled") if line["node_id"] == first.node_id]) == 1


def test_anything_less_than_the_same_request_is_a_reuse(plane, door):
    """Without the idempotency key, with another one, or with another key pair: `token_used`."""
    token, key = plane.token(), certs.ec_key()
    door.enroll(token, certs.csr(key), "retry-2")
    assert door.refused(token, certs.csr(key)).code == "token_used"
    assert door.refused(token, certs.csr(key), "retry-3").code == "token_used"
    assert door.refused(token, good_csr(), "retry-2").code == "token_used"


def test_an_idempotency_key_cannot_be_added_later(plane, door):
    """A first use without the header stays a use: nobody gets it again by naming a key afterwards."""
    token, key = plane.token(), certs.ec_key()
    door.enroll(token, certs.csr(key))
    assert door.refused(token, certs.csr(key), "late").code == "token_used"


def test_after_confirming_the_same_request_is_a_reuse(plane, door):
    """The repeat is for lost replies only: once the node was heard of, the token is spent for good."""
    token, key = plane.token(), certs.ec_key()
    node = native.Node(plane, door.enroll(token, certs.csr(key), "retry-4"), key)
    node.confirm()
    assert door.refused(token, certs.csr(key), "retry-4").code == "token_used"


def test_after_its_end_a_token_gives_nothing_again(plane, door):
    """The repeat ends with the token's life."""
    token, key = plane.token(expires="10s"), certs.ec_key()
    first = door.enroll(token, certs.csr(key), "retry-5")

    def over():
        try:
            assert door.enroll(token, certs.csr(key), "retry-5") == first
        except native.Refused as refusal:
            assert refusal.code in ("token_used", "token_expired")
            return True
        return False

    until(over, "the token's life ended")


@pytest.mark.parametrize("key", ["a b", "x" * 129, "\x7f"])
def test_a_malformed_idempotency_key_is_refused(plane, door, key):
    """1 to 128 visible ASCII characters, else 400; the token is not spent."""
    minted = plane.mint()
    try:
        refusal = door.refused(minted["token"], good_csr(), key)
    except (TypeError, ValueError):
        return
    if refusal.code is None:
        assert "metadata" in refusal.message.lower(), "refused by the client itself"
    else:
        assert refusal.code == "idempotency_key_invalid"
    assert plane.token_state(minted["token_id"]) == "unused"


def test_a_pinned_token_makes_that_node_and_no_other(plane, door):
    """`token create --node ID`: the id is the pin's, whatever the CSR says."""
    minted = plane.mint(node="rack1-07")
    assert minted["node"] == "rack1-07"
    answer = door.enroll(minted["token"], certs.csr(certs.ec_key(), name="rack9-99"))
    assert answer.node_id == "rack1-07"
    assert certs.uris(certs.certificate(answer.certificate)) == ["spiffe://test.example/tenant/default/agent/rack1-07"]


def test_enrolling_again_with_a_pinned_token_denies_the_old_certificate(plane):
    """In the same command every older serial is denied: its next handshake meets alert 44, and it may say nothing."""
    old = native.enroll(plane, plane.token(node="again-1"))
    old.confirm()
    assert native.alert(plane, old.files) is None
    new = native.enroll(plane, plane.token(node="again-1"))
    assert new.id == old.id and new.serial != old.serial
    assert native.alert(plane, old.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    assert native.alert(plane, new.files) is None
    statuses = {c["serial"]: c["status"] for c in plane.node("again-1")["certificates"]}
    assert statuses == {old.serial: "denied", new.serial: "live"}
    line = [line for line in plane.audit("host.enrolled") if line["node_id"] == "again-1"][-1]
    assert old.serial in str(line)


def test_a_denied_certificate_is_cut_off_on_an_open_connection(plane):
    """Not only the next handshake: the connection that is already open may not speak either."""
    old = native.enroll(plane, plane.token(node="again-2"))
    with native.door(plane, old.files) as connection:
        assert connection.confirm().state == "active"
        native.enroll(plane, plane.token(node="again-2"))
        with pytest.raises(native.Refused) as refusal:
            connection.confirm()
        assert refusal.value.code in ("unauthenticated", "node_revoked", None)
    assert plane.node("again-2")["state"] == "enrolled"


def test_certificates_of_strangers_meet_the_right_alert(plane, place):
    """48 for an unknown issuer, 44 for a denied serial, 42 for what is not a node's at all."""
    key = certs.ec_key()
    with ControlPlane(domain="third.example") as other:
        foreign = native.enroll(other)
        assert native.alert(plane, foreign.files) == "TLSV1_ALERT_UNKNOWN_CA"
    lone = certs.identity(place, key, certs.pem(signed_by(key)).decode())
    assert native.alert(plane, lone) in ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE")


def signed_by(key):
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "self")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    return (
        builder.serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(1))
        .sign(key, hashes.SHA256())
    )
