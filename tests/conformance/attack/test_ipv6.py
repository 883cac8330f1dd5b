"""A host that floods over IPv6: its site has a /48, other hosts of the site have a /64 each, and all of them are served.

The test and the control plane run in a network namespace where every address of a documentation prefix is a local one.
"""

import contextlib
import ctypes
import http.client
import socket
import threading

import native
import pytest
from machine import PATIENCE, missing, need, tool, until
from owners import an_operator
from plane import ask
from strangers import PREFACE, Siege, SmallPlane, get

CLONE_NEWNET = 0x40000000
HERE = "::1"
FILES = 1024


@pytest.fixture
def alone():
    """Runs a function in a thread in a namespace of its own; the threads and programs that it starts are there too."""
    need("ip")
    if tool("unshare", "--net", "true", check=False).code != 0:
        missing("the right to unshare the network namespace")

    def run(work) -> None:
        failures = []

        def inside() -> None:
            try:
                if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "unshare")
                tool("ip", "link", "set", "lo", "up")
                tool("ip", "-6", "route", "add", "local", "2001:db8::/32", "dev", "lo")
                tool("sysctl", "-q", "-w", "net.ipv6.ip_nonlocal_bind=1")
                work()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    return run


def connect(plane, source: str, timeout: float = PATIENCE) -> socket.socket:
    return socket.create_connection((HERE, plane.port), timeout, source_address=(source, 0))


def half(plane, source: str) -> socket.socket:
    """Half of a ClientHello."""
    raw = connect(plane, source, 3)
    raw.sendall(b"\x16\x03\x01\x02\x00\x01")
    return raw


def quiet(plane, source: str) -> socket.socket:
    """A whole handshake, and nothing more."""
    raw = connect(plane, source, 10)
    try:
        return plane.context().wrap_socket(raw, server_hostname="127.0.0.1")
    except BaseException:
        raw.close()
        raise


def is_well(plane, source: str) -> None:
    connection = http.client.HTTPSConnection(
        HERE, plane.port, timeout=PATIENCE, context=plane.context(), source_address=(source, 0)
    )
    connection._context.check_hostname = False
    assert ask(connection, "GET", "/healthz", None, None).status == 200


def is_heard(plane, files, source: str) -> None:
    """A connection with this certificate is answered."""
    context = plane.context(files)
    context.set_alpn_protocols(["h2"])
    with contextlib.closing(context.wrap_socket(connect(plane, source), server_hostname="127.0.0.1")) as connection:
        connection.sendall(PREFACE + get(1, "/healthz"))
        assert connection.recv(65536)


def gave_way(plane) -> None:
    """The flood had so much that some of it was closed for others."""
    until(
        lambda: any(
            line.startswith("enlist_displaced_total") and not line.endswith(" 0")
            for line in plane.api("GET", "/metrics").body.decode().splitlines()
        ),
        "a connection of the flood was closed",
    )


@pytest.mark.parametrize("shape", [half, quiet])
def test_a_flood_of_one_host_leaves_its_site_in(programs, alone, shape):
    """Forty other /64 of the /48 that a host floods from, a node of the site and an operator of it with certificates."""

    def work() -> None:
        with SmallPlane(FILES) as plane:
            plane.policy("failures.per_minute", "0")
            node = native.enroll(plane)
            node.confirm()
            alice = an_operator(plane)
            plane.stop()
            plane.start("--listen", "[::]:0")
            with Siege(FILES, lambda i: shape(plane, f"2001:db8:1:1::{i % 60000 + 1:x}")):
                for other in range(2, 42):
                    is_well(plane, f"2001:db8:1:{other:x}::1")
                is_heard(plane, node.files, "2001:db8:1:100::1")
                is_heard(plane, alice, "2001:db8:1:101::1")
                gave_way(plane)

    alone(work)


def test_a_flood_of_a_whole_site_leaves_other_sites_in(programs, alone):
    """A /48 that floods from all of its networks is one network beside others."""

    def work() -> None:
        with SmallPlane(FILES) as plane:
            plane.policy("failures.per_minute", "0")
            node = native.enroll(plane)
            node.confirm()
            plane.stop()
            plane.start("--listen", "[::]:0")
            with Siege(FILES, lambda i: half(plane, f"2001:db8:1:{i % 60000:x}::1")):
                for other in range(2, 22):
                    is_well(plane, f"2001:db8:{other:x}::1")
                is_heard(plane, node.files, "2001:db8:100::1")
                gave_way(plane)

    alone(work)
