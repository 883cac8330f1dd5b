"""Those who have a credential attack together with strangers, and everybody else is served all the same.

The control plane may open 8192 files, as the shipped unit of many distributions sets it; `ENLIST_FILES` gives another number.
"""

import contextlib
import os

import evidence
import native
import pytest
from frames import PING
from operators import make_key
from owners import an_operator, certified, many_certificates
from strangers import PREFACE, Siege, SmallPlane, frame, get, promise_is_kept, reach, request

FILES = int(os.environ.get("ENLIST_FILES", "8192"))
CERTIFICATES = 24
"""At 64 connections each they would hold more than the control plane has for all."""


@pytest.fixture
def besieged():
    with SmallPlane(FILES) as plane:
        plane.policy("failures.per_minute", "0")
        yield plane


def attacks(plane, node, viewer: str) -> list:
    certificates = many_certificates(node, CERTIFICATES)

    def with_a_certificate(i):
        return certified(plane, certificates[i % len(certificates)], "127.31.1.1")

    def silent(_):
        return reach(plane, "127.0.0.77", tls=False, timeout=3)

    def timelines(_):
        connection = reach(plane, "127.32.1.1", "h2", timeout=5)
        path = f"/v1/nodes/{node.id}/timeline"
        connection.sendall(PREFACE + b"".join(get(stream, path, viewer) for stream in range(1, 17, 2)))
        return connection

    def asking_nothing(i):
        connection = reach(plane, f"127.{33 + i % 4}.1.1", "h2", timeout=5)
        connection.sendall(PREFACE)
        return connection

    def control_frames(connection):
        connection.sendall(frame(PING, 0, 0, bytes(8)) * 500)

    return [
        Siege(CERTIFICATES * 64, with_a_certificate, workers=3),
        Siege(1000, silent, workers=2),
        Siege(60, timelines, workers=1),
        Siege(8, asking_nothing, control_frames, workers=1),
    ]


class Served:
    """Those who must be served. The health check comes from the /24 that a stranger floods from."""

    def __init__(self, plane):
        self.plane, self.node = plane, native.enroll(plane)
        self.node.confirm()
        self.key = make_key(plane, "operator")["key"]
        self.alice = an_operator(plane)

    def enrollment(self) -> None:
        assert native.enroll(self.plane).id

    def heartbeat(self) -> None:
        with self.node.door() as door:
            live = door.live(self.node.id)
            live.next("welcome")
            live.heartbeat()
            live.close()

    def operator_by_key(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        assert request(self.plane, "/v1/nodes", "127.0.0.1", headers).status == 200

    def operator_by_certificate(self) -> None:
        assert request(self.plane, "/v1/audit?limit=5", "127.0.0.1", certificate=self.alice).status == 200

    def health(self) -> None:
        assert request(self.plane, "/readyz", "127.0.0.9").status == 200

    def all(self) -> dict:
        return {
            "enrollment": self.enrollment,
            "heartbeat": self.heartbeat,
            "operator by key": self.operator_by_key,
            "operator by certificate": self.operator_by_certificate,
            "health": self.health,
        }


@pytest.mark.alone
def test_everyone_is_served_while_insiders_and_strangers_attack(besieged):
    """A node with many certificates, one host of a /24, a viewer with timelines and control frames, all at once."""
    served, attacker = Served(besieged), native.enroll(besieged)
    attacker.confirm()
    viewer = make_key(besieged, "viewer")["key"]
    evidence.token(viewer)
    with contextlib.ExitStack() as siege:
        for attack in attacks(besieged, attacker, viewer):
            siege.enter_context(attack)
        print(promise_is_kept(served.all()))
