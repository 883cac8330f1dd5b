"""A week of life: hosts that renew all the time, while everything around them breaks and is mended.

A certificate lives for a minute and is renewed after a few seconds; an hour of the week is one step of a few seconds.
A day in CI, a week in `just soak`.
"""

import os
import random
import time

import pytest

from clocks import Clock, sweep
from daemons import lasting_port
from faults import CLASSES, Patient, kinds
from impostors import Crossing
from machine import until
from plane import ControlPlane

HOURS = int(os.environ.get("ENLIST_HOURS", "24"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
HOSTS = 4
LIFE = 60
SLEEP = 26
"""Hours that a sleeper stays away: longer than its certificate lives, at the least length of an hour."""
HOUR = (0.5, 1.5)
PATIENCE = 90.0
FILES, BYTES = 64, 512 * 1024


class Week:
    """A control plane behind a crossing, and hosts with clocks of their own."""

    def __init__(self):
        self.chance = random.Random(SEED)
        self.crossing = Crossing()
        self.plane = ControlPlane(init=("--advertise", self.crossing.url)).found()
        self.port = lasting_port()
        self.hosts: list[Patient] = []
        self.done: dict[str, int] = {}

    def begin(self) -> "Week":
        self.start_plane()
        self.plane.policy("failures.per_minute", "0")
        self.plane.policy("profile.default.lifetime", f"{LIFE}s")
        self.plane.policy("profile.default.renew_before", "58s")
        self.plane.policy("liveness.interval", "1s")
        self.plane.policy("liveness.grace", "2s")
        for _ in range(HOSTS):
            named = {"ENLIST_AGENT_SERVER": self.crossing.url, "ENLIST_AGENT_BALLAST_BYTES": "65536"}
            host = Patient(self.plane, self.plane.token(), clock=Clock(), **named)
            host.environment["ENLIST_AGENT_DIAGNOSTIC_BYTES"] = "65536"
            self.hosts.append(host.start())
        for host in self.hosts:
            host.wait_connected()
            host.wait_token()
        self.nodes = [host.node_id() for host in self.hosts]
        return self

    def start_plane(self) -> None:
        self.plane.start("--listen", f"127.0.0.1:{self.port}")
        self.crossing.lead(self.plane.port)

    # What can happen in an hour. Each says how it is undone.

    def agent_killed(self):
        host = self.chance.choice(self.hosts)
        host.kill()
        sweep(host.process.pid)
        return host.start

    def agent_stopped(self):
        host = self.chance.choice(self.hosts)
        assert host.stop() == 0, host.log()
        return host.start

    def plane_killed(self):
        self.plane.kill()
        return self.start_plane

    def plane_stopped(self):
        self.plane.stop()
        return self.start_plane

    def outage(self):
        self.crossing.refuse()
        return lambda: self.crossing.lead(self.plane.port)

    def hiccup(self):
        self.crossing.cut()
        return lambda: None

    def wrong_clock(self):
        host = self.chance.choice(self.hosts)
        host.clock.set(self.chance.choice(["+2h", "-2h", "+400d", "-400d"]))
        return lambda: host.clock.set("+0")

    def lost_identity(self):
        """Half of the certificate is on the disk after a loss of power."""
        host = self.chance.choice(self.hosts)
        host.kill()
        sweep(host.process.pid)
        file = host.current / "cert.pem"
        file.write_bytes(file.read_bytes()[: self.chance.randrange(0, 400)])
        return host.start

    def quiet(self):
        return lambda: None

    HAPPENINGS = (
        agent_killed,
        agent_stopped,
        plane_killed,
        plane_stopped,
        outage,
        hiccup,
        wrong_clock,
        lost_identity,
        quiet,
    )

    def hour(self, number: int) -> None:
        happens = self.chance.choice(self.HAPPENINGS)
        self.done[happens.__name__] = self.done.get(happens.__name__, 0) + 1
        undo = happens(self)
        # Time passes, which is all that this test is about; nothing is waited for by it.
        time.sleep(self.chance.uniform(*HOUR))
        undo()
        for host in self.hosts:
            self.wait_well(host, f"hour {number}, {happens.__name__}")

    def wait_well(self, host: Patient, when: str) -> None:
        def well() -> bool:
            assert host.process.poll() is None, f"{when}, seed {SEED}: ended: {host.log()}"
            status = host.status() or {}
            return status.get("channel") == "up" and not set(status["reasons"] or []) & set(CLASSES)

        try:
            until(well, f"host {self.hosts.index(host)} is well ({when}, seed {SEED})", PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{host.status()}\n{host.log()}") from None

    def put_to_sleep(self) -> tuple:
        """One host is switched off for longer than its certificate lives."""
        sleeper = self.hosts.pop(self.chance.randrange(len(self.hosts)))
        assert sleeper.stop() == 0, sleeper.log()
        return sleeper, time.monotonic() + LIFE + 5

    def wake(self, sleeper: Patient, when: str) -> None:
        self.hosts.append(sleeper.start())
        self.wait_well(sleeper, when)

    def close(self) -> None:
        for host in self.hosts:
            host.stop()
            if host.process:
                sweep(host.process.pid)
            host.note_secrets()
        self.plane.close()
        self.crossing.close()


@pytest.fixture
def week(programs):
    made = Week()
    try:
        yield made.begin()
    finally:
        made.close()


def test_hosts_live_through_the_week(week):
    """Nobody is stranded: at the end each is well, with one connection, a small directory and its first name.

    Proves GPU-04, GPU-08, GPU-09, GPU-12, GPU-13, GPU-25, GPU-33.
    """
    print(f"\nseed {SEED}, {HOURS} hours, {HOSTS} hosts")
    sleeper, wake_at = week.put_to_sleep()
    slept = 0
    for number in range(1, HOURS + 1):
        week.hour(number)
        if sleeper and time.monotonic() > wake_at:
            week.wake(sleeper, f"hour {number}")
            sleeper, slept = None, slept + 1
        if not sleeper and number + SLEEP <= HOURS:
            sleeper, wake_at = week.put_to_sleep()
    if sleeper:
        until(lambda: time.monotonic() > wake_at, "it has slept long enough", LIFE + 10)
        week.wake(sleeper, "the end")
        slept += 1
    print(f"happened: {dict(sorted(week.done.items()))}, {slept} slept for longer than a certificate lives")
    check_trail(week, slept)
    check_hosts(week)


def check_trail(week, slept: int) -> None:
    plane = week.plane
    counts = {
        kind: len(plane.audit(kind)) for kind in ("host.enrolled", "certificate.renewed", "recovery.issued")
    }
    print(f"{counts['certificate.renewed']} renewals, {counts['recovery.issued']} recoveries")
    assert counts["host.enrolled"] == HOSTS, "someone had to be enrolled again"
    assert counts["certificate.renewed"] >= HOURS, counts
    assert counts["recovery.issued"] >= max(1, slept), counts
    assert plane.cli("audit", "verify").json()["ok"]


def check_hosts(week) -> None:
    plane = week.plane
    # From here on nothing is due, so that connections of renewals come to their end.
    plane.policy("profile.default.lifetime", "24h")
    plane.policy("profile.default.renew_before", "off")
    for host in week.hosts:
        node = host.node_id()
        assert node in week.nodes
        plane.cli("node", "rotate", node)
        until(lambda node=node: plane.node(node)["rotation_ordered_at"] is None, "it has renewed once more")
        until(lambda host=host, node=node: plane.node(node)["cert_serial"] == host.serial(), "both agree on it")
        shown = plane.node(node)
        assert shown["connected"] and shown["state"] == "active" and not shown["quarantined"], shown
        assert host.keys_match()
        files = host.all_files()
        print(f"{node}: {len(files)} files, {host.size()} bytes, {host.memory_kib()} KiB")
        assert len(files) <= FILES and host.size() <= BYTES, sorted(map(str, files))
        live = [c for c in shown["certificates"] if c["status"] == "live"]
        assert len(live) <= 2, shown["certificates"]
    for host in week.hosts:
        until(lambda host=host: week_connections(week, host) == 1, "it has one connection and no more")
    metrics = plane.api("GET", "/metrics").body.decode()
    assert f"enlist_connected_nodes {HOSTS}" in metrics, metrics
    assert kinds(plane, week.nodes[0], "host.enrolled") == ["host.enrolled"]


def week_connections(week, host: Patient) -> int:
    """Established connections of one process to the crossing, as the kernel counts them."""
    sockets = set()
    for link in os.listdir(f"/proc/{host.process.pid}/fd"):
        try:
            target = os.readlink(f"/proc/{host.process.pid}/fd/{link}")
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    with open(f"/proc/{host.process.pid}/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    port, established = f"{week.crossing.port:04X}", "01"
    return sum(row[2].endswith(f":{port}") and row[3] == established and row[9] in sockets for row in rows)
