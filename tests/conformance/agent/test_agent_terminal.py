"""The agent at a terminal: lines that fit, colour where it helps, and none where nobody wants it."""

import shlex

import pytest

import evidence
from agents import enroll
from machine import AGENT, run, secret
from terminal import COLOUR, Terminal, plain, shown

GREEN, RED, YELLOW = "\x1b[32m", "\x1b[1m\x1b[31m", "\x1b[33m"


@pytest.fixture
def host(plane, place):
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    return place / "a"


def fits(terminal: Terminal) -> list[str]:
    assert not terminal.too_wide(), terminal.too_wide()
    return terminal.lines()


@pytest.mark.parametrize("columns", [80, 140])
def test_the_doctor_of_a_healthy_host(host, columns):
    terminal = shown(AGENT, "doctor", "--dir", host, columns=columns)
    lines = fits(terminal)
    assert terminal.written.count(f"{GREEN}✓\x1b[0m") == 8, terminal.written
    signs = ["\x1b[32m", "\x1b[0m"] * 8 + [YELLOW, "\x1b[0m"]
    assert COLOUR.findall(terminal.written) == signs, "the signs alone have a colour"
    assert "no faults found; 1 warning" in lines, lines


@pytest.mark.parametrize("columns", [80, 140])
def test_the_doctor_of_a_host_with_a_fault(host, columns):
    """Evidence and remedy are wrapped under where they begin; sign and class stand out."""
    env = {"ENLIST_AGENT_SERVER": "https://a-name-that-is-rather-long-and-does-not-resolve.invalid:8443"}
    (host / "identity/current/meta.json").unlink()
    terminal = shown(AGENT, "doctor", "--dir", host, columns=columns, env=env, code=1)
    lines = fits(terminal)
    assert f"{RED}✗\x1b[0m" in terminal.written, terminal.written
    assert f"{RED}[endpoint_unreachable]\x1b[0m" in terminal.written, terminal.written
    remedy = next(number for number, line in enumerate(lines) if "remedy: " in line)
    assert lines[remedy].startswith(" " * 15 + "remedy: "), lines
    if columns == 80:
        assert lines[remedy + 1].startswith(" " * 17) and lines[remedy + 1].strip(), lines
    assert "- tls          not checked: control plane unreachable" in lines, lines
    assert "1 fault: endpoint_unreachable; 1 warning; 3 checks not made" in lines, lines


def test_no_colour_where_nobody_wants_it(host):
    """NO_COLOR at a terminal, and a pipe; through a pipe no line is broken."""
    terminal = shown(AGENT, "doctor", "--dir", host, env={"NO_COLOR": "1"})
    assert not COLOUR.search(terminal.written) and "✓ tls" in terminal.written, terminal.written
    env = {"ENLIST_AGENT_SERVER": "https://a-name-that-is-rather-long-and-does-not-resolve.invalid:8443"}
    (host / "identity/current/meta.json").unlink()
    piped = run(AGENT, "doctor", "--dir", host, env=env)
    assert "\x1b" not in piped.out, piped
    starts = ("✓ ", "✗ ", "- ", "! ", " " * 15 + "remedy: ", " " * 15 + "warning: ", "1 fault")
    assert all(line.startswith(starts) for line in piped.out.splitlines()), piped


@pytest.mark.parametrize("columns", [80, 140])
def test_the_preflight(plane, place, columns):
    """The command to go on with fits the screen, and a shell reads it as one."""
    given = ("--server", plane.url, "--ca-pin", plane.pin)
    terminal = shown(AGENT, "doctor", "--dir", place / "new", *given, columns=columns)
    text = "\n".join(fits(terminal))
    command = text.split("ready to enroll:\n")[1]
    words = shlex.split(command.replace("\\\n", " "))
    expected = [str(AGENT), "enroll", *given, "--dir", str(place / "new"), "--token-file", "FILE"]
    assert sorted(words) == sorted(expected) and not (place / "new").exists(), text


@pytest.mark.parametrize("columns", [80, 140])
def test_the_status(plane, host, place, columns):
    """Only the state has a colour: green, yellow without an identity, red when it is revoked."""
    terminal = shown(AGENT, "status", "--dir", host, columns=columns, code=1)
    assert fits(terminal)[0] == "state        enrolled"
    assert COLOUR.findall(terminal.written) == ["\x1b[32m", "\x1b[0m"], terminal.written
    terminal = shown(AGENT, "status", "--dir", place / "nothing", columns=columns, code=1)
    assert f"{YELLOW}unenrolled\x1b[0m" in terminal.written and fits(terminal), terminal.written
    serial = run(AGENT, "status", "--dir", host, "--json").json()["cert_serial"]
    (host / "revoked").write_text(serial + "\n")
    terminal = shown(AGENT, "status", "--dir", host, columns=columns, code=1)
    assert f"{RED}revoked\x1b[0m" in terminal.written and fits(terminal), terminal.written


