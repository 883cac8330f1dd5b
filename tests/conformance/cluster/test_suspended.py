"""A replica whose machine was suspended: its clock is right and shows minutes more than have passed there.

Suspended machines are made of clocks that were behind: a replica is started with one, and then it is set right.
"""

import datetime

import pytest
from cluster_load import enroll
from jumping import JumpingCluster
from machine import until

LOST = 216
"""Seconds that a machine was suspended: more than is believed, and not too many for a start."""


@pytest.fixture
def cluster(programs):
    with JumpingCluster(3) as running:
        yield running


def is_skewed(replica) -> bool:
    return "clock_skew" in replica.health()["reasons"]


def behind(replica) -> None:
    """From now on its clock is behind, and it believes it."""
    replica.stop()
    replica.clock.set(f"-{LOST}s")
    replica.start()


def resumed(replica) -> None:
    replica.clock.set("+0")


def accepted(replica) -> list[dict]:
    return replica.audit("clock.accepted")


def seconds(line: dict) -> float:
    moments = [datetime.datetime.fromisoformat(line[name]) for name in ("from", "to")]
    return (moments[1] - moments[0]).total_seconds()


def test_a_replica_goes_on_by_itself_if_two_others_show_the_same_time(cluster):
    """It was suspended, they were not. Once its clock is right it issues again, without a person and without a restart, and the trail
    names it, those that agree, and how much time it had lost. D33."""
    leader, (suspended, other) = cluster.roles()
    behind(suspended)
    until(lambda: is_skewed(suspended), "it is far from the others", patience=120)
    before = suspended.process.pid
    resumed(suspended)
    until(lambda: suspended.health()["ready"], "it is ready by itself", patience=120)
    assert enroll(suspended).id and suspended.process.pid == before
    (line,) = accepted(suspended)
    assert line["actor"] == "system:reconciler" and line["replica_id"] == suspended.id, line
    assert sorted(line["agreeing_replicas"]) == sorted([leader.id, other.id]), line
    assert LOST - 30 < seconds(line) < LOST + 30, line
    assert "the other replicas, whose clocks did not jump" in suspended.err.read_text()
    cluster.until_equal()
    cluster.until_well()


def test_a_replica_that_was_suspended_too_is_no_witness(cluster):
    """Of three, two have lost the same time: each of them has one other that bears it out, which is not enough. Once a person has accepted
    the clock of one, the other one goes on by itself."""
    right, (first, second) = cluster.roles()
    for replica in (first, second):
        behind(replica)
    for replica in (first, second):
        resumed(replica)
    for replica in (first, second):
        until(lambda replica=replica: is_skewed(replica), "it does not believe its clock", patience=120)
    until(lambda: right.health()["ready"] and right.status()["leader"] == right.id, "the third leads", patience=120)
    alerts = lambda: [alert for alert in right.api("GET", "/v1/alerts").json()["items"] if alert["kind"] == "clock_skew"]  # noqa: E731
    until(lambda: any(f"{min(first.id, second.id)}, {max(first.id, second.id)} " in alert["detail"] for alert in alerts()), "both are named", patience=120)
    assert not accepted(right) and is_skewed(first) and is_skewed(second)

    def by_a_person() -> bool:
        done = first.cli("server", "clock", "accept", "--yes", ok=False)
        assert done.code in (0, 4), done
        return done.code == 0

    until(by_a_person, "a person accepts the clock of one", patience=120)
    until(lambda: second.health()["ready"], "the other one is ready by itself", patience=120)
    lines = accepted(right)
    assert [line["actor"].split(":")[0] for line in lines] == ["local", "system"], lines
    assert "agreeing_replicas" not in lines[0]
    assert (lines[1]["replica_id"], sorted(lines[1]["agreeing_replicas"])) == (second.id, sorted([first.id, right.id])), lines
    cluster.until_well()
    assert enroll(first).id and enroll(second).id
