"""A crash while another replica's snapshot takes the place of the log."""

import os
import random
import time

import clusters
from cluster_load import enroll
from clusters import Cluster
from machine import until

SEED = int(os.environ.get("ENLIST_SEED") or random.SystemRandom().randrange(2**32))
KILLS = 6


def test_a_follower_that_is_killed_while_a_snapshot_arrives_comes_back(programs):
    """It lags so far that the log alone does not help. SIGKILL at random moments from when the snapshot begins to arrive: each time
    it comes back, catches up, and its trail is that of the others, byte for byte. Proves PACT-12, PACT-41."""
    print(f"ENLIST_SEED={SEED}")
    chance = random.Random(SEED)
    with Cluster(3) as cluster:
        # A snapshot of some megabytes takes a while.
        for number in range(16):
            cluster.replicas[0].change("POST", "/v1/vclusters", {"name": f"v{number}"}, 201, 409)
            document = {"text": chance.randbytes(120_000).hex()}
            cluster.replicas[0].change("PUT", f"/v1/vclusters/v{number}/config", document, 200)
        away = cluster.followers()[0]
        left = [replica for replica in cluster.replicas if replica is not away]
        for _ in range(clusters.ROUNDS):
            away.kill()
            enrolled = set()
            for _ in range(3):
                # A clean stop makes a snapshot, and the start after it purges the log.
                for replica in left:
                    enrolled.add(enroll(replica).id)
                    replica.restart()
                    until(lambda replica=replica: replica.health()["ready"], "it is back", patience=120)
            arrived = 0
            for _ in range(KILLS):
                left_over = incoming(away)
                away.launch()
                until(lambda left_over=left_over: arriving(away, left_over), "a snapshot comes, or it needs none", patience=120)
                time.sleep(chance.choice((0, chance.uniform(0, 0.05), chance.uniform(0, 0.5))))
                away.kill()
                arrived += away.err.read_text(errors="replace").count("a snapshot arrived")
            away.start()
            until(lambda: away.health()["ready"], "it is ready", patience=120)
            arrived += away.err.read_text(errors="replace").count("a snapshot arrived")
            assert arrived, "otherwise this shows nothing"
            assert enrolled <= {node["node_id"] for node in away.nodes()}
            trails = cluster.until_equal()
            assert trails[0] == trails[1] == trails[2]
            until(lambda: away.cli("audit", "verify", ok=False).code == 0, "its trail verifies", patience=120)
            assert enroll(away).id
            print(f"{arrived} snapshots arrived whole")


def incoming(replica) -> set[tuple]:
    """The files that snapshots of others are written to."""
    found = set()
    for file in (replica.dir / "snapshots").glob("incoming*"):
        try:
            found.add((file.name, file.stat().st_ino, file.stat().st_ctime_ns))
        except FileNotFoundError:
            pass  # installed meanwhile
    return found


def arriving(replica, left_over: set[tuple]) -> bool:
    """A snapshot is being written there; or it has come this far without."""
    return bool(incoming(replica) - left_over) or replica.ready_line() is not None
