"""The overlay of a cluster: hosts of different replicas are told of each other, and may move between replicas."""

from clusters import Cluster
from machine import until
from overlays import Fleet, Host, Key

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


def test_a_claim_whose_outcome_is_unknown_is_no_refusal(programs):
    """A host that replaces its key while there is no majority hears nothing until there is one: a refusal would make it give up a
    key that may be on record."""
    with Cluster(3) as cluster:
        leader, followers = cluster.roles()
        with Fleet(leader) as fleet:
            host = host_at(fleet, leader, leader)
            assert leader.cli("node", "rotate", "--overlay", host.id).code == 0
            until(lambda: host.orders, "the order")
            known, new = len(host.answers), Key()
            for follower in followers:
                follower.freeze()
            host.claim(key=new, former_proof=host.former_proof(new))
            # Proposals made after it have come to nothing.
            until(lambda: "no_quorum" in leader.api("GET", "/readyz").json()["reasons"], "there is no majority", patience=60)
            assert leader.cli("token", "create", ok=False).code != 0
            assert not host.answers[known:], host.answers[known:]
            for follower in followers:
                follower.thaw()
            # A leader that lost the others may have ended the stream: the same claim on the next one is answered too.
            back = Host(host.node, new)
            until(lambda: host.answers[known:] or host.stream.ended.is_set(), "an answer, or the end of the stream", patience=60)
            if not host.answers[known:]:
                fleet.hosts.append(back.open(cluster.leader()))
                back.claim(former_proof=host.key.proof(back.welcome.overlay_challenge, host.id, new.public))
            answer = (host.answers[known:] or [None])[-1] or back.answer()
            assert answer.code == "", answer
            assert cluster.leader().node(host.id)["overlay"]["wireguard_public_key"] == new.text
