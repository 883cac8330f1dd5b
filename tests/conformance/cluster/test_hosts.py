"""Hosts of a cluster: they move when their replica dies."""

import json
import re

from clusters import Cluster
from daemons import Daemon
from machine import until

HOSTS = 16
"""By chance all of them go to the same of two replicas once in 32,768 runs."""


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


def servers(agent: Daemon) -> list[str]:
    """Where it was connected, one after the other. The log names each once a minute at most."""
    return re.findall(r'connected server="?(https://[^"\s]+)', agent.log())


def test_hosts_of_a_replica_that_dies_spread_over_the_others_and_over_time(programs):
    """Real agents that know the replicas in the same order, all connected to one that is killed. Each waits for a time of its own
    before it connects again, and both replicas that are left get some of them: neither is run over by all at once. Proves D22, D34."""
    with Cluster(3) as cluster:
        _, (other, dying) = cluster.roles()
        left = [replica for replica in cluster.replicas if replica is not dying]
        agents = [Daemon(dying, other.token()) for _ in range(HOSTS)]
        try:
            for agent in agents:
                agent.start()

            def connected() -> int:
                return sum(node["connected"] for node in other.nodes())

            until(lambda: connected() == HOSTS, "all are connected", patience=240)
            until(lambda: all(servers(agent) == [dying.url] for agent in agents), "to the one that dies")
            urls = [dying.url, *(replica.url for replica in left)]
            for agent in agents:
                meta = json.loads((agent.dir / "identity" / "current" / "meta.json").read_text())
                assert meta["servers"] == urls, "each knows the same order"
            dying.kill()
            until(lambda: all(len(servers(agent)) > 1 for agent in agents), "all are connected again", patience=240)
            until(lambda: connected() == HOSTS, "and both replicas know", patience=120)
            found = [servers(agent)[1] for agent in agents]
            assert set(found) == {replica.url for replica in left}, found
            pauses = [int(re.search(r"connects again after a pause pause_ms=(\d+)", agent.log())[1]) for agent in agents]
            assert min(pauses) >= 200 and max(pauses) <= 1000, pauses
            assert max(pauses) - min(pauses) > 100 and len(set(pauses)) > HOSTS / 2, pauses
            assert not left[0].audit("host.inactive")
            assert not {alert["kind"] for alert in left[0].items("/v1/alerts")} & {"clone_suspected", "node_silent"}
            print(f"\n{found.count(left[0].url)} of {HOSTS} at one; pauses {sorted(pauses)} ms")
        finally:
            for agent in agents:
                agent.stop()
