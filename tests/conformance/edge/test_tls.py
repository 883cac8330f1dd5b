"""TLS on the wire, seen by openssl, by tlslite-ng and byte by byte. D14, D34, I3, and the table "Control plane"."""

import contextlib
import datetime
import os
import re
import socket
import ssl
import subprocess

import certs
import evidence
import handshakes
import native
import pytest
from certs import load, openssl_ca, x509
from daemons import free_port
from handshakes import Certificate, CertificateVerify, ClientHello, EncryptedExtensions, Raw
from machine import PATIENCE, need, scratch, tool, until
from plane import ControlPlane
from sockets import alive

UNEXPECTED, FAILURE, BAD, REVOKED, EXPIRED, ILLEGAL = 10, 40, 42, 44, 45, 47
UNKNOWN_CA, DECODE, DECRYPT, VERSION = 48, 50, 51, 70
ROUNDS = 5
FLAT_KIB = 24 * 1024


@pytest.fixture(scope="module")
def ca():
    """A CA whose key the test has: it can sign what the control plane never would."""
    cert, key = openssl_ca(scratch("ca"), "/O=Example/CN=Imported CA")
    evidence.private_key("imported", certs.key_pem(load(key)))
    return cert, key


@pytest.fixture(scope="module")
def plane(programs, ca):
    running = ControlPlane(init=("--issuer", "imported", "--ca-cert", ca[0], "--ca-key", ca[1]))
    with running:
        running.policy("failures.per_minute", "0")
        yield running


@pytest.fixture(scope="module")
def sealed(programs):
    """One with a root, an intermediate and a leaf."""
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        yield running


@pytest.fixture(scope="module")
def node(plane):
    return native.enroll(plane)


@pytest.fixture(autouse=True)
def still_there(plane):
    """Whatever a test has done, the server is alive after it and the same process."""
    yield
    assert plane.process.poll() is None, plane.log()
    assert alive(plane)


def chain(node) -> list:
    return [certs.certificate(node.answer.certificate), *certs.certificates(node.answer.chain or "")]


def s_client(plane, *options, stdin: bytes = b"", check: bool = False):
    target = ("-connect", f"127.0.0.1:{plane.port}", "-CAfile", plane.dir / "ca" / "bundle.pem")
    return tool("openssl", "s_client", *target, *options, stdin=stdin, check=check)


# What is spoken.


@pytest.mark.parametrize("version", [(3, 0), (3, 1), (3, 2), (3, 3)])
def test_only_tls_1_3_is_spoken(plane, version):
    """SSL 3.0 and TLS 1.0 to 1.2 are refused: protocol_version or, for want of signatures, handshake_failure. D34."""
    wanted = handshakes.settings((version, version), useEncryptThenMAC=False)
    assert handshakes.verdict(plane, wanted=wanted) in ((VERSION,) if version == (3, 3) else (VERSION, FAILURE))


def test_openssl_gets_no_older_version(plane):
    """The same by another client."""
    for option in ("-tls1", "-tls1_1", "-tls1_2"):
        done = s_client(plane, option, "-cipher", "DEFAULT@SECLEVEL=0")
        assert done.code != 0 and re.search("alert (protocol version|handshake failure)", done.err), done
    assert "TLSv1.3" in s_client(plane, "-tls1_3", check=True).out


def test_versions_before_the_first_are_not_spoken(plane):
    """A ClientHello that names only unknown versions, drafts or none."""
    for versions in ((0x0303,), (0x7F1C,), (0x0305,), (0x0A0A, 0x0303)):
        found = handshakes.answer(plane, handshakes.record(handshakes.hello(versions=versions)))
        assert handshakes.plain_alert(found) == VERSION, (versions, found)
    found = handshakes.answer(plane, handshakes.record(handshakes.hello({handshakes.VERSIONS: None})))
    assert handshakes.plain_alert(found) == VERSION


