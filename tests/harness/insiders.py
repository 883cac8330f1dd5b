"""A client of the port between replicas that is one: with a replica's certificate, its key, and the key of the log. For what such a
one may do all the same, and for directories that somebody with these keys has changed."""

import hmac
import os
import socket
import sqlite3

import certs
import evidence
import hostile_peers
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hostile_peers import frame, opened, packed
from machine import PATIENCE
from tlslite import tlsconnection
from tlslite.api import HandshakeSettings, TLSConnection, X509CertChain, parsePEMKey
from tlslite.errors import TLSAbruptCloseError

EXPORT = b"EXPORTER-enlist-replica"
derive = tlsconnection.derive_secret
exporters: dict[bytes, bytes] = {}


def derived(secret, label, hashes, algorithm):
    """tlslite 0.8.2 takes the client's certificate into the secret of exporters; by RFC 8446, section 7.1, it ends with the server's
    Finished, as the secrets of the application's traffic do."""
    if label == b"exp master":
        return exporters.pop(bytes(secret))
    if label == b"c ap traffic":
        exporters[bytes(secret)] = derive(secret, bytearray(b"exp master"), hashes, algorithm)
    return derive(secret, label, hashes, algorithm)


tlsconnection.derive_secret = derived


def log_key(replica) -> bytes:
    return opened(replica, "log.key.sealed", "log")


def code(key: bytes, kind: str, index: int, after: bytes, *content: bytes) -> bytes:
    place = b"enlist log v2\0" + kind.encode() + b"\0" + index.to_bytes(8, "big") + after
    return hmac.digest(key, place + b"".join(content), "sha256")


class Refused(Exception):
    """The other end has seen the proof, and does not go on."""


def forged(replica, thief, number: int | None = None) -> tuple:
    """A certificate as this replica's, with a key of its own, below an issuer that a thief has; or of a replica with another number."""
    own, key = certs.certificates((replica.dir / "ca" / "replica.pem").read_bytes())[0], certs.ec_key()
    builder = x509.CertificateBuilder().subject_name(own.subject).issuer_name(thief.certificate.subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(thief.certificate.not_valid_before_utc)
    builder = builder.not_valid_after(thief.certificate.not_valid_after_utc)
    for extension in own.extensions:
        value = extension.value
        if extension.oid == x509.OID_AUTHORITY_KEY_IDENTIFIER:
            value = x509.AuthorityKeyIdentifier.from_issuer_public_key(thief.key.public_key())
        if extension.oid == x509.OID_SUBJECT_ALTERNATIVE_NAME and number:
            (name,) = value.get_values_for_type(x509.UniformResourceIdentifier)
            name = x509.UniformResourceIdentifier(f"{name.rsplit('/', 1)[0]}/{number}")
            value = x509.SubjectAlternativeName([name])
        builder = builder.add_extension(value, extension.critical)
    leaf = builder.sign(thief.key, certs.SHA256)
    return number or int(replica.id), key, (certs.pem(leaf) + certs.pem(thief.certificate)).decode()


class Insider:
    """One connection, greeted and proven, of a replica that has joined and does not run; with another certificate than its own if one
    was forged. With `refuses` it says, proven as well, why it does not talk to the target."""

    def __init__(self, replica, target, shown: tuple | None = None, refuses: str | None = None):
        self.refuses = refuses
        if shown is None:
            key = serialization.load_der_private_key(opened(replica, "replica.key.sealed", "replica"), None)
            shown = int(replica.id), key, (replica.dir / "ca" / "replica.pem").read_text()
        self.number, key, pem = shown
        evidence.private_key("replica", certs.key_pem(key))
        chain = X509CertChain()
        chain.parsePemList(pem)
        settings = HandshakeSettings()
        settings.minVersion = settings.maxVersion = (3, 4)
        settings.certificate_compression_send = settings.certificate_compression_receive = []
        self.raw = socket.create_connection(("127.0.0.1", target.peer_port), PATIENCE)
        self.tls = TLSConnection(self.raw)
        private = parsePEMKey(certs.key_pem(key).decode(), private=True)
        protocol = hostile_peers.PROTOCOL.encode()
        self.tls.handshakeClientCert(chain, private, settings=settings, serverName="replica", alpn=[bytearray(protocol)])
        self.tls.closeSocket = True
        self.greet(replica, target)

    def greet(self, replica, target) -> None:
        mine = os.urandom(32)
        first = hostile_peers.hello(target, target, **{"from": self.number, "nonce": mine, "last_log": 0})
        self.send(first)
        welcome = self.receive()
        theirs = welcome.split(b"\xa5nonce\xc4\x20", 1)[1][:32]
        binding = bytes(self.tls.keyingMaterialExporter(bytearray(EXPORT), 32))
        content = (int(target.id).to_bytes(8, "big"), mine, theirs)
        proof = {"proof": code(log_key(replica), "peer caller", self.number, binding, *content)}
        self.send(proof | ({"refused": self.refuses} if self.refuses else {}))
        if (answer := self.receive()) != b"\xa8accepted":
            self.close()
            raise Refused(answer)

    def send(self, message) -> None:
        self.send_packed(packed(message))

    def send_packed(self, message: bytes) -> None:
        self.tls.sendall(frame(message))

    def receive(self) -> bytes | None:
        """The next answer; none if the other end has closed the connection."""
        try:
            head = self.tls.read(min=4, max=4)
            if len(head) < 4:
                return None
            length = int.from_bytes(head, "big")
            return bytes(self.tls.read(min=length, max=length))
        except (OSError, TLSAbruptCloseError) as error:
            assert not isinstance(error, TimeoutError), "it neither answers nor closes"
            return None

    def ask(self, message) -> bytes | None:
        try:
            self.send(message)
        except OSError:
            return None
        return self.receive()

    def close(self) -> None:
        self.raw.close()

    def __enter__(self) -> "Insider":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def rewrite_log(replica, old: bytes, new: bytes) -> None:
    """Puts other bytes of the same length into a stopped replica's log, and makes every code good again that this breaks."""
    assert len(old) == len(new)
    key, changed = log_key(replica), 0
    with sqlite3.connect(replica.dir / "log.db") as log:
        after = None
        for index, row in log.execute("SELECT idx, row FROM entries ORDER BY idx").fetchall():
            content = row[33:]
            changed += content.count(old)
            if after is None and old not in content:
                before = row[1:33]
                continue
            after = code(key, "entry", index, after or before, content.replace(old, new))
            log.execute("UPDATE entries SET row = ? WHERE idx = ?", (b"\x02" + after + content.replace(old, new), index))
        ((head,),) = log.execute("SELECT row FROM meta WHERE key = 'head'").fetchall()
        last = row[1:33]
        content = head[33:].replace(numbers(last), numbers(after))
        assert changed == 1 and content != head[33:], changed
        zeros = bytes(32)
        log.execute("UPDATE meta SET row = ? WHERE key = 'head'", (b"\x02" + code(key, "head", 0, zeros, content) + content,))
    log.close()


def numbers(data: bytes) -> bytes:
    """Bytes as MessagePack's list of numbers."""
    return b"".join(bytes([byte]) if byte < 128 else bytes([0xCC, byte]) for byte in data)