@pytest.mark.parametrize("columns", [80, 140])
def test_enrolling_says_what_comes_next(plane, place, columns):
    """With the directory that was given; again when it is repeated. JSON is as it was."""
    directory, token = place / "a", place / "token"
    secret(token, plane.token())
    given = ("--dir", directory, "--server", plane.url, "--ca-pin", plane.pin)
    terminal = shown(AGENT, "enroll", *given, "--token-file", token, columns=columns)
    evidence.private_key("agent", (directory / "identity/current/key.pem").read_bytes())
    lines = fits(terminal)
    again = " ".join(line.strip(" \\") for line in lines)
    assert lines[0].startswith("enrolled as ") and f" {AGENT} run --dir {directory} " in again, lines
    assert any("As a service" in line for line in lines), lines
    terminal = shown(AGENT, "enroll", *given, columns=columns)
    assert fits(terminal)[0].startswith("already enrolled as "), terminal.lines()
    done = run(AGENT, "enroll", *given, "--json").json()
    assert set(done) == {
        "node_id",
        "spiffe_id",
        "state",
        "cert_serial",
        "cert_not_after",
        "renew_at",
        "tenant",
        "domain",
        "dir",
        "already_enrolled",
    }


def test_an_error_fits_the_screen(plane, place):
    """What went wrong, then what to do; nothing but the first word has a colour."""
    given = ("--dir", place / "a", "--server", plane.url)
    terminal = shown(AGENT, "enroll", *given, columns=80, code=2)
    lines = fits(terminal)
    assert terminal.written.startswith(f"{RED}error\x1b[0m: trust_missing: "), terminal.written
    assert any(line.startswith("  remedy: ") for line in lines), lines
    piped = run(AGENT, "enroll", *given, env={"ENLIST_LOG": "off"})
    assert len(piped.err.splitlines()) == 2 and plain(piped.err) == piped.err, piped


@pytest.mark.parametrize("command", ["enroll", "run", "status", "doctor", "reconcile", "recover", "completions", "man"])
def test_help_fits_the_screen(command):
    terminal = shown(AGENT, command, "--help")
    lines = fits(terminal)
    assert any(line.startswith("Example") for line in lines), lines


def test_waiting_for_a_control_plane_is_one_sentence(plane, place):
    """Not a log, unless one is asked for; the remedy comes with the error at the end."""
    token = place / "token"
    secret(token, plane.token())
    given = ("--server", "https://127.0.0.1:1", "--ca-pin", plane.pin, "--token-file", token, "--timeout", "3s")
    terminal = shown(AGENT, "enroll", "--dir", place / "a", *given, columns=140, code=4)
    first, second, *rest = fits(terminal)
    assert first.startswith("cannot reach https://127.0.0.1:1: ") and first.endswith("3 s, Ctrl-C stops"), first
    assert second.startswith("error: endpoint_unreachable: ") and rest[0].startswith("  remedy: "), terminal.lines()
    for log in (
        plain(shown(AGENT, "enroll", "--dir", place / "a", *given, env={"ENLIST_LOG": "warn"}, code=4).written),
        run(AGENT, "enroll", "--dir", place / "a", *given).err,
    ):
        assert "WARN" in log and "attempt failed: " in log and "Ctrl-C" not in log, log


def test_enrolling_a_revoked_host_says_so_once(host, plane, place):
    """A sentence at a terminal, a line in a log."""
    serial = run(AGENT, "status", "--dir", host, "--json").json()["cert_serial"]
    (host / "revoked").write_text(serial + "\n")
    secret(place / "token", "spent-or-never-made")
    told = "the identity in this directory is revoked"
    terminal = shown(AGENT, "enroll", "--dir", host, "--token-file", place / "token", columns=140, code=3)
    lines = fits(terminal)
    assert lines[0].startswith(f"warning: {told}") and sum(told in line for line in lines) == 1, lines
    piped = run(AGENT, "enroll", "--dir", host, "--token-file", place / "token")
    assert piped.err.count(told) == 1 and "WARN" in piped.err, piped


def test_a_token_in_the_arguments_is_warned_of(plane, place):
    given = ("--server", plane.url, "--ca-pin", plane.pin)
    warning = "warning: the token is visible in the process list"
    terminal = shown(AGENT, "enroll", "--dir", place / "a", *given, "--token", "never-made", columns=140, code=3)
    assert fits(terminal)[0].startswith(warning), terminal.lines()
    secret(place / "token", "never-made")
    terminal = shown(AGENT, "enroll", "--dir", place / "a", *given, "--token-file", place / "token", code=3)
    assert warning not in plain(terminal.written), terminal.lines()
    assert warning not in run(AGENT, "enroll", "--dir", place / "a", *given, "--token", "never-made").err


def test_a_revoked_host_hears_one_remedy_everywhere(host):
    """`status` and `doctor` say the same, and promise no recovery."""
    serial = run(AGENT, "status", "--dir", host, "--json").json()["cert_serial"]
    (host / "revoked").write_text(serial + "\n")
    told, examined = (run(AGENT, command, "--dir", host).out for command in ("status", "doctor"))
    (remedy,) = (line.removeprefix("remedy").strip() for line in told.splitlines() if line.startswith("remedy"))
    steps = ("enlist node reinstate ID", "enlist token create --node ID", "enlist-agent enroll --replace")
    assert all(step in remedy for step in steps) and f"remedy: {remedy}" in examined, (told, examined)
    assert "recovery     not possible" in told and "ready\n" not in told.replace("not ready", ""), told


def test_a_check_that_was_not_made_has_no_tick(place):
    out = run(AGENT, "doctor", "--dir", place / "nothing").out
    assert "- resolution   there is no name to resolve" in out and "- permissions  " in out, out
