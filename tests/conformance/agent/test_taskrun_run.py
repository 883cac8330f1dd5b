"""A worker of 003 that runs: when it renews."""

import datetime

import pytest

import certs
from aging import Aging
from daemons import Daemon
from machine import scratch, until

WORKER = """
[tls]
ca_cert = "certs/ca.crt"
worker_cert = "certs/worker.crt"
worker_key = "certs/worker.key"
bootstrap_token = "${TASKRUN_BOOTSTRAP_TOKEN}"
"""


@pytest.fixture(params=[("taskrun", 168), ("taskrun-prod", 24)], ids=["dev, 7 days", "prod, 24 hours"])
def aging(request):
    """A worker with a certificate of this profile, and how many hours that lives."""
    profile, life = request.param

    def worker(plane) -> Daemon:
        home = scratch("worker")
        (home / "certs").mkdir()
        (home / "certs/ca.crt").write_bytes(plane.bundle)
        (home / "worker.toml").write_text(WORKER)
        new = Daemon(plane, arguments=("--from-taskrun", home / "worker.toml"))
        del new.environment["ENLIST_AGENT_CA_PIN"]
        new.environment["TASKRUN_BOOTSTRAP_TOKEN"] = plane.mint(profile=profile)["token"]
        return new

    made = Aging(worker)
    yield made, life
    made.close()


def test_a_worker_renews_at_half_of_its_life(aging):
    """Proves TASK-10: nothing happens before half of the lifetime; soon after, the worker has renewed by itself.

    Jitter may add a twentieth of the life.
    """
    old, life = aging
    first, node = old.leaf(), old.status()["node_id"]
    assert abs(certs.seconds(first) - life * 3600) <= 60
    due = datetime.datetime.fromisoformat(old.status()["renew_at"]) - first.not_valid_before_utc
    assert life / 2 <= due.total_seconds() / 3600 <= life * 0.551
    old.rest()
    old.at(life * 0.49)
    old.work()
    assert certs.serial(old.leaf()) == certs.serial(first) and old.plane.audit("certificate.renewed") == []
    old.rest()
    old.at(life * 0.56)
    old.work()
    until(lambda: certs.serial(old.leaf()) != certs.serial(first), "it renews by itself")
    until(lambda: old.plane.node(node)["cert_serial"] == certs.serial(old.leaf()), "the registry agrees")
    (line,) = old.plane.audit("certificate.renewed")
    assert (line["node_id"], line["actor"]) == (node, f"node:{node}")
