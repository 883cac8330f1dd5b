"""Many hosts of one overlay: all joining at once, one joining, one revoked.

The load is `crates/cli/examples/peers`: it prints how long it took until the last host was told, and what it cost, and ends with an error unless every
host comes to know exactly the others. Time is printed and never asserted. 500 hosts in CI, 5,000 in `just soak`.
"""

import os
import subprocess

import machine

HOSTS = os.environ.get("ENLIST_PEERS", "500")
GIVE_UP = 900
"""Seconds after which a run hangs."""


def test_every_host_hears_of_every_other_and_of_its_end(programs):
    """Proves PLFM-25: of hosts that claim their place at once each knows all others; one that comes and one that is revoked are
    known to, and forgotten by, every other, by changes without a gap."""
    peers = machine.ENLIST.parent / "examples" / "peers"
    assert peers.exists(), f"{peers} is missing: cargo build --example peers"
    run = subprocess.run([peers, "--hosts", HOSTS], capture_output=True, text=True, timeout=GIVE_UP, check=False)
    print(run.stdout, run.stderr)
    assert run.returncode == 0, run.stderr
    assert f"| {HOSTS} |" in run.stdout
