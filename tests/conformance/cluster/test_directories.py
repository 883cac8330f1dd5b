"""Directories of replicas that were copied, put back to an older state, run twice, or belong to another domain: refused, and the
trail never forks."""

import shutil

import certs
import clusters
import native
import pytest
import rolls
from cluster_load import enroll
from clusters import Cluster, Replica, trail
from directories import Twin, copy, put_back, reasons
from machine import until


def is_prefix(shorter: list[str], longer: list[str]) -> bool:
    return longer[: len(shorter)] == shorter


def rolled_back(replica) -> bool:
    return "replica_rolled_back" in reasons(replica)


def settled(replica) -> bool:
    return replica.health()["ready"]


def test_a_directory_that_was_put_back_is_refused_and_what_it_acknowledged_is_kept(programs):
    """A voter acknowledges an enrollment, is stopped, and its directory is put back to before. With the third replica, which
    lacks the enrollment too, it could elect a leader without it. The others have restarted since, so none remembers by memory
    alone. Proves PACT-12, PACT-41."""
    with Cluster(3) as cluster:
        leader, (back, behind) = cluster.roles()
        back.stop()
        older = copy(back)
        back.start()
        until(lambda: settled(back), "it is back", patience=120)
        behind.stop()
        node = enroll(leader)
        until(lambda: any(found["node_id"] == node.id for found in back.nodes()), "it has acknowledged it")
        back.stop()
        put_back(back, older)
        leader.kill()
        leader.launch()
        back.launch()
        until(lambda: back.ready_line(), "it is started", patience=120)
        back.url = back.ready_line().split()[1]
        until(lambda: rolled_back(back), "it is told", patience=120)
        assert not back.health()["ready"]
        behind.start()
        until(lambda: leader.ready_line(), "the other one is started", patience=120)
        leader.url = leader.ready_line().split()[1]
        until(lambda: settled(leader) and settled(behind), "the two others go on", patience=120)
        for replica in (leader, behind):
            assert replica.node(node.id)["cert_serial"] == node.serial, "what was acknowledged is there"
        another = enroll(behind)
        lines = cluster.until_equal([leader, behind])
        assert lines[0] == lines[1]
        assert is_prefix(trail(back), lines[0]), "its trail has no line of its own"
        refused = back.api("POST", "/v1/tokens", {})
        assert refused.status == 503, refused
        with clusters.door(back, node.files) as door, pytest.raises(native.Refused) as told:
            door.confirm()
        assert told.value.code in ("stale", None), told.value
        # Stopped and started again it is still the same directory.
        back.stop()
        back.start()
        until(lambda: rolled_back(back), "it is told again", patience=120)
        leader.cli("cluster", "remove", back.id)
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 2, "two vote")
        new = cluster.add()
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 3, "three vote again", patience=120)
        assert new.node(another.id)["cert_serial"] == another.serial


def test_a_directory_from_before_the_others_joined_does_not_go_on_alone(programs):
    """The first replica's directory, put back to when it was the only voter: it would lead itself. The others call it, and it gives
    way before it has written anything."""
    cluster = Cluster(3)
    try:
        first = Replica().found().start()
        cluster.replicas.append(first)
        first.policy("failures.per_minute", "0")
        clusters.cluster_token(first)
        first.stop()
        older = copy(first)
        first.start()
        for _ in range(2):
            cluster.add()
        cluster.until_voting(3)
        node = enroll(cluster.replicas[1])
        first.stop()
        put_back(first, older)
        first.start()
        until(lambda: rolled_back(first), "it is told", patience=120)
        health = first.health()
        assert not health["ready"] and health["role"] == "cut_off", health
        assert first.api("POST", "/v1/tokens", {}).status == 503
        others = cluster.replicas[1:]
        until(lambda: settled(others[0]) and settled(others[1]), "the two others go on", patience=120)
        assert others[0].node(node.id)["cert_serial"] == node.serial
        assert enroll(others[1]).id
        lines = cluster.until_equal(others)
        assert lines[0] == lines[1]
        assert is_prefix(trail(first), lines[0]), "it has written no line of its own"
    finally:
        cluster.close()


