"""A control plane without a descriptor left when a snapshot is due."""

import json
import os

import pacts
import racks
from machine import PATIENCE, need, tool, until
from plane import ControlPlane, UnixConnection

BATCHES = 20
"""Of 6,000 machines each: more than enough log for a snapshot."""


def test_a_snapshot_waits_for_a_descriptor(programs):
    """It goes on serving what is connected, and writes the snapshot once it can."""
    with ControlPlane() as plane:
        pacts.allow_hardware(plane)
        held = UnixConnection(str(plane.dir / "operator.sock"), 2 * PATIENCE)
        held.request("GET", "/v1/nodes")
        held.getresponse().read()
        process = str(plane.process.pid)
        taken = {int(name) for name in os.listdir(f"/proc/{process}/fd")}
        free = next(number for number in range(3, 1000) if number not in taken)
        tool(need("prlimit"), "--pid", process, f"--nofile={free}:")
        machines = 0
        for batch in range(BATCHES):
            nodes = [{"node_id": f"m-{batch}-{number}", "mac": racks.mac()} for number in range(6000)]
            body = json.dumps({"nodes": nodes}).encode()
            held.request("POST", "/v1/nodes/batch", body, {"Content-Type": "application/json"})
            machines += json.load(held.getresponse())["succeeded"]
        assert machines == 6000 * BATCHES and plane.process.poll() is None
        snapshots = plane.dir / "snapshots"
        assert not list(snapshots.glob("*.snap")), "there was a descriptor for it"
        tool("prlimit", "--pid", process, "--nofile=1024:")
        until(lambda: list(snapshots.glob("*.snap")), "a snapshot was written")
        assert plane.api("GET", "/readyz").status == 200
