"""The passage of time: a control plane and its agents live through a month, or a year in `just soak`.

The clock stands ahead by 20 hours more at every step and runs at its own speed within one. A leaf of the default
profile (24 h) is due at every step and would be over at the next but one.
"""

import datetime
import math
import os
import random
import time

import certs
import clocks
import evidence
import pytest
from daemons import Daemon, free_port
from machine import AGENT, run, tool, until
from plane import ControlPlane
from rolls import prepare, prepare_root, roots, states

DAYS = int(os.environ.get("ENLIST_DAYS", "30"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
STEP = 20
PROFILES = {"default": 1, "pact": 3, "taskrun": 7}
"""One agent of each, and how many days its certificates live."""
STEPS = math.ceil(DAYS * 24 / STEP) + 2
"""A little more than the days, so that what ends with them has ended."""
LATE = DAYS * 5 // 6
ROLLS = [(DAYS // 10, "root"), (LATE, "node"), (LATE, "server")] if DAYS >= 300 else [(DAYS // 3, "root")]
"""From which day on what is rolled: the root, and both issuers with it; in a year each issuer too, one after the other.
There are 243 days between, after which the control plane's own certificate is due by itself."""
PER_NODE = 5
AGENT_KIB = 64 + 256
"""The identity and what is kept beside it, and the ring of diagnostics at its largest."""
SERVER_MIB = 64


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


class World:
    """A control plane and three agents under one clock."""

    def __init__(self):
        self.chance = random.Random(SEED)
        self.hours = 0
        self.plane = ControlPlane()
        self.agents: list[Daemon] = []

    def found(self) -> "World":
        self.set_clock(0)
        self.plane.found()
        self.address = ("--listen", f"127.0.0.1:{free_port()}")
        self.plane.start(*self.address)
        for profile in PROFILES:
            self.agents.append(Daemon(self.plane, self.plane.token(profile=profile)))
        self.set_clock(0)
        for agent in self.agents:
            agent.start()
            until(lambda agent=agent: self.is_well(agent), "it is enrolled and connected")
            agent.note_secrets()
        return self

    def set_clock(self, hours: int) -> None:
        self.hours = hours
        clock = clocks.shifted(hours)
        self.plane.env = clock
        for agent in self.agents:
            agent.environment.update(clock)

    def now(self) -> float:
        return time.time() + self.hours * 3600

    @property
    def day(self) -> float:
        return self.hours / 24

    def status(self, agent: Daemon) -> dict:
        assert agent.process.poll() is None, f"day {self.day:.1f}, seed {SEED}: ended: {agent.log()}"
        done = run(AGENT, "status", "--dir", agent.dir, "--json", env=clocks.shifted(self.hours))
        return done.json() if done.out else {}

    def is_well(self, agent: Daemon) -> bool:
        """Connected, and not late with its renewal: jitter may add a twentieth of the lifetime."""
        status = self.status(agent)
        if status.get("channel") != "up":
            return False
        life = PROFILES[list(PROFILES)[self.agents.index(agent)]] * 86400
        return moment(status["renew_at"]) + life / 20 > self.now() and moment(status["cert_not_after"]) > self.now()

    def step(self) -> None:
        """Everything ends, gently or not and in any order, and begins again 20 hours later."""
        everyone = [self.plane, *self.agents]
        self.chance.shuffle(everyone)
        for one in everyone:
            pid = one.process.pid
            if self.chance.random() < 0.25:
                one.kill()
            elif one is self.plane:
                one.stop()
            else:
                assert one.stop() == 0, one.log()
            clocks.sweep(pid)
        self.set_clock(self.hours + STEP)
        self.chance.shuffle(everyone)
        for one in everyone:
            one.start(*(self.address if one is self.plane else ()))
        for agent in self.agents:
            until(
                lambda agent=agent: self.is_well(agent),
                f"agent {self.agents.index(agent)} is connected and renewed on day {self.day:.1f} (seed {SEED})",
                120.0,
            )

    def begin_roll(self, what: str) -> None:
        """Prepared, signed by whoever keeps the root key at this time, taken up by everybody, and put to use."""
        plane = self.plane
        if what == "root":
            answer, key = prepare_root(plane)
            self.new_root = certs.fingerprint(certs.certificates(answer.read_bytes())[0])
            evidence.private_key("root", key.read_bytes())
            plane.founded["root_key_pem"] = key.read_text()
            key.unlink()
        else:
            prepare(plane, what)
        adopted = lambda: not plane.cli("ca", "roll", "status").json()["missing"]  # noqa: E731
        until(adopted, f"everybody has what is new on day {self.day:.1f}")
        plane.cli("ca", "roll", "activate")

    def retire(self) -> bool:
        """Whether nothing hangs on what was before any more; if so, it is gone now."""
        done = self.plane.cli("ca", "roll", "retire", ok=False)
        assert done.code == 0 or done.error()["code"] in ("issuer_in_use", "root_in_use"), done
        return done.code == 0

    def server_serial(self) -> str:
        """As presented on the wire, and good at this time by what openssl says."""
        shown = tool(
            "env",
            *(f"{name}={value}" for name, value in self.plane.env.items()),
            *("openssl", "s_client", "-connect", f"127.0.0.1:{self.plane.port}", "-verify_return_error"),
            *("-CAfile", self.plane.dir / "ca" / "bundle.pem", "-verify_ip", "127.0.0.1"),
        )
        assert "Verify return code: 0 (ok)" in shown.out, shown
        pem = shown.out[shown.out.index("-----BEGIN") :].encode()
        return tool("openssl", "x509", "-noout", "-serial", stdin=pem).out.strip()

    def certificates(self) -> list[int]:
        """How many are on record, by node."""
        return [len(self.plane.node(agent.node_id())["certificates"]) for agent in self.agents]

    def wait_tidy(self) -> None:
        """What is over is forgotten every few seconds, and most steps are shorter than that."""
        until(lambda: max(self.certificates()) <= PER_NODE, f"what is over is forgotten on day {self.day:.1f}")

    def figures(self) -> dict:
        directory = self.plane.dir

        def size(*patterns) -> int:
            return sum(p.stat().st_size for pattern in patterns for p in directory.glob(pattern) if p.is_file())

        return {
            "day": round(self.day, 1),
            "certificates per node": self.certificates(),
            "nodes": len(self.plane.nodes()),
            "log KiB": size("log.db*") // 1024,
            "audit KiB": size("audit.db*") // 1024,
            "snapshots KiB": size("snapshots/**/*") // 1024,
            "agents KiB": [round(agent.size() / 1024, 1) for agent in self.agents],
            "server RSS MiB": self.plane.status("VmRSS") // 1024,
        }

    def close(self) -> None:
        for agent in self.agents:
            if agent.process and agent.process.poll() is None:
                agent.stop()
                clocks.sweep(agent.process.pid)
            agent.note_secrets()
        self.plane.close()
        if self.plane.process:
            clocks.sweep(self.plane.process.pid)


@pytest.fixture
def world(programs):
    made = World()
    try:
        yield made.found()
    finally:
        made.close()


def test_a_domain_lives_through_the_year(world):
    """Nobody is stranded, nothing grows without end, and the trail is whole. D10, D13, D24, D32, D33, D34, I12.

    Every agent is connected and has renewed in time at every step; the root is rolled, and then each issuer with the key of
    the new root, and what was before is retired; the control plane's certificate is renewed by itself; no one enrolls twice.

    Proves TASK-03, TASK-18, D13.
    """
    print(f"\nseed {SEED}, {DAYS} days in {STEPS} steps of {STEP} h, rolls on days {ROLLS}")
    names = [agent.node_id() for agent in world.agents]
    rolls, rolling, retired = list(ROLLS), None, 0
    servers = {world.server_serial(): 0.0}
    quarters = {round(STEPS * part / 4) for part in (1, 2, 3, 4)}
    for number in range(1, STEPS + 1):
        world.step()
        servers.setdefault(world.server_serial(), world.day)
        if rolling and world.retire():
            print(f"what was before the {rolling} was retired on day {world.day:.1f}")
            rolling, retired = None, retired + 1
        elif not rolling and rolls and world.day >= rolls[0][0]:
            _, rolling = rolls.pop(0)
            world.begin_roll(rolling)
            print(f"rolled the {rolling} on day {world.day:.1f}")
        if number in quarters:
            world.wait_tidy()
            print(world.figures())
    assert [agent.node_id() for agent in world.agents] == names
    assert retired == len(ROLLS) and not rolls
    check_server_certificates(servers)
    check_trail(world, names)
    check_sizes(world.figures())
    check_issuers(world)
    for agent in world.agents:
        assert agent.keys_match()
        trusted = certs.certificates((agent.current / "bundle.pem").read_bytes())
        assert [certs.fingerprint(one) for one in trusted] == [world.new_root], "it trusts the new root alone"


def check_server_certificates(servers: dict) -> None:
    """A new one at each roll that brings a server issuer, and one when two thirds of its year are over."""
    print(f"control plane's certificates since day: {[round(day, 1) for day in servers.values()]}")
    by_itself = 1 if DAYS >= 300 else 0
    assert len(servers) == 1 + by_itself + sum(what != "node" for _, what in ROLLS), servers


def check_issuers(world) -> None:
    """One of each use signs; those before it are retired, and forgotten when they have ended. The first root is retired."""
    shown = lambda: world.plane.cli("ca", "show").json()["issuers"]  # noqa: E731
    until(lambda: all(moment(issuer["not_after"]) > world.now() for issuer in shown()), "what has ended is forgotten")
    print(f"issuers: {[(issuer['use'], issuer['state'], issuer['not_after']) for issuer in shown()]}")
    ended = 1 if DAYS >= 365 else 0
    for usage in ("node", "server"):
        rolled = sum(what in ("root", usage) for _, what in ROLLS)
        assert states(world.plane, usage) == ["active", *["retired"] * (rolled - ended)], shown()
    assert roots(world.plane) == ["retired", "active"]


def check_trail(world, names: list) -> None:
    """Whole, signed in every step, and everything in it in order."""
    plane = world.plane
    lines = plane.audit()
    kinds = [line["event_type"] for line in lines]
    assert kinds.count("host.enrolled") == len(names), "someone had to be enrolled again"
    times = [moment(line["at"]) for line in lines]
    assert times == sorted(times)
    signed = [at for at, kind in zip(times, kinds, strict=True) if kind == "audit.checkpoint"]
    waits = [next(point for point in signed if point >= at) - at for at in times if at <= signed[-1]]
    print(
        f"{len(lines)} lines, {kinds.count('certificate.renewed')} renewals, {len(signed)} checkpoints, "
        f"the first at most {max(waits) / 3600:.1f} h after any line"
    )
    # Each start signs what the last left unsigned; only this one's lines may have none yet.
    assert max(waits) < (STEP + 1) * 3600 and times[-1] - signed[-1] < 3600 * (STEP + 1)
    assert kinds.count("certificate.renewed") >= STEPS, "the agent of the default profile renews at every step"
    verified = plane.cli("audit", "verify").json()
    assert verified["ok"] and verified["last_seq"] >= lines[-1]["seq"], verified


def check_sizes(figures: dict) -> None:
    assert figures["nodes"] == len(PROFILES)
    assert max(figures["certificates per node"]) <= PER_NODE, figures
    assert max(figures["agents KiB"]) <= AGENT_KIB, figures
    assert figures["log KiB"] + figures["snapshots KiB"] <= SERVER_MIB * 1024, figures
    assert figures["audit KiB"] <= 512 + DAYS * 64, figures
