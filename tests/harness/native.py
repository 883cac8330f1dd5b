"""A client of the native gRPC door, from its .proto file and grpcio alone."""

import queue
import secrets
import socket
import ssl
import threading
import time

import certs
from machine import PATIENCE, missing, scratch
from protos import compiled

try:
    import grpc
except ImportError:
    missing("grpcio with grpcio-tools")

OPTIONS = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
pb, pb_grpc = compiled("enlist/agent/v1/agent.proto")


class Refused(Exception):
    """A gRPC status that is not OK, with the trailers that explain it."""

    def __init__(self, error: grpc.RpcError):
        self.status = error.code()
        self.message = error.details() or ""
        self.trailers = {k: v for k, v in (error.trailing_metadata() or ())}
        self.code = self.trailers.get("enlist-code")
        self.hint = self.trailers.get("enlist-hint")
        self.request_id = self.trailers.get("enlist-request-id")
        self.details = self.trailers.get("grpc-status-details-bin", b"")
        super().__init__(f"{self.status} {self.code}: {self.message} {self.trailers}")


class Door:
    """One connection to the native door."""

    def __init__(self, port: int, bundle: bytes, certificate: tuple | None = None):
        pair = [file.read_bytes() for file in reversed(certificate)] if certificate else [None, None]
        credentials = grpc.ssl_channel_credentials(bundle, *pair)
        self.channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=OPTIONS)
        self.stub = pb_grpc.AgentStub(self.channel)

    def enroll(self, token: str, csr: str, key: str | None = None, metadata: tuple = (), hostname: str = "", **more):
        """The answer, or `Refused`."""
        try:
            return self.begin(token, csr, key, metadata, hostname, **more).result()
        except grpc.RpcError as error:
            raise Refused(error) from None

    def begin(self, token: str, csr: str, key=None, metadata=(), hostname="", patience=PATIENCE, **more):
        """The call as a future."""
        sent = tuple(metadata) + ((("idempotency-key", key),) if key else ())
        request = pb.EnrollRequest(token=token, csr=csr, hostname=hostname, **more)
        return self.stub.Enroll.future(request, metadata=sent, timeout=patience)

    def refused(self, *arguments, **named) -> Refused:
        """The refusal that this enrollment must meet."""
        try:
            answer = self.enroll(*arguments, **named)
        except Refused as refusal:
            return refusal
        raise AssertionError(f"was granted: {answer.node_id}")

    def confirm(self, status=None, reason: str = "", metadata: tuple = (), **named):
        wanted = pb.CONFIRM_STATUS_OK if status is None else status
        request = pb.ConfirmRequest(status=wanted, reason=reason, **named)
        try:
            return self.stub.Confirm(request, metadata=metadata, timeout=PATIENCE)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def recover(self, token: str, csr: str, metadata: tuple = (), **named):
        request = pb.RecoverRequest(token=token, csr=csr, **named)
        try:
            return self.stub.Recover(request, metadata=metadata, timeout=PATIENCE)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def recovery_refused(self, *arguments, **named) -> Refused:
        try:
            answer = self.recover(*arguments, **named)
        except Refused as refusal:
            return refusal
        raise AssertionError(f"was granted: {answer.cert_serial}")

    def renew(self, csr: str, **named):
        try:
            return self.stub.Renew(pb.RenewRequest(csr=csr, **named), timeout=PATIENCE)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def renewal_refused(self, csr: str) -> Refused:
        try:
            answer = self.renew(csr)
        except Refused as refusal:
            return refusal
        raise AssertionError(f"was granted: {answer.cert_serial}")

    def live(self, node: str | None = None, **named) -> "Live":
        """A live stream; with a node's id it says Hello."""
        stream = Live(self)
        if node is not None:
            stream.hello(node, **named)
        return stream

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Live:
    """A node's standing connection. What comes down is read by a thread of its own."""

    def __init__(self, door: Door):
        self.up: queue.Queue = queue.Queue()
        self.down: queue.Queue = queue.Queue()
        self.ended = threading.Event()
        self.error: Refused | None = None
        self.call = door.stub.Live(iter(self.up.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self.call:
                self.down.put((message.WhichOneof("message"), message))
        except grpc.RpcError as error:
            self.error = Refused(error)
        self.ended_at = time.monotonic()
        self.ended.set()
        self.down.put((None, None))

    def send(self, **message) -> None:
        self.up.put(pb.LiveUp(**message))

    def hello(self, node: str, instance: str | None = None, bundle: int = 1, version: str = "t/1", **more) -> None:
        named = pb.Hello(
            node_id=node,
            instance_id=instance or secrets.token_hex(8),
            bundle_version=bundle,
            agent_version=version,
            **more,
        )
        self.send(hello=named)

    def heartbeat(self) -> None:
        self.send(heartbeat=pb.Heartbeat())

    def evidence(self, **fields) -> None:
        self.send(evidence=pb.Evidence(**fields))

    def next(self, kind: str):
        """The next message of a kind; others are passed over."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found, message = self.down.get(timeout=max(0.1, deadline - time.monotonic()))
            if found == kind:
                return getattr(message, kind)
            assert found is not None, f"the stream ended before {kind}: {self.error}"

    def wait_end(self) -> Refused | None:
        assert self.ended.wait(PATIENCE), "the stream goes on"
        return self.error

    def close(self) -> None:
        self.up.put(None)
        self.call.cancel()


def door(plane, certificate: tuple | None = None) -> Door:
    return Door(plane.port, plane.bundle, certificate)


class Node:
    """A machine that was let in."""

    def __init__(self, plane, answer, key, id: str | None = None):
        self.plane, self.answer, self.key = plane, answer, key
        self.id, self.serial = id or answer.node_id, answer.cert_serial
        self.files = certs.identity(scratch("node"), key, answer.certificate, answer.chain)

    def confirm(self, **named):
        with door(self.plane, self.files) as connection:
            return connection.confirm(**named)

    def door(self) -> Door:
        return door(self.plane, self.files)

    def renewed(self, key=None, **named) -> "Node":
        """The same machine with its next certificate, which nobody has seen yet."""
        key = key or certs.ec_key()
        with self.door() as connection:
            answer = connection.renew(certs.csr(key), **named)
        return Node(self.plane, answer, key, self.id)


def enroll(plane, token: str | None = None, key=None, idempotency: str | None = None, **named) -> Node:
    """Lets a new machine in, the plain way."""
    key = key or certs.ec_key()
    with door(plane) as connection:
        answer = connection.enroll(token or plane.token(), certs.csr(key), idempotency, **named)
    return Node(plane, answer, key)


CLOSED = "closed without an answer"


def alert(plane, certificate: tuple) -> str | None:
    """What the server says to a client certificate: the name of the TLS alert, or None if it is taken.

    In TLS 1.3 the client's handshake succeeds before the server has looked; the refusal is the first read.
    """
    context = plane.context(certificate)
    with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as raw:
        try:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as tls:
                tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answer = tls.recv(4096)
        except ssl.SSLError as error:
            return error.reason
        except ConnectionError:
            return CLOSED
    if not answer:
        return CLOSED
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return None
