"""Clocks of replicas that are wrong: who is unready, who leads, and the one alert about it."""

import clocks
import pytest
from cluster_load import enroll
from clusters import Cluster
from machine import until


def open_alerts(replica) -> list[dict]:
    found = replica.api("GET", "/v1/alerts").json()["items"]
    return [alert for alert in found if alert["kind"] == "clock_skew" and alert["node_id"] is None]


def health(replica, other) -> str:
    return next(item["health"] for item in replica.status()["replicas"] if item["replica_id"] == other.id)


@pytest.mark.parametrize("hours", [1, -0.06])
def test_a_replica_whose_clock_is_off_is_unready_and_named_in_one_alert(programs, hours):
    """A follower an hour ahead, and one three and a half minutes behind, which is within what a start accepts. It is unready with
    `clock_skew` and does not lead; one alert without a node names it, also when the leader changes, and is cleared by itself once the clock is
    right. D33; PACT-12."""
    with Cluster(3) as cluster:
        wrong = cluster.followers()[0]
        right = [replica for replica in cluster.replicas if replica is not wrong]
        enroll(right[0])
        wrong.stop()
        wrong.start(env=clocks.shifted(hours))
        until(lambda: "clock_skew" in wrong.health()["reasons"], "it knows", patience=60)
        assert not wrong.health()["ready"]
        until(lambda: health(cluster.leader(right), wrong) == "clock_skew", "the others see it", patience=60)
        (alert,) = until(lambda: open_alerts(right[0]), "an alert is raised", patience=60)
        assert f"replica {wrong.id} " in alert["detail"] and alert["count"] == 1, alert

        leader = cluster.leader(right)
        leader.stop()
        other = next(replica for replica in right if replica is not leader)
        until(lambda: other.status()["leader"] == other.id, "the other one with a right clock leads", patience=120)
        leader.start()
        cluster.leader(right)
        assert enroll(other).id, "the others go on issuing"
        assert [(found["alert_id"], found["count"]) for found in open_alerts(other)] == [(alert["alert_id"], 1)]

        pid = wrong.process.pid
        wrong.stop()
        clocks.sweep(pid)
        wrong.start()
        until(lambda: wrong.health()["ready"], "it is ready again", patience=60)
        until(lambda: not open_alerts(other), "the alert is cleared", patience=60)
        raised = [line for line in other.audit("alert.raised") if line["kind"] == "clock_skew"]
        assert len(raised) == 1, raised
        assert len([line for line in other.audit("alert.cleared") if line["kind"] == "clock_skew"]) == 1
