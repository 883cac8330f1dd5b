"""What a host writes down about itself, within its bounds, and the room it keeps for bad days."""

import contextlib
import json
import re

from daemons import Daemon, free_port
from linked import mode
from machine import AGENT, run, until
from mounts import fill, small_disk
from plane import ControlPlane

FIELDS = {"at", "correlation_id", "class", "evidence", "remedy", "next"}


def records(path) -> list[dict]:
    """Those that are whole: the daemon may be writing one, or making room for it."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else []
    found = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            found += [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return found


def size(path) -> int:
    return sum(file.stat().st_size for file in path.iterdir() if file.exists()) if path.is_dir() else 0


def metrics(port: int) -> dict[str, float]:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def test_the_figures_of_004_have_its_names(plane, place):
    """Proves GPU-23, GPU-10, GPU-31: all eleven under the document's prefix, which the layout implies."""
    port = free_port()
    env = {"ENLIST_AGENT_LAYOUT": "gpuaas", "ENLIST_AGENT_METRICS_LISTEN": f"127.0.0.1:{port}"}
    env |= {"GPUAAS_CERT_PATH": str(place / "cert.pem"), "GPUAAS_KEY_PATH": str(place / "key.pem")}
    env |= {"GPUAAS_NODE_CERT_CA_BUNDLE_PATH": str(place / "node-ca.pem")}
    env |= {"GPUAAS_TERMINAL_API_URL": "wss://127.0.0.1/terminal", "GPUAAS_DIAGNOSTIC_PATH": str(place / "diagnostics")}
    plane.policy("liveness.interval", "1s")
    daemon = Daemon(plane, plane.token(), **env).start()
    try:
        daemon.wait_connected()
        prefix = "gpuaas_node_agent_"
        until(lambda: metrics(port)[f"{prefix}last_successful_mtls_task_poll_timestamp"] > 0, "a heartbeat is acknowledged")
        found = metrics(port)
        names = {re.sub(r"\{.*", "", name).removeprefix(prefix) for name in found}
        assert names >= {
            "cert_expiry_seconds",
            "cert_renewal_attempts_total",
            "cert_renewal_failures_total",
            "recovery_enrollment_attempts_total",
            "recovery_enrollment_success_total",
            "recovery_enrollment_failures_total",
            "last_successful_mtls_task_poll_timestamp",
            "endpoint_profile_drift_total",
            "local_diagnostic_write_failures_total",
            "node_filesystem_available_bytes",
            "observability_dropped_records_total",
        }
        assert 0 < found[f"{prefix}cert_expiry_seconds"] <= 24 * 3600
        assert any(v > 0 for k, v in found.items() if k.startswith(f"{prefix}node_filesystem_available_bytes{{mount="))
        assert all(name.startswith(prefix) for name in found)
        assert (place / "node-ca.pem").is_symlink() and mode(place / "key.pem") == 0o600
    finally:
        daemon.stop()
        plane.policy("liveness.interval", "30s")
        daemon.note_secrets()


def test_a_wrong_diagnostic_path_stops_nothing(plane, place):
    """Proves GPU-09, GPU-11: that it cannot be written is counted and told; the daemon connects and renews."""
    port = free_port()
    (place / "file").write_text("in the way")
    env = {"GPUAAS_DIAGNOSTIC_PATH": str(place / "file"), "ENLIST_AGENT_METRICS_LISTEN": f"127.0.0.1:{port}"}
    daemon = Daemon(plane, plane.token(), **env).start()
    try:
        daemon.wait_connected()
        name = 'enlist_agent_local_diagnostic_write_failures_total{reason="other"}'
        until(lambda: metrics(port)[name] >= 1, "it is counted")
        before = daemon.serial()
        assert plane.api("POST", f"/v1/nodes/{daemon.node_id()}/rotate", {}).status == 200
        until(lambda: daemon.serial() != before, "it renews all the same")
        assert (place / "file").read_text() == "in the way"
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_a_full_disk_is_told_as_such_and_the_ballast_pays_for_a_renewal(plane, place):
    """Proves GPU-09, GPU-32, GPU-33, GPU-34: disk_full in status and diagnostics, not unreachable; figures and records
    give way; room that was kept is there for a key."""
    port = free_port()
    with small_disk(8192) as disk:
        env = {
            "ENLIST_AGENT_CHECK_INTERVAL": "1s",
            "ENLIST_AGENT_METRICS_LISTEN": f"127.0.0.1:{port}",
            "ENLIST_AGENT_METRICS_TEXTFILE": str(disk / "metrics"),
        }
        daemon = Daemon(plane, plane.token(), **env)
        daemon.dir = disk / "a"
        daemon.start()
        try:
            daemon.wait_connected()
            ballast = daemon.dir / "ballast"
            until(ballast.exists, "room is kept")
            assert ballast.stat().st_size == 1024 * 1024 <= ballast.stat().st_blocks * 512 and mode(ballast) == 0o600
            filler = fill(disk)
            reasons = lambda: set(daemon.status()["reasons"])  # noqa: E731
            until(lambda: {"disk_full", "node_observability_disk_pressure"} <= reasons(), "it says so")
            assert daemon.connected(), "a full disk is no reason to be gone"
            dropped = 'enlist_agent_observability_dropped_records_total{source="metrics",reason="disk_pressure"}'
            until(lambda: metrics(port)[dropped] >= 1, "what is left out is counted")
            written = until(lambda: records(daemon.dir / "diagnostics"), "it is written down")
            assert {record["class"] for record in written} == {"disk_full"}, written
            before = daemon.serial()
            assert plane.api("POST", f"/v1/nodes/{daemon.node_id()}/rotate", {}).status == 200
            until(lambda: daemon.serial() != before, "it renews on a full disk")
            assert daemon.keys_match() and not ballast.exists()
            filler.unlink()
            until(lambda: not reasons() & {"disk_full", "node_observability_disk_pressure"}, "it is over")
            until(ballast.exists, "room is kept again")
        finally:
            daemon.stop()
            daemon.note_secrets()


def test_the_ring_stays_within_its_bytes(place):
    """Proves GPU-11, GPU-16, GPU-33: an unreachable control plane for a while: records with all fields, bounded."""
    plane = ControlPlane().found().start()
    daemon = Daemon(plane, plane.token(), ENLIST_AGENT_DIAGNOSTIC_BYTES="4096").start()
    try:
        daemon.wait_connected()
        plane.stop()
        ring = daemon.dir / "diagnostics"
        found = until(lambda: records(ring), "it is written down")
        assert all(set(record) - {"count"} == FIELDS for record in found), found
        assert {record["class"] for record in found} == {"endpoint_unreachable"}, found
        assert mode(ring) == 0o700 and size(ring) <= 4096
        assert all(record["correlation_id"] and record["remedy"] and record["next"] for record in found)
    finally:
        daemon.stop()
        daemon.note_secrets()
        plane.close()


def test_sizes_that_make_no_sense_are_told(place):
    """Proves GPU-33: less than 4 KiB is no ring."""
    done = run(AGENT, "doctor", "--dir", place / "a", "--json", env={"ENLIST_AGENT_DIAGNOSTIC_BYTES": "4095"})
    (config,) = [check for check in done.json()["checks"] if check["name"] == "config"]
    assert done.code == 1 and "4096" in config["evidence"], config
