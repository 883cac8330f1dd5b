"""Pings that go on through WireGuard's own rekeys, certificate renewals and restarts of the control plane; memory stays flat.

Five minutes here; OVERLAY_SECONDS=3600 for an hour (`just soak`).
"""

import os
import time

import pytest

from machine import until
from namespaces import Overlay

SECONDS = float(os.environ.get("OVERLAY_SECONDS", "300"))
"""WireGuard makes new session keys every two minutes."""


@pytest.fixture
def overlay():
    with Overlay() as made:
        yield made


def resident(host) -> int:
    """KiB."""
    with open(f"/proc/{host.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def handshakes(host) -> list[int]:
    return [int(peer["handshake"]) for peer in host.shown().values()]


def test_pings_go_on_while_keys_and_certificates_change(overlay, capsys):
    """No packet is lost, whatever is renewed meanwhile; the agents grow by nothing to speak of."""
    overlay.plane.policy("profile.default.lifetime", "120s")
    hosts = overlay.joined("4", "46", "46")
    overlay.all_reach_all(hosts)
    serials = [host.serial() for host in hosts]
    pings = [overlay.ping(one, other.address, 0.05) for one, other in zip(hosts, hosts[1:] + hosts[:1])]
    for ping in pings:
        ping.wait_answers(100)
    first, before = handshakes(hosts[0]), [resident(host) for host in hosts]
    ends = time.monotonic() + SECONDS
    until(lambda: time.monotonic() > ends, "the time is over", SECONDS + 60)
    assert min(handshakes(hosts[0])) > max(first), "WireGuard has made new session keys"
    assert all(host.serial() != serial for host, serial in zip(hosts, serials)), "certificates were renewed"
    lost = []
    for ping in pings:
        sent, answered = ping.end()
        lost.append(sent - answered)
    after = [resident(host) for host in hosts]
    with capsys.disabled():
        print(f"\n{SECONDS:.0f} seconds, pings lost: {lost}; resident KiB: {before} before, {after} after")
    # What was under way when a ping was ended is not lost.
    assert max(lost) <= 1, lost
    for old, new in zip(before, after):
        assert new < old * 1.3 + 4096, (before, after)
