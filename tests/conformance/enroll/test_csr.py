"""What a request for a certificate may hold."""

import datetime

import grpc
import pytest

import certs
from certs import ec, good_csr, hashes, x509

BAD_CSRS = {
    "garbage": lambda: "garbage",
    "empty": lambda: "",
    "pem_of_nothing": lambda: "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    "cut": lambda: good_csr()[:200],
    "bad_signature": lambda: certs.spoiled(good_csr()),
    "rsa_1024": lambda: certs.openssl_csr("-newkey", "rsa:1024", "-sha256"),
    "rsa_4352": lambda: certs.csr(certs.rsa_key(4352)),
    "sha1": lambda: certs.openssl_csr("-newkey", "rsa:2048", "-sha1"),
    "p521": lambda: certs.csr(certs.ec_key(ec.SECP521R1())),
    "secp256k1": lambda: certs.csr(certs.ec_key(ec.SECP256K1())),
    "a_certificate": lambda: certs.pem(self_signed()).decode(),
    "a_private_key": lambda: certs.key_pem(certs.ec_key()).decode(),
}


def self_signed():
    key, name = certs.ec_key(), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    return (
        builder.serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(1))
        .sign(key, hashes.SHA256())
    )


def test_a_bad_request_for_a_certificate_spends_nothing(plane, door):
    """Every kind of bad CSR is `csr_invalid` and leaves the token as it was; then it still works."""
    minted = plane.mint()
    for kind, make in BAD_CSRS.items():
        refusal = door.refused(minted["token"], make())
        assert (kind, refusal.status, refusal.code) == (kind, grpc.StatusCode.INVALID_ARGUMENT, "csr_invalid")
        assert plane.token_state(minted["token_id"]) == "unused", kind
    assert door.enroll(minted["token"], good_csr()).node_id


def unknown_extension():
    return x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")


GOOD_KEYS = {
    "p256": lambda: (certs.ec_key(), {}),
    "p384_with_sha256": lambda: (certs.ec_key(ec.SECP384R1()), {}),
    "p256_with_sha384": lambda: (certs.ec_key(), {"digest": hashes.SHA384()}),
    "p256_with_sha512": lambda: (certs.ec_key(), {"digest": hashes.SHA512()}),
    "ed25519": lambda: (certs.ed25519_key(), {}),
    "rsa_2048": lambda: (certs.rsa_key(2048), {}),
    "rsa_4096_sha512": lambda: (certs.rsa_key(4096), {"digest": hashes.SHA512()}),
    "an_unknown_extension": lambda: (certs.ec_key(), {"extensions": (unknown_extension(),)}),
    "asks_to_be_a_ca": lambda: (certs.ec_key(), {"extensions": (x509.BasicConstraints(True, None),)}),
    "asks_for_another_name": lambda: (
        certs.ec_key(),
        {
            "name": "admin",
            "extensions": (
                x509.SubjectAlternativeName(
                    [x509.UniformResourceIdentifier("spiffe://test.example/operator/root"), x509.DNSName("cp.example")]
                ),
            ),
        },
    ),
}


@pytest.mark.parametrize("kind", GOOD_KEYS)
def test_only_the_key_of_a_request_counts(plane, door, kind):
    """Any allowed key with any allowed hash is granted, the key verbatim, every requested name ignored."""
    key, options = GOOD_KEYS[kind]()
    answer = door.enroll(plane.token(), certs.csr(key, **options))
    leaf = certs.certificate(answer.certificate)
    assert certs.public_der(leaf.public_key()) == certs.public_der(key)
    assert certs.uris(leaf) == [f"spiffe://test.example/tenant/default/agent/{answer.node_id}"]
    assert len(list(certs.names(leaf))) == 1
    assert not any(e.value.ca for e in leaf.extensions if isinstance(e.value, x509.BasicConstraints))
    assert "admin" not in leaf.subject.rfc4514_string()
    assert certs.verifies(answer.certificate.encode(), (answer.chain + answer.bundle).encode(), "-purpose", "sslclient")
