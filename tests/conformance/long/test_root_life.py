"""A root's life: a control plane and one agent grow old together, past the end of the root that they began with.

The clock stands 60 days further at every step. A certificate of the agent lives for 90 days and is due at every step;
issuers live for a year and are rolled every 300 days, with the root key of the day; the root is rolled half way.
16 months in CI, more than ten years in `just soak`.
"""

import datetime
import math
import os
import time

import certs
import evidence
import pytest
from aging import Aging
from daemons import Daemon
from machine import tool, until
from rolls import prepare, prepare_root, roots, states, status

YEARS = int(os.environ.get("ENLIST_ROOT_YEARS", "1"))
STEP = 60
STEPS = math.ceil(YEARS * 366 / STEP) + 1
ROOT_STEP = STEPS // 2
ISSUER_STEPS = 5
TEN_YEARS = 3652 * 86400
PER_NODE = 5


class Life(Aging):
    """Both of them, and the root's keeper."""

    def __init__(self):
        self.hours = 0
        super().__init__(self.enrolling)
        self.first = certs.certificate(self.plane.bundle)
        self.root = self.first
        self.name = self.agent.node_id()

    @staticmethod
    def enrolling(plane) -> Daemon:
        for key, value in (
            ("profile.default.lifetime", "90d"),
            ("profile.default.renew_at", "60%"),
            ("recovery.ttl", "90d"),
            ("renew.drain", "2s"),
        ):
            plane.policy(key, value)
        return Daemon(plane, plane.token())

    @property
    def now(self) -> float:
        return time.time() + self.hours * 3600

    @property
    def day(self) -> int:
        return self.hours // 24

    def pass_by(self, hours: int) -> None:
        """Both end and begin again so much later."""
        self.rest()
        self.hours += hours
        self.at(self.hours)
        self.work()

    def step(self) -> None:
        """60 days, after which the agent renews."""
        before = self.leaf().serial_number
        self.pass_by(STEP * 24)
        until(lambda: self.leaf().serial_number != before, f"it has renewed on day {self.day}")
        until(self.connected, f"it is connected on day {self.day}")

    def roll(self, what: str) -> None:
        """Prepared, signed, stored by the agent, put to use; the agent renews, and what was before is retired."""
        plane = self.plane
        if what == "root":
            answer, key = prepare_root(plane)
            evidence.private_key("root", key.read_bytes())
            self.root = certs.certificates(answer.read_bytes())[0]
            plane.founded["root_key_pem"] = key.read_text()
        else:
            prepare(plane, what)
        until(lambda: not status(plane)["missing"], f"the agent has what is new on day {self.day}")
        plane.cli("ca", "roll", "activate")
        before = self.leaf().serial_number
        plane.cli("node", "rotate", self.name)
        until(lambda: self.leaf().serial_number != before, f"it has renewed as ordered on day {self.day}")
        until(self.retired, f"what was before the {what} is retired on day {self.day}")
        until(self.connected, f"it is connected after the roll on day {self.day}")

    def retired(self) -> bool:
        done = self.plane.cli("ca", "roll", "retire", ok=False)
        assert done.code == 0 or done.error()["code"] in ("issuer_in_use", "root_in_use"), done
        return done.code == 0

    def trusted(self) -> list:
        return certs.certificates((self.agent.current / "bundle.pem").read_bytes())

    def is_verified(self) -> bool:
        """Whether openssl, at this time, takes the listener for the control plane by the active root alone."""
        file = self.agent.dir.parent / "root.pem"
        file.write_bytes(certs.pem(self.root))
        where = ("-connect", f"127.0.0.1:{self.plane.port}", "-CAfile", file, "-verify_return_error", "-verify_ip", "127.0.0.1")
        shown = tool("openssl", "s_client", *where, "-attime", int(self.now), check=False)
        return "Verify return code: 0 (ok)" in shown.out


@pytest.fixture
def life(programs):
    made = Life()
    try:
        yield made
    finally:
        made.close()


def test_a_domain_outlives_its_root(life):
    """Both issuers are rolled nearly every year and the root once in its life, and at the end everything is below the second.

    The first root is of P-256 and lives ten years; nobody enrolls twice, nothing grows without end, and the trail is verified
    by the second root from its first line on.

    Proves TASK-02, TASK-18, D13.
    """
    print(f"\n{YEARS} years: {STEPS} steps of {STEP} days, the root is rolled on day {ROOT_STEP * STEP}")
    check_first_root(life.first)
    rolled = {"node": 0, "server": 0, "root": 0}
    for number in range(1, STEPS + 1):
        life.step()
        due = ["root"] if number == ROOT_STEP else ["node", "server"] if number % ISSUER_STEPS == 0 else []
        for what in due:
            life.roll(what)
            rolled[what] += 1
        assert life.is_verified(), f"day {life.day}"
    assert rolled["root"] == 1 and rolled["node"] == rolled["server"] >= 1, rolled
    # Nothing is forgotten in the first day after a leap of the clock; on the next it is.
    life.pass_by(20)
    check_trust(life)
    check_trail(life, rolled)


def check_first_root(root) -> None:
    assert isinstance(root.public_key().curve, certs.ec.SECP256R1)
    assert TEN_YEARS <= certs.seconds(root) <= TEN_YEARS + 2 * 86400


def check_trust(life) -> None:
    """The second root is what is trusted, on the host too; of each use one issuer signs, and it is below that root."""
    plane = life.plane
    ends = life.first.not_valid_after_utc.timestamp()
    assert YEARS < 10 or ends < life.now, "the life of the first root is over"
    assert roots(plane)[-1] == "active" and set(roots(plane)[:-1]) <= {"retired"}
    assert [certs.fingerprint(one) for one in life.trusted()] == [certs.fingerprint(life.root)]
    assert plane.bundle == certs.pem(life.root)
    until(lambda: all(moment(one["not_after"]) > life.now for one in shown(plane)), "issuers that have ended are forgotten")
    print(f"issuers: {[(one['use'], one['state'], one['not_after']) for one in shown(plane)]}")
    for usage in ("node", "server"):
        assert states(plane, usage).count("active") == 1 and set(states(plane, usage)) <= {"active", "retired"}
    issuers = plane.cli("ca", "export").json()["pem"].encode()
    assert certs.verifies(certs.pem(life.leaf()), certs.pem(life.root) + issuers, "-attime", str(int(life.now)))
    for issuer in certs.certificates(issuers):
        assert certs.fingerprint(issuer) == certs.fingerprint(life.root) or issuer.verify_directly_issued_by(life.root) is None


def shown(plane) -> list[dict]:
    return plane.cli("ca", "show").json()["issuers"]


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def check_trail(life, rolled: dict) -> None:
    plane = life.plane
    assert life.agent.node_id() == life.name
    kinds = [line["event_type"] for line in plane.audit()]
    renewals = kinds.count("certificate.renewed")
    print(f"{len(kinds)} lines, {renewals} renewals, rolls {rolled}")
    assert kinds.count("host.enrolled") == 1, "it had to be enrolled again"
    assert renewals >= STEPS + sum(rolled.values())
    assert kinds.count("ca.root_retired") == 1
    until(lambda: len(plane.node(life.name)["certificates"]) <= PER_NODE, "what is over is forgotten")
    verified = plane.cli("audit", "verify").json()
    assert verified["ok"] and verified["last_seq"] >= len(kinds), verified
