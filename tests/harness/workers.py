"""Workers of the TaskRun document: a client of its door, from its own shapes, http.client and openssl alone."""

import queue
import threading

import certs
import evidence
import native
from machine import PATIENCE, missing, scratch
from protos import compiled

try:
    import grpc
except ImportError:
    missing("grpcio with grpcio-tools")

TASKRUN = ("--profile", "taskrun")


def token(plane, **fields) -> str:
    """A bootstrap token as `taskrun token generate` asks for one."""
    return plane.mint(door="taskrun", **fields)["token"]


def csr(key=None, name: str | None = None) -> str:
    """A request of a worker; without a name, one without a common name."""
    key = key or certs.ec_key()
    if name is None:
        builder = certs.x509.CertificateSigningRequestBuilder().subject_name(certs.x509.Name([]))
        return builder.sign(key, certs.SHA256).public_bytes(certs.serialization.Encoding.PEM).decode()
    return certs.csr(key, name)


def ask_enroll(plane, bootstrap_token, request, **more):
    """POST /v1/enroll, whatever comes of it."""
    headers = more.pop("headers", None)
    return plane.https("POST", "/v1/enroll", {"bootstrap_token": bootstrap_token, "csr": request, **more}, headers)


class Worker:
    """A worker that was let in, with its files."""

    def __init__(self, plane, key, worker_cert: str, id: str):
        self.plane, self.key, self.id = plane, key, id
        self.cert = certs.certificates(worker_cert)[0]
        self.serial = certs.serial(self.cert)
        self.files = certs.identity(scratch("worker"), key, worker_cert)
        evidence.private_key("worker", certs.key_pem(key))

    def renew(self, key=None, name: str = "anything"):
        """POST /v1/renew with this certificate."""
        body = {"csr": certs.csr(key or certs.ec_key(), name)}
        return self.plane.https("POST", "/v1/renew", body, certificate=self.files)

    def renewed(self) -> "Worker":
        key = certs.ec_key()
        answer = self.renew(key)
        assert answer.status == 200, answer
        return Worker(self.plane, key, answer.json()["worker_cert"], self.id)


def enroll(plane, id: str | None = None, name: str | None = None, **minted) -> Worker:
    """Lets a new worker in. `id` is what it asks for in its common name."""
    key = certs.ec_key()
    wanted = name if name is not None else (f"worker:{id}" if id else None)
    answer = ask_enroll(plane, token(plane, **minted), csr(key, wanted))
    assert answer.status == 200, answer
    pem = answer.json()["worker_cert"]
    uri = certs.uris(certs.certificates(pem)[0])[0]
    return Worker(plane, key, pem, uri.rsplit("/", 1)[1])


def flat(answer) -> str:
    """The code in a flat error."""
    body = answer.json()
    assert list(body) == ["error"] and isinstance(body["error"], str), answer
    code, colon, text = body["error"].partition(": ")
    assert colon and text, answer
    return code


# The stream: messages from the .proto file, through grpcio alone.

pb, _ = compiled("taskrun/v1/run.proto")
CONNECT = "/taskrun.v1.RunService/StreamConnect"


class Run:
    """A worker's stream. What comes down is read by a thread of its own."""

    def __init__(self, plane, files: tuple | None = None, bundle: bytes | None = None):
        pair = [file.read_bytes() for file in reversed(files)] if files else [None, None]
        credentials = grpc.ssl_channel_credentials(bundle or plane.bundle, *pair)
        self.channel = grpc.secure_channel(f"127.0.0.1:{plane.port}", credentials, options=native.OPTIONS)
        method = self.channel.stream_stream(
            CONNECT, lambda m: m if isinstance(m, bytes) else m.SerializeToString(), pb.RunServerMessage.FromString
        )
        self.up: queue.Queue = queue.Queue()
        self.down: queue.Queue = queue.Queue()
        self.ended = threading.Event()
        self.error: native.Refused | None = None
        self.call = method(iter(self.up.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for message in self.call:
                self.down.put(message)
        except grpc.RpcError as error:
            self.error = native.Refused(error)
        self.ended.set()
        self.down.put(None)

    def send(self, message) -> None:
        self.up.put(message)

    def hello(self, worker_id: str, **info) -> "Run":
        self.send(pb.RunClientMessage(hello=pb.WorkerHello(info=pb.WorkerInfo(worker_id=worker_id, **info))))
        return self

    def heartbeat(self, worker_id: str, **fields) -> "Run":
        self.send(pb.RunClientMessage(heartbeat=pb.WorkerHeartbeat(worker_id=worker_id, **fields)))
        return self

    def ack(self):
        """The next acknowledgement: its kind, and what it is of."""
        message = self.down.get(timeout=PATIENCE)
        assert message is not None, f"the stream ended: {self.error}"
        return message.ack.ack_type, message.ack.ref_id

    def wait_end(self):
        assert self.ended.wait(PATIENCE), "the stream goes on"
        return self.error

    def close(self) -> None:
        self.up.put(None)
        self.call.cancel()
        self.channel.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_) -> None:
        self.close()
