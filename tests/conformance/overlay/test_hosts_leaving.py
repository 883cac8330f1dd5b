"""A host that is revoked, quarantined or decommissioned is out of every peer set, and so are its packets."""

import time

import pytest

from machine import until
from namespaces import Overlay


@pytest.fixture
def overlay():
    with Overlay() as made:
        yield made


def pinged(overlay):
    """Five hosts, of which all others ping the last."""
    *others, last = overlay.joined("4", "46", "46", "4", "46")
    node, address = last.node_id(), last.address
    pings = [overlay.ping(host, address) for host in others]
    for ping in pings:
        ping.wait_answers(10)
    return others, last, node, pings


def last_answers(pings, command) -> list[float]:
    """How long after the command the last answer of each came."""
    began = time.time()
    command()
    for ping in pings:
        ping.wait_silence()
    return [ping.last_answer() - began for ping in pings]


def report(what: str, took: list[float]) -> None:
    print(f"\n{what}: the last answered packet came {max(took) * 1000:.0f} ms after the command began")


def test_a_revoked_host_is_out_of_every_peer_set(overlay, capsys):
    """Proves PLFM-25, PLFM-24. On the hosts themselves; its own interface is gone as well, and its key stays on it."""
    others, last, node, pings = pinged(overlay)
    key = last.overlay()["public_key"]
    took = last_answers(pings, lambda: overlay.plane.cli("node", "revoke", node, "--reason", "stolen"))
    with capsys.disabled():
        report("revoke", took)
    assert max(took) < 30
    for host in others:
        host.wait_up(3)
        assert key not in host.shown()
    until(lambda: not last.has_interface(), "the revoked host has no interface")
    assert last.overlay()["state"] == "off"
    assert (last.dir / "wireguard" / "private.key").exists()
    overlay.all_reach_all(others)


def test_a_revocation_holds_although_the_control_plane_is_killed_after_it(overlay):
    """Proves PLFM-25. Once the command is answered, every host that is connected has been told."""
    others, last, node, pings = pinged(overlay)

    def revoke_and_kill():
        overlay.plane.cli("node", "revoke", node, "--reason", "stolen")
        overlay.plane.kill()

    took = last_answers(pings, revoke_and_kill)
    assert max(took) < 30
    overlay.all_reach_all(others)


def test_a_quarantined_host_has_no_peers_and_comes_back(overlay, capsys):
    """It stays connected, nobody is its peer, and it is reachable again after its release."""
    others, last, node, pings = pinged(overlay)
    took = last_answers(pings, lambda: overlay.plane.cli("node", "quarantine", node))
    with capsys.disabled():
        report("quarantine", took)
    last.wait_up(0)
    for host in others:
        host.wait_up(3)
    overlay.plane.cli("node", "release", node)
    released = time.time()
    for ping in pings:
        ping.wait_answers()
    back = [next(at for at, _ in ping.answers() if at > released) - released for ping in pings]
    with capsys.disabled():
        print(f"release: reachable again after {max(back) * 1000:.0f} ms")
    last.wait_up(4)


def test_a_decommissioned_host_loses_interface_and_key(overlay, capsys):
    """Its WireGuard key is deleted on the host."""
    others, last, node, pings = pinged(overlay)
    took = last_answers(pings, lambda: overlay.plane.cli("node", "decommission", node, "--force"))
    with capsys.disabled():
        report("decommission", took)
    until(lambda: not last.has_interface(), "the decommissioned host has no interface")
    until(lambda: not (last.dir / "wireguard" / "private.key").exists(), "its WireGuard key is deleted")
    for host in others:
        host.wait_up(3)
