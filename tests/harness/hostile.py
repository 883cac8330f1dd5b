"""Client and server certificates that are made to be expensive, and what they cost the process that reads them."""

import functools
import os
import pathlib
import socket
import ssl

import certs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from impostors import built, common_name
from machine import PATIENCE, scratch

WEB = 72
"""So many CAs that issue each other make 21 kB."""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used, user and system."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@functools.cache
def web(count: int = WEB, top: x509.Name | None = None) -> tuple:
    """CAs of one name, so that each may have issued each other; some may claim an issuer that is known."""
    name = common_name("Web")
    made = []
    for number in range(count):
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = top if top and number % 2 else name
        ca = built(name, issuer, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        made.append(ca.sign(key, hashes.SHA256()))
    return tuple(made)


def leaf(issuer: x509.Name, key=None, extensions: tuple = (), use=x509.ExtendedKeyUsageOID.CLIENT_AUTH, signer=None):
    """A certificate that claims an issuer, signed by a key of nobody's; with its own key."""
    key = key or certs.ec_key()
    builder = built(common_name("n"), issuer, key)
    for extension in (x509.ExtendedKeyUsage([use]), *extensions):
        builder = builder.add_extension(extension, False)
    return builder.sign(signer or certs.ec_key(), hashes.SHA256()), key


def files(cert, key, sent: tuple = ()) -> tuple:
    """As a TLS client reads them: the certificate with what is sent along, and the key."""
    chain = "".join(certs.pem(one).decode() for one in sent)
    return certs.identity(scratch("hostile"), key, certs.pem(cert).decode(), chain)


def many_names(count: int) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://a/{n}") for n in range(count)])


def many_extensions(count: int) -> tuple:
    return tuple(
        x509.UnrecognizedExtension(x509.ObjectIdentifier(f"1.3.6.1.4.1.99999.{n}"), b"\x05\x00") for n in range(count)
    )


@functools.cache
def giant_rsa() -> rsa.RSAPrivateKey:
    """As large as a key can be made in a few seconds; RSA-16384 would be checked by nobody either."""
    return rsa.generate_private_key(65537, 8192)


class Shaken:
    """A context that is made once, for as many handshakes as one likes."""

    def __init__(self, port: int, identity: tuple | None):
        self.port = port
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        if identity:
            self.context.load_cert_chain(*identity)

    def once(self) -> str | None:
        """The alert, or None if the certificate is taken."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as raw:
            try:
                with self.context.wrap_socket(raw, server_hostname="localhost") as tls:
                    tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    answer = tls.recv(4096)
            except ssl.SSLError as error:
                return error.reason
            except ConnectionError:
                return "reset"
        return None if answer.startswith(b"HTTP/1.1 200") else "closed"

    def cost(self, pid: int, rounds: int) -> tuple[float, set]:
        """CPU seconds of the server for one handshake, and what it said."""
        before = cpu(pid)
        said = {self.once() for _ in range(rounds)}
        return (cpu(pid) - before) / rounds, said
