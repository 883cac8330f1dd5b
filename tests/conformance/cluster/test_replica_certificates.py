"""The certificates by which replicas know each other: renewed by the replicas themselves."""

import certs
import clocks
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
