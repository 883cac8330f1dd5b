"""A control plane in wrong hands: its certificate is good, because an issuing key of the domain was stolen; the root was not."""

import concurrent.futures
import datetime
import ipaddress
import time

import certs
import grpc
from certs import x509
from impostors import Authority, built, common_name
from native import pb, pb_grpc


class Thief:
    """An issuing CA of a domain as a thief has it: the root signed it, and it may have no other CA below it.

    `root` is another than the active one; `above` is what the thief presents above its CA, the root itself as a rule."""

    def __init__(self, plane, root: Authority | None = None, above=None, digest=certs.SHA256):
        root = root or Authority(plane)
        self.root, self.key = root.certificate, certs.ec_key()
        self.above = above or self.root
        self.life = datetime.timedelta(hours=20)
        self.certificate = self._ca(common_name("Issuing CA"), root.certificate.subject, self.key, root.key, 0, digest)

    @staticmethod
    def _ca(subject, issuer, key, signer, below: int | None, digest=certs.SHA256):
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = built(subject, issuer, key).add_extension(x509.BasicConstraints(True, below), True)
        return builder.add_extension(usage, True).sign(signer, digest)

    @property
    def chain(self) -> bytes:
        return certs.pem(self.certificate) + certs.pem(self.above)

    def own_root(self) -> bytes:
        """Another root, of the thief's own making and by the name of the true one."""
        key = certs.ec_key()
        return certs.pem(self._ca(self.root.subject, self.root.subject, key, key, 1))

    def signed_root(self) -> bytes:
        """A CA with a key of the thief's, signed by what was stolen."""
        key = certs.ec_key()
        return certs.pem(self._ca(common_name("New Root"), self.certificate.subject, key, self.key, 1))

    def resigned(self) -> bytes:
        """What was stolen, and the same CA signed by itself, with others below it."""
        again = self._ca(self.certificate.subject, self.certificate.subject, self.key, self.key, None)
        return certs.pem(self.certificate) + certs.pem(again)

    def resigned_beside(self) -> bytes:
        """The same beside the true root."""
        return certs.pem(self.root) + self.resigned()

    def server(self) -> tuple:
        """Key and chain for a server on loopback."""
        key = certs.ec_key()
        builder = built(common_name("server"), self.certificate.subject, key)
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False)
        return certs.key_pem(key), certs.pem(builder.sign(self.key, certs.SHA256)) + self.chain

    def node(self, csr: str, spiffe: str) -> x509.Certificate:
        """A node's certificate for whatever key asks."""
        request = x509.load_pem_x509_csr(csr.encode())
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(common_name("node")).issuer_name(self.certificate.subject)
        builder = builder.public_key(request.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(minutes=1))
        builder = builder.not_valid_after(now + self.life)
        uri = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(spiffe)])
        use = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        builder = builder.add_extension(uri, False).add_extension(use, False).add_extension(usage, True)
        builder = builder.add_extension(x509.BasicConstraints(False, None), True)
        return builder.sign(self.key, certs.SHA256)


def cross_signed(plane) -> tuple:
    """The next root of a domain, by the name of the one before: signed by that one, and by itself. PEM."""
    old, key = Authority(plane), certs.ec_key()
    subject = old.certificate.subject
    crossed = Thief._ca(subject, old.certificate.subject, key, old.key, 1)
    return certs.pem(crossed), certs.pem(Thief._ca(subject, subject, key, key, 1))


class Rogue(pb_grpc.AgentServicer):
    """Serves the native door on loopback with a thief's certificate. What it says is set by whoever uses it."""

    def __init__(self, plane, thief: Thief | None = None, grant=None, bundle: bytes | None = None, pushes: tuple = ()):
        self.plane, self.thief = plane, thief or Thief(plane)
        self.grant, self.pushes = grant, pushes
        self.bundle = (bundle or plane.bundle).decode()
        self.not_needed = False
        self.version = 90
        self.terms: dict = {}
        self.servers: list[str] = []
        self.heard: list = []
        self.kept: list[str] = []
        self.spiffe = ""
        self.workers = 8

    def __enter__(self) -> "Rogue":
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(self.workers))
        pb_grpc.add_AgentServicer_to_server(self, self.server)
        credentials = grpc.ssl_server_credentials([self.thief.server()])
        self.port = self.server.add_secure_port("127.0.0.1:0", credentials)
        self.server.start()
        return self

    def __exit__(self, *_) -> None:
        self.server.stop(None).wait()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def profile(self, ca: bytes):
        """A recovery token of its own, and where it wants it to be used."""
        profile = pb.RecoveryProfile(id="default", url=self.url, ca=ca.decode())
        end = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return pb.RecoveryGrant(token_id="01ROGUE", token="recovery_" + "R" * 43, expires_at=end, profile=profile)

    def Confirm(self, request, context):
        self.heard.append(request)
        return pb.ConfirmResponse(node_id="", state="active", recovery=self.grant)

    def Check(self, request, context):
        return pb.Standing(state="active")

    def Live(self, messages, context):
        hello = next(messages).hello
        self.heard.append(hello)
        now = int(time.time() * 1000)
        standing = pb.Standing(state="active")
        terms = {"heartbeat_ms": 1000, "grace_ms": 60_000, **self.terms}
        yield pb.LiveDown(welcome=pb.Welcome(server_time_ms=now, standing=standing, servers=self.servers, **terms))
        if self.grant is not None:
            yield pb.LiveDown(recovery=self.grant)
        yield from self.pushes
        for message in messages:
            if message.WhichOneof("message") == "recovery_kept":
                self.kept.append(message.recovery_kept.token_id)
            yield pb.LiveDown(ack=pb.Ack(server_time_ms=int(time.time() * 1000)))

    def Renew(self, request, context):
        self.heard.append(request)
        return pb.RenewResponse(recovery=self.grant, **self._issued(request.csr))

    def Enroll(self, request, context):
        self.heard.append(request)
        domain, tenant, node = parts(self.spiffe)
        issued = self._issued(request.csr)
        return pb.EnrollResponse(node_id=node, tenant=tenant, spiffe_id=self.spiffe, domain=domain, **issued)

    def Recover(self, request, context):
        self.heard.append(request)
        if self.not_needed:
            detail = pb.NotNeeded(bundle=self.bundle, bundle_version=self.version, servers=self.servers)
            context.set_trailing_metadata(
                (
                    ("enlist-code", "recovery_not_needed"),
                    ("grpc-status-details-bin", detail.SerializeToString()),
                )
            )
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not needed")
        domain, tenant, node = parts(self.spiffe)
        issued = self._issued(request.csr)
        return pb.RecoverResponse(node_id=node, tenant=tenant, spiffe_id=self.spiffe, domain=domain, **issued)

    def _issued(self, csr: str) -> dict:
        leaf = self.thief.node(csr, self.spiffe)
        end = leaf.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "certificate": certs.pem(leaf).decode(),
            "chain": certs.pem(self.thief.certificate).decode(),
            "bundle": self.bundle,
            "bundle_version": self.version,
            "cert_serial": certs.serial(leaf),
            "not_after": end,
            "renew_at": end,
            "profile": "default",
            "servers": self.servers or [self.url],
        }


def parts(spiffe: str) -> tuple:
    """Domain, tenant and node of a SPIFFE id."""
    domain, _, tenant, _, node = spiffe.removeprefix("spiffe://").split("/")
    return domain, tenant, node
