"""SIGTERM is heard under any load: the program ends in its documented time while strangers keep it busy."""

import concurrent.futures
import socket
import threading
import time

import pytest

import certs
import handshakes
import hostile
from machine import PATIENCE, until
from plane import STOP_LIMIT

FLOODERS = 24


class Flood:
    """Threads that attack for as long as anybody listens."""

    def __init__(self, attack):
        self.over, self.done = threading.Event(), 0
        self.pool = concurrent.futures.ThreadPoolExecutor(FLOODERS)
        for _ in range(FLOODERS):
            self.pool.submit(self._go, attack)

    def _go(self, attack) -> None:
        while not self.over.is_set():
            try:
                attack()
            except OSError:
                # Nobody listens any more, or not fast enough.
                self.over.wait(0.01)
            self.done += 1

    def __enter__(self) -> "Flood":
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.pool.shutdown()


def web(plane):
    """72 CAs that issue each other, in every handshake."""
    ring = hostile.web()
    return hostile.Shaken(plane.port, hostile.files(*hostile.leaf(ring[0].subject), ring)).once


def plain(plane):
    """Whole handshakes with a certificate that claims a known issuer: key exchange, two signatures."""
    issuer = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())[1].subject
    return hostile.Shaken(plane.port, hostile.files(*hostile.leaf(issuer))).once


def hellos(plane):
    """The first half of a handshake, for which the server exchanges keys and signs, and then nothing."""

    def attack() -> None:
        with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as raw:
            raw.sendall(handshakes.record(handshakes.hello(groups=(handshakes.X25519MLKEM768, handshakes.X25519))))
            raw.recv(1)

    return attack


@pytest.mark.parametrize("shape", [web, plain, hellos])
def test_sigterm_ends_the_program_under_a_flood_of_handshakes(plane_of_its_own, shape):
    """From many connections at once, of every shape: heard, drained, and ended within ten seconds with status 0."""
    plane = plane_of_its_own
    attack = shape(plane)
    with Flood(attack) as flood:
        # Long enough that every thread has a handshake under way.
        until(lambda: hostile.cpu(plane.process.pid) > 3, "the server is busy")
        began = time.monotonic()
        plane.process.terminate()
        assert plane.process.wait(STOP_LIMIT * 6) == 0, plane.log()
        took = time.monotonic() - began
        assert flood.done or shape is web
    # As everywhere, five seconds more for a machine that does other things as well.
    assert took < STOP_LIMIT + 5, f"it took {took:.1f} s"
