"""Replicas that are cut off from the others: both ways, and so that only what they send, or only what they are sent, is lost.

Packets are dropped between network namespaces; see the harness. Clients reach every replica all the time.
"""

import concurrent.futures
import re
import threading
import time

import certs
import clusters
import native
import pytest
from cluster_load import checked, enroll, patiently
from daemons import Daemon
from machine import PATIENCE, until
from partitions import CutCluster

STALE_AFTER = 6
FELT = 2
"""A revocation is felt everywhere within so many seconds, and a stale replica stops within so many after `stale_after`."""
MOVED = 30
"""Seconds that an agent may take to move after its stream was closed: its pauses, and a slow machine."""
REFUSED = ("no_quorum", "outcome_unknown")


@pytest.fixture(scope="module")
def cluster(programs):
    with CutCluster(3) as running:
        running.replicas[0].policy("stale_after", f"{STALE_AFTER}s")
        yield running


class Writer:
    """Writes on the replica that is cut off, for as long as it is. None may succeed."""

    def __init__(self, replica, scene: str):
        self.replica, self.scene, self.over = replica, scene, threading.Event()
        self.token = replica.mint()
        self.refused: dict[str, str] = {}
        self.longest = 0.0
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.tasks: list = []

    def begin(self) -> None:
        self.tasks = [self.pool.submit(self.create), self.pool.submit(self.enroll)]

    def create(self) -> None:
        number = 0
        while not self.over.is_set():
            name, number = f"{self.scene}-{number}", number + 1
            began = time.monotonic()
            answer = self.replica.api("POST", "/v1/vclusters", {"name": name})
            self.longest = max(self.longest, time.monotonic() - began)
            assert answer.status == 503 and answer.code in REFUSED and answer.json()["error"]["retryable"], answer
            self.refused[name] = answer.code

    def enroll(self) -> None:
        with clusters.door(self.replica) as door:
            refused = door.refused(self.token["token"], certs.good_csr(), patience=30)
        assert refused.code in REFUSED and refused.status.name == "UNAVAILABLE", refused
        self.refused["enrollment"] = refused.code

    def end(self) -> None:
        self.over.set()
        for task in self.tasks:
            task.result()
        self.pool.shutdown()

    def check(self, replica) -> None:
        """What was refused as not carried out never is, also when all are together again."""
        there = {item["name"] for item in replica.items("/v1/vclusters?limit=1000")}
        lied = [name for name, code in self.refused.items() if code == "no_quorum" and name in there]
        assert not lied, lied
        if self.refused["enrollment"] == "no_quorum":
            assert replica.token_state(self.token["token_id"]) == "unused"


def accepted(replica, node) -> bool:
    """Whether this replica lets the node open a live stream, for which nothing has to be written. `stale` is the only refusal."""
    with clusters.door(replica, node.files) as door:
        stream = door.live(node.id, instance="one-start")
        kind, _ = stream.down.get(timeout=PATIENCE)
        stream.close()
    assert kind or stream.error.code in ("stale", None), stream.error
    return kind is not None


