"""The network of the host itself: the overlay takes nothing of it over, comes back where it is removed, and goes by the family that works."""

import ipaddress
import time

import pytest

from machine import AGENT, run, until
from namespaces import Overlay, outer


@pytest.fixture
def overlay():
    with Overlay() as made:
        yield made


NOBODY = "02:00:00:00:00:99"
"""A hardware address to which a packet is lost without a word."""


def test_a_network_that_the_host_has_already_is_not_taken_over(overlay):
    """The reason names the route; the route stays, and the overlay comes up once it is gone."""
    (one,) = overlay.joined("4")
    prefix = ipaddress.ip_network(f"{one.address}/64", strict=False)
    host = overlay.host("4").enroll()
    assert host.run("ip", "-6", "route", "add", prefix, "dev", "eth0").returncode == 0
    host.start()
    until(lambda: host.overlay().get("reason") == "failed", "the overlay is unavailable")
    assert f"the route {prefix} of eth0" in host.overlay()["detail"]
    assert "dev eth0" in host.run("ip", "-6", "route", "show", prefix).stdout and not host.has_interface()
    doctor = run(AGENT, "doctor", "--dir", host.dir, "--json").json()
    (check,) = [check for check in doctor["checks"] if check["name"] == "overlay"]
    assert "ip -6 route" in check["remedy"], check
    assert host.run("ip", "-6", "route", "del", prefix, "dev", "eth0").returncode == 0
    host.wait_up(1)
    one.wait_pings(host.address)


def test_an_interface_that_somebody_removes_is_put_back_at_once(overlay):
    """Found when the agent looks, every 5 seconds, and not left alone for 10 more."""
    one, host = overlay.joined("4", "4")
    address = host.address
    # One that is removed within 10 seconds of its making is left alone.
    until(lambda: all(0 < int(peer["handshake"]) < time.time() - 11 for peer in host.shown().values()), "it has worked for a while", 60)
    assert host.run("ip", "link", "del", "wg0").returncode == 0
    until(host.has_interface, "the interface is back")
    one.wait_pings(address)
    assert "_in_use" not in host.log() and "the overlay is unavailable" not in host.log(), host.log()


def test_where_one_family_does_not_work_the_other_one_is_tried(overlay):
    """Both hosts have both, and nothing sent over IPv6 arrives."""
    one, other = (overlay.host("46").enroll() for _ in range(2))
    for host, peer in ((one, other), (other, one)):
        done = host.run("ip", "-6", "neigh", "replace", outer(peer.number, "6"), "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        assert done.returncode == 0, done.stderr
    for host in (one, other):
        host.start()
    for host in (one, other):
        host.wait_up(1)
    one.wait_pings(other.address)
    (shown,) = one.shown().values()
    assert shown["endpoint"].startswith(f"{outer(other.number, '4')}:"), shown
