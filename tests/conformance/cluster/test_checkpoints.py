"""Signed checkpoints of the audit trail while leaders change, and the anchors that they are written to."""

import concurrent.futures
import json

import pytest
from cluster_load import enroll
from clusters import Cluster, Replica
from machine import until

LINES = 1000
"""The most that a leader leaves unsigned, but for what comes while it signs."""
WAIT = 120
"""Less than the five minutes after which lines are signed however few they are."""


class AnchoredReplica(Replica):
    """One with an anchor of its own."""

    @property
    def anchor(self):
        return self.base / "anchor.json"

    def launch(self, *arguments, env: dict | None = None) -> None:
        super().launch("--anchor", self.anchor, *arguments, env=env)

    def anchored(self) -> int:
        """The line that the anchor was written at."""
        return json.loads(self.anchor.read_text())["seq"]


class AnchoredCluster(Cluster):
    def replica(self) -> AnchoredReplica:
        return AnchoredReplica(self.replicas[0] if self.replicas else None)


@pytest.fixture
def cluster(programs):
    with AnchoredCluster(3) as running:
        yield running


def write(replica, count: int) -> None:
    """So many lines and a few."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda _: replica.mint(), range(count)):
            pass


def signed(replica) -> int:
    """The line up to which the newest checkpoint signs the trail."""
    return max((line["checkpoint_seq"] for line in replica.audit("audit.checkpoint")), default=0)


def unsigned(replica) -> list[str]:
    """What kinds of lines came after those that the last checkpoint is about, but for its own."""
    lines = replica.audit()
    signed = max((line["checkpoint_seq"] for line in lines if line["event_type"] == "audit.checkpoint"), default=0)
    last = max((line["seq"] for line in lines if line["event_type"] == "audit.checkpoint"), default=0)
    return [line["event_type"] for line in lines if line["seq"] > signed and line["seq"] != last]


def left_unsigned(leader):
    """A new node that no checkpoint is about. It needs none at once, as one that is revoked would."""
    node = enroll(leader)
    return node if "host.enrolled" in unsigned(leader) else None


def check(cluster, among) -> list[dict]:
    """The checkpoints: the same on each replica, each about more lines than the one before, and each is what was signed."""
    trails = cluster.until_equal(among)
    assert all(trail == trails[0] for trail in trails)
    lines = [json.loads(line) for line in trails[0]]
    found = [line for line in lines if line["event_type"] == "audit.checkpoint"]
    for earlier, later in zip(found, found[1:]):
        new = set(range(earlier["checkpoint_seq"] + 1, later["checkpoint_seq"] + 1)) - {earlier["seq"]}
        assert new, f"signed twice: {earlier} {later}"
    for replica in among:
        verified = replica.cli("audit", "verify").json()
        assert verified["ok"] and verified["checkpoint"] == found[-1]["checkpoint_seq"], verified
    return found


def test_a_new_leader_signs_what_the_one_before_left_unsigned(cluster):
    """A leader dies with lines that no checkpoint is about: too few and too young for one. The next leader signs them without waiting
    for more lines or for five minutes, writes its own anchor, and signs nothing twice; so does the one after it. Then a thousand
    lines bring a checkpoint again. Proves I8, PACT-41."""
    among = list(cluster.replicas)
    for _ in range(2):
        leader = cluster.leader(among)
        node = until(lambda leader=leader: left_unsigned(leader), "lines are there that nobody has signed", WAIT)
        before = {replica.id: replica.anchored() for replica in among}
        leader.kill()
        left = [replica for replica in among if replica is not leader]
        new = cluster.leader(left)
        (line,) = [line for line in new.audit("host.enrolled") if line["node_id"] == node.id]
        # What comes after that, such as a certificate of a replica, may wait.
        until(lambda new=new, line=line: signed(new) >= line["seq"], "the new leader signs them", WAIT)
        until(lambda new=new, line=line: new.anchored() >= line["seq"], "its anchor is written", WAIT)
        assert new.anchored() > before[new.id]
        check(cluster, left)
        leader.start()
        cluster.until_voting(3)
    new = cluster.leader()
    count = len(check(cluster, among))
    write(new, LINES + 1)
    until(lambda: len(new.audit("audit.checkpoint")) > count, "a thousand lines are signed", WAIT)
    check(cluster, among)


def test_a_revocation_that_a_leader_left_unsigned_is_signed_by_the_next(cluster):
    """Killed as soon as the revocation is acknowledged, the leader has most often not signed it yet. The anchor of the next leader is of
    after it within seconds, so that a directory from before it is noticed. Proves I8."""
    for _ in range(2):
        leader, left = cluster.roles()
        node = enroll(leader)
        left[0].revoke(node.id)
        leader.kill()
        new = cluster.leader(left)
        (line,) = [line for line in new.audit("host.revoked") if line["node_id"] == node.id]
        until(lambda new=new, line=line: new.anchored() >= line["seq"], "its anchor is of after it", WAIT)
        check(cluster, left)
        leader.start()
        cluster.until_voting(3)
