"""One context, several replicas: a person's command goes on where one of them has died."""

import os
import shutil

import pytest
from clusters import Cluster
from daemons import free_port
from machine import ENLIST, run, until
from test_contexts import enlist


@pytest.fixture
def home(place):
    """A user with an empty configuration."""
    (place / "config").mkdir()
    return {"XDG_CONFIG_HOME": str(place / "config"), "HOME": str(place)}


def test_a_command_goes_to_the_next_url_where_the_first_does_not_answer(plane, place, home):
    """By flags, by a variable and by a context, which is read also as one URL; nothing is repeated that may have been done."""
    out = place / "alice"
    plane.cli("operator", "add", f"alice-{os.urandom(4).hex()}", "--role", "operator", "--out", out)
    dead = f"https://127.0.0.1:{free_port()}"
    proof = ("--cert", out / "cert.pem", "--key", out / "key.pem", "--ca", out / "ca.pem")
    both = ("--server", dead, "--server", plane.url)
    assert run(ENLIST, "node", "list", *both, *proof).code == 0
    assert run(ENLIST, "token", "create", *both, *proof).code == 0
    assert run(ENLIST, "node", "list", *proof, env={"ENLIST_SERVER": f"{dead},{plane.url}"}).code == 0
    assert run(ENLIST, "node", "list", "--server", dead, *proof).code == 4
    added = enlist("context", "add", "prod", *both, *proof, env=home).json()
    assert added["server"] == dead and added["servers"] == [dead, plane.url], added
    assert run(ENLIST, "node", "list", env=home).code == 0
    text = (place / "config" / "enlist" / "contexts.toml").read_text()
    assert f'server = ["{dead}", "{plane.url}"]' in text, text
    shown = run(ENLIST, "context", "show", env=home).out
    assert f"{dead}, {plane.url}" in shown, shown
    enlist("context", "add", "one", "--server", plane.url, *proof, env=home)
    assert f'server = "{plane.url}"' in (place / "config" / "enlist" / "contexts.toml").read_text()


def test_an_operator_of_a_cluster_is_given_every_replica_and_survives_one(programs, place, home):
    with Cluster(3) as cluster:
        first = cluster.leader()
        out = place / "alice"

        def knows_all() -> bool:
            """A replica is named once it is known to hold the registry."""
            first.cli("operator", "remove", "alice", ok=False)
            shutil.rmtree(out, ignore_errors=True)
            added = first.cli("operator", "add", "alice", "--role", "operator", "--out", out).json()
            return len(added["server_urls"]) == 3

        until(knows_all, "every replica is in the answer", 120)
        enlist("context", "add", "prod", "--file", out / "context.toml", env=home)
        first.kill()
        until(lambda: run(ENLIST, "token", "create", env=home).code == 0, "another replica takes the change", 120)
        assert run(ENLIST, "node", "list", env=home).code == 0
