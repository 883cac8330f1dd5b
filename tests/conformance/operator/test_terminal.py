"""What a person sees at a terminal: lists that fit it, times that mean something, text without log lines in it."""

import itertools
import json
import os
import re
import signal
import subprocess

import pytest

import evidence
import native
from daemons import Daemon
from machine import ENLIST, PATIENCE, clean_env, run, scratch, until
from plane import ControlPlane
from terminal import COLOUR, Terminal, plain, shown

WIDTHS = [80, 140]
EXACT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
RELATIVE = re.compile(r"\b(\d+[smhdy] ago|in \d+[smhdy]|now)\b")
LOG_LINE = re.compile(r"^\S*\d{4}-\d\d-\d\dT\S+Z\s+(ERROR|WARN|INFO|DEBUG|TRACE)\b", re.MULTILINE)
LISTS = {
    "node list": ("NODE", "STATE"),
    "token list": ("TOKEN ID", "STATE"),
    "token list --all": ("TOKEN ID", "STATE"),
    "alert list": ("ALERT ID", "KIND"),
    "operator list": ("OPERATOR", "ROLE"),
    "operator key list": ("KEY ID", "STATE"),
    "tenant list": ("TENANT", "CREATED"),
    "audit list": ("SEQ", "EVENT"),
}
"""Every list, and what its head must show at any width."""


@pytest.fixture(scope="module")
def fleet(programs):
    """A control plane with a bit of everything: a node that is connected, one that is gone, one with an alert."""
    with ControlPlane() as plane:
        plane.policy("failures.per_minute", "0")
        plane.api("POST", "/v1/tenants", {"name": "a-tenant-with-a-name-that-needs-room"})
        daemon = Daemon(plane, plane.token(node="edge-connected-7f3a"))
        plane.connected = "edge-connected-7f3a"
        plane.gone = native.enroll(plane, plane.token(node="old-host")).id
        assert plane.api("POST", "/v1/nodes/old-host/revoke", {"reason": "stolen"}).status == 200
        stuck = native.enroll(plane, plane.token(tenant="a-tenant-with-a-name-that-needs-room"))
        stuck.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="the disk of the host is full " * 3)
        plane.stuck = stuck.id
        plane.mint(node="for-one-node-only")
        plane.cli("operator", "add", "alice", "--role", "viewer")
        evidence.token(plane.cli("operator", "key", "create", "ci", "--role", "viewer").json()["key"])
        daemon.start().wait_connected()
        until(lambda: plane.node(plane.connected)["state"] == "active", "the node is active")
        try:
            yield plane
        finally:
            daemon.stop()
            daemon.note_secrets()


def at_terminal(plane, command: str, columns: int) -> Terminal:
    done = shown(ENLIST, *command.split(), "--dir", plane.dir, columns=columns)
    assert "panicked" not in done.written, done.lines()
    return done


def table(done: Terminal) -> list[str]:
    """The lines of a list without its head, without the note on what has no room and without the counts."""
    lines = [line for line in done.lines() if line]
    return list(itertools.takewhile(lambda line: not re.match(r"\(no room for |\d+ nodes?: ", line), lines[1:]))


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", LISTS)
def test_a_list_fits_the_terminal_a_row_on_a_line(fleet, command, columns):
    """No row is wrapped, none is missing, and what tells one from another is there."""

    def rows() -> list:
        return run(ENLIST, *command.split(), "--dir", fleet.dir, "--json").lines()

    before = rows()
    done = at_terminal(fleet, command, columns)
    assert done.too_wide() == []
    head = next(line for line in done.lines() if line)
    for name in LISTS[command]:
        assert name in head
    # The trail grows meanwhile: a connected host keeps its recovery token.
    assert before and len(before) <= len(table(done)) <= len(rows()), done.lines()


