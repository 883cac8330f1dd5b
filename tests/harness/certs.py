"""Keys, certificate requests and certificates, made and read without any code of the server."""

import pathlib

from machine import missing, scratch, tool

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
except ImportError:
    missing("the Python package cryptography")

SHA256 = hashes.SHA256()


def ec_key(curve=None):
    return ec.generate_private_key(curve or ec.SECP256R1())


def rsa_key(bits: int = 2048):
    return rsa.generate_private_key(65537, bits)


def ed25519_key():
    return ed25519.Ed25519PrivateKey.generate()


def key_pem(key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_der(key) -> bytes:
    public = key if not hasattr(key, "public_key") else key.public_key()
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def csr(key, name: str = "anything", digest=SHA256, extensions: tuple = ()) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    signed = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else digest)
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def good_csr() -> str:
    """A request that nobody could object to."""
    return csr(ec_key())


def openssl_csr(*arguments: str) -> str:
    """A request of a kind that careful libraries refuse to make."""
    file = scratch("csr") / "key"
    return tool("openssl", "req", "-new", "-nodes", "-keyout", file, "-subj", "/CN=x", *arguments).out


def spoiled(pem: str) -> str:
    """The same request with one bit of its signature turned over."""
    request = x509.load_pem_x509_csr(pem.encode())
    der = bytearray(request.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    return tool("openssl", "base64", stdin=bytes(der)).out.join(
        ("-----BEGIN CERTIFICATE REQUEST-----\n", "-----END CERTIFICATE REQUEST-----\n")
    )


def certificate(pem) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode() if isinstance(pem, str) else pem)


def certificates(pem) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode() if isinstance(pem, str) else pem)


def der(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.DER)


def pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.PEM)


def serial(cert: x509.Certificate) -> str:
    return f"{cert.serial_number:x}"


def fingerprint(cert: x509.Certificate) -> str:
    return cert.fingerprint(SHA256).hex()


def uris(cert: x509.Certificate) -> list[str]:
    return names(cert).get_values_for_type(x509.UniformResourceIdentifier)


def names(cert: x509.Certificate) -> x509.SubjectAlternativeName:
    return cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def seconds(cert: x509.Certificate) -> float:
    return (cert.not_valid_after_utc - cert.not_valid_before_utc).total_seconds()


def verifies(leaf: bytes, anchors: bytes, *options: str) -> bool:
    """What `openssl verify` says."""
    place = scratch("vfy")
    leaf_file, ca_file = place / "leaf.pem", place / "ca.pem"
    leaf_file.write_bytes(leaf)
    ca_file.write_bytes(anchors)
    return tool("openssl", "verify", "-CAfile", ca_file, *options, leaf_file, check=False).code == 0


def verifies_by_chain(chain: bytes | str, anchors: bytes, *options: str) -> bool:
    """The same of a leaf with the intermediates that stand behind it, which are not trusted for being there."""
    leaf, *between = certificates(chain)
    file = scratch("vfy") / "between.pem"
    file.write_bytes(b"".join(map(pem, between)))
    return verifies(pem(leaf), anchors, *(("-untrusted", file) if between else ()), *options)


def identity(place: pathlib.Path, key, certificate_pem: str, chain_pem: str = "") -> tuple:
    """Certificate and key as the two files that TLS libraries want."""
    place.mkdir(parents=True, exist_ok=True)
    files = place / "cert.pem", place / "key.pem"
    files[0].write_text(certificate_pem + chain_pem)
    files[1].write_bytes(key_pem(key))
    return files


def openssl_ca(place, subject: str) -> tuple:
    """A CA as people make it by hand: the key file begins with an EC PARAMETERS block."""
    key, cert = place / "ca.key", place / "ca.pem"
    tool("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-out", key)
    assert "BEGIN EC PARAMETERS" in key.read_text()
    tool(
        "openssl",
        "req",
        "-x509",
        "-new",
        "-sha256",
        "-key",
        key,
        "-subj",
        subject,
        "-days",
        "3650",
        "-out",
        cert,
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
    )
    return cert, key


def load(file):
    """The private key in a file of `openssl ecparam -genkey`."""
    text = file.read_bytes()
    return serialization.load_pem_private_key(text[text.index(b"-----BEGIN EC PRIVATE KEY") :], None)


def private_forms(pem: bytes) -> list[bytes]:
    """A key as it could lie somewhere: as the file, as its binary form, as the number alone, as a line of the file."""
    key = serialization.load_pem_private_key(pem, None)
    encoded = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    number = key.private_numbers().private_value.to_bytes(32, "big")
    return [pem.strip(), encoded, number, pem.splitlines()[2]]
