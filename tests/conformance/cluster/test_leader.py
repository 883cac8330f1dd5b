"""A leader that dies under load, and a majority that is lost."""

import time

import clusters
import native
from cluster_load import Load, check_on_record, enroll, spread
from clusters import Cluster
from machine import until


def test_nothing_acknowledged_is_lost_when_leaders_die(programs):
    """SIGKILL of the leader, again and again, while machines enroll through all replicas and try again. Each acknowledged enrollment
    is on record on every replica, once, with the fingerprint of the certificate that was received; nothing else is; the trails
    are equal byte for byte. Proves PACT-12, PACT-41."""
    pauses = []
    with Cluster(3) as cluster:
        load = Load(cluster)
        try:
            until(load.goes_on(), "machines get in")
            for _ in range(clusters.ROUNDS):
                leader = cluster.leader()
                killed = time.monotonic()
                leader.kill()
                until(load.goes_on(), "they do again", patience=120)
                pauses.append(load.pause(killed))
                leader.start()
                until(lambda leader=leader: leader.health()["ready"], "it is back", patience=120)
            enrolled = load.end()
        finally:
            load.close()
        for replica in cluster.replicas:
            until(lambda replica=replica: replica.health()["ready"], "it is ready", patience=120)
        check_on_record(cluster, enrolled)
        print(f"\n{len(enrolled)} enrollments, {clusters.ROUNDS} leaders killed, without writes {spread(pauses)}; again: {load.again}")


def test_without_a_majority_nothing_is_written_and_no_node_is_served_for_long(programs):
    """The followers are stopped: their leader is alone. Nothing is promised by it, and after `stale_after` no node is served;
    never as if it were revoked."""
    with Cluster(3) as cluster:
        leader, followers = cluster.roles()
        leader.policy("stale_after", "3s")
        node = enroll(leader)
        with clusters.door(leader, node.files) as door:
            stream = door.live(node.id)
            until(lambda: leader.node(node.id)["state"] == "active", "it is there")
            for follower in followers:
                follower.freeze()
            began = time.monotonic()
            refused = leader.api("POST", "/v1/tokens", {})
            assert refused.status == 503 and refused.code in ("no_quorum", "outcome_unknown"), refused
            assert refused.json()["error"]["retryable"], refused
            print(f"refused after {time.monotonic() - began:.1f} s")
            until(lambda: stream.ended.is_set(), "its stream is closed")
        until(lambda: leader.health()["role"] == "cut_off", "it knows")
        health = leader.health()
        assert not health["ready"] and "no_quorum" in health["reasons"], health

        until(lambda: is_told_stale(leader, node), "it is told that this replica is stale")
        assert native.alert(leader, node.files) in (None, native.CLOSED), "nobody calls it revoked"
        status = leader.api("GET", "/v1/cluster")
        assert status.status == 200 and not status.json()["quorum"] and status.json()["leader"] is None, status
        read = leader.api("GET", "/v1/nodes")
        assert read.status == 200 and int(read.headers["x-state-age-ms"]) > 3000, read
        assert leader.cli("token", "create", ok=False).code == 4
        for follower in followers:
            follower.thaw()
        until(lambda: leader.api("POST", "/v1/tokens", {}).status == 201, "it writes again")

        def served() -> bool:
            """As long as there was no proof of a majority for three seconds, it is not."""
            try:
                with clusters.door(leader, node.files) as door:
                    door.confirm()
            except native.Refused as answer:
                assert answer.code in ("stale", "no_quorum", "outcome_unknown", None), answer
                return False
            return True

        until(served, "the node is served again")


def is_told_stale(replica, node) -> bool:
    """A connection may also be cut before it is answered."""
    try:
        with clusters.door(replica, node.files) as door:
            door.confirm()
    except native.Refused as answer:
        assert answer.code in ("stale", None), answer
        return answer.code == "stale"
    raise AssertionError("it was served")


def test_a_replica_that_starts_without_a_majority_serves_no_node(programs):
    """It was away when a node was revoked, and the others are gone when it is back: its own start is no proof that it knows everything.
    Proves PACT-30, PACT-41."""
    with Cluster(3) as cluster:
        node = enroll(cluster.replicas[1])
        with node.door() as door:
            door.confirm()
        away, others = cluster.replicas[-1], cluster.replicas[:-1]
        until(lambda: away.node(node.id)["state"] == "active", "it knows the node")
        away.stop()
        others[0].revoke(node.id)
        for other in others:
            other.kill()
        away.start()
        until(lambda: is_told_stale(away, node), "the node is sent away")
        health = away.health()
        assert health["role"] == "cut_off" and "no_quorum" in health["reasons"], health
        status = away.status()
        assert not status["quorum"] and 0 < status["state_age_ms"] < 600_000, status
        for other in others:
            other.start()
        refused = lambda: "REVOKED" in (native.alert(away, node.files) or "")  # noqa: E731
        until(refused, "with a majority it is refused as revoked", patience=120)


def test_a_replica_that_was_away_catches_up(programs):
    """Killed, and back after others went on without it: it has every line, also of what came while it was away."""
    with Cluster(3) as cluster:
        away = cluster.followers()[0]
        away.kill()
        left = [replica for replica in cluster.replicas if replica is not away]
        enrolled = {enroll(left[at % 2]).id for at in range(10)}
        away.start()
        assert enrolled <= {node["node_id"] for node in clusters.fresh(away, "/v1/nodes?limit=1000")["items"]}
        trails = cluster.until_equal()
        assert trails[0] == trails[1] == trails[2]


def test_a_replica_joins_after_the_log_was_purged(programs):
    """What the log no longer holds comes as a snapshot, and the lines of the trail from a peer: all of it, and it verifies."""
    first = clusters.Replica().found().start()
    cluster = Cluster(3)
    cluster.replicas.append(first)
    try:
        for _ in range(3):
            for _ in range(5):
                enroll(first)
            first.restart()
        first.policy("failures.per_minute", "0")
        node = enroll(first)
        new = cluster.add()
        cluster.add()
        cluster.until_voting(3)
        assert new.node(node.id)["cert_serial"] == node.serial
        assert "a snapshot arrived" in new.err.read_text(errors="replace"), "otherwise this shows nothing"
        trails = cluster.until_equal()
        assert trails[0] == trails[1] == trails[2]
        until(lambda: new.cli("audit", "verify", ok=False).code == 0, "its trail verifies")
        new.restart()
        assert enroll(new).id
    finally:
        cluster.close()
