"""The unit files in docs/deploy: systemd accepts them, and finds little that they leave open."""

import re

import pytest

from machine import ROOT, need, tool

# systemd's own measure, from 0 (closed) to 10: what is left are the network, Unix sockets and, for the agent, root.
UNITS = {"enlist.service": 1.7, "enlist-agent.service": 2.1}


@pytest.fixture(params=UNITS)
def unit(request, place):
    """The unit with a program that is on this machine, so that only the unit is judged."""
    need("systemd-analyze")
    text = (ROOT / "docs/deploy" / request.param).read_text()
    text, count = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text)
    assert count == 1, text
    copy = place / request.param
    copy.write_text(text)
    return copy


def test_systemd_finds_no_mistake_in_it(unit):
    done = tool("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit, check=False)
    assert done.code == 0 and unit.name not in done.err, done


def test_little_is_left_open(unit):
    done = tool("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.out)
    assert level and float(level[1]) <= UNITS[unit.name], done


def test_the_agents_unit_is_what_its_page_says(unit):
    """Each unit names its own file, as the page does that sends the reader there."""
    page = (ROOT / "docs" / ("agent.md" if "agent" in unit.name else "operations.md")).read_text()
    assert f"deploy/{unit.name}" in page
