"""Servers that are not the control plane, and a crossing from which a host can be led to one of them."""

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading

import certs
from certs import hashes, serialization, x509
from daemons import lasting_port
from listener import Listener, Proxy, shut
from machine import scratch
from plane import ControlPlane

PAGE = b"<html><body>Please sign in to use this network</body></html>"
DAY = datetime.timedelta(days=1)


class Authority:
    """A CA that issues server certificates: one of its own, or the domain's root in wrong hands."""

    def __init__(self, plane=None):
        if plane:
            self.key = serialization.load_pem_private_key(plane.founded["root_key_pem"].encode(), None)
            wanted = certs.public_der(self.key)
            (self.certificate,) = [c for c in certs.certificates(plane.bundle) if certs.public_der(c) == wanted]
        else:
            self.key = certs.ec_key()
            name = common_name("Somebody Else's Root")
            constraints = x509.BasicConstraints(ca=True, path_length=1)
            self.certificate = built(name, name, self.key).add_extension(constraints, True).sign(self.key, certs.SHA256)

    @property
    def pem(self) -> bytes:
        return certs.pem(self.certificate)

    def files(self, name: str = "127.0.0.1") -> tuple:
        """A certificate for a name or an address, and its key."""
        try:
            alternative = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            alternative = x509.DNSName(name)
        key = certs.ec_key()
        builder = built(common_name("server"), self.certificate.subject, key)
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False)
        leaf = builder.sign(self.key, hashes.SHA256())
        return certs.identity(scratch("imp"), key, certs.pem(leaf).decode() + self.pem.decode())


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def built(subject: x509.Name, issuer: x509.Name, key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def page_h2(status: int) -> bytes:
    """A web page over HTTP/2, for the first request of a connection."""
    headers = b"\x08\x03%d\x0f\x10\x09text/html" % status
    settings = frame(4, 0, 0, b"") + frame(4, 1, 0, b"")
    return settings + frame(1, 4, 1, headers) + frame(0, 1, 1, PAGE)


def page(status: int) -> bytes:
    return b"HTTP/1.1 %d So\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (status, len(PAGE), PAGE)


GARBAGE = bytes(range(256)) * 16
ANSWERS = {
    "portal": (page(200), page(200)),
    "portal-h2": (page(200), page_h2(200)),
    "unavailable": (page(503), page_h2(503)),
    "garbage": (GARBAGE, GARBAGE),
    "silent": (b"", b""),
}
"""What each says to a request of HTTP/1.1, and to one of HTTP/2."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, DATA = 1, 0


def has_request(heard: bytes) -> bool:
    """Whether a whole request has come: over HTTP/2 a message too, for every call sends one."""
    if not heard.startswith(PREFACE[: len(heard)]):
        return b"\r\n\r\n" in heard
    at, seen = len(PREFACE), set()
    while len(heard) >= at + 9:
        end = at + 9 + int.from_bytes(heard[at : at + 3], "big")
        if len(heard) < end:
            break
        seen.add(heard[at + 3])
        at = end
    return {HEADERS, DATA} <= seen


class Impostor(Listener):
    """Answers every request with the same bytes, and keeps what it was told and how every handshake ended."""

    def __init__(self, says: str, authority: Authority | None = None, name: str = "127.0.0.1"):
        super().__init__()
        self.says = ANSWERS[says]
        self.heard, self.handshakes, self.certificates = b"", 0, 0
        self.refusals: list[str] = []
        self.context = None
        if authority:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*map(str, authority.files(name)))
            self.context.set_alpn_protocols(["http/1.1"] if says == "portal" else ["h2", "http/1.1"])
        self.listen()

    def ask_for_certificates(self, anchors: bytes) -> "Impostor":
        """Whoever has a client certificate of these shows it."""
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.load_verify_locations(cadata=anchors.decode())
        return self

    def serve(self, client: socket.socket) -> None:
        client.settimeout(30)
        try:
            if self.context:
                client = self.context.wrap_socket(client, server_side=True)
                self.certificates += bool(client.getpeercert(binary_form=True))
            elif self.says[0]:
                client.sendall(self.says[0])
            request, answered = b"", not self.context
            while data := client.recv(65536):
                # Only here is it certain that the client has taken our certificate.
                self.handshakes += not request
                request += data
                self.heard += data
                if not answered and has_request(request):
                    client.sendall(self.says[request.startswith(PREFACE)])
                    answered = True
        except ssl.SSLError as error:
            self.refusals.append(error.reason or str(error))
        except OSError:
            pass
        shut(client)


class Crossing(Proxy):
    """One address; behind it is the control plane, or something else, or nobody. Keeps what clients send through it."""

    def __init__(self):
        # Asked for by its number it stays ours while nobody listens.
        super().__init__(0, lasting_port())
        self.sent: list[bytearray] = []
        self.listening = True
        self.listen()

    def lead(self, port: int) -> None:
        """Everybody gets there from now on; what is open is closed."""
        self.target = port
        if not self.listening:
            self.listening = True
            self.listener.listen()
            self.listen()
        self.cut()

    def refuse(self) -> None:
        """Connection refused, until it leads somewhere again."""
        if self.listening:
            self.listening = False
            self.listener.shutdown(socket.SHUT_RDWR)
        self.cut()

    def in_clear(self) -> list[bytes]:
        """What was sent that does not begin as TLS does. Must be nothing, always."""
        return [bytes(sent[:64]) for sent in self.sent if sent and sent[:2] != b"\x16\x03"]

    def forward(self, client: socket.socket, server: socket.socket) -> None:
        sent = bytearray()
        with self.lock:
            self.sent.append(sent)
        threading.Thread(target=self._pass, args=(client, server, sent), daemon=True).start()
        self._pass(server, client, bytearray())

    def _pass(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        try:
            while data := source.recv(65536):
                if len(kept) < 65536:
                    kept += data
                target.sendall(data)
        except OSError:
            pass
        shut(target)


@contextlib.contextmanager
def behind(crossing: Crossing, **policy):
    """A control plane that hosts know by the crossing alone, for recovery too."""
    url = f"https://127.0.0.1:{crossing.port}"
    with ControlPlane(init=("--advertise", url)) as plane:
        for key, value in {"liveness.interval": "1s", **policy}.items():
            plane.policy(key, value)
        plane.address, plane.url = plane.url, url
        yield plane


def home(plane: ControlPlane, crossing: Crossing) -> None:
    """The crossing leads to the true control plane."""
    crossing.lead(int(plane.address.rpartition(":")[2]))
