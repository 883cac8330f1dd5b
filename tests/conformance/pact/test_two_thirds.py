"""When a machine of 001 renews: with a certificate of three days."""

import datetime

import certs
import pytest
import sysfs
from aging import Aging
from machine import until
from sysfs import Machine

LIFE = 72


@pytest.fixture
def aging(programs):
    def machine(plane) -> Machine:
        sysfs.allow(plane)
        return Machine(plane).register("aged-1", "--profile", "pact")

    made = Aging(machine)
    yield made
    made.close()


def test_a_machine_renews_at_two_thirds_of_three_days(aging):
    """Proves PACT-20: not before hour 48, and by itself soon after; a twentieth of the life is jitter."""
    first = aging.leaf()
    assert abs(certs.seconds(first) - LIFE * 3600) <= 60
    due = datetime.datetime.fromisoformat(aging.status()["renew_at"]) - first.not_valid_before_utc
    assert 48 <= due.total_seconds() / 3600 <= 51.7
    aging.rest()
    aging.at(47.5)
    aging.work()
    assert certs.serial(aging.leaf()) == certs.serial(first) and aging.plane.audit("certificate.renewed") == []
    aging.rest()
    aging.at(52)
    aging.work()
    until(lambda: certs.serial(aging.leaf()) != certs.serial(first), "it renews by itself")
    until(lambda: aging.plane.node("aged-1")["cert_serial"] == certs.serial(aging.leaf()), "the registry agrees")
    (line,) = aging.plane.audit("certificate.renewed")
    assert (line["node_id"], line["actor"]) == ("aged-1", "node:aged-1")
    assert len(aging.plane.audit("host.enrolled")) == 1, "a renewal, and no second enrollment"
