"""Replicas that hold every key and misbehave all the same: of a newer version, one that never reads, one whose history was changed."""

import pathlib
import sqlite3
import time

import pytest
from cluster_load import enroll
from clusters import Cluster, Replica, cluster_token, trail
from insiders import Insider, rewrite_log
from machine import until

GOLDEN = pathlib.Path(__file__).parents[3] / "crates" / "journal" / "tests" / "golden" / "entry.tidy.v1"
TRANSFER = 30
"""Seconds after which an answer that is not taken ends the connection."""


@pytest.fixture(scope="module")
def cluster(programs):
    with Cluster(3) as running:
        yield running


@pytest.fixture(scope="module")
def member(cluster):
    """One that has joined and was never started."""
    new = Replica(cluster.replicas[0]).join()
    yield new
    cluster.replicas[0].cli("cluster", "remove", new.id)


def append(commands: bytes) -> bytes:
    """An append of one entry from a leader of term 0, with these commands as they are stored."""
    name = lambda text: bytes([0xA0 | len(text)]) + text.encode()  # noqa: E731
    leader = b"\x82" + name("term") + b"\x00" + name("node_id") + b"\x01"
    vote = b"\x82" + name("leader_id") + leader + name("committed") + b"\xc3"
    log_id = b"\x82" + name("leader_id") + leader + name("index") + b"\x01"
    entry = b"\x82" + name("log_id") + log_id + name("payload") + b"\x81" + name("Normal") + commands
    fields = name("vote") + vote + name("prev_log_id") + b"\xc0" + name("entries") + b"\x91" + entry
    return b"\x81" + name("append") + b"\x84" + fields + name("leader_commit") + b"\xc0"


def serves(cluster) -> None:
    for replica in cluster.replicas:
        node = enroll(replica)
        assert replica.node(node.id)["cert_serial"] == node.serial and replica.health()["ready"]


def test_an_entry_of_a_newer_version_ends_the_connection_and_nothing_else(cluster, member):
    """The same entry with a command that is known is answered (its leader's term is over); with one that is not, the connection is
    closed. Nothing of it is in the log."""
    commands = GOLDEN.read_bytes().split(b"\xa8commands", 1)[1]
    before = cluster.until_equal()[0]
    for target in cluster.replicas:
        with Insider(member, target) as peer:
            peer.send_packed(append(commands))
            assert b"HigherVote" in peer.receive(), "a leader of a term that is over"
            peer.send_packed(append(commands.replace(b"\xa4tidy", b"\xa4newr")))
            assert peer.receive() is None
        with Insider(member, target) as peer:
            assert peer.ask({"defragment": {"until": 7}}) is None, "what a newer version asks"
    assert trail(cluster.replicas[0])[: len(before)] == before
    serves(cluster)


def test_garbage_of_a_member_ends_its_connection_only(cluster, member):
    target = cluster.leader()
    for data in (b"\xc1" * 100, b"", b"\xdd\xff\xff\xff\xff", b"\x91" * 10_000):
        with Insider(member, target) as peer:
            peer.send_packed(data)
            assert peer.receive() is None, data[:20]
    with Insider(member, target) as peer:
        peer.tls.sendall((2**32 - 1).to_bytes(4, "big"))
        assert peer.receive() is None, "a length without end"
    serves(cluster)


def test_a_member_that_never_reads_is_let_go(cluster, member):
    """It asks for the trail again and again and takes no answer: one answer waits at a time, and after half a minute the connection is
    closed. The cluster serves meanwhile."""
    target = cluster.leader()
    for _ in range(50):
        target.token()
    with Insider(member, target) as peer:
        peer.raw.settimeout(4 * TRANSFER)
        began = time.monotonic()
        with pytest.raises(OSError):
            while True:
                peer.send({"lines": {"after": 0, "until": 2**32}})
        assert time.monotonic() - began < 3 * TRANSFER
        assert resident(target) < 400 * 1024, f"{resident(target)} KiB"
    serves(cluster)


def resident(replica) -> int:
    """KiB of memory."""
    text = pathlib.Path(f"/proc/{replica.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:"))


def test_a_replica_whose_trail_differs_stops_and_says_so(programs):
    """Its log was rewritten by somebody with the key of it, so that it applies another command than the others. It is unready with
    `audit_differs`, writes and leads no more, and the others go on. Its line never reaches them. Proves I9, PACT-12."""
    with Cluster(3) as cluster:
        leader, (other, bent) = cluster.roles()
        leader.change("POST", "/v1/vclusters", {"name": "as-it-was"}, 201, 409)
        lines = cluster.until_equal()[0]
        at = next(number for number, line in enumerate(lines, 1) if "as-it-was" in line)
        bent.kill()
        rewrite_log(bent, b"as-it-was", b"as-if-not")
        with sqlite3.connect(bent.dir / "audit.db") as audit:
            audit.execute("DELETE FROM lines WHERE seq >= ?", (at,))
        audit.close()
        bent.start()
        until(lambda: "audit_differs" in bent.health()["reasons"], "it says so", patience=120)
        health = bent.health()
        assert not health["ready"], health
        assert bent.api("POST", "/v1/tokens", {}).status == 503
        left = [leader, other]
        for replica in left:
            assert enroll(replica).id
            assert "audit_differs" not in replica.health()["reasons"]
        trails = cluster.until_equal(left)
        assert trails[0] == trails[1] and not any("as-if-not" in line for line in trails[0])
        leader.kill()
        assert "audit_differs" in bent.health()["reasons"]
        refused = other.api("POST", "/v1/tokens", {})
        assert refused.status == 503 or refused.status == 201, refused
        leader.start()
        cluster.leader(left)
        leader.cli("cluster", "remove", bent.id)
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 2, "two vote")
