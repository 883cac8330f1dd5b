"""A host that is restarted without a control plane has the peers that it was told last; what was taken away does not come back."""

import json

import pytest
from machine import AGENT, until
from namespaces import Overlay, url


@pytest.fixture
def overlay():
    with Overlay() as made:
        yield made


def kept(host) -> list[str]:
    """The nodes among its kept peers."""
    file = host.dir / "wireguard" / "peers.json"
    if not file.exists():
        return []
    assert file.stat().st_mode & 0o777 == 0o600
    return sorted(peer["node_id"] for peer in json.loads(file.read_text())["peers"])


def until_kept(host, *others) -> None:
    expected = sorted(other.node_id() for other in others)
    until(lambda: kept(host) == expected, f"{expected} are kept, not {kept(host)}", 120)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_host_restarted_without_a_control_plane_reaches_its_peers(overlay, how):
    """From disk, before anybody has answered; with the control plane back it goes on with what that says."""
    one, two, three = hosts = overlay.joined("4", "46", "46")
    overlay.all_reach_all(hosts)
    for host in hosts:
        until_kept(host, *(other for other in hosts if other is not host))
    addresses = [host.address for host in hosts]
    overlay.plane.kill()
    for host in (one, two):
        if how == "killed":
            host.kill()
        else:
            host.stop()
    for host in (one, two):
        host.start()
    one.wait_pings(addresses[1])
    two.wait_pings(addresses[2])
    # Where it was killed, its interface goes on and the pings pass before it is there again.
    until(lambda: (one.overlay()["state"], one.overlay()["peers"]) == ("up", 2), "the interface has its peers")
    assert one.status()["channel"] != "up"
    overlay.plane.start()
    for host in hosts:
        host.wait_connected(120)
        host.wait_up(2)
    overlay.all_reach_all(hosts)


def test_what_was_taken_away_is_not_brought_back_by_a_restart(overlay):
    """The revoked peer is off the disk once it is off the interface; a host that was down then drops it at its first contact; the revoked
    host keeps none."""
    one, two, gone = hosts = overlay.joined("4", "46", "46")
    for host in hosts:
        until_kept(host, *(other for other in hosts if other is not host))
    key = gone.overlay()["public_key"]
    two.kill()
    overlay.plane.cli("node", "revoke", gone.node_id(), "--reason", "stolen")
    until_kept(one, two)
    until(lambda: not (gone.dir / "wireguard" / "peers.json").exists(), "the revoked host keeps no peers")
    overlay.plane.kill()
    one.kill()
    one.start()
    one.wait_up(1)
    assert key not in one.shown()
    gone.kill()
    gone.start()
    until(lambda: ((gone.status() or {}).get("overlay") or {}).get("state") == "off", "the revoked host stays out")
    # It was not told, and nobody is there to tell it.
    two.start()
    two.wait_up(2)
    overlay.plane.start()
    until(lambda: key not in two.shown(), "it is told at its first contact", 120)
    until_kept(two, one)
    one.wait_pings(two.address)


def test_a_spoilt_file_is_passed_over(overlay):
    """The host comes up by what the control plane says."""
    one, two = overlay.joined("4", "46")
    until_kept(one, two)
    file = one.dir / "wireguard" / "peers.json"
    good = json.loads(file.read_text())
    for spoilt in ("", "{", json.dumps({**good, "address": "2001:db8::1"}), json.dumps({**good, "node_id": "another"})):
        one.kill()
        file.write_text(spoilt)
        one.start()
        one.wait_up(1)
        one.wait_pings(two.address)
        until_kept(one, two)


def test_in_memory_nothing_is_kept(overlay):
    """Its directory is gone with the process, and nothing lies in the one on disk."""
    usual = overlay.host("4").enroll().start()
    memory = overlay.host("4", ENLIST_AGENT_TOKEN=overlay.plane.token())
    memory.dir.mkdir(mode=0o700)
    settings = f'storage = "memory"\nserver = "{url()}"\nca_pin = "{overlay.plane.pin}"\n[overlay]\nenable = true\n'
    (memory.dir / "agent.toml").write_text(settings)
    memory.start()
    memory.wait_up(1)
    until_kept(usual, memory)
    memory.stop()
    assert not list(memory.dir.rglob("peers.json"))


def test_the_mtu_is_as_configured(overlay):
    """`overlay.mtu`; without it the control plane's. Out of bounds it is refused with the bounds."""
    small = overlay.host("4", settings="mtu = 1380\n").enroll().start()
    usual = overlay.host("4").enroll().start()
    small.wait_up(1)
    usual.wait_up(1)
    assert "mtu 1380" in small.links() and "mtu 1420" in usual.links()
    small.wait_pings(usual.address)
    small.stop()
    file = small.dir / "agent.toml"
    kept = file.read_text()
    for wrong in ("1279", "9001", '"1400"'):
        file.write_text(kept.replace("mtu = 1380", f"mtu = {wrong}"))
        done = small.run(AGENT, "run", "--dir", small.dir)
        assert done.returncode == 2 and "overlay.mtu" in done.stderr and "1280 to 9000" in done.stderr, done
