"""What is known of nodes, at every replica: who is connected, what hosts report, orders, copied identities, and silence."""

import threading
import time

import native
import pytest
import streams
from cluster_load import enroll
from clusters import Cluster
from machine import until
from relay import Blackhole

PATIENCE = 120
COPY_PATIENCE = 240
"""Two streams with one certificate are taken for two hosts after a minute."""


@pytest.fixture(scope="module")
def cluster(programs):
    with Cluster(3) as cluster:
        yield cluster


def member(replica) -> native.Node:
    """A node that is active."""
    node = enroll(replica)
    node.confirm()
    return node


class Connected:
    """A native client's live stream to one replica; it sends a heartbeat twice a second until it is closed."""

    def __init__(self, replica, node: native.Node, port: int | None = None, **hello):
        self.door = native.Door(port or replica.port, replica.bundle, node.files)
        self.live = self.door.live(node.id, **hello)
        self.welcome = self.live.next("welcome")
        self.closing = threading.Event()
        self.beating = threading.Thread(target=self._beat, daemon=True)
        self.beating.start()

    def _beat(self) -> None:
        while not self.closing.wait(0.5):
            self.live.send(heartbeat=native.pb.Heartbeat(interval_ms=self.welcome.heartbeat_ms))

    def close(self) -> None:
        self.closing.set()
        self.beating.join()
        self.live.close()
        self.door.close()

    def __enter__(self) -> "Connected":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def on_all(cluster, holds, what: str) -> None:
    for replica in cluster.replicas:
        until(lambda: holds(replica), f"replica {replica.id}: {what}", PATIENCE)


def listed(replica, node: native.Node) -> dict:
    return next(item for item in replica.nodes() if item["node_id"] == node.id)


def copies(replica, node: native.Node) -> list[dict]:
    """The lines of the audit trail that say that its identity looks copied."""
    raised = replica.audit("alert.raised")
    return [line for line in raised if line["kind"] == "clone_suspected" and line["node_id"] == node.id]


def test_who_is_connected_and_what_a_host_reports_is_the_same_at_every_replica(cluster):
    """Issue: presence and last-seen are right wherever a node is connected. The second report differs from the first in nothing that
    is written into the registry: each replica has it from the one that the node is connected to."""
    _, holder, *_ = cluster.replicas
    node = member(cluster.replicas[0])
    with Connected(holder, node) as stream:
        on_all(cluster, lambda replica: replica.node(node.id)["connected"], "it is connected")
        on_all(cluster, lambda replica: listed(replica, node)["connected"], "it is connected in the list")
        stream.live.evidence(disk_free_bytes=111)
        on_all(cluster, lambda replica: free(replica, node) == 111, "the first report")
        stream.live.evidence(disk_free_bytes=222)
        on_all(cluster, lambda replica: free(replica, node) == 222, "the second report")
        written = {replica.id: replica.node(node.id)["last_seen"] for replica in cluster.replicas}
        on_all(
            cluster,
            lambda replica: replica.node(node.id)["last_seen"] > max(written.values()),
            "it was seen again, long before that is written down",
        )
        for replica in cluster.replicas:
            answer = replica.api("POST", "/v1/tokens", {"node": node.id})
            assert (answer.status, answer.code) == (409, "node_connected"), answer
    on_all(cluster, lambda replica: not replica.node(node.id)["connected"], "it is gone")


def free(replica, node: native.Node) -> int | None:
    evidence = replica.node(node.id)["evidence"]
    return evidence and evidence["disk_free_bytes"]


def test_what_is_ordered_at_one_replica_reaches_a_node_at_another_once(cluster):
    """Orders and standing follow from the registry, so it does not matter where they were given. A node that moves with an order
    pending gets the same order, by which an agent knows it; events tell of the node as it is."""
    first, second, third = cluster.replicas
    node = member(first)
    with Connected(second, node) as stream, streams.Events(third) as events:
        first.change("POST", f"/v1/nodes/{node.id}/rotate", {}, 200)
        order = stream.live.next("order")
        third.change("POST", f"/v1/nodes/{node.id}/drain", {}, 200)
        assert stream.live.next("standing").draining
        told = events.wait("node", "it drains", lambda item: item["node_id"] == node.id and item["draining"])
        assert told["connected"], told
        first.change("POST", f"/v1/nodes/{node.id}/quarantine", {}, 200)
        kinds = []
        while (found := stream.live.down.get(timeout=PATIENCE)) and not (
            found[0] == "standing" and found[1].standing.quarantined
        ):
            kinds.append(found[0])
        assert "order" not in kinds, "given again on the same stream"
    with Connected(third, node) as moved:
        assert moved.live.next("order").order_id == order.order_id
        second.change("POST", f"/v1/nodes/{node.id}/release", {}, 200)
        until(lambda: not moved.live.next("standing").quarantined, "it is released", PATIENCE)


