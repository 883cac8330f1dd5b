"""Agents that run for long: renewing, killed, cut off, alone. D10, D24, D32, D33, D34."""

import os
import random
import signal
import socket
import threading
import time

import evidence
import native
import pytest
from daemons import Daemon, free_port
from machine import AGENT, run, scratch, until
from plane import ControlPlane

ROUNDS = int(os.environ.get("ENLIST_ALIVE_ROUNDS", "10"))
ALONE_SECONDS = float(os.environ.get("ENLIST_ALONE_SECONDS", "30"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
AGENTS = 6


@pytest.fixture
def plane(programs):
    """On a port that it keeps when it is started again, with certificates that are renewed every few seconds."""
    plane = ControlPlane().found()
    plane.fixed = ("--listen", f"127.0.0.1:{free_port()}")
    plane.start(*plane.fixed)
    plane.policy("failures.per_minute", "0")
    plane.policy("profile.default.lifetime", "60s")
    plane.policy("profile.default.renew_before", "50s")
    yield plane
    plane.close()


@pytest.fixture
def daemons(plane):
    made: list[Daemon] = []

    def make(count: int = 1, **environment) -> list[Daemon]:
        new = [Daemon(plane, plane.token(), **environment).start() for _ in range(count)]
        made.extend(new)
        for daemon in new:
            daemon.wait_connected()
        return new

    yield make
    for daemon in made:
        daemon.stop()
        daemon.note_secrets()


def renewals(plane) -> int:
    return len(plane.audit("certificate.renewed"))


def test_an_agent_enrolls_by_itself_and_renews(plane, daemons):
    """Proves PROBE-20."""
    (daemon,) = daemons()
    first = daemon.serial()
    until(lambda: daemon.serial() != first, "it renews")
    assert daemon.keys_match()
    shown = plane.node(daemon.node_id())
    assert shown["state"] == "active" and shown["connected"]
    until(lambda: plane.node(daemon.node_id())["cert_serial"] == daemon.serial(), "the registry agrees")
    assert daemon.stop() == 0


def test_an_order_to_renew_is_obeyed_at_once(plane, daemons):
    plane.policy("profile.default.renew_before", "off")
    plane.policy("profile.default.lifetime", "1h")
    (daemon,) = daemons()
    first = daemon.serial()
    plane.cli("node", "rotate", daemon.node_id())
    until(lambda: daemon.serial() != first, "it renews")
    until(lambda: plane.node(daemon.node_id())["rotation_ordered_at"] is None, "the order is done")


def test_a_revoked_agent_stays_and_says_so(plane, daemons):
    (daemon,) = daemons()
    node = daemon.node_id()
    plane.cli("node", "revoke", node, "--reason", "stolen")
    until(lambda: daemon.status()["state"] == "revoked", "it knows")
    assert daemon.process.poll() is None
    assert native.alert(plane, daemon.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"


def test_a_revoked_agent_ends_if_it_should(plane, daemons):
    (daemon,) = daemons(ENLIST_AGENT_EXIT_ON_REVOKED="true")
    plane.cli("node", "revoke", daemon.node_id())
    assert daemon.process.wait(60) == 3, daemon.log()


def test_agents_and_server_are_killed_at_random(plane, daemons):
    """No one is stranded, whatever the moment. 100 rounds in `just soak`."""
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance = random.Random(SEED)
    agents = daemons(AGENTS)
    names = {agent.node_id() for agent in agents}
    for number in range(ROUNDS):
        time.sleep(chance.uniform(0.0, 4.0))
        victims = chance.sample(agents, chance.randrange(0, AGENTS))
        server = chance.random() < 0.5 or not victims
        order = [*victims, *([plane] if server else [])]
        chance.shuffle(order)
        for victim in order:
            victim.kill()
            time.sleep(chance.uniform(0.0, 0.3))
        chance.shuffle(order)
        for victim in order:
            victim.start(*(plane.fixed if victim is plane else ()))
        for agent in agents:
            agent.wait_connected(90.0)
            assert agent.keys_match(), f"round {number}, seed {SEED}"
    until(lambda: renewals(plane) > AGENTS, "they renew all the time")
    assert {agent.node_id() for agent in agents} == names
    assert len(plane.audit("host.enrolled")) == AGENTS, "someone had to be enrolled again"
    for agent in agents:

        def settled(agent=agent):
            shown = plane.node(agent.node_id())
            live = [c["serial"] for c in shown["certificates"] if c["status"] == "live"]
            return shown["connected"] and agent.serial() in live and len(live) <= 2

        until(settled, f"only what should be live is live (seed {SEED})", 90.0)
    assert plane.cli("audit", "verify").json()["ok"]


@pytest.mark.parametrize("kind", ["dead", "garbage"])
def test_an_agent_left_alone_is_quiet(plane, daemons, kind):
    """Flat memory, bounded log, at most one attempt per interval. An hour in `just soak`. Proves GPU-33."""
    plane.policy("profile.default.renew_before", "off")
    plane.policy("profile.default.lifetime", "24h")
    (daemon,) = daemons()
    port = plane.port
    plane.stop()
    attempts: list[float] = []
    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    listener.settimeout(0.2)

    def answer() -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            attempts.append(time.monotonic())
            with connection:
                if kind == "garbage":
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n<html>sign in</html>" * 8)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        until(lambda: len(attempts) >= 3, "it tries")
        before, log = daemon.memory_kib(), len(daemon.log())
        began = time.monotonic()
        while time.monotonic() - began < ALONE_SECONDS:
            assert daemon.process.poll() is None
            time.sleep(0.5)
        spent = time.monotonic() - began
        tries = [at for at in attempts if at >= began]
        grown = daemon.memory_kib() - before
        written = sum(os.path.getsize(path) for path in daemon.logs)
        print(f"{kind}: {len(tries)} attempts and {written} bytes of log in {spent:.0f} s, {grown} KiB more")
        # The interval doubles up to a minute, with full jitter: far fewer than one a second.
        assert len(tries) <= 10 + spent / 5
        assert written < 16_384 + spent * 40 and log < 16_384
        assert grown < 8192
    finally:
        stop.set()
        thread.join()
        listener.close()
    plane.start("--listen", f"127.0.0.1:{port}")
    until(daemon.connected, "it is back", 150.0)


def test_the_daemon_needs_something_to_begin_with(place):
    done = run(AGENT, "run", "--dir", place / "a", "--json")
    assert done.code == 2 and done.error()["hint"]


def test_two_daemons_in_one_directory_are_one_too_many(plane, daemons):
    (daemon,) = daemons()
    done = run(AGENT, "run", "--dir", daemon.dir, "--json")
    assert done.code == 1 and "another" in done.error()["message"], done


def test_a_signal_ends_it_cleanly(plane, daemons):
    for name in (signal.SIGTERM, signal.SIGINT):
        (daemon,) = daemons()
        daemon.process.send_signal(name)
        assert daemon.process.wait(60) == 0
        assert not (daemon.dir / "agent.sock").exists() or daemon.status()["channel"] == "down"


def test_systemd_is_told(plane, daemons):
    place = scratch("sd")
    notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notes.bind(str(place / "notify"))
    notes.settimeout(60)
    (daemon,) = daemons(NOTIFY_SOCKET=str(place / "notify"))
    assert b"READY=1" in notes.recv(4096)
    daemon.process.send_signal(signal.SIGTERM)
    told = b""
    while b"STOPPING=1" not in told:
        told = notes.recv(4096)
    notes.close()
    evidence.log("notify").write_bytes(told)
