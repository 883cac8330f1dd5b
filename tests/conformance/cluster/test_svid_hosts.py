"""Hosts that come by their SVIDs to three replicas: they move when theirs dies, and a revocation cuts them off everywhere."""

import clusters
import native
import pytest
from clusters import Cluster
from daemons import Daemon
from false_spire import FalseSpire, FalseSpireAgent
from machine import until
from spires import accepted

REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"


@pytest.fixture(scope="module")
def spire():
    return FalseSpire()


@pytest.fixture
def cluster(spire, programs):
    with Cluster(3, config=accepted(spire)) as running:
        yield running


def register(replica, node: str, number: int) -> None:
    replica.cli("node", "register", node, "--mac", f"52:54:00:12:34:{number:02x}")


def by_svid(replica, node: str) -> bool:
    shown = replica.node(node)
    return shown["connected"] and shown["identity_provider"] == "spire"


def test_a_host_goes_on_at_another_replica_by_its_svid_and_is_cut_off_by_a_third(spire, cluster):
    """A real agent without a token: its replica is killed, another one revokes it. Proves PACT-30, PACT-37."""
    here, left = cluster.roles()
    register(here, "web-1", 1)
    api = FalseSpireAgent(spire, "/enlist/web-1")
    agent = Daemon(here, ENLIST_AGENT_SPIRE_SOCKET=f"unix://{api.path}").start()
    try:
        until(lambda: by_svid(here, "web-1"), "it is connected by its SVID")
        here.kill()
        cluster.leader(left)

        def moved():
            return next((replica for replica in left if by_svid(replica, "web-1")), None)

        now = until(moved, "it is connected to another replica, by its SVID", 120)
        until(lambda: (agent.status() or {}).get("identity_provider") == "spire", "it says so itself", 120)
        assert now.node("web-1")["state"] == "active" and not now.audit("host.inactive")
        kinds = {alert["kind"] for alert in now.items("/v1/alerts")}
        assert not kinds & {"clone_suspected", "node_silent", "node_replaced"}, kinds
        (third,) = [replica for replica in left if replica is not now]
        third.revoke("web-1")
        until(lambda: not now.node("web-1")["connected"], "it is cut off")
        until(lambda: agent.status()["state"] == "revoked", "it knows that it is revoked", 120)
        for replica in left:
            refused_soon(replica, spire.svid("/enlist/web-1"))
        # The replica that was away when it was revoked.
        here.start()
        refused_soon(here, spire.svid("/enlist/web-1"))
    finally:
        agent.stop()
        agent.note_secrets()
        api.close()


def refused_soon(replica, svid) -> None:
    until(lambda: native.alert(replica, svid) == REVOKED, "the next handshake is refused", 30)


def test_a_revocation_on_one_replica_cuts_an_svid_off_at_another(spire, cluster):
    """Each node has its stream at one replica and is revoked on another. The others' streams stay, and no replica takes a handshake of
    it any more, with this SVID or the next. Proves PACT-30, PACT-37."""
    hosts = []
    for number, here in enumerate(cluster.replicas):
        node = f"db-{number}"
        register(cluster.replicas[0], node, 16 + number)
        svid = spire.svid(f"/enlist/{node}")
        door = clusters.door(here, svid)
        stream = door.live(node)
        welcome = stream.next("welcome")
        assert (welcome.standing.state, welcome.node_id) == ("active", node)
        hosts.append((node, svid, door, stream, cluster.replicas[(number + 1) % 3]))
    for at, (node, svid, door, stream, there) in enumerate(hosts):
        there.revoke(node)
        # Whoever has acknowledged it refuses it from that moment on.
        assert native.alert(there, svid) == REVOKED
        stream.wait_end()
        door.close()
        assert not any(other.ended.is_set() for _, _, _, other, _ in hosts[at + 1 :]), "others were cut off with it"
        for replica in cluster.replicas:
            refused_soon(replica, svid)
            assert native.alert(replica, spire.svid(f"/enlist/{node}")) == REVOKED, "the next SVID of the same node"
    trails = cluster.until_equal()
    assert trails[0] == trails[1] == trails[2]