@pytest.mark.parametrize("columns", WIDTHS)
def test_only_cells_are_painted_and_the_head_is_bold(fleet, columns):
    """A row is not painted as a whole: of each at most its state."""
    for command in LISTS:
        head, *rows = [line for line in at_terminal(fleet, command, columns).written.splitlines() if line.strip()]
        assert head.startswith("\x1b[1m") and COLOUR.sub("", head).strip(), (command, head)
        for row in rows:
            painted = re.findall(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m", row)
            assert len(painted) <= 1, (command, row)
            assert not painted or len(painted[0]) < len(plain(row).strip()) / 2, (command, row)
    rows = at_terminal(fleet, "node list", columns).written.splitlines()
    assert any("\x1b[32mactive\x1b[0m" in row and fleet.connected in row for row in rows), rows
    assert any("\x1b[2mrevoked\x1b[0m" in row and fleet.gone in row for row in rows), rows


@pytest.mark.parametrize("command", ["node list", "token list", "alert list", "audit list", "operator list"])
def test_times_are_relative_at_a_terminal_and_exact_elsewhere(fleet, command):
    """`5s ago` or `in 23h` for a person; RFC 3339 in a pipe and as JSON."""
    text = "\n".join(table(at_terminal(fleet, command, 140)))
    assert RELATIVE.search(text) and not EXACT.search(text), text
    for more in ((), ("--json",)):
        piped = run(ENLIST, *command.split(), "--dir", fleet.dir, *more)
        assert piped.code == 0 and EXACT.search(piped.out) and not RELATIVE.search(piped.out), piped


def test_all_columns_show_where_there_is_room_and_the_lost_ones_are_named_where_not(fleet):
    """At 140 columns nothing is left out of a list of nodes or tokens; at 80 a last line says what is."""
    for name, columns in (
        ("node", ["CONNECTED", "TENANT", "PROFILE", "LAST SEEN", "CERT UNTIL", "HEALTH", "EXCLUDED"]),
        ("token", ["TENANT", "NODE", "PROFILE", "EXPIRES", "CREATED BY", "USED BY"]),
    ):
        command = f"{name} list --tenant default"
        wide, narrow = at_terminal(fleet, command, 140), at_terminal(fleet, command, 80)
        heads = [next(line for line in done.lines() if line) for done in (wide, narrow)]
        assert all(name in heads[0] for name in columns), heads
        left_out = [name for name in columns if name not in heads[1]]
        assert left_out, heads
        (note,) = [line for line in narrow.lines() if line.startswith("(no room for ")]
        assert left_out[0] in note
        assert not any(line.startswith("(no room for ") for line in wide.lines())
        for item in run(ENLIST, *command.split(), "--dir", fleet.dir, "--json").lines():
            # Ids are whole: they are what is copied.
            assert any((item.get("token_id") or item["node_id"]) in line for line in narrow.lines()), item


def test_no_terminal_means_no_limit(fleet):
    """A pipe gets every column and every value in full, and no escape sequence."""
    piped = run(ENLIST, "alert", "list", "--dir", fleet.dir, env={"COLUMNS": "20"})
    assert "the disk of the host is full the disk of the host is full" in piped.out
    assert "…" not in piped.out and "\x1b" not in piped.out and "no room" not in piped.out


def test_a_list_of_nodes_says_who_is_connected(fleet):
    """The column CONNECTED, and `connected` in the item as in the node itself."""
    items = {item["node_id"]: item for item in fleet.nodes()}
    assert items[fleet.connected]["connected"] is True and items[fleet.gone]["connected"] is False
    for name in (fleet.connected, fleet.gone):
        assert fleet.node(name)["connected"] is items[name]["connected"]
    done = at_terminal(fleet, "node list", 100)
    rows = {line.split()[0]: line.split() for line in table(done)}
    assert "yes" in rows[fleet.connected] and "no" in rows[fleet.gone], rows


def test_a_narrow_list_of_nodes_keeps_hostname_and_health(fleet):
    """What tells people which host it is, and what is wrong with it, stays longest; without hostnames there is no such column."""
    narrow = at_terminal(fleet, "node list", 80)
    (head, *_) = [line for line in narrow.lines() if line]
    assert "HOSTNAME" in head and "HEALTH" in head, narrow.lines()
    hostname = fleet.node(fleet.connected)["hostname"]
    assert any(fleet.connected in line and hostname in line for line in table(narrow)), narrow.lines()


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_node_is_shown_in_groups_and_nothing_twice(fleet, columns):
    """Exact and relative times; every serial, state and identity once; nothing wider than the terminal."""
    for node in (fleet.connected, fleet.gone, fleet.stuck):
        done = at_terminal(fleet, f"node show {node}", columns)
        # What is copied as a whole is never broken, however long it is.
        assert all(re.fullmatch(r" +spiffe://\S+", line) for line in done.too_wide()), done.too_wide()
        text = "\n".join(done.lines())
        detail = fleet.node(node)
        for once in (detail["cert_serial"], detail["spiffe_id"], "schedulable"):
            assert text.count(once) == 1, (once, text)
        labels = re.findall(r"^  (\S.*?)(?:  |$)", text, re.MULTILINE)
        assert labels.count("state") == 1 and "connected" in labels, labels
        assert len([label for label in labels if label != "free space"]) == len(
            {label for label in labels if label != "free space"}
        ), labels
        assert "Identity" in text.splitlines() and "Certificates" in text.splitlines()
        assert re.search(EXACT.pattern + r" \((\d+[smhdy] ago|in \d+[smhdy]|now)\)", text), text
    piped = run(ENLIST, "node", "show", fleet.gone, "--dir", fleet.dir)
    assert EXACT.search(piped.out) and not RELATIVE.search(piped.out)


def test_a_timeline_fits_too(fleet):
    """One line for each event at 80 columns."""
    done = at_terminal(fleet, f"node show {fleet.connected} --timeline", 80)
    assert done.too_wide() == []
    assert "host.enrolled" in "\n".join(table(done))


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_watch_has_the_time_of_every_line(fleet, columns):
    """What is there and what changes, a line each with the time of day; Ctrl-C ends it."""
    with Terminal(ENLIST, "node", "watch", "--dir", fleet.dir, columns=columns) as watch:
        watch.until(fleet.connected)
        watch.until(fleet.stuck)
        assert fleet.api("POST", f"/v1/nodes/{fleet.connected}/drain", {}).status == 200
        watch.until("active, draining")
        assert fleet.api("POST", f"/v1/nodes/{fleet.connected}/undrain", {}).status == 200
        until(lambda: watch.read().count(fleet.connected) >= 3, "the end of draining is shown")
        lines = [line for line in watch.lines() if line.strip()]
        assert watch.too_wide() == []
        assert all(re.match(r"\d\d:\d\d:\d\dZ  \S", line) for line in lines), lines
        watch.interrupt()
        assert watch.end() == -signal.SIGINT


def test_a_change_has_its_own_time_as_json(fleet):
    """`at` is the time of the change, as the audit trail has it; the fields of the list are all there."""
    command = [str(ENLIST), "node", "watch", "--json", "--dir", str(fleet.dir)]
    out = evidence.log("watch")
    with out.open("wb") as sink:
        process = subprocess.Popen(command, env=clean_env(), stdout=sink, stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(out.read_text().splitlines()) >= len(fleet.nodes()), "the list was printed")
        assert fleet.api("POST", f"/v1/nodes/{fleet.connected}/drain", {}).status == 200
        changed = until(
            lambda: next((e for e in map(json.loads, out.read_text().splitlines()) if e["draining"]), None),
            "the change was told",
        )
    finally:
        process.kill()
        process.wait()
        fleet.api("POST", f"/v1/nodes/{fleet.connected}/undrain", {})
    draining = [line for line in fleet.audit("host.draining") if line["node_id"] == fleet.connected][-1]
    assert changed["at"][:19] == draining["at"][:19] and EXACT.fullmatch(changed["at"])
    assert set(fleet.nodes()[0]) | {"at"} == set(changed)


def test_a_new_token_comes_with_what_to_do_next(fleet):
    """The line for the host, how to keep the agent running, and where the node will show."""
    done = at_terminal(fleet, "token create --expires 15m", 80)
    text = "\n".join(done.lines())
    evidence.token(re.search(r"enroll_[A-Za-z0-9_-]{43}", text).group())
    commands = whole(done.lines())
    assert "enlist-agent run" in commands and "systemctl enable --now enlist-agent" in commands, text
    (look,) = [line for line in commands if line.endswith(" node list")]
    assert pasted(look).returncode == 0, "the same program at the same control plane"
    assert [line for line in commands if line.startswith("echo enroll_") and line.endswith(" --token -")], commands
    assert re.search(r"\(in 1[45]m\)", text) or "(in 899s)" in text, text
    assert not done.too_wide()


def whole(lines: list[str]) -> list[str]:
    """The command lines among what is shown, each as a shell reads it."""
    text = re.sub(r" \\\n +", " ", "\n".join(lines))
    return [line.strip() for line in text.split("\n") if line.startswith("  ")]


# `enlist dev` and `enlist server run`


def dev_place():
    """Short, as a person's would be."""
    return scratch("dev") / "d"


def pasted(line: str, **options) -> subprocess.CompletedProcess:
    """A printed line in another terminal: another directory, nothing of this one's environment."""
    env = {k: v for k, v in clean_env().items() if not k.startswith("ENLIST")}
    return subprocess.run(
        ["sh", "-c", line], cwd="/", env=env, capture_output=True, timeout=PATIENCE, check=False, **options
    )


def test_every_line_that_dev_prints_works_in_another_terminal():
    """Enroll, run, look; then Ctrl-C ends it with 0 and what it says then works as well."""
    directory = dev_place()
    relative = os.path.relpath(ENLIST)
    with Terminal(relative, "dev", "--dir", directory, "--listen", "127.0.0.1:0", columns=80) as dev:
        dev.until("rm -rf")
        text = "\n".join(dev.lines())
        evidence.token(re.search(r"enroll_[A-Za-z0-9_-]{43}", text).group())
        commands = [line for line in whole(dev.lines()) if " --dir " in line]
        assert len(dev.lines()) <= 34 and not dev.too_wide(), text
        assert not LOG_LINE.search(text) and "panicked" not in text
        key = directory / "root.key"
        assert str(key) in text and key.stat().st_mode & 0o777 == 0o600 and "PRIVATE KEY" in key.read_text()
        evidence.private_key("root", key.read_bytes())

        (enroll,) = [line for line in commands if " enroll " in line]
        (keep,) = [line for line in commands if " run " in line]
        done = pasted(enroll)
        assert done.returncode == 0, done
        agent = subprocess.Popen(
            ["sh", "-c", f"exec {keep}"], cwd="/", env=clean_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            (list_nodes,) = [line for line in commands if line.endswith("node list")]
            until(lambda: b" yes " in pasted(list_nodes).stdout, "the new node is connected")
            for line in commands:
                if line.endswith(("audit list", "token create")):
                    done = pasted(line)
                    assert done.returncode == 0 and done.stdout, done
                    for token in re.findall(rb"enroll_[A-Za-z0-9_-]{43}", done.stdout):
                        evidence.token(token.decode())
        finally:
            agent.terminate()
            agent.wait(PATIENCE)
        assert not LOG_LINE.search(plain(dev.read()))
        dev.interrupt()
        assert dev.end() == 0
        ended = "\n".join(dev.lines())
        assert "Stopped" in ended and not LOG_LINE.search(ended), ended
        assert "stop it and its agents first" in text and "stop the agents" in ended, ended
    for key in directory.glob("*/identity/*/key.pem"):
        evidence.private_key("agent", key.read_bytes())
    (again,) = [line.strip() for line in dev.lines() if " dev --dir " in line]
    done = pasted(f"{again} --once --listen 127.0.0.1:0")
    assert done.returncode == 0, done
    assert b"Everything works" in done.stdout and b"enroll_" not in done.stdout
    assert pasted(f"rm -rf {directory}").returncode == 0 and not directory.exists()


def test_the_root_of_dev_can_be_rolled_with_its_demo_agent_and_its_key_is_told_apart_afterwards():
    """As docs/ca.md says: the demo agent has to run, or it never has the new bundle. `root.key` is then that of a retired root."""
    directory = dev_place()
    with Terminal(ENLIST, "dev", "--dir", directory, "--listen", "127.0.0.1:0") as dev:
        text = dev.until("rm -rf")
        for token in re.findall(r"enroll_[A-Za-z0-9_-]{43}", text):
            evidence.token(token)
        evidence.private_key("root", (directory / "root.key").read_bytes())
        agent = subprocess.Popen(
            [directory / "bin" / "enlist-agent", "run", "--dir", directory / "demo-agent"],
            env=clean_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            enlist = (ENLIST, "ca", "--dir", directory)
            csr, new, answer = (directory.parent / name for name in ("new.csr", "new.key", "new.pem"))

            def act(*arguments):
                done = run(*enlist, *arguments)
                assert done.code == 0, done

            act("roll", "prepare", "--new-root", "--csr-out", csr)
            flags = ("--root-key", directory / "root.key", "--root-cert", directory / "ca" / "bundle.pem", "--csr", csr)
            done = run(ENLIST, "ca", "sign-root", *flags, "--new-root-key-out", new, "--out", answer)
            assert done.code == 0, done
            evidence.private_key("root", new.read_bytes())
            act("roll", "prepare", "--new-root", "--cert", answer)
            until(lambda: run(*enlist, "roll", "activate").code == 0, "the demo node has the bundle")
        finally:
            agent.terminate()
            agent.wait(PATIENCE)
        dev.interrupt()
        assert dev.end() == 0
    for key in directory.glob("*/identity/*/key.pem"):
        evidence.private_key("agent", key.read_bytes())
    again = run(ENLIST, "dev", "--once", "--dir", directory, "--listen", "127.0.0.1:0")
    assert again.code == 0 and "key of an earlier root" in again.out, again
    told = run(ENLIST, "dev", "--once", "--dir", directory, "--listen", "127.0.0.1:0", "--json")
    evidence.token(told.json()["token"]["token"])
    assert "root_key" not in told.json(), told


def test_the_log_of_dev_is_in_its_directory_or_where_it_is_asked_for():
    """A file that only its owner reads; with ENLIST_LOG on standard error instead."""
    directory = dev_place()
    quiet = shown(ENLIST, "dev", "--once", "--dir", directory, "--listen", "127.0.0.1:0")
    log = directory / "dev.log"
    assert str(log) in plain(quiet.written) and not LOG_LINE.search(plain(quiet.written))
    assert LOG_LINE.search(log.read_text()) and log.stat().st_mode & 0o777 == 0o600
    size = log.stat().st_size
    env = {"ENLIST_LOG": "info"}
    loud = shown(ENLIST, "dev", "--once", "--dir", directory, "--listen", "127.0.0.1:0", env=env)
    assert LOG_LINE.search(plain(loud.written)) and log.stat().st_size == size
    for key in directory.glob("*/identity/*/key.pem"):
        evidence.private_key("agent", key.read_bytes())


def test_server_run_logs_in_colour_and_says_when_it_is_ready():
    """No panic at a terminal; the ready line once; Ctrl-C ends it with 0. NO_COLOR takes the colour away."""
    plane = ControlPlane().found()
    for env, colourful in (({}, True), ({"NO_COLOR": "1"}, False)):
        with Terminal(ENLIST, "server", "run", "--dir", plane.dir, env=env) as server:
            server.until("ready https://")
            server.until("INFO")
            server.interrupt()
            assert server.end() == 0
            assert "panicked" not in server.written
            assert [line.startswith("ready https://") for line in server.lines()].count(True) == 1
            assert bool(COLOUR.search(server.written)) is colourful
    plane.close()


def test_an_error_fits_the_terminal_and_leaves_commands_whole(plane):
    """The remedy goes on below itself; a command in it can be copied."""
    terminal = shown(ENLIST, "node", "show", "nobody", "--dir", plane.dir, columns=60, code=3)
    assert not terminal.too_wide(), terminal.lines()
    assert any("`enlist node list`" in line for line in terminal.lines()), terminal.lines()
    assert any(line.startswith(" " * 10) for line in terminal.lines()), terminal.lines()
