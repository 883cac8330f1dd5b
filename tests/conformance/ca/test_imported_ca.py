"""A CA that the operator brings."""

import socket
import ssl

import certs
import evidence
import native
from certs import load, openssl_ca
from machine import scratch, tool
from plane import ControlPlane


def test_an_imported_ca_signs_and_its_name_is_kept_to_the_byte(place):
    """A CA made with `openssl ecparam`, with repeated DC= parts in its name, issues leaves that verify."""
    cert, key = openssl_ca(place, "/DC=org/DC=example/O=Example/CN=Imported CA")
    options = ("--issuer", "imported", "--ca-cert", cert, "--ca-key", key)
    with ControlPlane(init=options) as plane:
        assert not plane.founded.get("root_key_pem")
        node = native.enroll(plane)
        leaf = certs.certificate(node.answer.certificate)
        anchor = certs.certificate(cert.read_bytes())
        assert leaf.issuer.public_bytes() == anchor.subject.public_bytes()
        assert certs.verifies(node.answer.certificate.encode(), cert.read_bytes(), "-purpose", "sslclient")
        assert native.alert(plane, node.files) is None
        assert plane.pin == "sha256:" + certs.fingerprint(anchor)
        context = ssl.create_default_context(cafile=cert)
        with socket.create_connection(("127.0.0.1", plane.port)) as raw:
            context.wrap_socket(raw, server_hostname="127.0.0.1").close()
        own = {"certificate": (plane.dir / "ca" / "server.pem").read_text()}
        refused = plane.api("POST", "/v1/nodes/import", own)
        assert (refused.status, refused.code) == (400, "certificate_invalid"), "no node is the control plane"
        assert "server certificate" in refused.json()["error"]["message"]
        scalar = certs.key_pem(load(key))
        evidence.private_key("imported", scalar)


def test_an_imported_ca_may_be_signed_with_sha512(place):
    """The root by itself, and the issuer by the root: any algorithm that hosts accept in a TLS handshake."""
    root, root_key = place / "root.pem", place / "root.key"
    issuer, key, csr, extensions = place / "issuer.pem", place / "issuer.key", place / "issuer.csr", place / "ca.ext"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha512")
    tool("openssl", "req", "-x509", "-new", *curve, "-keyout", root_key, "-subj", "/CN=Root", "-days", "90", "-out", root)
    tool("openssl", "req", "-new", *curve, "-keyout", key, "-subj", "/CN=Issuer", "-out", csr)
    extensions.write_text("basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n")
    signer = ("-CA", root, "-CAkey", root_key, "-set_serial", "9", "-extfile", extensions)
    tool("openssl", "x509", "-req", "-sha512", "-in", csr, *signer, "-days", "60", "-out", issuer)
    issuer.write_bytes(issuer.read_bytes() + root.read_bytes())
    with ControlPlane(init=("--issuer", "imported", "--ca-cert", issuer, "--ca-key", key)) as plane:
        node = native.enroll(plane)
        assert native.alert(plane, node.files) is None
        evidence.private_key("imported", certs.key_pem(certs.serialization.load_pem_private_key(key.read_bytes(), None)))


def test_an_imported_ca_that_is_none_is_refused(place):
    """A certificate without the CA flag, or with a key that is not its own, is refused at init with a reason."""
    cert, key = openssl_ca(place, "/CN=One")
    other = scratch()
    _, foreign_key = openssl_ca(other, "/CN=Two")
    plane = ControlPlane(init=("--issuer", "imported", "--ca-cert", cert, "--ca-key", foreign_key))
    done = plane.init_command()
    assert done.code in (1, 2), done
    assert not (plane.dir / "VERSION").exists()
    leaf = place / "leaf.pem"
    tool(
        "openssl",
        "req",
        "-x509",
        "-new",
        "-key",
        key,
        "-subj",
        "/CN=leaf",
        "-days",
        "9",
        "-out",
        leaf,
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    )
    plane = ControlPlane(init=("--issuer", "imported", "--ca-cert", leaf, "--ca-key", key))
    done = plane.init_command()
    assert done.code in (1, 2), done
    assert not (plane.dir / "VERSION").exists()


def test_an_imported_ca_that_hosts_would_refuse_is_refused(place):
    """A critical extension that nobody knows: every chain below it would be refused."""
    _, key = openssl_ca(place, "/CN=One")
    odd = place / "odd.pem"
    more = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign", "1.3.6.1.4.1.99999=critical,ASN1:NULL")
    said = [word for one in more for word in ("-addext", one)]
    tool("openssl", "req", "-x509", "-new", "-key", key, "-subj", "/CN=odd", "-days", "9", "-out", odd, *said)
    plane = ControlPlane(init=("--issuer", "imported", "--ca-cert", odd, "--ca-key", key))
    done = plane.init_command()
    assert done.code in (1, 2) and "1.3.6.1.4.1.99999" in done.err, done
    assert not (plane.dir / "VERSION").exists()
