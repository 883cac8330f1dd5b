"""The overlay between hosts: agents that make WireGuard interfaces follow the registry, with real packets."""

import itertools

import pytest

from namespaces import Overlay, is_inside


@pytest.fixture
def overlay():
    with Overlay() as made:
        yield made


def test_five_agents_reach_each_other_whatever_is_between_them(overlay):
    """Proves PLFM-19, PLFM-33. IPv6 inside, over IPv4, IPv6 and both outside: every pair that has a family in common."""
    hosts = overlay.joined("46", "4", "46", "6", "46")
    assert all(is_inside(host.address) for host in hosts)
    assert len({host.address for host in hosts}) == len(hosts)
    for one, other in itertools.permutations(hosts, 2):
        if set(one.families) & set(other.families):
            one.wait_pings(other.address)
    for host in hosts:
        link = host.run("ip", "-o", "link", "show", "wg0").stdout
        assert "mtu 1420" in link and "UP" in link, link
        assert host.run("ip", "-o", "-6", "addr", "show", "dev", "wg0", "scope", "global").stdout.count("/128") == 1
        key = (host.dir / "wireguard" / "private.key").stat()
        assert key.st_mode & 0o7777 == 0o600


def test_a_sixth_host_joins_and_no_running_ping_loses_a_packet(overlay):
    """Peers that are there already are left alone when another comes."""
    hosts = overlay.joined("4", "4", "4", "4", "4")
    overlay.all_reach_all(hosts)
    pings = [overlay.ping(one, other.address) for one, other in zip(hosts, hosts[1:] + hosts[:1])]
    for ping in pings:
        ping.wait_answers(20)
    (sixth,) = overlay.joined("4")
    for host in hosts:
        host.wait_up(5)
        sixth.wait_pings(host.address)
    for ping in pings:
        ping.wait_answers(50)
        sent, answered = ping.end()
        # What was under way when it was ended is not lost.
        assert sent - answered <= 1, (sent, answered)
