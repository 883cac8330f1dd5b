"""Hosts of a cluster: they move when their replica dies."""

from clusters import Cluster
from daemons import Daemon
from machine import until


def test_a_host_moves_when_its_replica_dies_and_stays_active(programs):
    """A real agent, configured with one replica: it has learned of the others. Nobody falls inactive because a leader died, and
    no alert is raised by the move."""
    with Cluster(3) as cluster:
        leader, left = cluster.roles()
        agent = Daemon(leader, leader.token()).start()
        try:
            agent.wait_connected()
            node = agent.node_id()
            leader.kill()
            cluster.leader(left)

            def moved() -> bool:
                return any(replica.node(node).get("connected") for replica in left)

            until(moved, "it is connected to another replica", patience=120)
            agent.wait_connected(120)
            assert left[0].node(node)["state"] == "active"
            assert not left[0].audit("host.inactive")
            kinds = {alert["kind"] for alert in left[0].items("/v1/alerts")}
            assert not kinds & {"clone_suspected", "node_silent", "node_replaced"}, kinds
            left[1].revoke(node)
            until(lambda: not agent.connected(), "it is cut off", patience=120)
        finally:
            agent.stop()
