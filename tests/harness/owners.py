"""Owners of certificates: a node with many of them, an operator with one, and connections that show one."""

from machine import scratch
from strangers import PREFACE, get, reach


def certified(plane, files: tuple, source: str = "127.1.2.3"):
    """A connection with this certificate on which something was asked, so that it may stay."""
    context = plane.context(files)
    context.set_alpn_protocols(["h2"])
    raw = reach(plane, source, tls=False, timeout=10)
    try:
        connection = context.wrap_socket(raw, server_hostname="127.0.0.1")
    except BaseException:
        raw.close()
        raise
    connection.sendall(PREFACE + get(1, "/healthz"))
    return connection


def many_certificates(node, count: int) -> list[tuple]:
    """A node's certificates, each the renewal of the one before; all good until `renew.drain` has passed."""
    found = [node.files]
    for _ in range(count - 1):
        node = node.renewed()
        node.confirm()
        found.append(node.files)
    return found


def an_operator(plane) -> tuple:
    """The files of an operator with a certificate."""
    place = scratch("operator") / "alice"
    plane.cli("operator", "add", "alice", "--role", "viewer", "--out", place)
    return place / "cert.pem", place / "key.pem"
