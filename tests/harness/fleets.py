"""Machines that stay connected while something happens to all of them."""

import datetime
import queue
import secrets
import threading
import time

import native
from daemons import Daemon
from machine import until

HEARTBEAT = 10.0


class Light:
    """A live stream that does what an agent would: takes the bundle, renews when told or when it is time.

    Whatever it did not bring about itself ends up in `troubles`.
    """

    def __init__(self, plane):
        self.node = native.enroll(plane)
        self.instance = secrets.token_hex(8)
        self.troubles: list[str] = []
        self.renewals = 0
        self.door, self.live = self._connect(self.node)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _connect(self, node):
        door = node.door()
        live = door.live(node.id, instance=self.instance, bundle=node.answer.bundle_version)
        live.next("welcome")
        return door, live

    def _run(self) -> None:
        try:
            while not self.stop.is_set():
                self._turn()
        except Exception as error:  # a thread's failure is told, not raised
            self.troubles.append(repr(error))

    def _turn(self) -> None:
        try:
            kind, message = self.live.down.get(timeout=min(HEARTBEAT, max(0.1, self._left())))
        except queue.Empty:
            self.live.heartbeat()
        else:
            if kind is None:
                raise AssertionError(f"the stream ended: {self.live.error}")
            if kind == "bundle":
                self.live.evidence(bundle_version=message.bundle.version, cert_serial=self.node.serial)
            elif kind == "order":
                self._renew()
                done = native.pb.OrderDone(order_id=message.order.order_id, ok=True)
                self.live.send(order_done=done)
        if self._left() <= 0:
            self._renew()

    def _left(self) -> float:
        due = datetime.datetime.fromisoformat(self.node.answer.renew_at)
        return due.timestamp() - time.time()

    def _renew(self) -> None:
        """The next certificate is welcomed before the stream with the one before it is closed."""
        node = self.node.renewed()
        door, live = self._connect(node)
        if self.live.ended.is_set():
            raise AssertionError(f"the stream ended while a renewal went on: {self.live.error}")
        self.live.close()
        self.door.close()
        self.node, self.door, self.live = node, door, live
        self.renewals += 1

    def close(self) -> None:
        self.stop.set()
        self.live.down.put(("stop", None))
        self.thread.join()
        self.live.close()
        self.door.close()


class Newcomers:
    """Machines that come and go all the time: enrolled, confirmed, decommissioned."""

    def __init__(self, plane):
        self.plane, self.count = plane, 0
        self.troubles: list[str] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.stop.is_set():
                node = native.enroll(self.plane)
                node.confirm()
                answer = self.plane.api("POST", f"/v1/nodes/{node.id}/decommission")
                assert answer.status == 200, answer
                self.count += 1
                self.stop.wait(0.1)
        except Exception as error:
            self.troubles.append(repr(error))

    def close(self) -> None:
        self.stop.set()
        self.thread.join()


class Fleet:
    """Agents and light streams, all connected, and newcomers meanwhile."""

    def __init__(self, plane, lights: int):
        self.plane = plane
        self.agents: list[Daemon] = []
        self.lights = [Light(plane) for _ in range(lights)]
        self.newcomers = Newcomers(plane)

    def add_agents(self, count: int) -> None:
        new = [Daemon(self.plane, self.plane.token()) for _ in range(count)]
        self.agents += new
        for agent in new:
            agent.environment["ENLIST_AGENT_METRICS_TEXTFILE"] = str(agent.dir.parent / "agent.prom")
            agent.start()
        for agent in new:
            agent.wait_connected()

    def reconnects(self, agent: Daemon) -> int:
        text = (agent.dir.parent / "agent.prom").read_text()
        return int(sample(text, "enlist_agent_reconnects_total"))

    def troubles(self) -> list[str]:
        return [*self.newcomers.troubles, *(trouble for light in self.lights for trouble in light.troubles)]

    def until(self, condition, what: str):
        """Waits, and fails at once when somebody has lost something."""

        def holds():
            assert not self.troubles(), self.troubles()
            return condition()

        return until(holds, what, 120.0)

    def more_newcomers(self, count: int = 5) -> None:
        seen = self.newcomers.count
        self.until(lambda: self.newcomers.count >= seen + count, "machines go on enrolling")

    def close(self) -> None:
        self.newcomers.close()
        for light in self.lights:
            light.close()
        for agent in self.agents:
            agent.stop()
            agent.note_secrets()


def sample(text: str, name: str) -> float:
    """A metric's one sample; it must be there."""
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    (value,) = [value for series, _, value in lines if series == name]
    return float(value)


def refused(plane) -> dict[str, float]:
    """Whatever was refused to a machine so far."""
    found = {}
    for line in plane.api("GET", "/metrics").body.decode().splitlines():
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        renewal = name == "enlist_renewals_total" and 'result="ok"' not in series
        if renewal or name in ("enlist_enrollment_refusals_total", "enlist_handshakes_refused_total"):
            found[series] = float(value)
    return {series: value for series, value in found.items() if value}
