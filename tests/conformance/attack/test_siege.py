"""Everything at once: handshakes that are made to be expensive, silence, half handshakes, quiet connections of many networks,
dripping bodies, event streams, searches of the audit trail and control frames; and others that are served all the same.

`ENLIST_FIGURES=1 pytest -s` prints what each waited, and what the control plane worked, with and without the attack.
"""

import contextlib
import os
import ssl
import statistics
import threading
import time

import evidence
import hostile
import native
import pytest
from daemons import free_port
from machine import ENLIST, run
from operators import make_key
from strangers import PREFACE, Siege, SmallPlane, frame, get, plain, post, promise_is_kept, reach, request

NETWORKS = 8
"""So many have quiet connections. The attackers' are 127.1 to 127.24; nobody else comes from there."""


@pytest.fixture
def besieged():
    """A control plane with few descriptors, and with a health listener if it can have one."""
    plane = SmallPlane().found()
    plane.health = free_port() if "--health" in run(ENLIST, "server", "run", "--help").out else None
    with contextlib.closing(plane):
        plane.start(*(("--health", f"127.0.0.1:{plane.health}") if plane.health else ()))
        plane.policy("failures.per_minute", "0")
        yield plane


class Handshakes:
    """Handshakes with 72 CAs that issue each other, one after the other, from a network of their own each."""

    def __init__(self, plane, threads: int = 2):
        ring = hostile.web()
        shaken = hostile.Shaken(plane.port, hostile.files(*hostile.leaf(ring[0].subject), ring))
        self.plane, self.context, self.over, self.done = plane, shaken.context, threading.Event(), 0
        self.threads = [threading.Thread(target=self._go, args=(i,), daemon=True) for i in range(threads)]

    def _go(self, number: int) -> None:
        while not self.over.is_set():
            with contextlib.suppress(OSError), reach(self.plane, f"127.{20 + number}.1.1", tls=False, timeout=10) as raw:
                with contextlib.suppress(ssl.SSLError), self.context.wrap_socket(raw) as tls:
                    # In TLS 1.3 the refusal is the first thing that is read.
                    tls.recv(1)
            self.done += 1
            self.over.wait(0.02)

    def __enter__(self) -> "Handshakes":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def attacks(plane, key: str) -> list:
    """All that strangers and one holder of an API key do at once."""

    def half(_):
        connection = reach(plane, "127.2.2.3", tls=False, timeout=3)
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
        return connection

    def quiet(i):
        connection = reach(plane, f"127.{3 + i % NETWORKS}.1.1", "h2", timeout=5)
        connection.sendall(PREFACE + get(1, "/healthz"))
        return connection

    def dripping(_):
        connection = reach(plane, "127.15.2.3", "h2", timeout=5)
        connection.sendall(PREFACE + b"".join(post(stream, "/v1/enroll") for stream in range(1, 17, 2)))
        return connection

    def drip(connection):
        connection.sendall(b"".join(b"\x00\x00\x01\x00\x00" + n.to_bytes(4, "big") + b" " for n in range(1, 17, 2)))

    def following(_):
        connection = reach(plane, "127.16.2.3", "h2", timeout=5)
        connection.sendall(PREFACE + b"".join(get(stream, "/v1/events", key) for stream in range(1, 17, 2)))
        return connection

    def searching(_):
        connection = reach(plane, "127.17.2.3", "h2", timeout=5)
        connection.sendall(PREFACE + b"".join(get(stream, "/v1/audit", key) for stream in range(1, 17, 2)))
        return connection

    def pinging(_):
        connection = reach(plane, "127.18.2.3", "h2", timeout=5)
        connection.sendall(PREFACE)
        return connection

    def ping(connection):
        connection.sendall(frame(6, 0, 0, b"12345678") * 1000)

    return [
        Handshakes(plane),
        Siege(300, lambda _: reach(plane, "127.1.2.3", tls=False, timeout=3), workers=2),
        Siege(300, half, workers=2),
        Siege(300, quiet, workers=3),
        Siege(160, dripping, drip, workers=2),
        Siege(40, following, workers=1),
        Siege(20, searching, workers=1),
        Siege(20, pinging, ping, workers=1),
    ]


class Served:
    """Those who must be served: a newcomer, a node on its live stream, an operator with a key, health checks."""

    def __init__(self, plane):
        self.plane, self.node = plane, native.enroll(plane)
        self.node.confirm()
        self.key = make_key(plane, "viewer")["key"]
        self.door = self.node.door()
        self.stream = self.door.live(self.node.id)
        self.stream.next("welcome")
        self.beaten = 0.0

    def enrollment(self) -> None:
        assert native.enroll(self.plane).id

    def heartbeat(self) -> None:
        """On the stream that is there, and of a node that comes back."""
        assert not self.stream.ended.is_set(), f"the live stream was cut: {self.stream.error}"
        # A node may not say more than it has to.
        if time.monotonic() - self.beaten > 2:
            self.stream.heartbeat()
            self.beaten = time.monotonic()
        with self.node.door() as door:
            again = door.live(self.node.id)
            again.next("welcome")
            again.heartbeat()
            again.close()

    def operator(self) -> None:
        answer = request(self.plane, "/v1/nodes", "127.0.0.1", {"Authorization": f"Bearer {self.key}"})
        assert answer.status == 200, answer

    def health(self) -> None:
        assert request(self.plane, "/readyz", "127.0.0.1").status == 200

    def health_listener(self) -> None:
        assert plain(self.plane.health, "/readyz").status == 200

    def all(self) -> dict:
        return {
            "enrollment": self.enrollment,
            "heartbeat": self.heartbeat,
            "API key": self.operator,
            "health over TLS": self.health,
            **({"health listener": self.health_listener} if self.plane.health else {}),
        }

    def close(self) -> None:
        self.stream.close()
        self.door.close()


def figures(plane, served: Served, what: str, window: float = 20.0) -> None:
    """Median and worst of each, and the control plane's share of a core; only for the page that shows them."""
    took: dict = {name: [] for name in served.all()}
    began, before = time.monotonic(), hostile.cpu(plane.process.pid)
    while time.monotonic() - began < window:
        for name, ask in served.all().items():
            start = time.monotonic()
            try:
                ask()
                took[name].append(time.monotonic() - start)
            except (OSError, AssertionError, native.Refused) as error:
                took[name].append(float("inf"))
                print(f"  {name}: {type(error).__name__} {str(error)[:120]}")
    busy = (hostile.cpu(plane.process.pid) - before) / (time.monotonic() - began)
    print(f"\n{what}: {busy:.2f} cores")
    for name, times in took.items():
        print(f"  {name:16} {len(times):4} median {statistics.median(times) * 1000:.0f} ms, worst {max(times) * 1000:.0f} ms")


@pytest.mark.alone
def test_everyone_is_served_while_all_attacks_run_together(besieged):
    """A valid enrollment, a heartbeat, a call with an API key and health checks from elsewhere, within 5 s each."""
    with contextlib.closing(Served(besieged)) as served, contextlib.ExitStack() as siege:
        if os.environ.get("ENLIST_FIGURES"):
            figures(besieged, served, "without attack")
        attacker = besieged.cli("operator", "key", "create", "attacker", "--role", "viewer").json()["key"]
        evidence.token(attacker)
        running = [siege.enter_context(attack) for attack in attacks(besieged, attacker)]
        if os.environ.get("ENLIST_FIGURES"):
            figures(besieged, served, "under attack")
        print(promise_is_kept(served.all()))
        assert besieged.health, "this program has no health listener"
        assert running[0].done, "no hostile handshake was made"
