"""Machines and operators of the pact document: a client of its door, from the tests' own .proto files and grpcio alone."""

import itertools
import json
import queue
import secrets
import threading

import certs
import evidence
import grpc
import native
from machine import PATIENCE, scratch
from operators import make_key
from protos import OWN, compiled

pb, pb_grpc = compiled("pact/enrollment.proto", OWN)
config_pb, config_grpc = compiled("pact/stream.proto", OWN)
Refused = native.Refused
Status = grpc.StatusCode
BATCH_OPTIONS = (*native.OPTIONS, ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
numbers = itertools.count(1)


def allow_hardware(plane) -> None:
    plane.policy("attestors", "join-token,recovery-token,hardware")


def mac() -> str:
    """An address that nobody has yet, as a locally administered one."""
    return "02:" + ":".join(f"{octet:02x}" for octet in (*secrets.token_bytes(3), *next(numbers).to_bytes(2, "big")))


def hardware(mac_address: str | None = None, bmc_serial: str = "", **extra):
    return pb.HardwareIdentity(mac_address=mac_address or mac(), bmc_serial=bmc_serial, extra=extra)


def csr(key=None, **named) -> bytes:
    """A request, DER."""
    pem = certs.csr(key or certs.ec_key(), **named)
    return certs.x509.load_pem_x509_csr(pem.encode()).public_bytes(certs.serialization.Encoding.DER)


class Door:
    """One connection to both services: with a client certificate, an API key, or neither."""

    def __init__(self, plane, files: tuple | None = None, key: str | None = None, options=native.OPTIONS):
        pair = [file.read_bytes() for file in reversed(files)] if files else [None, None]
        credentials = grpc.ssl_channel_credentials(plane.bundle, *pair)
        self.channel = grpc.secure_channel(f"127.0.0.1:{plane.port}", credentials, options=options)
        self.enrollment = pb_grpc.EnrollmentServiceStub(self.channel)
        self.config = config_grpc.BootConfigServiceStub(self.channel)
        self.metadata = (("authorization", f"Bearer {key}"),) if key else ()

    def call(self, method: str, request, metadata: tuple = ()):
        """The answer, or `Refused`."""
        try:
            return getattr(self.enrollment, method)(request, metadata=(*self.metadata, *metadata), timeout=PATIENCE)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def refused(self, method: str, request, metadata: tuple = ()) -> Refused:
        try:
            answer = self.call(method, request, metadata)
        except Refused as refusal:
            return refusal
        raise AssertionError(f"was granted: {answer}")

    def enroll(self, identity, request: bytes | None = None, key: str | None = None):
        sent = (("idempotency-key", key),) if key else ()
        return self.call("Enroll", pb.EnrollRequest(hardware_identity=identity, csr=request or csr()), sent)

    def enroll_refused(self, identity, request: bytes | None = None) -> Refused:
        return self.refused("Enroll", pb.EnrollRequest(hardware_identity=identity, csr=request or csr()))

    def register(self, node_id: str, identity):
        return self.call("RegisterNode", pb.RegisterNodeRequest(node_id=node_id, hardware_identity=identity))

    def boot_config(self, node_id: str, vcluster_id: str = "", **named) -> list:
        """All chunks, or `Refused`."""
        request = config_pb.BootConfigRequest(node_id=node_id, vcluster_id=vcluster_id, **named)
        try:
            chunks = self.config.StreamBootConfig(request, metadata=self.metadata, timeout=PATIENCE)
            return [getattr(chunk, chunk.WhichOneof("chunk")) for chunk in chunks]
        except grpc.RpcError as error:
            raise Refused(error) from None

    def subscribe(self, node_id: str, vcluster_id: str = "", from_sequence: int = 0) -> "Updates":
        request = config_pb.SubscribeRequest(node_id=node_id, vcluster_id=vcluster_id, from_sequence=from_sequence)
        return Updates(self.config.SubscribeConfigUpdates(request, metadata=self.metadata))

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Updates:
    """A subscription. What comes down is read by a thread of its own."""

    def __init__(self, call):
        self.call = call
        self.down: queue.Queue = queue.Queue()
        self.ended = threading.Event()
        self.error: Refused | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for update in self.call:
                self.down.put(update)
        except grpc.RpcError as error:
            self.error = Refused(error)
        self.ended.set()
        self.down.put(None)

    def opened(self) -> "Updates":
        """The headers are there: it has been let in."""
        self.call.initial_metadata()
        assert not self.ended.is_set(), self.error
        return self

    def next(self) -> tuple:
        """Sequence, kind and content of the next change."""
        update = self.down.get(timeout=PATIENCE)
        assert update is not None, f"the stream ended: {self.error}"
        kind = update.WhichOneof("update")
        return update.sequence, kind, getattr(update, kind).decode()

    def wait_end(self) -> Refused | None:
        assert self.ended.wait(PATIENCE), "the stream goes on"
        return self.error

    def close(self) -> None:
        self.call.cancel()

    def __enter__(self) -> "Updates":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Machine:
    """A machine that has enrolled by its hardware."""

    def __init__(self, plane, key, signed_cert: bytes, id: str, serial: str, answer=None):
        self.plane, self.key, self.id, self.serial, self.answer = plane, key, id, serial, answer
        self.files = certs.identity(scratch("machine"), key, signed_cert.decode())
        evidence.private_key("machine", certs.key_pem(key))

    def door(self) -> Door:
        return Door(self.plane, self.files)

    def renew(self, key=None, serial: str | None = None, **named):
        """RenewCert's answer, or `Refused`."""
        request = pb.RenewCertRequest(current_cert_serial=serial or self.serial, csr=csr(key), **named)
        with self.door() as door:
            return door.call("RenewCert", request, (("authorization", "Bearer renewal-token"),))

    def renewed(self) -> "Machine":
        key = certs.ec_key()
        answer = self.renew(key)
        return Machine(self.plane, key, answer.signed_cert, self.id, answer.cert_serial)

    def used(self) -> "Machine":
        """Its certificate has been seen in use."""
        with self.door() as door:
            door.boot_config(self.id)
        return self


def admin(plane) -> Door:
    """An operator with an API key of the role platform-admin."""
    return Door(plane, key=make_key(plane, "platform-admin")["key"], options=BATCH_OPTIONS)


def boot(plane, identity) -> Machine:
    key = certs.ec_key()
    with Door(plane) as door:
        answer = door.enroll(identity, csr(key))
    return Machine(plane, key, answer.signed_cert, answer.node_id, answer.cert_serial, answer)


def machine(plane, operator: Door, id: str, **named) -> Machine:
    """Registers a machine and boots it."""
    identity = hardware(**named)
    operator.register(id, identity)
    return boot(plane, identity)


def create_vcluster(plane, name: str) -> str:
    plane.cli("vcluster", "create", name)
    return name


def set_config(plane, *target: str, document) -> None:
    """Of a vCluster, of a node (`--node`), or of the domain (`--defaults`)."""
    file = scratch("document") / "config.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    command = ("node", "set-config", target[1]) if target[0] == "--node" else ("vcluster", "set-config", *target)
    plane.cli(*command, "--file", file)
