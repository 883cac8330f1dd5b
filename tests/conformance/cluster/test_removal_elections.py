"""A removal while another voter dies: whoever is left elects a leader, however many stand at once."""

import threading

from clusters import Cluster, Replica
from machine import until


def status(replica: Replica) -> dict | None:
    answer = replica.api("GET", "/v1/cluster")
    return answer.json() if answer.status == 200 else None


def remove_while_dying(cluster: Cluster, asked: Replica, gone: Replica, dying: Replica) -> None:
    """SIGKILL of a voter as soon as the removal of another one is on its way. The rest elects, also with the one that was removed
    among the voters until replication does without it; then the killed one is back, and all that are left vote."""
    removing = threading.Thread(target=asked.cli, args=("cluster", "remove", gone.id, "--yes"), kwargs={"ok": False})
    removing.start()
    dying.kill()
    alive = [replica for replica in cluster.replicas if replica not in (gone, dying)]

    def leads() -> Replica | None:
        found = [replica for replica in alive if (seen := status(replica)) and seen["leader"] and seen["quorum"]]
        return found[0] if found else None

    until(leads, "somebody leads with a majority behind it", patience=90)
    removing.join()
    dying.start()
    left = [replica for replica in cluster.replicas if replica is not gone]
    leader = cluster.leader(left)

    def is_left_out() -> bool:
        """A removal that nobody could answer is asked for again."""
        if gone.id not in [line["replica_id"] for line in leader.audit("cluster.removed")]:
            leader.cli("cluster", "remove", gone.id, "--yes", ok=False)
        voting = {item["replica_id"] for item in leader.status()["replicas"] if item["voter"]}
        return voting == {replica.id for replica in left}

    until(is_left_out, "the others vote, and it does not", patience=120)
    until(lambda: leader.api("POST", "/v1/tokens", {}).status == 201, "it writes", patience=90)
    cluster.replicas = left


def test_a_removal_while_a_voter_dies_ends_with_a_leader(programs):
    """The removed one leads and a follower dies; then a follower is removed and the leader dies."""
    with Cluster(5) as cluster:
        everybody = list(cluster.replicas)
        try:
            leader, others = cluster.roles()
            remove_while_dying(cluster, others[0], leader, others[1])
            leader, others = cluster.roles()
            remove_while_dying(cluster, others[0], others[1], leader)
        finally:
            cluster.replicas = everybody