def test_the_chain_is_leaf_intermediate_root(sealed):
    """A pin on any of them can be checked by whoever connects."""
    client = handshakes.Client(sealed)
    client.handshakeClientCert(settings=handshakes.settings())
    presented = [x509.load_der_x509_certificate(bytes(one.bytes)) for one in client.session.serverCertChain.x509List]
    client.sock.close()
    assert len(presented) == 3
    leaf, middle, root = presented
    leaf.verify_directly_issued_by(middle)
    middle.verify_directly_issued_by(root)
    root.verify_directly_issued_by(root)
    assert "sha256:" + certs.fingerprint(root) == sealed.pin


def group_of(plane, **offer) -> int:
    found = handshakes.answer(plane, handshakes.record(handshakes.hello(**offer)))
    chosen = handshakes.server_hello(found)[handshakes.KEY_SHARE]
    return int.from_bytes(chosen[:2], "big")


def test_the_hybrid_group_is_taken_where_it_is_offered(plane):
    """X25519MLKEM768 for all who name it first, as its users do; X25519 for those that have nothing better."""
    hybrid, plain = handshakes.X25519MLKEM768, handshakes.X25519
    assert group_of(plane, groups=(plain,)) == plain
    assert group_of(plane, groups=(hybrid,)) == hybrid
    assert group_of(plane, groups=(hybrid, plain)) == hybrid
    # The client's order counts: one that would rather not is not made to.
    assert group_of(plane, groups=(plain, hybrid)) == plain
    if openssl_version() >= (3, 5):
        assert "X25519MLKEM768" in s_client(plane, check=True).out


def openssl_version() -> tuple:
    return tuple(map(int, re.search(r"OpenSSL (\d+)\.(\d+)", tool("openssl", "version").out).groups()))


# No session outlives its connection.


def test_no_ticket_is_ever_sent(plane, node):
    """Neither after the handshake nor after a request, with a client certificate or without. D14, I3."""
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for identity in ((), ("-cert", node.files[0], "-key", node.files[1])):
        kept = scratch("sess") / "session"
        done = s_client(plane, "-msg", "-ign_eof", "-sess_out", kept, *identity, stdin=request)
        assert "HTTP/1.1 200" in done.out, done
        assert "Finished" in done.out and "NewSessionTicket" not in done.out
        assert not kept.exists() or kept.stat().st_size == 0
    assert handshakes.verdict(plane, chain(node), node.key) is None


def test_a_ticket_that_a_client_made_up_is_not_taken(plane):
    """A full handshake follows, with the server's certificate. D14."""
    made_up = [(bytearray(os.urandom(48)), bytearray(os.urandom(32)), "sha256")]
    client = handshakes.Client(plane)
    client.handshakeClientCert(settings=handshakes.settings(pskConfigs=made_up))
    client.sock.close()
    assert not client.resumed
    assert client.session.serverCertChain is not None


@contextlib.contextmanager
def process(*command, **streams):
    """Somebody else's program for as long as it is needed."""
    need(command[0])
    running = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, **streams)
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        running.stdin.close()