def test_an_earlier_start_of_an_agent_is_known_at_every_replica(cluster):
    """A start that was followed by another comes back: a copy, wherever it connects. One start that goes round is none."""
    first, second, third = cluster.replicas
    copied, moving = member(first), member(first)
    for replica in (*cluster.replicas, *cluster.replicas):
        with Connected(replica, moving, instance="only"):
            pass
    with Connected(first, copied, instance="first", version="1"):
        on_all(cluster, lambda replica: replica.node(copied.id)["agent_version"] == "1", "the first start is known")
    with Connected(second, copied, instance="second", version="2"):
        on_all(cluster, lambda replica: replica.node(copied.id)["agent_version"] == "2", "the second start is known")
    # It remembers the first start as the newest that it has heard itself.
    with Connected(first, copied, instance="first", version="3"):
        until(lambda: copies(third, copied), "the copy is suspected", PATIENCE)
    (line,) = copies(third, copied)
    assert line["detail"].count("127.0.0.1") == 2, line
    assert not copies(third, moving)


def test_one_certificate_at_two_replicas_is_suspected_once_and_a_move_is_not(cluster):
    """Two hosts with one identity, each on its own replica: one alert. A host whose connection died without anybody noticing, and
    which went to another replica, raises none; it moved before the copies came, so by then it would have."""
    first, second, third = cluster.replicas
    moved, one, other = member(first), member(first), member(first)
    opened: list = []
    with Blackhole(first.port) as hole:
        try:
            opened.append(Connected(first, moved, port=hole.port, instance="only"))
            hole.swallow()
            opened.append(Connected(second, moved, instance="only"))
            for node, replicas in ((one, (first, second)), (other, (third, first))):
                opened += [Connected(replica, node, instance="only") for replica in replicas]
            for node in (one, other):
                until(lambda: copies(second, node), "the copy is suspected", COPY_PATIENCE)
            for node in (one, other):
                (line,) = copies(third, node)
                assert line["detail"].count("to replica") == 2, line
                (alert,) = [a for a in first.node(node.id)["alerts"] if a["kind"] == "clone_suspected"]
                assert alert["count"] == 1, alert
            assert not copies(third, moved)
        finally:
            for stream in opened:
                stream.close()


def test_nobody_falls_inactive_because_a_leader_died_or_the_grace_became_shorter(programs):
    """The leader knows only what is written down of nodes at other replicas, and that is up to a fifth of the grace period old:
    older than a much shorter one that is set now. The nodes that have left show when it has judged."""
    with Cluster(3) as cluster:
        leader = cluster.leader()
        left = cluster.followers()
        nodes = [member(replica) for replica in (*left, *left)]
        gone = [member(leader) for _ in range(2)]
        opened = [Connected(replica, node) for replica, node in zip((*left, *left), nodes)]
        try:
            for node in gone[:1]:
                Connected(leader, node).close()
            ready = time.monotonic() + 20
            until(lambda: time.monotonic() > ready, "what is written down is older than the new grace period")
            leader.policy("liveness.grace", "15s")
            inactive(leader, gone[0])
            assert names(leader) == {gone[0].id}
            Connected(left[0], gone[1]).close()
            leader.kill()
            cluster.leader(left)
            inactive(left[0], gone[1])
            assert names(left[0]) == {node.id for node in gone}
            for replica in left:
                assert all(replica.node(node.id)["connected"] for node in nodes)
        finally:
            for stream in opened:
                stream.close()


def inactive(replica, node: native.Node) -> None:
    until(lambda: replica.node(node.id)["state"] == "inactive", "who has left is inactive", PATIENCE)


def names(replica) -> set[str]:
    return {line["node_id"] for line in replica.audit("host.inactive")}
