"""storage = "memory" under systemd itself, with the unit and the drop-in of docs/deploy (D19, PACT-07)."""

import pathlib
import re

import pytest

import sysfs
from machine import AGENT, ROOT, until
from systemds import Systemd

DIR = "/mnt/agent"
IPC_LOCK = 1 << 14


@pytest.fixture
def service(plane_of_its_own):
    """The service as it is documented; only program, directory and control plane are those of the test."""
    plane = plane_of_its_own
    sysfs.allow(plane)
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", "3s")
    text = "".join((ROOT / "docs/deploy" / name).read_text() + "\n" for name in ("enlist-agent.service", "enlist-agent-memory.conf"))
    text = re.sub(r"(?s)\[Unit\].*?\[Service\]", "[Unit]\nDefaultDependencies=no\n[Service]", text, count=1)
    text = text.replace("/usr/local/bin/enlist-agent", str(AGENT)).replace("/etc/enlist-agent", DIR)
    text = text.replace("Restart=on-failure", "Restart=on-failure\nRestartSec=100ms")
    systemd = Systemd("enlist-agent", text)
    machine = sysfs.Sysfs()
    (systemd.place / "sys").mkdir()
    machine.root.rename(systemd.place / "sys" / "root")
    dir = systemd.place / "agent"
    dir.mkdir(mode=0o755)
    (dir / "ca.pem").write_bytes(plane.bundle)
    (dir / "agent.toml").write_text(
        f'server = "{plane.url}"\nca_file = "ca.pem"\nstorage = "memory"\nattestor = "hardware"\nsysfs_root = "/mnt/sys/root"\n'
    )
    plane.cli("node", "register", "systemd-1", "--mac", machine.macs[0])
    try:
        yield systemd.start()
    finally:
        systemd.close()


def test_the_documented_service_keeps_its_identity_over_restarts_and_loses_it_by_a_stop(service, plane_of_its_own):
    plane = plane_of_its_own
    unit = "enlist-agent.service"

    def connected() -> dict | None:
        status = service.status(DIR)
        return status if status.get("channel") == "up" else None

    def main() -> int:
        return int(service.show("MainPID"))

    def started(before: int) -> dict:
        until(lambda: main() not in (0, before), "another process runs")
        return until(connected, f"it is connected: {service.log}")

    assert service.systemctl("start", unit).returncode == 0, service.log.read_text(errors="replace")
    status = until(connected, "it is connected")
    serial, process = status["cert_serial"], main()
    assert status["memory"]["locked"] and service.show("NFileDescriptorStore") == "1", status
    # What the unit leaves to it, and it keeps: the right to lock memory.
    shown = until(lambda: _of_process(service, process), "the process is seen")
    assert int(shown["CapEff"], 16) == IPC_LOCK and int(shown["VmLck"]) > 0, shown
    assert sorted(path.name for path in (service.place / "agent").iterdir()) == ["agent.toml", "ca.pem"]

    service.systemctl("kill", "-s", "KILL", unit)
    status = started(process)
    assert (status["cert_serial"], status["memory"]["kept_over_restart"]) == (serial, "yes"), status
    process = main()
    assert service.systemctl("restart", unit).returncode == 0
    assert started(process)["cert_serial"] == serial
    assert sum(line.get("node_id") == "systemd-1" for line in plane.audit("host.enrolled")) == 1
    assert service.show("NFileDescriptorStore") == "1"

    process = main()
    service.systemctl("stop", unit)
    assert service.status(DIR)["reasons"] == ["daemon_stopped"]
    service.systemctl("start", "--no-block", unit)
    assert started(process)["cert_serial"] != serial
    assert sorted(path.name for path in (service.place / "agent").iterdir()) == ["agent.toml", "ca.pem"]


def _of_process(service, inner: int) -> dict | None:
    """Of a process by its number in the namespace."""
    for path in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        numbers = fields.get("NSpid", "").split()
        if len(numbers) == 2 and numbers[1] == str(inner) and fields["Name"].strip().startswith("enlist-agent"):
            return {name: value.split()[0] for name, value in fields.items() if value.split()}
    return None