@pytest.mark.parametrize("direction", ["both", "out", "in"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_replica_that_is_cut_off_promises_nothing_and_serves_no_revoked_node_for_long(cluster, role, direction):
    """An isolated leader, the minority side, and one-way cuts. No write succeeds there, and one that was refused with `no_quorum`
    was not carried out. A node that the others revoke is not accepted by it after `stale_after`, its stream is closed, and it is
    nobody is called revoked for that reason. The others go on; after healing all trails are equal. Proves D34, PACT-12, PACT-30,
    PACT-41."""
    leader = cluster.leader()
    cut = leader if role == "leader" else cluster.others(leader)[0]
    others = cluster.others(cut)
    streaming, polling, good = (enroll(others[at % 2]) for at in range(3))
    writer = Writer(cut, f"{role}-{direction}")
    with clusters.door(cut, streaming.files) as door:
        stream = door.live(streaming.id)
        stream.next("welcome")
        until(lambda: accepted(cut, polling), "it is served as long as all is well")
        try:
            cluster.cut_off(cut, direction)
            cut_at = time.monotonic()
            writer.begin()
            for node in (streaming, polling):
                patiently(lambda node=node: revoke(others[0], node))
            acknowledged = time.monotonic()
            limit, last, polls = acknowledged + STALE_AFTER + FELT, 0.0, 0
            while polls < 5:
                began = time.monotonic()
                if accepted(cut, polling):
                    last = began
                polls += began > limit
            assert last < limit, f"accepted {last - acknowledged:.1f} s after the revocation was acknowledged"
            until(stream.ended.is_set, "its stream is closed")
            assert not accepted(cut, good)
            assert native.alert(cut, good.files) in (None, native.CLOSED), "nobody is called revoked"
            health = cut.health()
            assert health["role"] == "cut_off" and "no_quorum" in health["reasons"], health
            for other in others:
                until(lambda other=other: is_revoked(other, polling), "it is refused by the others")
            until(lambda: accepted(others[0], good), "they serve the rest")
        finally:
            writer.over.set()
            cluster.heal()
        writer.end()
    cluster.until_whole()
    until(lambda: is_revoked(cut, polling), "it knows")
    until(lambda: accepted(cut, good), "it serves again")
    enroll(cut)
    writer.check(cut)
    trails = cluster.until_equal()
    assert trails[0] == trails[1] == trails[2]
    shown = f"last accepted {last - cut_at:.1f} s after the cut" if last > cut_at else "not accepted after the cut"
    print(f"\n{role}, {direction}: refused {len(writer.refused)} writes in {writer.longest:.1f} s at most; {shown}")


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_an_agent_at_a_replica_that_is_cut_off_moves_to_another_and_is_never_called_revoked(cluster, role):
    """A real agent with its live stream at the replica that is cut off: that one ends the stream after `stale_after`, and the agent goes
    to one of the others. Nowhere is it said that its identity is revoked, and it neither recovers nor enrolls again. Proves PACT-30,
    PACT-41, D34."""
    leader = cluster.leader()
    cut = leader if role == "leader" else cluster.others(leader)[0]
    others = cluster.others(cut)
    agent = Daemon(cut, others[0].token(), ENLIST_AGENT_CHECK_INTERVAL="1s").start()
    said: set[str] = set()
    try:
        agent.wait_connected()
        node = agent.node_id()

        def connected(replicas) -> bool:
            """At one of them, by what the agent says, which asks no replica that is cut off for the others."""
            status = agent.status()
            said.update(status["reasons"], [status["state"]])
            last = re.findall(r'connected server="?(https://[^"\s]+)', agent.log())[-1]
            return status["channel"] == "up" and last in {replica.url for replica in replicas}

        until(lambda: connected([cut]), "it is connected to the replica that will be cut off")
        until(lambda: cut.node(node)["state"] == "active", "it is active")
        said.clear()
        cluster.cut_off(cut)
        began = time.monotonic()
        until(lambda: connected(others), "it has moved", patience=STALE_AFTER + MOVED)
        took = time.monotonic() - began
        until(lambda: any(other.node(node)["connected"] for other in others), "the others know")
        # It is tried to be made believe otherwise for as long again.
        again = time.monotonic() + STALE_AFTER
        until(lambda: connected(others) and time.monotonic() > again, "it stays there")
    finally:
        cluster.heal()
        agent.stop()
    cluster.until_whole()
    assert took > STALE_AFTER / 2, "it is served for as long as the replica may know everything"
    assert not said & {"identity_revoked_or_fenced", "revoked", "recovery_enrollment_blocked"}, said
    assert "identity_revoked_or_fenced" not in agent.log() and not (agent.dir / "revoked").exists()
    lines = [line["event_type"] for line in others[0].audit() if line.get("node_id") == node]
    assert lines.count("host.enrolled") == 1 and not [kind for kind in lines if kind.startswith(("recovery.", "host.revoked"))]
    print(f"\n{role}: moved {took:.1f} s after the cut")


def revoke(replica, node) -> dict:
    return checked(replica.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "test"}), 200)


def is_revoked(replica, node) -> bool:
    return "REVOKED" in (native.alert(replica, node.files) or "")


def test_two_replicas_that_do_not_hear_of_each_other_do_not_stop_the_third(cluster):
    """The link between the leader and one follower is cut; both reach the third. Writes go on through it, and what
    the follower refused or promised meanwhile is true after healing."""
    leader = cluster.leader()
    follower, third = cluster.others(leader)
    cluster.cut(leader, follower)
    try:
        for _ in range(5):
            enroll(third)
        answer = follower.api("POST", "/v1/vclusters", {"name": "between"})
        assert answer.status == 201 or answer.code in REFUSED, answer
    finally:
        cluster.heal()
    cluster.until_whole()
    trails = cluster.until_equal()
    assert trails[0] == trails[1] == trails[2]
    there = {item["name"] for item in leader.items("/v1/vclusters?limit=1000")}
    assert answer.code == "outcome_unknown" or ("between" in there) == (answer.status == 201), answer

