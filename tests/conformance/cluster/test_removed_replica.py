"""What is left to a replica that was removed, or to whoever has its keys: nothing. And removals that come together."""

import threading
import time

import pytest
from clusters import Cluster, Replica
from insiders import Insider, Refused, forged
from machine import until
from rogue import Thief
from root_lists import denied
from test_insiders import LATER, at, vote

HEARD = 4
"""Seconds after which a refusal that is believed would be seen: replicas report every second."""
CUT = 20
"""Seconds within which a transfer of a removed replica ends; a byte every second would keep it open for ever."""


@pytest.fixture(scope="module")
def cluster(programs):
    with Cluster(3) as running:
        yield running


def serve(replicas) -> bool:
    return all(replica.health()["ready"] for replica in replicas)


def refuses(holder, targets, why: str, shown=None) -> None:
    """The holder of these keys tells each target that it does not talk to it: proven, and not believed."""
    for target in targets:
        with pytest.raises(Refused):
            Insider(holder, target, shown, refuses=why)
    time.sleep(HEARD)
    assert serve(targets), [target.health() for target in targets]
    assert targets[0].api("POST", "/v1/tokens", {}).status == 201


def test_a_refusal_of_a_replica_that_was_removed_is_not_believed(cluster):
    """Its certificate and the key of the log prove who it was. Neither takes another replica out, nor does a certificate below an
    issuer that the root has denied."""
    first = cluster.replicas[0]
    new = Replica(first).join()
    first.cli("cluster", "remove", new.id)
    until(lambda: all(len(replica.status()["replicas"]) == 3 for replica in cluster.replicas), "it is left out")
    for why in ("duplicate", "rolled_back"):
        refuses(new, cluster.replicas, why)
    thief = Thief(first)
    shown = forged(new, thief, 99)
    first.cli("ca", "import-crl", "--file", denied(first, thief.certificate))
    cluster.until_equal()
    refuses(new, cluster.replicas, "rolled_back", shown)


def test_a_transfer_ends_with_the_removal_of_its_sender(cluster):
    """A snapshot that a member announced, and sends byte by byte: once it is removed its connection is closed, and nothing is taken."""
    first = cluster.replicas[0]
    new = Replica(first).join()
    members = {"log_id": None, "membership": {"configs": [[1, 2, 3]], "nodes": {}}}
    meta = {"last_log_id": at(LATER, new, 10**6), "last_membership": members, "snapshot_id": "x"}
    uploads = []
    for target in cluster.replicas:
        upload = Insider(new, target)
        upload.send({"snapshot": {"vote": vote(LATER, new), "meta": meta, "length": 10_000}})
        upload.tls.sendall(b"x")
        uploads.append(upload)
    first.cli("cluster", "remove", new.id)

    def goes_on(upload) -> bool:
        try:
            upload.tls.sendall(b"x")
        except OSError:
            return False
        return True

    deadline = time.monotonic() + CUT
    while any([goes_on(upload) for upload in uploads]):
        assert time.monotonic() < deadline, "a removed replica goes on sending"
        time.sleep(1)
    assert serve(cluster.replicas)
    assert all(replica.status()["term"] < LATER for replica in cluster.replicas)


def test_removals_at_the_same_moment_do_not_lose_the_majority(programs):
    """Of four voters one is dead. Two of the others are removed at once: each alone would leave a majority, both together would not. The cluster
    goes on writing."""
    with Cluster(5) as running:
        leader, others = running.roles()
        leader.cli("cluster", "remove", others[3].id)
        left = [leader, *others[:3]]
        until(lambda: all(len(replica.status()["replicas"]) == 4 for replica in left), "four are left", patience=60)
        others[2].kill()

        def dead() -> bool:
            rows = leader.status()["replicas"]
            return any(row["replica_id"] == others[2].id and row["health"] == "unreachable" for row in rows)

        until(dead, "the dead one is missed", patience=60)
        removals = [
            threading.Thread(target=leader.cli, args=("cluster", "remove", other.id), kwargs={"ok": False})
            for other in others[:2]
        ]
        for removal in removals:
            removal.start()
        for removal in removals:
            removal.join()
        # The lead may have changed hands.
        until(lambda: leader.api("POST", "/v1/tokens", {}).status == 201, "it goes on writing", patience=60)
        time.sleep(HEARD)
        assert leader.api("POST", "/v1/tokens", {}).status == 201
