"""The certificates by which replicas know each other: renewed by the replicas themselves."""

import certs
import clocks
import rolls
from cluster_load import enroll
from clusters import Cluster
from machine import until

DUE = 21 * 24
"""Hours: they live for 30 days and are due after two thirds."""


def shown(replica) -> str:
    return certs.serial(certs.certificates((replica.dir / "ca" / "replica.pem").read_bytes())[0])


def test_replica_certificates_are_renewed_by_the_replicas(programs):
    """Started three weeks later: each replica gets a new certificate by itself, the cluster goes on with those, and each is on record as
    announced."""
    with Cluster(3) as cluster:
        before = {replica.id: shown(replica) for replica in cluster.replicas}
        announced = len(cluster.replicas[0].audit("cluster.announced"))
        for replica in cluster.replicas:
            replica.stop()
        later = clocks.shifted(DUE)
        try:
            for replica in cluster.replicas:
                replica.launch(env=later)
            for replica in cluster.replicas:
                until(lambda replica=replica: replica.ready_line(), "it is started", patience=120)
                replica.url = replica.ready_line().split()[1]
            for replica in cluster.replicas:
                until(lambda replica=replica: shown(replica) != before[replica.id], "it has a new one", patience=120)
            cluster.until_voting(3)
            for replica in cluster.replicas:
                assert enroll(replica).id
                assert replica.health()["ready"], replica.health()
            lines = cluster.replicas[0].audit("cluster.announced")
            assert len(lines) >= announced + 3, lines
            trails = cluster.until_equal()
            assert trails[0] == trails[1] == trails[2]
        finally:
            for replica in cluster.replicas:
                replica.kill()
                clocks.sweep(replica.process.pid)


def test_the_server_issuer_of_a_cluster_retires_once_all_replicas_have_moved(programs):
    """As `ca roll activate` says: within seconds. What a replica had before does not hold it up until it expires, and nobody is told to
    wait for that: until then the refusal names replicas."""
    with Cluster(3) as cluster:
        first = cluster.replicas[0]
        rolls.prepare(first, "server")
        first.cli("ca", "roll", "activate", "--force", "--yes")

        def retired() -> bool:
            done = first.cli("ca", "roll", "retire", ok=False)
            if done.code == 0:
                return True
            error = done.error()
            assert error["code"] in ("issuer_in_use", "no_quorum", "outcome_unknown"), error
            assert "superseded" not in error["message"] and "control plane itself" not in error["message"], error
            assert error["code"] != "issuer_in_use" or "replica" in error["message"], error
            return False

        until(retired, "every replica has moved", patience=120)
        assert rolls.states(first, "server") == ["active", "retired"]
        for replica in cluster.replicas:
            replica.restart()
        cluster.until_voting(3)
        assert enroll(cluster.replicas[2]).id


def test_a_replica_that_is_down_holds_a_root_up_and_is_named_with_what_to_do(programs):
    """Even by force; started or removed, it does not any more."""
    with Cluster(3) as cluster:
        leader, (_, down) = cluster.roles()
        down.stop()
        rolls.prepare_root(leader)
        leader.cli("ca", "roll", "activate", "--force", "--yes")

        def refused() -> dict | None:
            error = leader.cli("ca", "roll", "retire", "--force", "--yes", ok=False).error()
            return error if error["message"].endswith(f"not renewed yet: replica {down.id}") else None

        error = until(refused, "only that one has not moved", patience=120)
        assert error["code"] == "issuer_in_use", error
        assert "start one that does not run" in error["hint"] and "`enlist cluster remove ID`" in error["hint"], error
        assert "node rotate" not in error["hint"], error
        leader.cli("cluster", "remove", down.id)
        leader.cli("ca", "roll", "retire", "--force", "--yes")
        assert rolls.roots(leader) == ["retired", "active"] or rolls.roots(leader) == ["active"], rolls.roots(leader)
