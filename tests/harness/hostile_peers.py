"""Clients of the port between replicas that are no replicas: raw TLS, frames by hand."""

import os
import socket
import ssl
import threading

import certs
import evidence
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from machine import PATIENCE, scratch
from plane import kek_bytes

PROTOCOL = "enlist-replica/1"


def context(certificate: tuple | None = None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.set_alpn_protocols([PROTOCOL])
    if certificate:
        made.load_cert_chain(*map(str, certificate))
    return made


def connect(replica, certificate: tuple | None = None) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", replica.peer_port), PATIENCE)
    try:
        return context(certificate).wrap_socket(raw, server_hostname="replica")
    except BaseException:
        raw.close()
        raise


def said(replica, certificate: tuple | None, data: bytes) -> bytes | None:
    """What comes back until the connection is closed, or None if there is an alert or a reset instead."""
    try:
        with connect(replica, certificate) as tls:
            tls.sendall(data)
            return read_to_end(tls)
    except (ssl.SSLError, ConnectionError):
        return None


def read_to_end(tls: ssl.SSLSocket) -> bytes:
    found = b""
    while piece := tls.recv(65536):
        found += piece
    return found


def opened(replica, name: str, purpose: str) -> bytes:
    """What is sealed under the key-encryption key in a replica's directory."""
    sealed = (replica.dir / "keys" / name).read_bytes()
    kek = kek_bytes(replica.kek_file.read_bytes())
    assert sealed[0] == 2, sealed[:1]
    return AESGCM(kek).decrypt(sealed[1:13], sealed[13:], f"enlist seal v2/{purpose}".encode())


def identity(replica) -> tuple:
    """A replica's own certificate and key, as a thief of both would have them."""
    key = serialization.load_der_private_key(opened(replica, "replica.key.sealed", "replica"), None)
    evidence.private_key("replica", certs.key_pem(key))
    chain = (replica.dir / "ca" / "replica.pem").read_text()
    return certs.identity(scratch("thief"), key, chain)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def packed(value) -> bytes:
    """MessagePack of what a greeting has."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return b"\xcf" + value.to_bytes(8, "big")
        case str():
            return b"\xd9" + len(value.encode()).to_bytes(1, "big") + value.encode()
        case bytes():
            return b"\xc4" + len(value).to_bytes(1, "big") + value
        case list():
            return b"\xdc" + len(value).to_bytes(2, "big") + b"".join(map(packed, value))
        case dict():
            pairs = b"".join(packed(name) + packed(item) for name, item in value.items())
            return b"\xde" + len(value).to_bytes(2, "big") + pairs
    raise AssertionError(value)


def hello(sender, receiver, **changed) -> dict:
    """What a replica says first."""
    return {
        "cluster": sender.status()["cluster_id"],
        "epoch": 1,
        "from": int(sender.id),
        "to": int(receiver.id),
        "starts": {"count": 1, "recent": [7]},
        "last_log": 1_000_000,
        "nonce": os.urandom(32),
    } | changed


class Flood:
    """Connections that are opened all the time and say nothing, until it ends."""

    def __init__(self, replicas, certificate: tuple | None = None, threads: int = 2):
        self.replicas, self.over, self.opened = replicas, threading.Event(), 0
        self.context = context(certificate) if certificate else None
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]

    def run(self) -> None:
        held: list = []
        while not self.over.is_set():
            for replica in self.replicas:
                try:
                    one = socket.create_connection(("127.0.0.1", replica.peer_port), 5)
                    if self.context:
                        one = self.context.wrap_socket(one, server_hostname="replica")
                    held.append(one)
                    self.opened += 1
                except OSError:
                    pass
            while len(held) > 1500:
                held.pop(0).close()
        for one in held:
            one.close()

    def __enter__(self) -> "Flood":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


class Liar:
    """Listens where a replica is called, shows its certificate, and refuses each greeting without the key of the log, until it ends."""

    def __init__(self, port: int, certificate: tuple, *reasons: str):
        self.reasons, self.over, self.answers = reasons, threading.Event(), 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.load_cert_chain(*map(str, certificate))
        self.context.set_alpn_protocols([PROTOCOL])
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.settimeout(0.2)
        self.thread = threading.Thread(target=self.run, daemon=True)

    def refusal(self) -> dict:
        """With a proof that is none, and without any, of each reason."""
        why = self.reasons[self.answers // 2 % len(self.reasons)]
        proven = {"why": why, "nonce": os.urandom(32), "proof": os.urandom(32)}
        return {"refused": proven if self.answers % 2 else why}

    def run(self) -> None:
        while not self.over.is_set():
            try:
                raw, _ = self.listener.accept()
            except TimeoutError:
                continue
            try:
                raw.settimeout(5)
                with self.context.wrap_socket(raw, server_side=True) as tls:
                    length = int.from_bytes(tls.recv(4), "big")
                    assert 0 < len(tls.recv(length)) <= length
                    tls.sendall(frame(packed(self.refusal())))
                    self.answers += 1
            except (OSError, AssertionError):
                raw.close()

    def __enter__(self) -> "Liar":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.thread.join()
        self.listener.close()
