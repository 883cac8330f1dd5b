"""What a scraper sees of a cluster."""

import re

import pytest
from cluster_load import enroll
from clusters import Cluster
from machine import until

NAMES = ("raft_leader", "raft_term", "raft_lag", "raft_applied", "snapshots_installed_total")


@pytest.fixture(scope="module")
def cluster(programs):
    with Cluster(3) as running:
        yield running


def metrics(replica) -> dict[str, int]:
    text = replica.api("GET", "/metrics").body.decode()
    return {name: int(value) for name, value in re.findall(r"^enlist_(\w+)(?:{})? (-?\d+)$", text, re.MULTILINE)}


def test_one_replica_leads_and_all_apply_the_same_entries(cluster):
    """Leader, term, lag and applied on three replicas agree with `cluster status`."""
    enroll(cluster.replicas[1])
    leader = cluster.leader()

    def agree() -> bool:
        seen = {replica.id: metrics(replica) for replica in cluster.replicas}
        assert all(name in found for found in seen.values() for name in NAMES), seen
        leads = [id for id, found in seen.items() if found["raft_leader"] == 1]
        applied = {found["raft_applied"] for found in seen.values()}
        lags = {found["raft_lag"] for found in seen.values()}
        return leads == [leader.id] and len(applied) == 1 and applied != {0} and lags == {0}

    until(agree, "all are level, and one leads")
    status = leader.status()
    assert {metrics(replica)["raft_term"] for replica in cluster.replicas} == {status["term"]}


def test_lag_rises_while_a_replica_does_not_apply_and_the_term_with_an_election(cluster):
    """A stopped follower knows nothing; when it goes on it hears how far the others are, and catches up. The leader's death raises the
    term, and another one says that it leads."""
    leader, (follower, _) = cluster.roles()
    term = metrics(leader)["raft_term"]
    applied = metrics(follower)["raft_applied"]
    follower.freeze()
    for _ in range(5):
        leader.token()
    follower.thaw()
    until(lambda: metrics(follower)["raft_applied"] >= applied + 5 and metrics(follower)["raft_lag"] == 0, "it has caught up")
    leader.kill()
    left = [replica for replica in cluster.replicas if replica is not leader]
    until(lambda: sum(metrics(replica)["raft_leader"] for replica in left) == 1, "another one leads", patience=120)
    assert min(metrics(replica)["raft_term"] for replica in left) > term
    leader.start()
    assert metrics(leader)["raft_leader"] == 0


def test_the_age_of_a_snapshot_appears_with_it(cluster):
    """A clean stop makes one; before it the metric is absent."""
    replica = cluster.followers()[0]
    assert "snapshot_age_seconds" not in metrics(replica) or metrics(replica)["snapshot_age_seconds"] >= 0
    enroll(replica)
    replica.restart()
    assert 0 <= metrics(replica)["snapshot_age_seconds"] < 300


def test_a_replica_without_a_majority_does_not_say_that_it_leads(programs):
    """Its followers are stopped: within seconds it does not count itself as the leader any more, which the alerting rule is about."""
    with Cluster(3) as cluster:
        leader, followers = cluster.roles()
        for follower in followers:
            follower.freeze()
        until(lambda: metrics(leader)["raft_leader"] == 0, "it knows", patience=60)
        for follower in followers:
            follower.thaw()
        until(lambda: sum(metrics(replica)["raft_leader"] for replica in cluster.replicas) == 1, "one leads", patience=120)
