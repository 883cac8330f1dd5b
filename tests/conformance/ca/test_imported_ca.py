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
