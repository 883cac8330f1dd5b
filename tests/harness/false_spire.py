"""A stand-in for SPIRE: a trust domain with a CA of the tests, SVIDs as files, and a Workload API that answers as it is told."""

import datetime
import pathlib
import threading
from concurrent import futures

import certs
import grpc
from certs import serialization, x509
from machine import scratch
from protos import compiled

pb, _ = compiled("spiffe/workload.proto")
DOMAIN = "spire.example"
SECOND = datetime.timedelta(seconds=1)


def signed(public, uri: str, issuer: x509.Name, key, seconds: float) -> x509.Certificate:
    """An X.509-SVID, as SPIRE writes them."""
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
    uses = [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "SPIRE")]))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * SECOND)
        .not_valid_after(now + seconds * SECOND)
        .add_extension(names, False)
        .add_extension(x509.ExtendedKeyUsage(uses), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    )
    return builder.sign(key, certs.SHA256)


def pkcs8(key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class FalseSpire:
    """A trust domain: `bundle` is what a control plane reads."""

    def __init__(self, domain: str = DOMAIN):
        self.domain, self.base, self.key = domain, scratch("fspire"), certs.ec_key()
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"CA of {domain}")])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3600 * SECOND)
            .not_valid_after(now + 86400 * SECOND)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        )
        self.bundle = self.base / "bundle.pem"
        self.bundle.write_bytes(certs.pem(builder.sign(self.key, certs.SHA256)))

    def uri(self, path: str) -> str:
        return f"spiffe://{self.domain}{path}"

    def issued(self, path: str, seconds: float = 3600) -> tuple:
        """An SVID and its key."""
        key = certs.ec_key()
        return signed(key.public_key(), self.uri(path), self.name, self.key, seconds), key

    def svid(self, path: str, seconds: float = 3600) -> tuple:
        """The same as files, for clients that are not agents."""
        svid, key = self.issued(path, seconds)
        return certs.identity(scratch("svid"), key, certs.pem(svid).decode())

    def message(self, path: str, seconds: float = 3600):
        """The same as the Workload API gives it."""
        svid, key = self.issued(path, seconds)
        return pb.X509SVID(spiffe_id=self.uri(path), x509_svid=certs.der(svid), x509_svid_key=pkcs8(key))


def answer(*svids):
    return pb.X509SVIDResponse(svids=svids)


class WorkloadApi:
    """Answers as it is told: `answers` is given the call's context, and yields."""

    def __init__(self, answers):
        self.path, self.asked = scratch("sock") / "api.sock", 0
        self.server = grpc.server(futures.ThreadPoolExecutor(8), options=(("grpc.max_send_message_length", 64 << 20),))

        def fetch(_request, context):
            self.asked += 1
            yield from answers(context)

        handler = grpc.unary_stream_rpc_method_handler(
            fetch, pb.X509SVIDRequest.FromString, pb.X509SVIDResponse.SerializeToString
        )
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("SpiffeWorkloadAPI", {"FetchX509SVID": handler}),)
        )
        assert self.server.add_insecure_port(f"unix:{self.path}")
        self.server.start()

    def close(self) -> None:
        self.server.stop(0)


class FalseSpireAgent(WorkloadApi):
    """Gives SVIDs of one path, the next one at the half of each, as SPIRE does."""

    def __init__(self, spire: FalseSpire, path: str, seconds: float = 3600):
        self.over = threading.Event()

        def give(context):
            while context.is_active() and not self.over.is_set():
                yield answer(spire.message(path, seconds))
                self.over.wait(seconds / 2)
            # It hangs: nothing is said, and the call stays open.
            while context.is_active():
                threading.Event().wait(0.05)

        super().__init__(give)

    def hang(self) -> None:
        """From now on it says nothing; its socket is there."""
        self.over.set()

    def close(self) -> None:
        self.over.set()
        super().close()
        pathlib.Path(self.path).unlink(missing_ok=True)
