"""An agent of 002 that runs: when it rotates, and by which call."""

import datetime

import pytest

import certs
import native
import probectl
from aging import Aging
from daemons import Daemon
from machine import until

LIFE = 24


@pytest.fixture
def aging(names):
    def agent(plane) -> Daemon:
        new = Daemon(plane, probectl.token(plane))
        new.program = names.bin / "probectl-agent"
        return new

    made = Aging(agent, "cert.pem", domain="probectl")
    yield made
    made.close()


def test_the_agent_rotates_at_two_thirds_of_24_hours(aging):
    """Proves PROBE-17, PROBE-11, PROBE-20: not before hour 16, and by itself soon after; a twentieth of the life is jitter.

    `probectl-agent run` rotates by the native call, over mTLS with its current leaf; the next test shows the document's.
    """
    first = aging.leaf()
    node = aging.status()["node_id"]
    assert certs.uris(first) == [f"spiffe://probectl/tenant/default/agent/{node}"]
    assert abs(certs.seconds(first) - LIFE * 3600) <= 60
    due = datetime.datetime.fromisoformat(aging.status()["renew_at"]) - first.not_valid_before_utc
    assert 16 <= due.total_seconds() / 3600 <= 17.3
    aging.rest()
    aging.at(15.5)
    aging.work()
    assert certs.serial(aging.leaf()) == certs.serial(first) and aging.plane.audit("certificate.renewed") == []
    aging.rest()
    aging.at(17.5)
    aging.work()
    until(lambda: certs.serial(aging.leaf()) != certs.serial(first), "it rotates by itself")
    second = aging.leaf()
    assert certs.uris(second) == certs.uris(first) and certs.public_der(second) != certs.public_der(first)
    key = certs.serialization.load_pem_private_key((aging.agent.dir / "key.pem").read_bytes(), None)
    assert certs.public_der(key) == certs.public_der(second), "the files are one identity"
    until(lambda: aging.plane.node(node)["cert_serial"] == certs.serial(second), "the registry agrees")
    (line,) = aging.plane.audit("certificate.renewed")
    assert (line["node_id"], line["actor"]) == (node, f"node:{node}")


def test_the_documents_call_rotates_the_same_files(aging):
    """Proves PROBE-17, PROBE-18: `POST /enroll/agent/rotate` with the current leaf and its key, at 2/3 and after."""
    there = aging.agent.dir
    aging.rest()
    aging.at(16.1)
    current = (there / "cert.pem").read_text()
    key = certs.serialization.load_pem_private_key((there / "key.pem").read_bytes(), None)
    fresh = certs.ec_key()
    request = certs.csr(fresh)
    # The listener's certificate was made today, so that a client of today still believes it.
    answer = probectl.ask_rotate(aging.plane, current, request, probectl.proof(key, request))
    agent = probectl.Agent(aging.plane, answer, fresh)
    assert agent.told["spiffe_id"] == certs.uris(certs.certificates(current)[0])[0]
    until_end = agent.leaf.not_valid_after_utc - certs.certificates(current)[0].not_valid_before_utc
    assert abs(until_end.total_seconds() / 3600 - (16.1 + LIFE)) < 0.2, "a whole life from now on"
    assert native.alert(aging.plane, agent.files) is None
