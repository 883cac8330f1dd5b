"""A board of claims, and a domain that is only a key and a certificate: written from docs/claims.md alone."""

import base64
import datetime
import hashlib
import http.server
import json
import threading

import certs
from certs import hashes, x509
from cryptography.hazmat.primitives.asymmetric import ec

DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.5.5.7.3.36")


class Board:
    """Keeps the newest post of each domain, and answers with all of them, one a line. It checks nothing.

    `behave` gets the method and gives back None to serve, or (status, body), or one of the words `hang`, `garbage`, `huge`.
    """

    def __init__(self):
        self.posts: dict[str, dict] = {}
        self.more: list[bytes] = []
        self.behave = lambda _method: None
        self.asked = {"GET": 0, "POST": 0}
        self.released = threading.Event()
        board = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(self):
                board.serve(self)

            def do_POST(self):
                board.serve(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/claims"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(self, request) -> None:
        method = request.command
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        chosen = self.behave(method)
        status, answer = 200, b""
        if chosen == "hang":
            self.released.wait(30)
            return
        if chosen == "garbage":
            request.wfile.write(b"\x16\x03\x01 whatever\r\n")
            request.close_connection = True
            self.asked[method] += 1
            return
        if chosen == "huge":
            request.send_response(200)
            request.send_header("Content-Length", str(1 << 40))
            request.end_headers()
            self.asked[method] += 1
            try:
                while True:
                    request.wfile.write(b"x" * (1 << 20))
            except OSError:
                request.close_connection = True
                return
        if chosen:
            status, answer = chosen
        elif method == "POST":
            assert request.headers["Content-Type"] == "application/json"
            post = json.loads(body)
            self.posts[opened(post)["domain"]] = post
        else:
            lines = [json.dumps(post).encode() for post in self.posts.values()]
            answer = b"".join(line + b"\n" for line in [*self.more, *lines])
        request.send_response(status)
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)
        self.asked[method] += 1

    def claimed(self, domain: str) -> set[str]:
        """The digests that a domain claims now."""
        post = self.posts.get(domain)
        return {digest for claim in opened(post)["claims"] for digest in claim["hardware"]} if post else set()

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


def opened(post: dict) -> dict:
    return json.loads(base64.b64decode(post["document"], validate=True))


def digest(identifier: str) -> str:
    """Of `mac:52:54:00:12:34:56`, `bmc_serial:abc-1` and so on, in lower case."""
    return hashlib.sha256(identifier.lower().encode()).hexdigest()


def stamp(when: datetime.datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Neighbour:
    """A domain that can sign claims."""

    def __init__(self, domain: str):
        self.domain = domain
        self.root_key, self.key = certs.ec_key(), certs.ec_key()
        self.root = self._certificate(f"{domain} Root", self.root_key.public_key(), ca=True)
        self.certificate = self.audit_certificate(domain)

    def audit_certificate(self, domain: str, use=DOCUMENT_SIGNING):
        return self._certificate(f"{domain} Enlist Audit", self.key.public_key(), use=use)

    def _certificate(self, name: str, public, ca: bool = False, use=None):
        now = datetime.datetime.now(datetime.UTC)
        named = lambda text: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])  # noqa: E731
        builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(f"{self.domain} Root"))
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=9))
        builder = builder.add_extension(x509.BasicConstraints(ca, None), True)
        if use:
            builder = builder.add_extension(x509.ExtendedKeyUsage([use]), False)
        return builder.sign(self.root_key, hashes.SHA256())

    def document(self, *identifiers: str, issued: float = 0, life: float = 600, domain: str | None = None) -> dict:
        """Claims these identifiers as one machine; times in seconds from now."""
        now = datetime.datetime.now(datetime.UTC)
        begin = now + datetime.timedelta(seconds=issued)
        claims = [{"hardware": [digest(text) for text in identifiers], "active_since": stamp(now)}] if identifiers else []
        return {
            "domain": domain or self.domain,
            "issued_at": stamp(begin),
            "expires_at": stamp(begin + datetime.timedelta(seconds=life)),
            "claims": claims,
        }

    def signed(self, document: dict, message: bytes = b"enlist claims v1\0", certificate=None) -> bytes:
        raw = json.dumps(document).encode()
        signature = self.key.sign(message + raw, ec.ECDSA(hashes.SHA256()))
        der = (certificate or self.certificate).public_bytes(certs.serialization.Encoding.DER)
        encoded = lambda data: base64.b64encode(data).decode()  # noqa: E731
        return json.dumps(
            {"document": encoded(raw), "signature": encoded(signature), "chain": [encoded(der)]}
        ).encode()
