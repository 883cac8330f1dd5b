"""A stand-in for step-ca that answers as it is told: with another key, name, end or issuer, twice, slowly, not at all, with rubbish."""

import base64
import datetime
import http.server
import json
import ssl
import threading
import time

import certs
import evidence
from certs import x509
from machine import scratch, secret

HOUR = datetime.timedelta(hours=1)


def ca(name: str, issuer=None, path: int = 1):
    """A CA: its certificate and key, signed by itself or by another."""
    key = certs.ec_key()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    above, signer = (issuer[0].subject, issuer[1]) if issuer else (subject, key)
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(above)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - HOUR)
        .not_valid_after(now + 100 * 24 * HOUR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return built.sign(signer, certs.SHA256), key


class FalseStepCa:
    """`behave(order)` may change what is signed, or answer itself by returning (status, body)."""

    def __init__(self):
        self.base = scratch("false")
        self.root_ca = ca("False Root")
        self.issuing = ca("False Intermediate", self.root_ca, 0)
        self.root = self.base / "root.pem"
        self.root.write_bytes(certs.pem(self.root_ca[0]))
        self.key = secret(self.base / "key.jwk", json.dumps(jwk()))
        self.behave = lambda order: None
        self.revoked: list[str] = []
        self.orders: list[dict] = []
        self.at_once = self.most = 0
        self.lock = threading.Lock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.own_certificate())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def own_certificate(self) -> tuple:
        import ipaddress

        key = certs.ec_key()
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        cert = self.build(key.public_key(), x509.Name([]), [names], x509.ExtendedKeyUsageOID.SERVER_AUTH)
        chain = self.base / "server.pem"
        chain.write_bytes(certs.pem(cert) + certs.pem(self.issuing[0]))
        file = self.base / "server.key"
        file.write_bytes(certs.key_pem(key))
        return chain, file

    def build(self, public, subject, extensions, use, serial=None, end=None, start=None, issuer=None):
        certificate, key = issuer or self.issuing
        now = datetime.datetime.now(datetime.UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(certificate.subject)
            .public_key(public)
            .serial_number(serial or x509.random_serial_number())
            .not_valid_before(start or now - datetime.timedelta(seconds=60))
            .not_valid_after(end or now + HOUR)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        )
        if use:
            built = built.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        for extension in extensions:
            built = built.add_extension(extension, critical=False)
        return built.sign(key, certs.SHA256)

    def sign(self, body: dict) -> tuple[int, bytes]:
        evidence.token(body["ott"].rsplit(".", 1)[1])
        claims = json.loads(unpadded(body["ott"].split(".")[1]))
        if "notAfter" not in body:
            return 403, json.dumps({"status": 403, "message": "names"}).encode()
        order = {
            "public": x509.load_pem_x509_csr(body["csr"].encode()).public_key(),
            "cn": claims["enlist"]["cn"],
            "uris": [claims["enlist"]["spiffe_id"]],
            "names": [],
            "serial": int(claims["enlist"]["serial"], 16),
            "end": datetime.datetime.fromisoformat(body["notAfter"]),
            "start": None,
            "issuer": self.issuing,
            "chain": [self.issuing[0]],
            "use": x509.ExtendedKeyUsageOID.CLIENT_AUTH,
            "certificate": None,
        }
        self.orders.append(claims)
        answered = self.behave(order)
        if answered:
            return answered
        subject = [x509.NameAttribute(x509.NameOID.COMMON_NAME, order["cn"])] if order["cn"] else []
        names = [x509.UniformResourceIdentifier(uri) for uri in order["uris"]] + order["names"]
        cert = order["certificate"] or self.build(
            order["public"],
            x509.Name(subject),
            [x509.SubjectAlternativeName(names)] if names else [],
            order["use"],
            order["serial"],
            order["end"],
            order["start"],
            order["issuer"],
        )
        self.last = cert
        chain = [certs.pem(one).decode() for one in (cert, *order["chain"])]
        return 201, json.dumps({"crt": chain[0], "ca": chain[-1], "certChain": chain}).encode()

    def init(self) -> tuple:
        return (
            *("--issuer", "step-ca", "--step-ca-url", self.url, "--step-ca-root", self.root),
            *("--step-ca-provisioner", "enlist", "--step-ca-key", self.key),
        )

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def handler(owner: FalseStepCa):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(200, b'{"status":"ok"}')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/1.0/revoke":
                owner.revoked.append(format(int(body["serial"], 16), "x"))
                return self.answer(200, b'{"status":"ok"}')
            with owner.lock:
                owner.at_once += 1
                owner.most = max(owner.most, owner.at_once)
            try:
                answered = owner.sign(body)
            finally:
                with owner.lock:
                    owner.at_once -= 1
            self.answer(*answered)

        def answer(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass

    return Handler


def jwk() -> dict:
    """A private key as a JWK, without an id: the control plane makes the usual one."""
    numbers = certs.ec_key().private_numbers()
    evidence.key("provisioner", numbers.private_value.to_bytes(32, "big"))

    def coordinate(number: int) -> str:
        return base64.urlsafe_b64encode(number.to_bytes(32, "big")).decode().rstrip("=")

    public = numbers.public_numbers
    return {
        "kty": "EC",
        "crv": "P-256",
        "x": coordinate(public.x),
        "y": coordinate(public.y),
        "d": coordinate(numbers.private_value),
    }


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def silent(_) -> None:
    """Answers long after anybody waits for it."""
    time.sleep(60)


