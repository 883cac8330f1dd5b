"""Whether a removal leaves a majority is asked of the replicas now: one that was heard of a second ago may have died since."""

import concurrent.futures

import pytest
from cluster_load import enroll
from clusters import Cluster, Replica
from machine import until


def remove(asked: Replica, gone: Replica):
    return asked.cli("cluster", "remove", gone.id, "--yes", ok=False)


def is_refused(done, *silent: Replica) -> bool:
    """And the answer names those that did not answer."""
    assert done.code == 3, done
    error = done.error()
    assert error["code"] == "would_lose_majority", error
    assert error["message"].endswith("no answer from: " + ", ".join(replica.id for replica in silent)), error
    return True


def voters(replica: Replica) -> set[str]:
    return {item["replica_id"] for item in replica.status()["replicas"] if item["voter"]}


def serves(replica: Replica) -> None:
    assert replica.status()["quorum"], "a majority answers"
    enroll(replica)


def removed(asked: Replica, gone: Replica) -> None:
    """A removal that is to succeed; on a machine that is too busy for an answer in time, it is refused and asked for again."""

    def accepted() -> bool:
        done = remove(asked, gone)
        assert done.code in (0, 3, 4), done
        return done.code == 0

    until(accepted, f"replica {gone.id} is removed", patience=120)
    until(lambda: gone.id not in voters(asked), "it does not vote any more", patience=120)


@pytest.mark.parametrize("end", ["kill", "freeze"])
def test_no_live_voter_is_removed_right_after_another_one_died(programs, end):
    """Of three voters one has just died, or hangs. To remove a live one would leave two, of which one is dead: nobody could change
    anything any more. It is refused at the leader, at the follower, and for the leader itself; the dead one can be removed."""
    with Cluster(3) as cluster:
        leader, (live, gone) = cluster.roles()
        getattr(gone, end)()
        assert is_refused(remove(leader, live), gone)
        assert is_refused(remove(live, leader), gone)
        assert is_refused(remove(live, live), gone)
        serves(cluster.leader([leader, live]))
        assert voters(leader) == {leader.id, live.id, gone.id}
        assert not leader.audit("cluster.removed")

        removed(leader, gone)
        assert voters(leader) == {leader.id, live.id}
        serves(leader)
        serves(live)
        assert [line["replica_id"] for line in leader.audit("cluster.removed")] == [gone.id]


def test_removals_of_a_dead_and_of_a_live_voter_at_once_leave_a_majority(programs):
    """Whichever comes first: without the dead one, the live one may go too."""
    with Cluster(3) as cluster:
        leader, (live, gone) = cluster.roles()
        gone.kill()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = [pool.submit(remove, asked, victim) for asked, victim in ((leader, live), (live, gone))]
        for each in done:
            code = each.result().code
            assert code in (0, 3), each.result()
        until(lambda: gone.id not in voters(leader) or remove(leader, gone).code, "the dead one is out", patience=120)
        serves(leader)
        assert leader.id in voters(leader)


def test_a_learner_that_died_gets_no_vote(programs):
    """A fourth replica waits for an odd number of voters. It dies, and at once a voter is removed, which would make the number odd
    with it: it counted for the majority without being there."""
    with Cluster(3) as cluster:
        leader, (_, gone) = cluster.roles()
        learner = cluster.add()

        def caught_up() -> bool:
            found = {item["replica_id"]: item for item in leader.status()["replicas"]}
            return found.get(learner.id, {}).get("health") == "ok" and found[learner.id]["lag"] == 0

        until(caught_up, "it has caught up", patience=120)
        learner.kill()
        removed(leader, gone)
        # What is believed of it for the longest has passed by then.
        health = lambda: {item["replica_id"]: item["health"] for item in leader.status()["replicas"]}  # noqa: E731
        until(lambda: health()[learner.id] == "unreachable", "it is missed", patience=120)
        assert learner.id not in voters(leader) and len(voters(leader)) == 2
        serves(leader)
        learner.start()
        until(lambda: learner.id in voters(leader), "it votes once it is back", patience=120)


def test_a_voter_that_died_is_replaced(programs):
    """A token, a join and the removal of the dead one, all right after its death: the new one votes in its place."""
    with Cluster(3) as cluster:
        leader, (live, gone) = cluster.roles()
        gone.kill()
        cluster.replicas.remove(gone)
        try:
            # The harness joins through the first of those that run.
            new = cluster.add()
            serves(live)
            removed(leader, gone)
            until(lambda: voters(leader) == {leader.id, live.id, new.id}, "the new one votes", patience=120)
            serves(new)
        finally:
            gone.close()
