"""TLS 1.3 handshakes by hand: ClientHellos from their bytes, and a client that tampers with what it sends."""

import os
import socket

import certs
from machine import PATIENCE, missing
from sockets import read_to_end

try:
    from tlslite.api import X509, HandshakeSettings, TLSConnection, X509CertChain, parsePEMKey
    from tlslite.errors import TLSAbruptCloseError, TLSRemoteAlert
    from tlslite.messages import Certificate, CertificateVerify, ClientHello, EncryptedExtensions
except ImportError:
    missing("the Python package tlslite-ng")

__all__ = ["Certificate", "CertificateVerify", "ClientHello", "EncryptedExtensions"]

ALERT, HANDSHAKE, DATA = 21, 22, 23
CLOSED = -1
"""Instead of an alert: the connection ended without one."""
X25519, X25519MLKEM768 = 0x001D, 0x11EC
SUPPORTED_GROUPS, SIGNATURES, PSK, EARLY_DATA, VERSIONS, PSK_MODES, KEY_SHARE = 10, 13, 41, 42, 43, 45, 51


def vector(size: int, data: bytes) -> bytes:
    """Data with its length before it, in so many bytes."""
    return len(data).to_bytes(size, "big") + data


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(2, "big") for number in numbers)


def share(group: int) -> bytes:
    """Somebody's public key. That of ML-KEM is a vector of zeros, which is a well-formed one."""
    key = os.urandom(32)
    return bytes(1184) + key if group == X25519MLKEM768 else key


def extensions(groups=(X25519,), shares=None, versions=(0x0304,)) -> dict[int, bytes]:
    """What a ClientHello must have."""
    offered = groups if shares is None else shares
    keys = b"".join(words(group) + vector(2, share(group)) for group in offered)
    return {
        SUPPORTED_GROUPS: vector(2, words(*groups)),
        SIGNATURES: vector(2, words(0x0403, 0x0804, 0x0807)),
        VERSIONS: vector(1, words(*versions)),
        KEY_SHARE: vector(2, keys),
    }


def hello(more: dict[int, bytes] | None = None, ciphers=(0x1301, 0x1302, 0x1303), **offer) -> bytes:
    """A ClientHello. In `more`, None takes an extension away."""
    wanted = {**extensions(**offer), **(more or {})}
    tail = b"".join(words(kind) + vector(2, body) for kind, body in wanted.items() if body is not None)
    body = words(0x0303) + os.urandom(32) + vector(1, os.urandom(32)) + vector(2, words(*ciphers)) + b"\x01\x00"
    return message(1, body + vector(2, tail))


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + vector(3, body)


def record(data: bytes, kind: int = HANDSHAKE, length: int | None = None) -> bytes:
    claimed = len(data) if length is None else length
    return bytes([kind, 3, 1]) + claimed.to_bytes(2, "big") + data


def records(data: bytes) -> list[tuple[int, bytes]]:
    """What came, record by record; an unfinished one is left out."""
    found = []
    while len(data) >= 5 and len(data) >= 5 + (length := int.from_bytes(data[3:5], "big")):
        found.append((data[0], data[5 : 5 + length]))
        data = data[5 + length :]
    return found


def answer(plane, data: bytes) -> list[tuple[int, bytes]]:
    """Says so much and no more, and waits for the server's last word."""
    with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as raw:
        try:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has had enough already
        return records(read_to_end(raw))


def plain_alert(found: list[tuple[int, bytes]]) -> int | None:
    """The number of an alert that came before any keys were agreed on."""
    return next((body[1] for kind, body in found if kind == ALERT and len(body) == 2), None)


def server_hello(found: list[tuple[int, bytes]]) -> dict[int, bytes]:
    """The extensions of a ServerHello that came first."""
    kind, body = found[0]
    assert kind == HANDSHAKE and body[0] == 2, found[:1]
    at = 4 + 2 + 32
    at += 1 + body[at] + 2 + 1
    end, at, seen = at + 2 + int.from_bytes(body[at : at + 2], "big"), at + 2, {}
    while at < end:
        length = int.from_bytes(body[at + 2 : at + 4], "big")
        seen[int.from_bytes(body[at : at + 2], "big")] = body[at + 4 : at + 4 + length]
        at += 4 + length
    return seen


class Raw:
    """A handshake message of any content."""

    contentType = HANDSHAKE

    def __init__(self, data: bytes):
        self.data = bytearray(data)

    def write(self) -> bytearray:
        return self.data


class Client(TLSConnection):
    """A client that changes messages before it sends them, and keeps those that it gets."""

    def __init__(self, plane, changes: dict | None = None):
        super().__init__(socket.create_connection(("127.0.0.1", plane.port), PATIENCE))
        self.changes = changes or {}
        self.seen: list = []

    def _sendMsg(self, msg, *more, **named):
        change = self.changes.get(type(msg))
        sent = [msg] if change is None else change(msg)
        for one in sent:
            yield from super()._sendMsg(one, *more, **named)

    def _getMsg(self, *kinds, **named):
        for result in super()._getMsg(*kinds, **named):
            if result not in (0, 1):
                self.seen.append(result)
            yield result


def settings(versions=((3, 4), (3, 4)), **more) -> HandshakeSettings:
    made = HandshakeSettings()
    made.minVersion, made.maxVersion = versions
    # It would compress although nobody has said that he understands it.
    made.certificate_compression_send = []
    for name, value in more.items():
        setattr(made, name, value)
    return made


def chain_of(*found) -> X509CertChain:
    made = []
    for cert in found:
        one = X509()
        one.parseBinary(bytearray(certs.der(cert)))
        made.append(one)
    return X509CertChain(made)


def verdict(plane, chain=(), key=None, changes: dict | None = None, wanted=None) -> int | None:
    """The number of the alert with which the server refuses, or None if it answers a request."""
    identity = (chain_of(*chain), parsePEMKey(certs.key_pem(key).decode(), private=True)) if chain else ()
    client = Client(plane, changes)
    try:
        client.handshakeClientCert(*identity, settings=wanted or settings(), serverName="localhost")
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = client.recv(4096)
    except TLSRemoteAlert as alert:
        return alert.description
    except (TLSAbruptCloseError, ConnectionError):
        return CLOSED
    finally:
        client.sock.close()
    assert got.startswith(b"HTTP/1.1 200"), got
    assert not client.tickets, "a ticket was sent"
    return None
