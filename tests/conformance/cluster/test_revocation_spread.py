"""How soon a revocation that one replica has acknowledged closes the node's stream on another.

Sixty streams in CI, a thousand in `just soak`.
"""

import concurrent.futures
import os
import time

import certs
import clusters
import native
from cluster_load import checked, patiently, spread
from clusters import Cluster
from light_streams import LightStream, Reader
from machine import until

STREAMS = int(os.environ.get("ENLIST_CLUSTER_STREAMS", "60"))


class Streaming:
    """A node with a live stream to one replica, which is revoked on another."""

    def __init__(self, cluster, doors: list, reader: Reader, number: int):
        here, self.there = (cluster.replicas[(number + step) % 3] for step in range(2))
        token, key = self.there.mint()["token"], certs.ec_key()
        csr = certs.csr(key)
        answer = patiently(lambda: doors[number % 3].enroll(token, csr, f"spread-{number}"))
        self.node = native.Node(here, answer, key)
        self.stream = LightStream(reader, here, self.node.files, self.node.id)
        until(lambda: self.stream.greeted.is_set() or self.stream.ended.is_set(), "it is greeted")
        assert not self.stream.ended.is_set()

    def revoke(self) -> float:
        """Seconds from the acknowledgement to the end of the stream; nothing for one that was ended before."""
        path = f"/v1/nodes/{self.node.id}/revoke"
        patiently(lambda: checked(self.there.api("POST", path, {"reason": "test"}), 200))
        acknowledged = time.monotonic()
        assert self.stream.ended.wait(60), "its stream goes on"
        return max(0.0, self.stream.ended_at - acknowledged)


def test_a_revocation_acknowledged_by_one_replica_closes_streams_on_another(programs):
    """Nodes with streams to three replicas are revoked one after the other, each on another replica than its stream's. Every
    stream is closed, and the rest stay open meanwhile. The times are stated. Proves PACT-30, PACT-41, D14."""
    reader = Reader()
    with Cluster(3) as cluster:
        doors = [clusters.door(replica) for replica in cluster.replicas]
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                streams = list(pool.map(lambda number: Streaming(cluster, doors, reader, number), range(STREAMS)))
            took = []
            for at, streaming in enumerate(streams):
                assert not any(other.stream.ended.is_set() for other in streams[at:]), "others were cut off with it"
                took.append(streaming.revoke() * 1000)
        finally:
            reader.close()
            for door in doors:
                door.close()
        trails = cluster.until_equal()
        assert trails[0] == trails[1] == trails[2]
    print(f"\n{STREAMS} streams, over three replicas, closed after the acknowledgement {spread(took, 'ms')}")
