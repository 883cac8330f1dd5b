"""Replicas that hold every key and misbehave all the same: of a newer version, one that never reads, one whose history was changed."""

import pathlib
import sqlite3
import time

import hostile_peers
import pytest
from cluster_load import enroll
from clusters import Cluster, Replica, cluster_token, trail
from insiders import Insider, Refused, forged, rewrite_log
from machine import until
from rogue import Thief
from root_lists import denied

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


def append(commands: bytes, sender: int) -> bytes:
    """An append of one entry from a leader of term 0, with these commands as they are stored."""
    name = lambda text: bytes([0xA0 | len(text)]) + text.encode()  # noqa: E731
    leader = b"\x82" + name("term") + b"\x00" + name("node_id") + bytes([sender])
    vote = b"\x82" + name("leader_id") + leader + name("committed") + b"\xc3"
    log_id = b"\x82" + name("leader_id") + leader + name("index") + b"\x00"
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
            peer.send_packed(append(commands, int(member.id)))
            assert b"HigherVote" in peer.receive(), "a leader of a term that is over"
            peer.send_packed(append(commands.replace(b"\xa4tidy", b"\xa4newr"), int(member.id)))
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


def vote(term: int, replica, elected: bool = True) -> dict:
    return {"leader_id": {"term": term, "node_id": int(replica.id)}, "committed": elected}


def at(term: int, replica, index: int) -> dict:
    return {"leader_id": {"term": term, "node_id": int(replica.id)}, "index": index}


def appended(by: dict, before: dict | None, *entries: dict, commit: dict | None = None) -> dict:
    entries = [{"log_id": entry, "payload": "Blank"} for entry in entries]
    return {"append": {"vote": by, "prev_log_id": before, "entries": entries, "leader_commit": commit}}


LATER, LAST = 1000, 2**64 - 1
"""A term that an election might come to, and the last there is."""


def test_no_message_of_a_member_ends_another_replica(cluster, member):
    """Votes in another's name or of nobody elected, entries out of order, conflicts with what is committed, the last term there is: each
    ends the connection. The replica goes on, also after a restart; a request that is possible is answered."""
    for target in cluster.replicas:
        other = next(replica for replica in cluster.replicas if replica is not target)
        by = vote(LATER, member)
        bad = (
            appended(vote(LATER, target), None),
            appended(vote(LATER, target, False), None),
            appended(vote(LATER, other), None),
            appended(vote(LATER, member, False), None),
            appended(by, at(LATER, member, 3)),
            appended(by, at(LATER, member, LAST)),
            appended(by, None, at(0, member, 50)),
            appended(by, None, at(0, member, 0), at(0, member, 9)),
            appended(by, None, at(LATER, member, 0)),
            appended(by, None, commit=at(LATER, member, LAST)),
            appended(vote(LAST, member), None),
            {"vote": {"vote": vote(LAST, member, False), "last_log_id": at(LAST, member, LAST)}},
            {"vote": {"vote": vote(LAST, member, False), "last_log_id": None}},
            {"vote": {"vote": vote(LATER, other, False), "last_log_id": None}},
            {"vote": {"vote": vote(LATER, member), "last_log_id": None}},
        )
        for message in bad:
            with Insider(member, target) as peer:
                assert peer.ask(message) is None, message
        with Insider(member, target) as peer:
            answer = peer.ask({"vote": {"vote": vote(0, member, False), "last_log_id": None}})
            assert answer and b"vote_granted" in answer, answer
            answer = peer.ask(appended(vote(0, member), None))
            assert answer and b"HigherVote" in answer, answer
        assert target.process.poll() is None
    serves(cluster)
    cluster.followers()[0].restart()
    until(lambda: all(replica.health()["ready"] for replica in cluster.replicas), "all serve", patience=120)
    serves(cluster)


def test_a_snapshot_of_a_member_that_is_none_is_not_installed(cluster, member):
    """Ten bytes in the place of a snapshot: the connection is closed, and the target keeps what it has."""
    nodes = {}
    members = {"log_id": None, "membership": {"configs": [[1, 2, 3]], "nodes": nodes}}
    for target in cluster.replicas:
        meta = {"last_log_id": at(LATER, member, 10**6), "last_membership": members, "snapshot_id": "x"}
        with Insider(member, target) as peer:
            peer.send({"snapshot": {"vote": vote(LATER, member), "meta": meta, "length": 10}})
            peer.tls.sendall(b"0123456789")
            assert peer.receive() is None
        assert "a snapshot of another replica was not taken" in target.log()
    serves(cluster)


def test_a_list_without_end_costs_no_memory(cluster, member):
    """Three million empty commands in one message, which as a list would take 24 bytes each."""
    target, count = cluster.leader(), 3 * 1024 * 1024
    before = resident(target)
    with Insider(member, target) as peer:
        peer.raw.settimeout(120)
        peer.send_packed(b"\x81\xa7propose\x81\xa8commands\xdd" + count.to_bytes(4, "big") + b"\xc4\x00" * count)
        assert peer.receive() is None
    assert resident(target) - before < 48 * 1024, (before, resident(target))
    serves(cluster)


def test_a_certificate_below_a_denied_issuer_is_refused(cluster, member):
    """An issuer that its thief had signed a replica's certificate with, and the key of the log: nothing tells it from a certificate that has not
    arrived yet, until the root's list denies the issuer. An open connection ends then too."""
    first = cluster.replicas[0]
    thief = Thief(first)
    shown = forged(member, thief)
    opened = [Insider(member, target, shown) for target in cluster.replicas]
    assert all(peer.ask({"lines": {"after": 0, "until": 1}}) for peer in opened)
    first.cli("ca", "import-crl", "--file", denied(first, thief.certificate))
    cluster.until_equal()
    for peer, target in zip(opened, cluster.replicas, strict=True):
        assert peer.ask({"lines": {"after": 0, "until": 1}}) is None, "it was open"
        peer.close()
        with pytest.raises(Refused, match="denied"):
            Insider(member, target, shown)
    with Insider(member, first):
        pass
    serves(cluster)


def test_a_replica_that_never_joined_is_refused(cluster, member):
    """With a certificate that verifies, and the key of the log; by every replica that is up to date."""
    shown = forged(member, Thief(cluster.replicas[0]), 99)
    for target in cluster.replicas:

        def refused(target=target) -> bool:
            with pytest.raises(Refused, match="unknown"):
                Insider(member, target, shown)
            return True

        until(lambda target=target: target.health()["ready"], "it is up to date")
        assert refused()
    serves(cluster)


def test_a_replica_forwards_no_command_of_another(cluster, member):
    """What a replica says of itself is taken from that replica alone."""
    with Insider(member, cluster.leader()) as peer:
        for number, answer in ((1, b"a command of replica 1"), (int(member.id), b"proposed")):
            command = {
                "id": f"01M7QM0000000000000000000{number}",
                "actor": {"replica": {"id": number}},
                "source": "internal",
                "command": "tidy",
            }
            said = peer.ask({"propose": {"commands": [hostile_peers.packed(command)]}})
            assert said and answer in said, said


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