def test_a_copy_that_runs_beside_the_original_is_a_duplicate(programs):
    """The directory of a stopped replica is copied, and both run: one of them is a member in good order, the other says that it is a
    duplicate; and it does not become a member when the original stops."""
    with Cluster(3) as cluster:
        original = cluster.followers()[0]
        original.stop()
        older = copy(original)
        original.start()
        until(lambda: settled(original), "it is back", patience=120)
        twin = Twin(original, older)
        cluster.replicas.append(twin)
        twin.start()
        until(lambda: "replica_duplicate" in reasons(twin), "the copy is told", patience=120)
        others = [replica for replica in cluster.replicas[:3] if replica is not original]
        warned = f"says it is replica {original.id} is turned away"
        until(lambda: any(warned in replica.err.read_text() for replica in others), "the others log it")
        assert all(replica.err.read_text().count(warned) <= 2 for replica in others), "once for each process"
        assert not twin.health()["ready"]
        assert twin.api("POST", "/v1/tokens", {}).status == 503
        members = cluster.replicas[:3]
        for replica in members:
            node = enroll(replica)
            assert settled(replica), replica.health()
            assert original.node(node.id)["cert_serial"] == node.serial
        lines = cluster.until_equal(members)
        assert lines[0] == lines[1] == lines[2]
        assert is_prefix(trail(twin), lines[0])
        original.stop()
        until(lambda: rolled_back(twin), "the copy is not taken for the original", patience=120)
        left = [replica for replica in members if replica is not original]
        assert enroll(left[0]).id
        original.start()
        until(lambda: settled(original), "the original is", patience=120)
        lines = cluster.until_equal(members)
        assert lines[0] == lines[1] == lines[2] and is_prefix(trail(twin), lines[0])


def test_a_directory_that_was_moved_while_it_stood_still_goes_on(programs):
    """Nothing is refused by mistake: a stopped replica's directory runs elsewhere, with another address, and is a member there."""
    with Cluster(3) as cluster:
        original = cluster.followers()[0]
        original.stop()
        moved = Twin(original, copy(original))
        cluster.replicas[cluster.replicas.index(original)] = moved
        moved.start()
        until(lambda: settled(moved), "it is a member", patience=120)
        # Its coming may have brought another leader.
        until(lambda: moved.api("POST", "/v1/vclusters", {"name": "moved"}).status in (201, 409), "it writes", patience=120)
        lines = cluster.until_equal()
        assert lines[0] == lines[1] == lines[2]


def test_two_processes_do_not_share_a_directory(programs):
    with Cluster(1) as cluster:
        (only,) = cluster.replicas
        refused = only.run_to_end("--listen", "127.0.0.1:0")
        assert refused.code == 1 and "in use" in refused.err, refused
        assert enroll(only).id


def test_the_directory_of_another_domain_is_not_let_in(programs):
    """A replica of another domain at the address of a stopped one, with its own data and certificate: nobody talks to it, and it
    talks to nobody. With the replica file of this domain beside its own data it does not start."""
    with Cluster(3) as cluster:
        away = cluster.followers()[0]
        away.stop()
        foreign = Cluster(1)
        try:
            stranger = Replica()
            stranger.peer_port = away.peer_port
            stranger.found().start()
            foreign.replicas.append(stranger)
            clusters.cluster_token(stranger)
            left = [replica for replica in cluster.replicas if replica is not away]
            assert enroll(left[0]).id
            until(
                lambda: next(item["health"] for item in left[0].status()["replicas"] if item["replica_id"] == away.id)
                == "unreachable",
                "it is not taken for the one that is away",
            )
            assert enroll(stranger).id, "and is none the worse for it"
            stranger.stop()
            for name in ("log.db", "audit.db", "snapshots", "checkpoint"):
                for file in away.dir.glob(f"{name}*"):
                    shutil.rmtree(file) if file.is_dir() else file.unlink()
                for file in stranger.dir.glob(f"{name}*"):
                    (shutil.copytree if file.is_dir() else shutil.copy2)(file, away.dir / file.name)
            refused = away.run_to_end()
            assert refused.code == 1 and "log.db" in refused.err, refused
            assert enroll(left[1]).id
        finally:
            foreign.close()


def test_a_denied_certificate_of_a_member_is_refused(programs):
    """A replica is away while the server issuer is rolled and the old one revoked: the certificate that it has is denied, and the key of
    the log does not make up for that. It is removed, and its machine joins again."""
    with Cluster(3) as cluster:
        first, other, away = cluster.replicas
        away.stop()
        leader = cluster.leader((first, other))
        before = {replica.id: shown(replica) for replica in (leader, other)}
        (old,) = rolls.issuers(first, "server")
        rolls.prepare(first, "server")
        first.cli("ca", "roll", "activate", "--force", "--yes")
        until(lambda: all(shown(replica) != before[replica.id] for replica in (leader, other)), "they have new ones", patience=120)
        leader.cli("ca", "revoke", old["id"], "--yes")
        length = len(trail(away))
        away.start()

        def refused() -> bool:
            logs = "".join(replica.err.read_text(errors="replace") for replica in (leader, other))
            return "not talked to: Denied" in logs

        until(refused, "it is refused", patience=120)
        until(lambda: "no_quorum" in reasons(away), "it says that it has no majority", patience=120)
        assert enroll(leader).id and enroll(other).id
        assert len(trail(away)) == length, "it was sent nothing"
        leader.cli("cluster", "remove", away.id)
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 2, "two vote")
        cluster.add()
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 3, "three vote again", patience=120)


def shown(replica) -> str:
    """The serial of the certificate by which other replicas know it."""
    return certs.serial(certs.certificates((replica.dir / "ca" / "replica.pem").read_bytes())[0])
