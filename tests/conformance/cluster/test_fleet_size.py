"""A cluster with a large fleet on record: a new replica, and one that was killed.

2,000 nodes in CI, 100,000 in `just soak`. They are registered, not enrolled: a node on record without a certificate.
"""

import concurrent.futures
import os
import pathlib
import time

from cluster_load import checked, enroll, patiently
from clusters import Cluster, trail
from machine import until

NODES = int(os.environ.get("ENLIST_FLEET_NODES", "2000"))
BATCH = 1000
LONG = 600


def machine(number: int) -> dict:
    address = number.to_bytes(5, "big").hex(":")
    return {"node_id": f"machine-{number}", "mac": f"02:{address}"}


def register(replica, first: int) -> None:
    """A batch; what was registered when an answer was lost is not registered twice."""
    machines = [machine(number) for number in range(first, min(first + BATCH, NODES))]
    patiently(lambda: checked(replica.api("POST", "/v1/nodes/batch", {"nodes": machines}), 200))


def memory(replica) -> int:
    """Resident, in MB."""
    text = pathlib.Path(f"/proc/{replica.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")) // 1024


def is_level(replica, count: int) -> bool:
    """It has every entry, and every line of the trail."""
    replicas = replica.status()["replicas"]
    level = [item for item in replicas if item["lag"] == 0 and item["health"] == "ok"]
    return len(level) == count and not replica.health()["reasons"]


def test_a_new_replica_and_a_killed_one_catch_up_with_a_large_fleet(programs):
    """The new one has every node and every line, and its trail verifies; the killed one serves what it had acknowledged. The times and the
    memory of each are stated. Proves PACT-12."""
    with Cluster(3) as cluster:
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            starts = range(0, NODES, BATCH)
            list(pool.map(lambda first: register(cluster.replicas[first // BATCH % 3], first), starts))
        rate = NODES / (time.monotonic() - began)

        began = time.monotonic()
        new = cluster.add()
        serves = time.monotonic() - began
        until(lambda: is_level(new, 4), "it has caught up", patience=LONG)
        caught_up = time.monotonic() - began
        assert len(new.nodes()) == NODES
        first = cluster.replicas[0]
        until(lambda: len(trail(new)) == len(trail(first)), "its trail is as long as the others'", patience=LONG)
        assert trail(new) == trail(first)
        until(lambda: new.cli("audit", "verify", ok=False).code == 0, "its trail verifies", patience=LONG)

        killed = cluster.followers()[0]
        killed.kill()
        node = enroll(next(replica for replica in cluster.replicas if replica is not killed))
        began = time.monotonic()
        killed.start()
        restarted = time.monotonic() - began
        until(lambda: killed.health()["ready"], "it is ready", patience=LONG)
        ready = time.monotonic() - began
        assert killed.node(node.id)["cert_serial"] == node.serial
        assert len(killed.nodes()) == NODES + 1
        held = ", ".join(f"{memory(replica)} MB" for replica in cluster.replicas)
    print(
        f"\n{NODES} nodes, registered at {rate:.0f}/s; a new replica serves after {serves:.1f} s and has everything after {caught_up:.1f} s; "
        f"a killed one serves after {restarted:.1f} s, ready after {ready:.1f} s; memory {held}"
    )
