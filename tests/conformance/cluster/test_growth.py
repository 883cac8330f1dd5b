"""From one replica to five and back, while machines enroll and an agent is connected."""

import json

import clusters
from cluster_load import Load, check_on_record
from clusters import Cluster
from daemons import Daemon
from machine import until


def voters(replica) -> int:
    return sum(item["voter"] for item in replica.status()["replicas"])


def remove(cluster, gone) -> None:
    """As the document says: removed, seen to be left out, stopped."""
    others = [replica for replica in cluster.replicas if replica is not gone]

    def removed() -> bool:
        """While the lead changes hands it may have to be asked for again."""
        done = others[0].cli("cluster", "remove", gone.id, ok=False)
        if done.code == 0:
            return True
        assert done.code == 4 or done.error()["code"] in ("would_lose_majority", "replica_not_found"), done
        return gone.id not in {item["replica_id"] for item in others[0].status()["replicas"]}

    until(removed, "it is removed", patience=120)
    until(lambda: voters(others[0]) == len(others), "the others vote without it", patience=120)
    # Not before the others do without it: then it may be stopped.
    until(lambda: "replica_removed" in gone.health()["reasons"], "it knows", patience=120)
    cluster.replicas.remove(gone)
    gone.stop()


def test_one_three_five_three_one_without_an_error_that_a_client_sees(programs):
    """Machines enroll through whatever replicas there are, each step tried again as agents do: all get in, once, also through
    replicas that are new or on their way out, followers and leaders. Proves PACT-12, PACT-41."""
    gone: list[clusters.Replica] = []
    with Cluster(1) as cluster:
        agent = Daemon(cluster.replicas[0], cluster.replicas[0].token())
        load = None
        try:
            agent.start().wait_connected()
            agent_node = agent.node_id()
            load = Load(cluster)
            until(load.goes_on(), "machines get in through one replica")
            for count in (3, 5):
                cluster.add()
                cluster.add()
                cluster.until_voting(count)
                until(load.goes_on(), f"and through {count}", patience=120)
            # It is told of the new replicas on its open stream, and keeps that for its next start.
            meta = agent.dir / "identity" / "current" / "meta.json"
            urls = {replica.url for replica in cluster.replicas}
            until(lambda: set(json.loads(meta.read_text())["servers"]) == urls, "it knows all five", patience=120)
            for count in (4, 3, 2, 1):
                leader = cluster.leader()
                # The leader itself once from each size that is odd.
                chosen = leader if count % 2 == 0 else next(one for one in cluster.replicas if one is not leader)
                gone.append(chosen)
                remove(cluster, chosen)
                until(load.goes_on(), f"and through {count}", patience=120)
            last = cluster.replicas[0]
            until(lambda: last.health()["ready"] and last.health()["role"] == "leader", "the last one leads", patience=120)
            until(lambda: last.node(agent_node)["connected"], "the agent has moved to it", patience=120)
            assert last.node(agent_node)["state"] == "active" and not last.audit("host.inactive")
            enrolled = load.end()
            check_on_record(cluster, enrolled, besides={agent_node})
            print(f"\n{len(enrolled)} enrollments, 1 to 5 replicas and back; again: {load.again}")
        finally:
            if load:
                load.close()
            agent.stop()
            agent.note_secrets()
            for replica in gone:
                replica.close()
