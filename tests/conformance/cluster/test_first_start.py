"""The first start of a replica that joined: what was changed or forgotten between `server join` and `server run`."""

import hsm
from clusters import Cluster, Replica, cluster_token
from daemons import free_port
from machine import until


def test_an_address_that_is_corrected_before_the_first_start_is_where_the_others_reach_it(programs):
    """Given wrongly at join, corrected in enlist.toml: the new replica is sent the log, serves, and its new address goes on record."""
    with Cluster(1) as cluster:
        first = cluster.replicas[0]
        new = cluster.replica()
        cluster.replicas.append(new)
        new.join()
        given, new.peer_port = new.peer_address, free_port()
        settings = new.dir / "enlist.toml"
        text = settings.read_text()
        assert given in text, text
        settings.write_text(text.replace(given, new.peer_address))
        new.start()

        def on_record() -> bool:
            peers = {item["replica_id"]: item["peer"] for item in first.status()["replicas"]}
            return peers[new.id] == new.peer_address

        until(on_record, "the new address is on record", patience=120)
        assert new.health()["role"] == "learner", new.health()


def test_a_replica_that_was_removed_before_it_ever_ran_says_so_and_ends(programs):
    with Cluster(1) as cluster:
        first = cluster.replicas[0]
        new = cluster.replica().join()
        first.cli("cluster", "remove", new.id)
        done = new.run_to_end()
        assert done.code == 1 and "replica_removed" in done.err, done
        assert "join it as a new replica" in " ".join(done.err.split()), done


def test_a_replica_of_a_domain_with_an_hsm_is_told_what_its_configuration_lacks(programs):
    """At join, and at a start without it; with the section of another replica it starts."""
    token = hsm.Token()
    first = Replica(init=token.init())
    first.env = token.env
    new = None
    try:
        first.found().start()
        new = Replica(first)
        new.env = token.env
        joined = new.join_command(cluster_token(first))
        assert joined.code == 0 and joined.json()["needs_hsm"] is True, joined
        new.founded = {**first.founded, **joined.json()}
        refused = new.run_to_end()
        assert refused.code == 1 and "issuer_unavailable" in refused.err and "kek_wrong" not in refused.err, refused
        assert "[pkcs11]" in refused.err and "of a replica that runs" in " ".join(refused.err.split()), refused
        theirs = (first.dir / "enlist.toml").read_text()
        section = theirs[theirs.index("[pkcs11]") :]
        with (new.dir / "enlist.toml").open("a") as file:
            file.write("\n" + section)
        new.start()
        until(lambda: new.health()["role"] == "learner", "it follows", patience=120)
    finally:
        if new:
            new.close()
        first.close()