@contextlib.contextmanager
def another_server():
    """An openssl server that gives tickets and takes early data."""
    place = scratch("other")
    key, cert, port = place / "key.pem", place / "cert.pem", free_port()
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert)
    tool("openssl", "req", "-x509", *made, "-subj", "/CN=localhost", "-days", "2")
    command = (
        "openssl",
        "s_server",
        "-accept",
        f"127.0.0.1:{port}",
        "-tls1_3",
        "-early_data",
        "-cert",
        cert,
        "-key",
        key,
    )

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    with process(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        until(listens, "openssl listens")
        yield port


def talk_until(condition, what: str, port: int, *options) -> None:
    """An openssl client that is held open until something has come true of what it wrote."""
    out = scratch("out") / "out"
    client = ("openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options)
    with out.open("wb") as file, process(*client, stdout=file, stderr=subprocess.DEVNULL) as running:
        until(lambda: condition(out.read_text(errors="replace")), what)
        # A session that is not ended properly is forgotten by the server.
        running.stdin.close()
        running.wait(PATIENCE)


def test_a_ticket_of_another_server_and_its_early_data_are_not_taken(plane):
    """openssl offers a session that it has, and sends a request with it; both are ignored, and asked again. D14."""
    place = scratch("early")
    session, early = place / "session", place / "request"
    early.write_bytes(b"GET /healthz HTTP/1.1\r\nHost: early\r\n\r\n")
    with another_server() as port:
        talk_until(
            lambda _: session.exists() and session.stat().st_size, "there is a ticket", port, "-sess_out", session
        )
        offer = ("-sess_in", session, "-early_data", early)
        talk_until(lambda out: "Early data was accepted" in out, "the other server takes it", port, *offer)
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    done = s_client(plane, "-ign_eof", *offer, stdin=request)
    assert "Early data was rejected" in done.out and "New, TLSv1.3" in done.out, done
    assert "Reused" not in done.out
    assert done.out.count("HTTP/1.1 200") == 1, "what came early was answered"


def test_early_data_is_not_accepted(plane):
    """The extension with a ticket that was made up: no word of it in EncryptedExtensions. D14."""
    from tlslite.extensions import TLSExtension

    made_up = [(bytearray(os.urandom(48)), bytearray(os.urandom(32)), "sha256")]

    def offer(message):
        message.extensions.insert(0, TLSExtension(extType=handshakes.EARLY_DATA).create(bytearray()))
        return [message]

    client = handshakes.Client(plane, {ClientHello: offer})
    # The binder was made for a hello without the extension; nobody looks at it.
    client.handshakeClientCert(settings=handshakes.settings(pskConfigs=made_up))
    (said,) = [message for message in client.seen if isinstance(message, EncryptedExtensions)]
    client.sock.close()
    assert handshakes.EARLY_DATA not in [extension.extType for extension in said.extensions]
    assert not client.resumed


def test_a_kept_session_does_not_get_past_a_revocation(plane):
    """What was agreed before the revocation is offered after it: a full handshake, and alert 44. D14, D34, I3."""
    node = native.enroll(plane)
    node.confirm()
    context = plane.context(node.files)

    def talk(session):
        with socket.create_connection(("127.0.0.1", plane.port), 60) as raw:
            with context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as tls:
                tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert tls.recv(4096)
                assert not tls.session_reused
                return tls.session

    kept = talk(None)
    assert not kept.has_ticket
    plane.cli("node", "revoke", node.id)
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REVOKED"):
        talk(kept)
    assert handshakes.verdict(plane, chain(node), node.key) == REVOKED
    made_up = [(bytearray(os.urandom(48)), bytearray(os.urandom(32)), "sha256")]
    assert handshakes.verdict(plane, chain(node), node.key, wanted=handshakes.settings(pskConfigs=made_up)) == REVOKED


# What is no handshake.


def good() -> bytes:
    return handshakes.hello()


def malformed() -> dict[str, bytes]:
    """By name; each of them is sent and then nothing more."""
    record, hello = handshakes.record, handshakes.hello
    whole = record(good())
    body = good()[4:]
    psk = handshakes.vector(2, handshakes.vector(2, b"x" * 48) + bytes(4)) + handshakes.vector(
        2, handshakes.vector(1, bytes(32))
    )
    return {
        "nothing": b"",
        "one byte": b"\x16",
        "half a header": whole[:3],
        "a header only": whole[:5],
        "half a hello": whole[: len(whole) // 2],
        "all but one byte": whole[:-1],
        "random": os.urandom(4096),
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SSL 2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + os.urandom(37),
        "random in a record": record(os.urandom(512)),
        "a record of nothing": record(b"") * 40,
        "a record that claims more": record(good(), length=len(good()) + 100),
        "a record that claims less": record(good(), length=len(good()) - 7),
        "a record that is too large": record(bytes(0x4800), length=0x4800),
        "a record as large as can be": record(os.urandom(0xFFFF)),
        "a hello that claims more": record(b"\x01" + (len(body) + 50).to_bytes(3, "big") + body),
        "a hello that claims less": record(b"\x01" + (len(body) - 50).to_bytes(3, "big") + body),
        "a hello that claims 16 MiB": record(b"\x01\xff\xff\xff" + body) + record(bytes(0x4000)) * 2,
        "a hello in records of one byte": b"".join(record(bytes([byte])) for byte in good()[:-1]),
        "no ciphers": record(hello(ciphers=())),
        "only foreign ciphers": record(hello(ciphers=(0x002F, 0xC02B))),
        "no extensions at all": record(handshakes.message(1, body[: 2 + 32 + 33 + 8 + 2])),
        "an empty list of extensions": record(handshakes.message(1, body[: 2 + 32 + 33 + 8 + 2] + bytes(2))),
        "no groups": record(hello({handshakes.SUPPORTED_GROUPS: None})),
        "no signatures": record(hello({handshakes.SIGNATURES: None})),
        "no key share": record(hello({handshakes.KEY_SHARE: None})),
        "a key of no length": record(hello({handshakes.KEY_SHARE: b"\x00\x04\x00\x1d\x00\x00"})),
        "a key of low order": record(hello({handshakes.KEY_SHARE: b"\x00\x24\x00\x1d\x00\x20" + bytes(32)})),
        "half a hybrid key": record(
            hello(
                {handshakes.KEY_SHARE: handshakes.vector(2, handshakes.words(0x11EC) + handshakes.vector(2, b"a" * 99))}
            )
        ),
        "a hybrid key that is none": record(
            hello(
                {
                    handshakes.SUPPORTED_GROUPS: handshakes.vector(2, handshakes.words(0x11EC)),
                    handshakes.KEY_SHARE: handshakes.vector(
                        2, handshakes.words(0x11EC) + handshakes.vector(2, b"\xff" * 1216)
                    ),
                }
            )
        ),
        "extensions that overrun": record(hello({handshakes.SIGNATURES: b"\xff\xff\x04\x03"})),
        "a ticket that is not last": record(hello({handshakes.PSK: psk, 0xFACE: b""})),
        "a ticket without modes": record(hello({handshakes.PSK: psk})),
        "a ticket without a key share": record(
            hello({handshakes.KEY_SHARE: None, handshakes.PSK_MODES: b"\x01\x00", handshakes.PSK: psk})
        ),
        "two hellos": whole + whole,
        "data before a hello": record(b"x" * 100, handshakes.DATA),
        "an alert": record(b"\x02\x28", handshakes.ALERT),
        "many warnings": record(b"\x01\x5a", handshakes.ALERT) * 64,
        "a server's hello": record(handshakes.message(2, body)),
        "a finished": record(handshakes.message(20, bytes(32))),
        "a certificate": record(handshakes.message(11, bytes(4))),
        "a change of ciphers": record(b"\x01", 20) * 8,
        "garbage after a good hello": whole + handshakes.record(os.urandom(200), handshakes.DATA),
        "plain data after a good hello": whole + record(b"GET / HTTP/1.1\r\n\r\n"),
        "a good hello and no more": whole,
    }


@pytest.mark.parametrize("name", malformed())
def test_what_is_no_handshake_is_refused(plane, name):
    """With a fatal alert or without a word, and at once: nothing of it is answered. D34."""
    with socket.create_connection(("127.0.0.1", plane.port)) as silent:
        found = handshakes.answer(plane, malformed()[name])
        # Whoever came before and says nothing has not reached the end of the time limit yet.
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.recv(1)
    assert not any(kind == handshakes.DATA and b"HTTP" in body for kind, body in found)


MUST_ALERT = {
    "a record as large as can be",
    "no ciphers",
    "only foreign ciphers",
    "no extensions at all",
    "no groups",
    "no signatures",
    "no key share",
    "a key of no length",
    "a key of low order",
    "a hybrid key that is none",
    "extensions that overrun",
    "a ticket that is not last",
    "a ticket without modes",
    "data before a hello",
    "a server's hello",
    "a finished",
    "HTTP",
}


@pytest.mark.parametrize("name", sorted(MUST_ALERT))
def test_what_is_plainly_wrong_gets_an_alert(plane, name):
    """So that whoever wrote that client sees why. D34."""
    found = handshakes.answer(plane, malformed()[name])
    assert any(kind == handshakes.ALERT for kind, _ in found), found


# Client certificates.


def minted(ca, key, names=None, usage=x509.ExtendedKeyUsageOID.CLIENT_AUTH, days=(-1, 1), is_ca=False, signer=None):
    """A certificate under the domain's own issuer that the domain did not make."""
    anchor, now = certs.certificate(ca[0].read_bytes()), datetime.datetime.now(datetime.UTC)
    node = "spiffe://test.example/tenant/default/agent/01M7H285HYEP3ZXF2H6KBSY9CZ"
    san = [x509.UniformResourceIdentifier(node)] if names is None else names
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")]))
        .issuer_name(anchor.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days[0]))
        .not_valid_after(now + datetime.timedelta(days[1]))
        .add_extension(x509.BasicConstraints(is_ca, None), True)
        .add_extension(x509.ExtendedKeyUsage([usage]), False)
    )
    if san:
        builder = builder.add_extension(x509.SubjectAlternativeName(san), False)
    return builder.sign(signer or load(ca[1]), certs.SHA256)


def foreign() -> tuple:
    """Another CA of the same name."""
    return openssl_ca(scratch("foreign"), "/O=Example/CN=Imported CA")


def self_signed(key):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    now = datetime.datetime.now(datetime.UTC)
    uri = x509.UniformResourceIdentifier("spiffe://test.example/tenant/default/agent/me")
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(now - datetime.timedelta(1))
    builder = builder.not_valid_after(now + datetime.timedelta(1))
    return builder.add_extension(x509.SubjectAlternativeName([uri]), False).sign(key, certs.SHA256)


def test_a_certificate_of_a_node_is_taken(plane, node):
    """What the refusals below differ from."""
    assert handshakes.verdict(plane, chain(node), node.key) is None
    assert handshakes.verdict(plane) is None


def test_a_certificate_of_another_ca_is_unknown(plane):
    """Alert 48, also if that CA has the same name; never "revoked". D34."""
    other, key = foreign(), certs.ec_key()
    leaf = minted(other, key)
    assert handshakes.verdict(plane, [leaf], key) == UNKNOWN_CA
    assert handshakes.verdict(plane, [leaf, certs.certificate(other[0].read_bytes())], key) == UNKNOWN_CA


def test_a_self_signed_certificate_is_unknown(plane):
    """Alert 48. D34."""
    key = certs.ec_key()
    assert handshakes.verdict(plane, [self_signed(key)], key) == UNKNOWN_CA


def test_an_expired_certificate_is_told_so(plane, ca):
    """Alert 45. D34."""
    key = certs.ec_key()
    assert handshakes.verdict(plane, [minted(ca, key, days=(-3, -1))], key) == EXPIRED


def test_a_revoked_certificate_is_told_so(plane):
    """Alert 44. D14, D34, I3."""
    node = native.enroll(plane)
    plane.cli("node", "revoke", node.id)
    assert handshakes.verdict(plane, chain(node), node.key) == REVOKED


def test_a_certificate_for_something_else_is_refused(plane, ca):
    """Alert 42: for servers, for a CA, for another domain, for nobody, for tomorrow, or signed by no one. D13, D34."""
    key = certs.ec_key()
    another = [x509.UniformResourceIdentifier("spiffe://other.example/tenant/default/agent/x")]
    dns = [x509.DNSName("localhost")]
    for leaf in (
        minted(ca, key, usage=x509.ExtendedKeyUsageOID.SERVER_AUTH),
        minted(ca, key, names=dns, usage=x509.ExtendedKeyUsageOID.SERVER_AUTH),
        minted(ca, key, is_ca=True),
        minted(ca, key, names=another),
        minted(ca, key, names=dns),
        minted(ca, key, names=[]),
        minted(ca, key, days=(1, 2)),
    ):
        assert handshakes.verdict(plane, [leaf], key) in (BAD, UNKNOWN_CA), leaf
    assert handshakes.verdict(plane, [minted(ca, key, signer=certs.ec_key())], key) in (BAD, UNKNOWN_CA)


def test_the_certificates_of_the_control_plane_are_nobodys_identity(plane, sealed, ca):
    """Root, issuer and server certificate as client certificates: refused. D13, D34."""
    assert handshakes.verdict(plane, [certs.certificate(ca[0].read_bytes())], load(ca[1])) in (BAD, UNKNOWN_CA)
    root_key = certs.serialization.load_pem_private_key(sealed.founded["root_key_pem"].encode(), None)
    assert handshakes.verdict(sealed, certs.certificates(sealed.bundle), root_key) in (BAD, UNKNOWN_CA)
    presented = certs.certificates((sealed.dir / "ca" / "server.pem").read_bytes())
    for one in presented[:2]:
        assert handshakes.verdict(sealed, [one], certs.ec_key()) in (BAD, UNKNOWN_CA)


def test_an_intermediate_that_the_root_never_signed_for_us_is_unknown(sealed):
    """Only the issuers on record are anchors, not the root above them: it may have signed others. D13."""
    place = scratch("other")
    key, csr, root, out = (place / name for name in ("root.key", "c.csr", "root.pem", "int.pem"))
    signer = certs.ec_key()
    key.write_text(sealed.founded["root_key_pem"])
    key.chmod(0o600)
    root.write_bytes(sealed.bundle)
    made = place / "int.key"
    made.write_bytes(certs.key_pem(signer))
    csr.write_text(certs.csr(signer, "Elsewhere"))
    files = ("-req", "-in", csr, "-CA", root, "-CAkey", key, "-out", out, "-days", "2")
    config = place / "ext"
    config.write_text("basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n")
    tool("openssl", "x509", *files, "-extfile", config)
    key.unlink()
    leaf_key = certs.ec_key()
    leaf = minted((out, None), leaf_key, signer=signer)
    middle = certs.certificate(out.read_bytes())
    assert certs.verifies(certs.pem(leaf), certs.pem(middle) + sealed.bundle), "openssl would take it"
    assert handshakes.verdict(sealed, [leaf, middle], leaf_key) == UNKNOWN_CA


def tampered(node) -> dict[str, tuple]:
    """What to do to the client's Certificate and CertificateVerify, and with which alerts it may be refused."""
    leaf = certs.der(certs.certificate(node.answer.certificate))

    def entry(der: bytes, tail: bytes = b"\0\0") -> bytes:
        return handshakes.vector(3, der) + tail

    def certificate(entries: bytes, context: bytes = b"\0"):
        return lambda _: [Raw(handshakes.message(11, context + handshakes.vector(3, entries)))]

    def raw(data: bytes):
        return lambda _: [Raw(data)]

    def flipped(message):
        data = message.write()
        data[-1] ^= 1
        return [Raw(data)]

    def with_length(wanted: int):
        return lambda message: [
            Raw(handshakes.message(15, bytes(message.write())[4:6] + handshakes.vector(2, bytes(wanted))))
        ]

    def scheme(number: int):
        return lambda message: [Raw(bytes(message.write()[:4]) + handshakes.words(number) + bytes(message.write()[6:]))]

    def none(_):
        return []

    def twice(message):
        return [message, message]

    bad = (BAD, DECODE, UNKNOWN_CA)
    out_of_turn = (UNEXPECTED, DECODE, BAD)
    return {
        "garbage": ({Certificate: certificate(entry(os.urandom(300)))}, bad),
        "zeros": ({Certificate: certificate(entry(bytes(300)))}, bad),
        "a truncated certificate": ({Certificate: certificate(entry(leaf[:-40]))}, bad),
        "bytes after the certificate": ({Certificate: certificate(entry(leaf + b"more"))}, bad),
        "a certificate of no length": ({Certificate: certificate(entry(b""))}, bad),
        "sixty kilobytes": ({Certificate: certificate(entry(os.urandom(60000)))}, bad),
        "three hundred certificates": ({Certificate: certificate(entry(leaf) * 300)}, (*bad, handshakes.CLOSED)),
        "a list that overruns": ({Certificate: raw(handshakes.message(11, b"\0\0\xff\xff" + entry(leaf)))}, bad),
        "a message cut short": (
            {Certificate: raw(handshakes.message(11, b"\0" + handshakes.vector(3, entry(leaf))[:200]))},
            bad,
        ),
        "a context that nobody gave": (
            {Certificate: certificate(entry(leaf), handshakes.vector(1, b"ctx"))},
            bad + (UNEXPECTED,),
        ),
        "extensions that overrun": ({Certificate: certificate(entry(leaf, b"\xff\xff"))}, bad),
        "no certificate but a signature": ({Certificate: certificate(b"")}, out_of_turn),
        "a compressed certificate": ({Certificate: raw(handshakes.message(25, b"\0\1" + bytes(100)))}, out_of_turn),
        "no signature": ({CertificateVerify: none}, (*out_of_turn, DECRYPT)),
        "no certificate message": ({Certificate: none}, out_of_turn),
        "two certificate messages": ({Certificate: twice}, out_of_turn),
        "two signatures": ({CertificateVerify: twice}, out_of_turn),
        "a wrong signature": ({CertificateVerify: flipped}, (DECRYPT,)),
        "an empty signature": ({CertificateVerify: with_length(0)}, (DECRYPT, DECODE)),
        "a signature of zeros": ({CertificateVerify: with_length(70)}, (DECRYPT, DECODE)),
        "a signature of 16 KiB": ({CertificateVerify: with_length(16384)}, (DECRYPT, DECODE)),
        "a scheme of another key": ({CertificateVerify: scheme(0x0804)}, (DECRYPT, ILLEGAL)),
        "SHA-1": ({CertificateVerify: scheme(0x0203)}, (DECRYPT, ILLEGAL)),
        "a scheme that does not exist": ({CertificateVerify: scheme(0xFFFF)}, (DECRYPT, ILLEGAL)),
    }


TAMPERED = [
    "garbage",
    "zeros",
    "a truncated certificate",
    "bytes after the certificate",
    "a certificate of no length",
    "sixty kilobytes",
    "three hundred certificates",
    "a list that overruns",
    "a message cut short",
    "a context that nobody gave",
    "extensions that overrun",
    "no certificate but a signature",
    "a compressed certificate",
    "no signature",
    "no certificate message",
    "two certificate messages",
    "two signatures",
    "a wrong signature",
    "an empty signature",
    "a signature of zeros",
    "a signature of 16 KiB",
    "a scheme of another key",
    "SHA-1",
    "a scheme that does not exist",
]


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_client_is_refused(plane, node, name):
    """Garbage, too little, too much, out of turn, or signed with another key: the alert says which. D34."""
    assert set(tampered(node)) == set(TAMPERED)
    changes, allowed = tampered(node)[name]
    assert handshakes.verdict(plane, chain(node), node.key, changes) in allowed


def test_another_key_than_the_certificates_is_refused(plane, node):
    """A stolen certificate without its key is worth nothing: alert 51. D34."""
    assert handshakes.verdict(plane, chain(node), certs.ec_key()) == DECRYPT


@pytest.mark.alone
def test_memory_is_flat_whatever_comes(plane, node, ca):
    """All of the above again and again: after a first round, memory and descriptors do not grow."""

    def one_round() -> None:
        for data in malformed().values():
            handshakes.answer(plane, data)
        for changes, _ in tampered(node).values():
            handshakes.verdict(plane, chain(node), node.key, changes)

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{plane.process.pid}/fd"))

    one_round()
    memory, files = plane.status("VmRSS"), descriptors()
    for _ in range(ROUNDS):
        one_round()
    grown = plane.status("VmRSS") - memory
    print(f"{ROUNDS} rounds of {len(malformed()) + len(TAMPERED)}: {memory} KiB and {grown} KiB more")
    assert grown < FLAT_KIB
    until(lambda: descriptors() <= files + 8, "the connections are gone")
