"""`enlist cluster status --watch` at a terminal, and into a pipe."""

import json
import subprocess

import pytest
from clusters import Cluster
from machine import ENLIST, PATIENCE, clean_env, until
from terminal import COLOUR, Terminal, plain

HOME, BELOW = "\x1b[H", "\x1b[J"
"""How a picture begins and ends: drawn over the one before, so that nothing goes to the scrollback."""


@pytest.fixture(scope="module")
def cluster(programs):
    with Cluster(3) as running:
        yield running


def drawn(terminal: Terminal) -> str:
    """The last whole picture, with its colours."""
    assert "\x1b[2J" not in terminal.read(), "a cleared screen goes to the scrollback of many terminals"
    whole = [picture for picture in terminal.read().split(HOME) if picture.endswith(BELOW)]
    return whole[-1] if whole else ""


def picture(terminal: Terminal) -> str:
    """What is on the screen now."""
    return plain(drawn(terminal)).replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 140])
def test_a_killed_replica_is_seen_from_another_one_and_from_itself(cluster, columns):
    """From another one: unreachable, painted, then well again. The one that is killed itself: not its last picture, but what is wrong, in
    the same place; and it goes on by itself once there is something to see. No line is wider than the terminal."""
    leader, (killed, _) = cluster.roles()
    watch = ("cluster", "status", "--watch")
    with (
        Terminal(ENLIST, "--dir", leader.dir, *watch, columns=columns) as other,
        Terminal(ENLIST, "--dir", killed.dir, *watch, columns=columns) as own,
    ):
        for terminal in (other, own):
            until(lambda terminal=terminal: picture(terminal).count(" ok ") == 3, "all are well")
        killed.kill()
        until(lambda: "unreachable" in picture(other), "the others miss it", patience=120)
        row = next(line for line in drawn(other).split("\n") if "unreachable" in line)
        assert COLOUR.search(row), row
        until(lambda: "operator.sock" in picture(own) and "another replica" in picture(own), "it says why")
        assert "leader" not in picture(own), picture(own)
        killed.start()
        for terminal in (other, own):
            until(lambda terminal=terminal: picture(terminal).count(" ok ") == 3, "all are well again", patience=120)
            assert not terminal.too_wide(), terminal.too_wide()
            terminal.interrupt()
            terminal.end()
    cluster.until_voting(3)


def test_in_a_pipe_one_follows_the_other_and_faults_go_elsewhere(cluster):
    """A document a line with `--json`, nothing that steers a terminal, and standard error has what is wrong."""
    killed = cluster.followers()[0]
    command = [ENLIST, "--dir", killed.dir, "--json", "cluster", "status", "--watch"]
    watching = subprocess.Popen(command, env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        seen = [watching.stdout.readline() for _ in range(2)]
        assert all(len(json.loads(line)["replicas"]) == 3 for line in seen), seen
        killed.kill()
        fault = watching.stderr.readline()
        assert "operator.sock" in fault and "\x1b" not in fault, fault
        killed.start()
        watching.terminate()
        watching.communicate(timeout=PATIENCE)
    finally:
        watching.kill()
        watching.wait()
    cluster.until_voting(3)
