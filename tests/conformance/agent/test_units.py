"""What docs/deploy has for systemd: it accepts the units and finds little that they leave open; journald keeps to its cap."""

import configparser
import pathlib
import re
import subprocess

import pytest

from machine import ROOT, missing, need, tool, until
from mounts import need_root

# systemd's own measure, from 0 (closed) to 10: what is left are the network, Unix sockets and, for the agent, root.
UNITS = {"enlist.service": 1.7, "enlist-agent.service": 2.1, "enlist-agent-memory.conf": 2.6, "enlist-agent-overlay.conf": 2.6}


@pytest.fixture(params=UNITS)
def unit(request, place):
    """The unit with a program that is on this machine, so that only the unit is judged."""
    need("systemd-analyze")
    text = (ROOT / "docs/deploy" / request.param).read_text()
    if request.param.endswith(".conf"):
        # A drop-in says what is to be said after its unit.
        text = (ROOT / "docs/deploy/enlist-agent.service").read_text() + "\n" + text
    text, count = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text)
    assert count == 1, text
    copy = place / request.param.replace(".conf", ".service")
    copy.write_text(text)
    return copy


def source(unit) -> str:
    return next(name for name in UNITS if name.split(".")[0] == unit.name.split(".")[0])


def level_of(unit) -> float:
    return UNITS[source(unit)]


def test_systemd_finds_no_mistake_in_it(unit):
    done = tool("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit, check=False)
    assert done.code == 0 and unit.name not in done.err, done


def test_little_is_left_open(unit):
    done = tool("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.out)
    assert level and float(level[1]) <= level_of(unit), done


def test_the_agents_unit_is_what_its_page_says(unit):
    """Each unit names its own file, as the page does that sends the reader there."""
    page = (ROOT / "docs" / ("agent.md" if "agent" in unit.name else "operations.md")).read_text()
    assert f"deploy/{source(unit)}" in page


JOURNALD = pathlib.Path("/lib/systemd/systemd-journald")
CAP = ROOT / "docs/deploy/journald-enlist.conf"


@pytest.fixture
def journald(place):
    """journald itself, with the drop-in, in places of its own: neither the kernel's log nor its audit is touched."""
    need_root()
    if not JOURNALD.exists():
        missing("systemd-journald")
    quiet = place / "quiet.conf"
    quiet.write_text("[Journal]\nReadKMsg=no\nAudit=no\nStorage=persistent\n")
    script = (
        "mount -t tmpfs -o size=4g none /run && mount -t tmpfs -o size=4g none /var/log && mkdir -p /var/log/journal "
        '/run/log /run/systemd/journal /run/systemd/journald.conf.d && cp "$0" /run/systemd/journald.conf.d/enlist.conf '
        '&& cp "$1" /run/systemd/journald.conf.d/quiet.conf && exec "$2"'
    )
    command = [need("unshare"), "--mount", "--propagation", "private", "sh", "-c", script, CAP, quiet, JOURNALD]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


def test_the_journal_is_capped(journald):
    """Proves GPU-33: journald obeys the drop-in, in memory and on disk, and knows every key of it."""
    root = pathlib.Path(f"/proc/{journald.pid}/root")

    def said(where: str) -> str:
        done = tool("journalctl", "--no-pager", "--quiet", f"--directory={root / where}", check=False)
        return done.out

    until(lambda: "max 50.0M" in said("run/log/journal"), "the cap in memory holds")
    journald.send_signal(10)  # SIGUSR1: what is in memory goes to disk
    until(lambda: "max 200.0M" in said("var/log/journal"), "the cap on disk holds")
    assert "Unknown" not in said("var/log/journal") and "Failed to parse" not in said("var/log/journal")


def test_the_cap_is_one_and_is_explained():
    """Proves GPU-33: every limit is there and is a number; the page for agents sends the reader to the file."""
    parsed = configparser.ConfigParser()
    parsed.optionxform = str
    parsed.read_string(CAP.read_text())
    limits = dict(parsed["Journal"])
    for key in ("SystemMaxUse", "SystemKeepFree", "RuntimeMaxUse", "SystemMaxFileSize", "RateLimitBurst"):
        assert re.fullmatch(r"[1-9]\d*[MG]?", limits[key]), key
    assert "deploy/journald-enlist.conf" in (ROOT / "docs/agent.md").read_text()
