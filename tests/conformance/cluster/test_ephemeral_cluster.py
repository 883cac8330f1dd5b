"""Issuers that exist in memory only, one of each replica."""

import clusters
import native
from cluster_load import enroll
from clusters import Cluster
from machine import until


def test_nodes_of_a_removed_replica_keep_working_until_they_renew(programs):
    """Each replica signs with a CA of its own, which all others trust for nodes. Proves PACT-02, PACT-12, PACT-30."""
    with Cluster(3, init=("--issuer", "ephemeral")) as cluster:
        nodes = [enroll(replica) for replica in cluster.replicas]
        issuers = cluster.replicas[0].cli("ca", "show").json()["issuers"]
        signing = {issuer["replica"] for issuer in issuers if issuer["kind"] == "ephemeral" and issuer["state"] == "active"}
        assert {str(replica) for replica in signing} == {"1", "2", "3"}, issuers
        for node in nodes:
            for replica in cluster.replicas:
                # The newest issuer may not have arrived there yet.
                taken = lambda replica=replica, node=node: native.alert(replica, node.files) is None  # noqa: E731
                until(taken, "every replica takes the certificates of every other")
        gone = cluster.followers()[-1]
        node = nodes[cluster.replicas.index(gone)]
        left = [replica for replica in cluster.replicas if replica is not gone]
        left[0].cli("cluster", "remove", gone.id)
        gone.kill()
        until(lambda: sum(item["voter"] for item in left[0].status()["replicas"]) == 2, "two vote")
        for replica in left:
            with clusters.door(replica, node.files) as door:
                door.confirm()
        with clusters.door(left[1], node.files) as door:
            renewed = door.renew(native.certs.csr(native.certs.ec_key()))
        assert renewed.cert_serial != node.serial
        shown = left[0].cli("ca", "show").json()["issuers"]
        states = {str(issuer.get("replica")): issuer["state"] for issuer in shown if issuer["kind"] == "ephemeral"}
        assert states[gone.id] != "active" and states[left[0].id] == "active", states
