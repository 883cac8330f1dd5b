"""A thousand jumps of a running control plane's clock: forward and back, minutes to years, while hosts enroll and renew.

A hundred in CI, a thousand in `just soak`.
"""

import os
import random
import time

import certs
import native
from daemons import lasting_port
from faults import Patient
from jumping import Jumping
from machine import until

JUMPS = int(os.environ.get("ENLIST_CLOCK_JUMPS", "100"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
HOSTS = 4
TOKEN_LIFE = 10
TOLERANCE = 60
SMALL = 20
"""Seconds of a jump that is believed."""
STARTS_IN = 12
"""One jump of so many is followed by a restart."""


class Jumps:
    def __init__(self, plane: Jumping):
        self.plane, self.chance = plane, random.Random(SEED)
        self.tokens: list[tuple[float, dict]] = []
        self.enrolled = self.refused = self.restarts = 0

    def offset(self) -> tuple[str, bool]:
        """As libfaketime writes it, and whether it is believed."""
        sign = self.chance.choice("+-")
        if self.chance.random() < 0.1:
            return f"{sign}{self.chance.randrange(SMALL)}s", True
        seconds = int(10 ** self.chance.uniform(2.3, 8))
        return f"{sign}{seconds}s", False

    def jump(self) -> None:
        offset, believed = self.offset()
        self.plane.jump(offset)
        assert (self.plane.ready().status == 200) == believed, offset
        for _ in range(self.chance.randrange(3)):
            self.chance.choice((self.enroll, self.mint, self.plane.stamp))(believed)
        if self.chance.random() < 0.5:
            self.right()
        if self.chance.randrange(STARTS_IN) == 0:
            self.restart()

    def right(self) -> None:
        self.plane.clock.set("+0")
        self.plane.wait_well()
        self.mint(True)
        self.enroll(True)
        self.old_tokens_are_dead()

    def restart(self) -> None:
        """By whatever end, and with the right clock without a word; far off it refuses and changes nothing."""
        self.chance.choice((self.plane.stop, self.plane.kill))()
        if self.chance.random() < 0.3:
            self.plane.clock.set(self.chance.choice(("+400d", "-400d")))
            assert self.plane.run_to_end().code == 1
        self.plane.clock.set("+0")
        self.plane.start(*self.plane.where)
        self.restarts += 1

    def mint(self, believed: bool) -> None:
        answer = self.plane.api("POST", "/v1/tokens", {"expires": f"{TOKEN_LIFE}s"})
        assert answer.status == (201 if believed else 503), answer
        if believed:
            self.tokens.append((time.monotonic(), answer.json()))

    def enroll(self, believed: bool) -> None:
        """A token that was refused for the clock is not used up."""
        if not believed:
            fresh = self.tokens[-1][1]["token"] if self.tokens else "e" * 43
            with native.door(self.plane) as door:
                assert door.refused(fresh, certs.good_csr()).code == "clock_skew"
            self.refused += 1
            return
        native.enroll(self.plane, self.plane.token()).confirm()
        self.enrolled += 1

    def old_tokens_are_dead(self) -> None:
        """None lives for longer than its life and what the clock may be off."""
        limit = time.monotonic() - TOKEN_LIFE - TOLERANCE
        old = [minted for begun, minted in self.tokens if begun < limit]
        for minted in old[-3:]:
            with native.door(self.plane) as door:
                assert door.refused(minted["token"], certs.good_csr()).code == "token_expired"

    def all_tokens_die(self) -> None:
        for _, minted in self.tokens[-5:]:
            token = minted["token_id"]
            until(lambda token=token: self.plane.token_state(token) == "expired", "its life is over", 90)


def test_whatever_the_clock_does_nobody_is_lost(programs):
    """No node is lost, no token outlives its life, time is true to a minute, and a restart needs no help.

    Proves I13, D33.
    """
    print(f"ENLIST_SEED={SEED} ENLIST_CLOCK_JUMPS={JUMPS}")
    plane = Jumping().found()
    plane.where = ("--listen", f"127.0.0.1:{lasting_port()}")
    plane.start(*plane.where)
    for key, value in (
        ("failures.per_minute", "0"),
        ("profile.default.lifetime", "10m"),
        ("profile.default.renew_before", "595s"),
        ("liveness.interval", "1s"),
    ):
        plane.policy(key, value)
    agents = [Patient(plane, plane.token()).start() for _ in range(HOSTS)]
    try:
        for agent in agents:
            agent.wait_connected()
        nodes, serials = [agent.node_id() for agent in agents], [agent.serial() for agent in agents]
        jumps = Jumps(plane)
        for number in range(JUMPS):
            try:
                jumps.jump()
                assert abs(plane.ahead()) <= TOLERANCE + 2, "the wrong time is on record"
            except AssertionError as error:
                raise AssertionError(f"ENLIST_SEED={SEED}, jump {number}: {error}\n{plane.log()}") from None
        jumps.right()
        for agent, node, serial in zip(agents, nodes, serials, strict=True):
            agent.well(90)
            until(lambda agent=agent, serial=serial: agent.serial() != serial, "it has renewed", 90)
            assert agent.node_id() == node and plane.node(node)["state"] == "active"
        jumps.all_tokens_die()
        events = plane.audit()
        assert not [line for line in events if line["event_type"] in ("recovery.requested", "host.revoked")]
        assert len(plane.nodes()) == HOSTS + jumps.enrolled
        assert plane.cli("audit", "verify").json()["ok"]
        plane.restart(*plane.where)
        native.enroll(plane).confirm()
        renewals = sum(line["event_type"] == "certificate.renewed" for line in events)
        print(f"\n{renewals} renewals, {JUMPS} jumps, {jumps.restarts} restarts, {jumps.enrolled} enrolled, "
              f"{jumps.refused} refused for the clock")
    finally:
        for agent in agents:
            agent.stop()
            agent.note_secrets()
        plane.close()
