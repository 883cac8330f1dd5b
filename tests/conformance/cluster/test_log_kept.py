"""`[journal]` in enlist.toml: how much log there is between snapshots, and how much of it stays for replicas that lag."""

import json
import re
import sqlite3

import pytest
from clusters import Cluster
from machine import until
from plane import ControlPlane

DOCUMENT = 50_000
"""Bytes of one command: few of them fill the log."""


def fill(replica, count: int) -> None:
    for at in range(count):
        replica.change("PUT", "/v1/vclusters/v/config", {"filler": chr(ord("a") + at) * DOCUMENT}, 200)


def configure(replica, text: str) -> None:
    """As an operator would: the table at the end of the file, then a restart."""
    with (replica.dir / "enlist.toml").open("a") as file:
        file.write(f"\n[journal]\n{text}\n")
    replica.restart()


def installed(replica) -> int:
    text = replica.api("GET", "/metrics").body.decode()
    return int(re.search(r"^enlist_snapshots_installed_total (\d+)$", text, re.MULTILINE).group(1))


def log_bytes(replica) -> int:
    """What is in the log now, as stored."""
    copy = sqlite3.connect(f"file:{replica.dir / 'log.db'}?mode=ro", uri=True)
    try:
        return copy.execute("SELECT coalesce(sum(length(row)), 0) FROM entries").fetchone()[0]
    finally:
        copy.close()


@pytest.mark.parametrize("keep", [0, 50_000_000])
def test_a_replica_that_was_away_gets_a_snapshot_only_if_the_log_was_not_kept(programs, keep):
    """Snapshots after 100,000 bytes of log. With nothing kept, the entries that a follower lacks are gone when it comes back, and it
    gets a snapshot; with 50 MB kept it gets the entries."""
    with Cluster(3) as cluster:
        cluster.replicas[0].change("POST", "/v1/vclusters", {"name": "v"}, 201, 409)
        for replica in cluster.replicas:
            configure(replica, f"snapshot_bytes = 100000\nkeep_bytes = {keep}")
        cluster.until_voting(3)
        away = cluster.followers()[0]
        left = [replica for replica in cluster.replicas if replica is not away]
        away.kill()
        fill(left[0], 12)
        document = left[0].cli("vcluster", "show", "v").json()
        # The follower's log too: whoever leads when the third one is back sends what it lacks.
        for replica in left:
            until(lambda replica=replica: replica.cli("vcluster", "show", "v").json() == document, "it has all of it")
            if keep:
                assert log_bytes(replica) > 12 * DOCUMENT
            else:
                until(lambda replica=replica: log_bytes(replica) < 8 * DOCUMENT, "its log is purged")
        away.start()
        until(lambda: away.cli("vcluster", "show", "v").json() == document, "it has caught up")
        assert (installed(away) > 0) is (keep == 0)
        trails = cluster.until_equal()
        assert trails[0] == trails[1] == trails[2]


def test_what_the_table_may_hold(programs):
    """Every mistake at once, with what was expected."""
    plane = ControlPlane().found()
    with (plane.dir / "enlist.toml").open("a") as file:
        file.write('\n[journal]\nsnapshot_bytes = 1000\nkeep_bytes = "a lot"\nkeep = 1\n')
    done = plane.run_to_end()
    assert done.code != 0, done
    said = json.dumps(done.err)
    assert all(word in said for word in ("journal.snapshot_bytes", "from 65536", "journal.keep_bytes", "journal.keep")), done
