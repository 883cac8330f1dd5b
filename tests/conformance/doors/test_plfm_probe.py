"""Is a host where it says it is? What the control plane does to find out, and what it must not be made to do (D26)."""

import socket

import pytest

import hosts
from machine import until
from secluded import NOWHERE, Secluded

def alerts(plane, host) -> list[dict]:
    return [alert for alert in plane.items("/v1/alerts") if alert["node_id"] == host.id]


@pytest.fixture
def probing(plane):
    """A control plane whose policy is as it was afterwards."""
    yield plane
    plane.policy("underlay.probe", "warn")
    plane.policy("underlay.probe_any", "false")


@pytest.fixture
def secluded(programs):
    """A control plane that has no route to any other machine."""
    with Secluded() as running:
        yield running


@pytest.fixture
def listener():
    """A UDP socket on an address of this machine that no request comes from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.2", 0))
        receiver.setblocking(False)
        yield receiver


def heard(receiver) -> bool:
    try:
        return bool(receiver.recv(64))
    except BlockingIOError:
        return False


def test_who_cannot_be_reached_is_let_in_with_an_alert(secluded):
    """Proves PLFM-14: `warn` lets the host in and raises `underlay_unreachable`, which ends with the host."""
    secluded.policy("underlay.probe_any", "true")
    host = hosts.enroll(secluded, underlay_endpoint=NOWHERE)
    (alert,) = until(lambda: alerts(secluded, host), "the alert was raised")
    assert alert["kind"] == "underlay_unreachable" and NOWHERE["ipv4"] in alert["detail"]
    host.act("revoke")
    assert not alerts(secluded, host)


@pytest.mark.parametrize("probe", ["warn", "off"])
def test_an_enrollment_that_is_not_found_unreachable_ends_the_alert(secluded, probe):
    """What the host named before is over when it enrolls again: with one that answers, or where nobody probes any more."""
    secluded.policy("underlay.probe_any", "true")
    host = hosts.enroll(secluded, underlay_endpoint=NOWHERE)
    until(lambda: alerts(secluded, host), "the alert was raised")
    secluded.policy("underlay.probe", probe)
    hosts.enroll(secluded, secluded.token(node=host.id))
    until(lambda: not alerts(secluded, host), "the alert was cleared")


def test_who_must_be_reachable_and_is_not_keeps_its_token(secluded):
    """Proves PLFM-14, PLFM-16, PLFM-36: 422 `underlay_unreachable`, the token not consumed, and what to do about it."""
    secluded.policy("underlay.probe", "require")
    secluded.policy("underlay.probe_any", "true")
    minted = hosts.mint(secluded)
    answer = hosts.ask(secluded, hosts.request(minted["token"], underlay_endpoint=NOWHERE))
    assert (answer.status, answer.code) == (422, "underlay_unreachable")
    assert NOWHERE["ipv4"] in answer.json()["error"]["message"] and "network" in answer.json()["error"]["hint"]
    both = {"ipv6": "::1", **NOWHERE}
    assert hosts.ask(secluded, hosts.request(minted["token"], underlay_endpoint=both)).code == "underlay_unreachable"
    assert hosts.unused(secluded, minted["token_id"])
    hosts.enroll(secluded, minted["token"])


def test_a_port_that_is_not_open_yet_is_reachable(probing):
    """Proves PLFM-14: the host answers that nobody listens, because WireGuard comes later; so does an open port."""
    probing.policy("underlay.probe", "require")
    hosts.enroll(probing)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        host = hosts.enroll(probing, underlay_endpoint={"ipv4": "127.0.0.1", "port": silent.getsockname()[1]})
        silent.settimeout(30)
        assert len(silent.recv(2048)) == 1, "it was asked with one octet"
    assert not alerts(probing, host)


def test_nobody_else_is_probed(probing, listener):
    """D26: an address that is not the caller's own is not asked; where an answer is required it is 422."""
    endpoint = {"ipv4": "127.0.0.2", "port": listener.getsockname()[1]}
    probing.policy("underlay.probe", "require")
    minted = hosts.mint(probing)
    answer = hosts.ask(probing, hosts.request(minted["token"], underlay_endpoint=endpoint))
    assert (answer.status, answer.code) == (422, "underlay_unreachable")
    assert not heard(listener) and hosts.unused(probing, minted["token_id"])
    probing.policy("underlay.probe_any", "true")
    hosts.enroll(probing, minted["token"], underlay_endpoint=endpoint)
    until(lambda: heard(listener), "policy allows more")


def test_nobody_is_probed_for_a_stranger(probing, listener):
    """D26: only after the token matched, and only if the rest of the request is good."""
    probing.policy("underlay.probe", "require")
    probing.policy("underlay.probe_any", "true")
    endpoint = {"ipv4": "127.0.0.2", "port": listener.getsockname()[1]}
    used = hosts.mint(probing)
    hosts.enroll(probing, used["token"])
    known = hosts.mint(probing)["token"]
    for token, fields in (("enroll_" + "A" * 43, {}), (used["token"], {}), (known, {"mtls_csr": "x"}), (known, {"wireguard_public_key": "x"})):
        assert hosts.ask(probing, hosts.request(token, underlay_endpoint=endpoint, **fields)).status in (400, 401, 409)
        assert not heard(listener)


def test_off_is_off(probing, listener):
    """`underlay.probe off`: nobody is asked, nothing is alerted. What is not a value of the policy is refused."""
    probing.policy("underlay.probe", "require")
    probing.policy("underlay.probe_any", "true")
    endpoint = {"ipv4": "127.0.0.2", "port": listener.getsockname()[1]}
    hosts.enroll(probing, underlay_endpoint=endpoint)
    until(lambda: heard(listener), "it is asked when it should be")
    probing.policy("underlay.probe", "off")
    host = hosts.enroll(probing, underlay_endpoint=endpoint)
    probing.policy("underlay.probe", "require")
    hosts.enroll(probing)
    assert not heard(listener) and not alerts(probing, host)
    for key, value in (("underlay.probe", "perhaps"), ("underlay.probe_any", "2"), ("agent.version_policy", "a b")):
        answer = probing.api("PUT", "/v1/policy", {"key": key, "value": value})
        assert (answer.status, answer.code) == (400, "policy_value_invalid")


def test_hosts_are_told_the_policy_for_their_agents(plane_of_its_own):
    """Proves PLFM-17: `agent.version_policy`, `auto` until it is set."""
    plane_of_its_own.policy("agent.version_policy", "manual")
    answer = hosts.enroll(plane_of_its_own).answer
    assert answer["cluster_config"]["agent_version_policy"] == "manual"
