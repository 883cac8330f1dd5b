"""The overlay of a cluster: hosts of different replicas are told of each other, and may move between replicas."""

from clusters import Cluster
from machine import until
from overlays import Fleet, Host

import native


def host_at(fleet: Fleet, replica, minting) -> Host:
    node = native.enroll(replica, minting.mint()["token"])
    until(lambda: confirmed(node), "it confirms", patience=120)
    host = Host(node).open(replica)
    fleet.hosts.append(host)
    until(lambda: joined(host), "it joins", patience=120)
    return host


def confirmed(node) -> bool:
    try:
        node.confirm()
        return True
    except native.Refused as refused:
        assert refused.code in ("no_quorum", "outcome_unknown", "unavailable", "already_confirmed"), refused
        return refused.code == "already_confirmed"


def joined(host: Host) -> bool:
    known = len(host.answers)
    host.claim()
    return host.answer(known + 1).code == ""


def test_hosts_of_three_replicas_are_peers_and_move_between_them(programs):
    """Proves PLFM-25, D14: what one replica commits, hosts of the others are told; a host that comes to another replica goes on
    where it was; status has the hosts of all replicas."""
    with Cluster(3) as cluster:
        leader = cluster.leader()
        with Fleet(leader) as fleet:
            hosts = [host_at(fleet, replica, leader) for replica in cluster.replicas]
            for host in hosts:
                until(lambda host=host: host.others() == {other.id for other in hosts} - {host.id}, "the others", patience=120)
            status = leader.items("/v1/overlay")
            assert {item["node_id"] for item in status if item["told"]} == {host.id for host in hosts}
            moving = hosts[2]
            known, peers = moving.revision, dict(moving.peers)
            moving.close()
            back = Host(moving.node, moving.key).open(cluster.replicas[0])
            fleet.hosts.append(back)
            back.peers, back.revision = peers, known
            back.claim(revision=known)
            assert back.answer().code == ""
            cluster.replicas[1].revoke(hosts[0].id)
            for host in (hosts[1], back):
                until(lambda host=host: hosts[0].id not in host.others(), "it is gone", patience=120)
            assert all(frame.HasField("after") for frame in back.frames) and not back.lost
            late = host_at(fleet, cluster.replicas[2], leader)
            for host in (hosts[1], back):
                until(lambda host=host: late.id in host.others(), "the newcomer", patience=120)
                assert not host.lost
