"""What an operator sees of a removal: at the replica that is removed, at the others, in the log and in the audit trail."""

import subprocess
import time

import clusters
import pytest
from cluster_load import enroll
from clusters import Cluster
from machine import ENLIST, until


def typed(replica, *arguments) -> str:
    """What a command prints for people, with spaces for line ends."""
    done = subprocess.run([ENLIST, "--dir", replica.dir, *arguments], capture_output=True, text=True, check=True, timeout=120)
    return " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def removed(programs):
    """The leader of three, removed by a command that it was asked itself, while a node was connected to it."""
    with Cluster(3) as cluster:
        leader, others = cluster.roles()
        node = enroll(others[0])
        with clusters.door(leader, node.files) as door:
            stream = door.live(node.id)
            stream.next("welcome")
            began, term = time.monotonic(), leader.status()["term"]
            said = typed(leader, "cluster", "remove", leader.id, "--yes")
            took = time.monotonic() - began
            until(lambda: stream.ended.is_set(), "the stream of its node is closed", patience=20)
        yield {"gone": leader, "others": others, "node": node, "said": said, "took": took, "term": term}


def test_the_removed_replica_says_to_ask_another_one(removed):
    """It is told nothing any more, so it shows no table, and names a replica that can be asked."""
    said = removed["said"]
    assert "is removed" in said and "Ask another replica" in said and "HEALTH" not in said, said
    assert any(f"--server {other.url} cluster status" in said for other in removed["others"]), said


def test_a_leader_that_is_removed_hands_the_lead_over(removed):
    """One of the others was asked to stand: one election, not one after a silence."""
    leader = clusters.Cluster.leader(None, removed["others"])
    assert leader.status()["term"] >= removed["term"] + 1
    until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 2, "two vote", patience=60)
    # Its whole log: the other lines came before.
    assert "another one leads now" in removed["gone"].err.read_text()


def test_a_removed_replica_serves_no_node_and_stands_for_no_election(removed):
    gone = removed["gone"]
    until(lambda: "replica_removed" in gone.health()["reasons"], "it knows", patience=60)
    with clusters.door(gone, removed["node"].files) as door:
        stream = door.live(removed["node"].id)
        until(lambda: stream.ended.is_set(), "it is refused")
    assert stream.error.code in ("stale", None), stream.error

    def later(seconds: int) -> dict:
        """Its status when it has been without the others for so much longer."""
        until_age = gone.status()["state_age_ms"] + seconds * 1000
        return until(lambda: (status := gone.status())["state_age_ms"] >= until_age and status, f"{seconds} s without the others")

    # What was under way when it learned of it has ended by then, and election time-outs pass four times.
    before = later(3)["term"]
    assert later(8)["term"] == before, "an election that nobody answers"


def test_the_trail_and_the_log_name_the_replica(removed):
    other, gone = removed["others"][0], removed["gone"]
    assert f"replica_id={gone.id}" in typed(other, "audit", "list", "--event", "cluster.removed")
    joined = typed(other, "audit", "list", "--event", "cluster.joined")
    assert "replica_id=2" in joined and "peer=127.0.0.1" in joined, joined


def test_the_log_says_that_another_replica_is_gone_and_that_it_is_back(programs):
    with Cluster(3) as cluster:
        leader, (follower, killed) = cluster.roles()
        killed.kill()
        for replica in (leader, follower):
            until(lambda replica=replica: "has not been heard of" in replica.err.read_text(), "it says so", patience=60)
        reachable = f'enlist_raft_peer_reachable{{replica="{killed.id}"}} 0'
        assert reachable in leader.api("GET", "/metrics").body.decode()
        assert "enlist_raft_voters 3" in leader.api("GET", "/metrics").body.decode()
        killed.start()
        for replica in (leader, follower):
            until(lambda replica=replica: "another replica is reached" in replica.err.read_text(), "it says so", patience=60)


def test_the_only_replica_is_not_removed(programs):
    with Cluster(1) as cluster:
        refused = cluster.replicas[0].cli("cluster", "remove", "1", "--yes", ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "would_lose_majority"), refused
        assert "is the only one" in refused.error()["message"], refused


def test_what_is_read_without_a_majority_is_marked(programs):
    """On standard error, once, so that what reads standard output is not disturbed."""
    with Cluster(3) as cluster:
        left, *dead = cluster.replicas
        for replica in dead:
            replica.kill()
        until(lambda: "no_quorum" in left.health()["reasons"], "it knows", patience=60)
        done = subprocess.run([ENLIST, "--dir", left.dir, "token", "list"], capture_output=True, text=True, check=True, timeout=120)
        assert done.stderr.count("notice: ") == 1 and "may be out of date" in done.stderr, done
        assert left.cli("token", "list").err == ""
