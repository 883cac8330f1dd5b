"""Clocks of replicas that are wrong: of the leader while it leads, and of a follower that might lead next."""

import datetime
import json
import time

import certs
import clocks
import clusters
import pytest
from cluster_load import enroll
from clusters import Cluster
from jumping import JumpingCluster
from machine import until

TOLERANCE = 60
"""Seconds by which a time on record may be off."""


@pytest.fixture(scope="module")
def cluster(programs):
    with JumpingCluster(3) as running:
        yield running


def is_skewed(replica) -> bool:
    health = replica.health()
    return not health["ready"] and "clock_skew" in health["reasons"]


def seen_by(replica, other) -> str:
    return next(item["health"] for item in replica.status()["replicas"] if item["replica_id"] == other.id)


def check_times(cluster, began: float) -> None:
    """No line of the trail since then was stamped with another time than the true one; and all trails are equal."""
    trails = cluster.until_equal()
    assert trails[0] == trails[1] == trails[2]
    times = [datetime.datetime.fromisoformat(json.loads(line)["at"]).timestamp() for line in trails[0]]
    assert times == sorted(times), "time never goes back"
    assert times[-1] <= time.time() + TOLERANCE, "it is poisoned with a time to come"
    since = [at for at in times if at >= began - TOLERANCE]
    assert since, "nothing of this test is on record with a time of this test"


def is_timely(node) -> bool:
    """Its certificate begins now, not at the time of a wrong clock."""
    begins = certs.certificate(node.answer.certificate).not_valid_before_utc.timestamp()
    return abs(begins - time.time()) < 5 * 60


@pytest.mark.parametrize("offset", ["+3600", "-3600", "+400d"])
def test_a_leader_whose_clock_jumps_gives_the_lead_away(cluster, offset):
    """Nothing is stamped with its time. It is unready with `clock_skew`, the others are not; one of them leads and writes go on.
    Once its clock is right it is ready again, without a restart. Proves D33."""
    began = time.time()
    leader = cluster.leader()
    others = cluster.others(leader)
    enroll(leader)
    leader.clock.set(offset)
    try:
        # Whatever it is asked to write at this moment is refused, or is stamped with the true time by itself or by the next leader.
        answer = leader.api("POST", "/v1/tokens", {})
        assert answer.status in (201, 503), answer
        until(lambda: is_skewed(leader), "it does not believe its clock", patience=120)
        new = cluster.leader(others)
        assert is_timely(enroll(new)), "the certificate has the true time"
        assert is_timely(enroll(next(one for one in others if one is not new)))
        for other in others:
            until(lambda other=other: other.health()["ready"], "the others are ready")
        until(lambda: seen_by(new, leader) == "clock_skew", "the others see it")
        assert is_skewed(leader) and leader.status()["leader"] != leader.id
    finally:
        leader.clock.set("+0")
    cluster.until_well()
    assert is_timely(enroll(leader))
    check_times(cluster, began)


@pytest.mark.parametrize("offset", ["+3600", "-3600"])
def test_a_follower_whose_clock_is_off_never_leads(cluster, offset):
    """It is unready with `clock_skew` and judges nothing by its time. When the leader dies, the other one leads, again and again; the
    follower itself does not. Proves D33."""
    began = time.time()
    leader = cluster.leader()
    wrong, right = cluster.others(leader)
    wrong.clock.set(offset)
    try:
        until(lambda: is_skewed(wrong), "it knows that its clock is wrong", patience=120)
        until(lambda: seen_by(leader, wrong) == "clock_skew", "the leader sees it")
        assert is_timely(enroll(leader)) and is_timely(enroll(right))
        token = leader.mint()["token"]
        with clusters.door(wrong) as door:
            until(lambda: door.refused(token, certs.good_csr()).code == "clock_skew", "it is refused for the clock")
        leader.kill()
        assert cluster.leader([right, wrong]) is right, "the one whose clock is right"
        assert is_timely(enroll(right))
        assert is_skewed(wrong)
        leader.start()
        until(lambda: leader.health()["ready"], "it is back", patience=120)
    finally:
        wrong.clock.set("+0")
        if leader.process.poll() is not None:
            leader.start()
    cluster.until_well()
    assert is_timely(enroll(wrong))
    check_times(cluster, began)


def test_a_replica_that_starts_with_a_clock_that_is_ahead_is_unready(programs):
    """Started an hour ahead of the others: it serves what needs no time, says `clock_skew`, and nothing is stamped by it. Proves D33."""
    began = time.time()
    with Cluster(3) as cluster:
        wrong = cluster.followers()[0]
        wrong.stop()
        pid = wrong.process.pid
        wrong.start(env=clocks.shifted(1))
        try:
            right = [replica for replica in cluster.replicas if replica is not wrong]
            until(lambda: "clock_skew" in wrong.health()["reasons"], "it knows that its clock is wrong", patience=120)
            until(lambda: seen_by(right[0], wrong) == "clock_skew", "the others see it")
            assert is_timely(enroll(right[0])) and is_timely(enroll(cluster.leader(right)))
            for replica in right:
                until(lambda replica=replica: replica.health()["ready"], "the others are ready")
            check_times(cluster, began)
        finally:
            wrong.kill()
            clocks.sweep(pid)
            clocks.sweep(wrong.process.pid)
