"""The commands of docs/agent.md, "Diskless hosts", typed as they stand there."""

import re
import shlex

from machine import ENLIST, ROOT, run, until
from sysfs import Machine, Sysfs


def blocks() -> list[str]:
    """The code blocks of the section."""
    text = (ROOT / "docs" / "agent.md").read_text()
    section = text.split("## Diskless hosts: enroll by hardware\n")[1].split("\n## ")[0]
    return re.findall(r"```\n(.*?)```", section, re.DOTALL)


def test_a_diskless_host_gets_in_by_the_documented_commands(plane_of_its_own, place):
    """PACT-09, PACT-10, PACT-11: three commands of the operator and three lines of agent.toml; nothing else is said."""
    plane = plane_of_its_own
    commands, settings = blocks()
    for line in commands.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "enlist"
        plane.cli(*arguments)
    mac = re.search(r"--mac (\S+)", commands)[1]
    serial = re.search(r"--bmc-serial (\S+)", commands)[1]
    ca = place / "ca.pem"
    ca.write_text(run(ENLIST, "ca", "export", "--server", "--dir", plane.dir).out)
    host = Machine(plane, Sysfs(mac, board_serial=serial))
    # Only where sysfs is differs from a real machine.
    host.environment = {"ENLIST_AGENT_SYSFS_ROOT": str(host.sysfs.root)}
    host.dir.mkdir(mode=0o700)
    text = settings.replace("https://cp.example:8443", plane.url).replace("/etc/enlist/ca.pem", str(ca))
    (host.dir / "agent.toml").write_text(text)
    try:
        host.start().wait_connected()
        until(lambda: host.status()["vcluster"] == "ml", "its vCluster")
        assert host.node_id() == "gpu-07" and plane.node("gpu-07")["state"] == "active"
    finally:
        host.stop()
        host.note_secrets()
