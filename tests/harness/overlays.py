"""Hosts of the overlay without an agent: they claim their place on the live stream and keep what they are told."""

import base64
import hashlib
import hmac
import ipaddress
import threading
import time

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import native
from machine import PATIENCE, until

LOOPBACK = {"ipv4": "127.0.0.1", "port": 51820}


class Key:
    """A WireGuard key pair."""

    def __init__(self):
        self.private = X25519PrivateKey.generate()
        self.public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.text = base64.b64encode(self.public).decode()

    def proof(self, challenge: bytes, node: str, key: bytes | None = None) -> bytes:
        product = self.private.exchange(X25519PublicKey.from_public_bytes(challenge))
        text = b"enlist overlay claim 1\0" + node.encode() + b"\0" + (key or self.public)
        return hmac.new(product, text, hashlib.sha256).digest()

    @property
    def fingerprint(self) -> str:
        return "SHA256:" + hashlib.sha256(self.public).hexdigest()


class Host:
    """A host with a live stream. A thread applies what it is told of its peers, as an agent must."""

    def __init__(self, node: native.Node, key: Key | None = None, wants: dict | None = LOOPBACK):
        self.node, self.id, self.key, self.wants = node, node.id, key or Key(), wants
        self.peers: dict = {}
        self.revision = 0
        self.frames: list = []
        self.answers: list = []
        self.orders: list = []
        self.coming: list = []
        # Answers and messages about peers as they came, by their kind.
        self.arrived: list = []
        self.lost = False
        self.gone_at: dict = {}
        self.lock = threading.Lock()
        self.connection = None

    def open(self, plane=None) -> "Host":
        """The stream, without a claim."""
        self.connection = native.door(plane or self.node.plane, self.node.files)
        self.stream = self.connection.live(self.id)
        self.welcome = self.stream.next("welcome")
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    def _read(self) -> None:
        while True:
            kind, message = self.stream.down.get()
            if kind is None:
                return
            with self.lock:
                if kind.startswith("overlay_"):
                    self.arrived.append(kind)
                if kind == "overlay_answer":
                    self.answers.append(message.overlay_answer)
                elif kind == "overlay_peers":
                    self.frames.append(message.overlay_peers)
                    self.apply(message.overlay_peers)
                elif kind == "order":
                    self.orders.append(message.order)

    def apply(self, told) -> None:
        """By the rules in the .proto file."""
        if not told.HasField("after"):
            self.coming = [*self.coming, told] if told.piece else [told]
            assert [piece.piece for piece in self.coming] == list(range(told.piece + 1))
            assert {(piece.pieces, piece.revision) for piece in self.coming} == {(told.pieces, told.revision)}
            if told.piece + 1 == told.pieces:
                known = {peer.node_id: peer for piece in self.coming for peer in piece.peers}
                self.forget(set(self.peers) - set(known))
                self.peers, self.revision, self.coming = known, told.revision, []
        elif told.revision > self.revision:
            self.lost |= told.after > self.revision
            self.peers.update({peer.node_id: peer for peer in told.peers})
            self.forget(told.gone)
            self.revision = told.revision

    def forget(self, ids) -> None:
        for gone in ids:
            self.peers.pop(gone, None)
            self.gone_at[gone] = time.monotonic()

    def claim(self, key: Key | None = None, revision: int = 0, **changed) -> None:
        """Says where it is; fields of the claim can be bent."""
        key = key or self.key
        underlay = native.pb.Underlay(**self.wants) if self.wants else None
        fields = {
            "wireguard_public_key": key.text,
            "proof": key.proof(self.welcome.overlay_challenge, self.id),
            "underlay": underlay,
            "revision": revision,
            **changed,
        }
        self.stream.send(overlay=native.pb.OverlayClaim(**fields))

    def answer(self, number: int = 1):
        """So many answers later: the last."""
        return until(lambda: self.answers[number - 1] if len(self.answers) >= number else None, "an answer to the claim")

    def former_proof(self, new: Key) -> bytes:
        """That the key on record is this host's, for a new one."""
        return self.key.proof(self.welcome.overlay_challenge, self.id, new.public)

    def refused(self, **bent) -> str:
        """The code that this claim must be answered with."""
        known = len(self.answers)
        self.claim(**bent)
        return self.answer(known + 1).code

    def join(self, revision: int = 0, **changed) -> "Host":
        """On record, and told of its peers."""
        known = len(self.answers)
        self.claim(revision=revision, **changed)
        answer = self.answer(known + 1)
        assert answer.code == "", (answer.code, answer.detail)
        self.address = answer.address
        if not revision:
            until(lambda: self.frames, "the whole set")
        return self

    def others(self) -> set:
        with self.lock:
            return set(self.peers) - {self.id}

    def sees(self, *hosts) -> None:
        """Waits until these, and nobody else, are its peers."""
        wanted = {host.id for host in hosts}
        try:
            until(lambda: self.others() == wanted, "its peers")
        except AssertionError:
            raise AssertionError(f"{self.id} sees {self.others()} and should see {wanted}") from None

    def address_of(self, other: "Host") -> str:
        return str(ipaddress.IPv6Address(self.peers[other.id].address))

    def shown(self) -> dict:
        return self.node.plane.node(self.id)["overlay"]

    def close(self) -> None:
        if self.connection:
            self.stream.close()
            self.connection.close()
            self.reader.join(PATIENCE)

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Fleet:
    """Hosts that are closed together."""

    def __init__(self, plane):
        self.plane, self.hosts = plane, []

    def host(self, join: bool = True, tenant: str | None = None, wants: dict | None = LOOPBACK, **enrolling) -> Host:
        token = self.plane.token(tenant=tenant) if tenant else None
        node = native.enroll(self.plane, token, **enrolling)
        node.confirm()
        host = Host(node, wants=wants).open()
        self.hosts.append(host)
        return host.join() if join else host

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_) -> None:
        for host in self.hosts:
            host.close()
