"""CAs and X.509-SVIDs of a SPIRE trust domain that is not there, made as a test needs them."""

import datetime
import os

import certs
from certs import x509
from machine import scratch

SPIFFE = x509.Name(
    [
        x509.NameAttribute(x509.NameOID.COUNTRY_NAME, "US"),
        x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "SPIFFE"),
    ]
)
"""SPIRE gives all of its CAs this name, unless it is told another."""


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def ca(above=None, name: x509.Name = SPIFFE, seconds: float = 3600, key_ids: bool = True) -> tuple:
    """A CA, signed by itself or by another: its certificate and its key."""
    key = certs.ec_key()
    issuer, signer = (above[0].subject, above[1]) if above else (name, key)
    builder = started(name, issuer, key, signer, seconds, key_ids)
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True).sign(signer, certs.SHA256), key


def started(name: x509.Name, issuer: x509.Name, key, signer, seconds: float, key_ids: bool = True):
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() - datetime.timedelta(seconds=60))
        .not_valid_after(now() + datetime.timedelta(seconds=seconds))
    )
    if key_ids:
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = builder.add_extension(own, False).add_extension(above, False)
    return builder


def svid(issuer: tuple, uri: str, sent: tuple = (), seconds: float = 3600, key_ids: bool = True) -> tuple:
    """Certificate and key as files; `sent` are CAs that a client sends along."""
    key = certs.ec_key()
    leaf = (
        started(x509.Name([]), issuer[0].subject, key, issuer[1], seconds, key_ids)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), True)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), False)
        .sign(issuer[1], certs.SHA256)
    )
    chain = "".join(certs.pem(one).decode() for one, _ in sent)
    return certs.identity(scratch("svid"), key, certs.pem(leaf).decode(), chain)


class Domain:
    """A trust domain that is no more than its bundle."""

    def __init__(self, *cas: tuple, domain: str = "spire.example"):
        self.domain, self.bundle = domain, scratch("bundle") / "bundle.pem"
        self.write(*cas)

    def write(self, *cas: tuple) -> None:
        new = self.bundle.with_suffix(".new")
        new.write_bytes(b"".join(certs.pem(one) for one, _ in cas))
        os.replace(new, self.bundle)

    def id(self, node: str) -> str:
        return f"spiffe://{self.domain}/enlist/{node}"
