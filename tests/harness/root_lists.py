"""Revocation lists of roots: as the root's keeper signs them with our program, and as nobody's program of ours made them."""

import datetime
import time

import certs
from impostors import Authority
from machine import ENLIST, run, scratch, tool
from rogue import Thief
from rolls import keeper


def denied(plane, *issuers, number: int | None = None):
    """What the root's keeper signs, with all that was denied before: the list's file."""
    key, root = keeper(plane)
    plane.denied, files = [*getattr(plane, "denied", []), *issuers], []
    for place, issuer in enumerate(plane.denied):
        files.append(key.parent / f"issuer-{place}.pem")
        files[-1].write_bytes(certs.pem(issuer))
    out = key.parent / "root.crl"
    now = int(time.time())
    if number is None and now <= getattr(plane, "last_list", 0):
        # Without one it is the second, in which there was a list already.
        number = plane.last_list + 1
    more = ("--number", number) if number is not None else ()
    named = [word for file in files for word in ("--issuer", file)]
    done = run(ENLIST, "ca", "sign-crl", "--root-key", key, "--root-cert", root, *named, "--out", out, *more)
    assert done.code == 0, done
    # As it is, and not as it was expected to be: the program may have begun in the next second.
    (plane.last_list,) = numbers(out.read_bytes())
    return out


def listed(signer: Authority, number: int, *serials) -> bytes:
    """A list that no program of ours made, of certificates or serials; PEM."""
    now = datetime.datetime.now(datetime.UTC)
    builder = certs.x509.CertificateRevocationListBuilder().issuer_name(signer.certificate.subject)
    builder = builder.last_update(now).next_update(now + datetime.timedelta(days=1))
    builder = builder.add_extension(certs.x509.CRLNumber(number), False)
    for one in serials:
        entry = certs.x509.RevokedCertificateBuilder().serial_number(getattr(one, "serial_number", one))
        builder = builder.add_revoked_certificate(entry.revocation_date(now).build())
    return builder.sign(signer.key, certs.SHA256).public_bytes(certs.serialization.Encoding.PEM)


def numbers(pem: bytes) -> list[int]:
    """The numbers of the lists, as openssl reads them; what else is in the text is passed over."""
    lists = [b"-----BEGIN" + part for part in pem.split(b"-----BEGIN")[1:] if part.startswith(b" X509 CRL")]
    found = []
    for one in lists:
        file = scratch("crl") / "one.crl"
        file.write_bytes(one)
        found.append(int(tool("openssl", "crl", "-in", file, "-noout", "-crlnumber").out.split("=")[1], 16))
    return found


def without_roots(pem: bytes) -> bytes:
    """The lists alone, as older versions stored them."""
    lists = [part for part in pem.split(b"-----BEGIN")[1:] if part.startswith(b" X509 CRL")]
    return b"".join(b"-----BEGIN" + part for part in lists)


def below_new_root(plane, answer, key) -> tuple:
    """A thief of an issuer below a root that is prepared, who presents that root's cross-certificate; and the root's list that denies
    the issuer, PEM. `answer` and `key` are what `prepare_root` gives."""
    new, cross, *_ = certs.certificates(answer.read_bytes())
    signer = Authority(plane)
    signer.certificate, signer.key = new, certs.serialization.load_pem_private_key(key.read_bytes(), None)
    thief = Thief(plane, root=signer, above=cross)
    return thief, listed(signer, 7, thief.certificate)
