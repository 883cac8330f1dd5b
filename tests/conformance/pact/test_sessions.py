"""Sessions on hosts (PACT-22, PACT-28, PACT-29): registered before they begin, seen by the control plane, in the way of a decommission without `--force`, and ended by one with it."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import native
import pacts
import pytest
import sysfs
from daemons import lasting_port
from machine import AGENT, ENLIST, clean_env, run, until
from pacts import Status, pb
from plane import ControlPlane
from sessions import HostSession, Registrant, lines, shown, wait_open
from streams import Live
from sysfs import Machine
from terminal import Terminal


@pytest.fixture(scope="module")
def hosts(plane):
    sysfs.allow(plane)
    started = []

    def make(node_id: str, **environment) -> Machine:
        host = Machine(plane, **environment)
        started.append(host)
        return host.register(node_id).start().wait_connected()

    yield make
    for host in started:
        host.stop()
        host.note_secrets()


@pytest.fixture(scope="module")
def operator(plane):
    with pacts.admin(plane) as door:
        yield door


def alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_session_is_seen_everywhere_and_its_end_is_recorded(plane, hosts, operator):
    """Proves PACT-28: `node show`, REST, pact's active_sessions, `status` and the trail know who works on a node, and how it ended."""
    host = hosts("seen-1")
    with HostSession(host, "sh", "-c", 'echo "$ENLIST_SESSION_ID"; read word; exit 7', kind="shell") as session:
        named = session.line()
        found = wait_open(plane, "seen-1", 1)[0]
        assert (found["session_id"], found["kind"], found["user"]) == (named, "shell", "root")
        assert plane.node("seen-1")["active_sessions"] == 1
        inspected = operator.call("InspectNode", pb.InspectNodeRequest(node_id="seen-1"))
        assert inspected.active_sessions == 1
        told = host.status()["sessions"]
        assert [(one["session_id"], one["kind"], one["user"]) for one in told] == [(named, "shell", "root")]
        text = run(ENLIST, "--dir", plane.dir, "node", "show", "seen-1").out
        assert "Open sessions" in text and named in text
        session.say("done")
        assert session.ended() == 7
    wait_open(plane, "seen-1", 0)
    opened, closed = lines(plane, "opened", "seen-1"), lines(plane, "closed", "seen-1")
    assert [line["session_id"] for line in opened] == [named] == [line["session_id"] for line in closed]
    assert (closed[0]["reason"], closed[0]["exit_status"], closed[0]["user"]) == ("ended", 7, "root")
    assert closed[0]["actor"] == "node:seen-1" and closed[0]["opened_at"] == opened[0]["opened_at"]
    timeline = [line["event_type"] for line in plane.items("/v1/nodes/seen-1/timeline")]
    assert {"session.opened", "session.closed"} <= set(timeline)


def test_the_shortest_session_leaves_both_lines(plane, hosts):
    """PACT-28: a command that is over before anybody could ask is on record, and its exit status is passed on."""
    host = hosts("short-1")
    for command, code in ((["true"], 0), (["false"], 1), (["sh", "-c", "kill -TERM $$"], 143)):
        assert run(AGENT, "session", "--dir", host.dir, "--kind", "exec", "--user", "root", "--", *command).code == code
    missing = run(AGENT, "session", "--dir", host.dir, "--kind", "exec", "--user", "root", "--", "no-such-program")
    assert missing.code == 127 and "command_not_started" in missing.err
    base = (AGENT, "session", "--json", "--dir", host.dir, "--kind", "exec", "--user", "root")
    missing = run(*base, "--", "no-such-program")
    assert missing.code == 127 and missing.error()["code"] == "command_not_started"
    bare = run(*base, "nvidia-smi", "-L")
    assert bare.code == 2 and "-- CMD" in bare.error()["hint"], bare
    until(lambda: len(lines(plane, "closed", "short-1")) == 5, "the ends are on record")
    statuses = [line["exit_status"] for line in lines(plane, "closed", "short-1")]
    assert statuses == [0, 1, 143, 127, 127] and len(lines(plane, "opened", "short-1")) == 5


def test_without_an_agent_nothing_is_started(plane, place):
    """PACT-28: no session without its registration, nor on a host that is not enrolled yet; the remedy is named."""
    mark = place / "started"
    sysfs.allow(plane)
    waiting = Machine(plane).start()
    try:
        until(lambda: (waiting.dir / "agent.sock").exists(), "it waits for its registration")
        early = run(AGENT, "session", "--dir", waiting.dir, "--kind", "exec", "--user", "root", "--", "touch", mark)
        assert early.code == 3 and "not_enrolled" in early.err and not mark.exists()
        waits = json.loads(run(AGENT, "--json", "status", "--dir", waiting.dir).out)["waiting"]
        assert waits["message"] in early.err and waits["code"] in early.err, (waits, early.err)
    finally:
        waiting.stop()
    done = run(AGENT, "session", "--dir", place, "--kind", "exec", "--user", "root", "--", "touch", mark)
    assert done.code == 4 and "agent_unavailable" in done.err and not mark.exists()
    unknown = run(AGENT, "session", "--dir", place, "--kind", "exec", "--user", "no-such-user", "--", "touch", mark)
    assert unknown.code == 2 and not mark.exists()
    for wrong in (["--kind", "door", "--user", "root"], ["--user", "root"], ["--kind", "exec"]):
        assert run(AGENT, "session", "--dir", place, *wrong, "--", "true").code == 2


def test_a_command_of_another_user_has_its_rights_and_nothing_of_ours(hosts):
    """PACT-28: uid, gid and groups of the user, a clean environment, and no token in it."""
    host = hosts("user-1")
    script = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; env | grep -c -e SECRET -e ENLIST_AGENT"
    secrets = {"SECRET": "x", "ENLIST_AGENT_TOKEN": "y", "ENLIST_AGENT_DIR": str(host.dir)}
    with HostSession(host, "sh", "-c", script, user="nobody", env=secrets) as session:
        said = [session.line() for _ in range(5)]
        assert session.ended() == 1  # grep found nothing
    wanted = [run("id", flag, "nobody").out.strip() for flag in ("-u", "-g", "-G")]
    home = run("getent", "passwd", "nobody").out.split(":")[5]
    assert said == [*wanted, f"{home} nobody nobody", "0"]


IGNORES = """
import os, signal, sys, time
def note(what, text):
    with open(sys.argv[1] + ".new", "w") as file: file.write(text)
    os.rename(sys.argv[1] + ".new", sys.argv[1] + what)
heard = []
signal.signal(signal.SIGHUP, lambda *_: heard.append(time.time()))
if sys.argv[2] == "away":
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
note(".pid", str(os.getpid()))
while True:
    note(".last", str(time.time()))
    if heard: note(".hup", str(heard[0]))
    time.sleep(0.1)
"""


class Stubborn:
    """A program that hears SIGHUP, writes that down, and goes on; at home or forked away into a session of its own."""

    def __init__(self, host, place, name: str, where: str, **named):
        self.base = place / name
        # The command itself stays, whatever it has started.
        script = f'{sys.executable} -c "$1" "$2" {where}; while :; do sleep 1; done'
        self.session = HostSession(host, "sh", "-c", script, "sh", IGNORES, self.base, **named)
        until(lambda: self.read("pid") and self.read("last"), f"{name} runs")
        self.pid = int(self.read("pid"))

    def read(self, what: str) -> str:
        path = self.base.with_suffix(f".{what}")
        return path.read_text() if path.exists() else ""

    def check_ended(self) -> None:
        """SIGHUP was heard, and SIGKILL came ten seconds later, not before."""
        assert not alive(self.pid)
        lasted = float(self.read("last")) - float(self.read("hup"))
        assert 5 <= lasted <= 60, lasted


def test_decommission_needs_force_and_then_nothing_survives(plane, hosts, operator, names, place):
    """Proves PACT-29: refused with the number on REST, CLI, pact's API and command line and on plfm's; with force every session gets SIGHUP, what ignores it or forked away is dead after 10 s, and the records stay."""
    host = hosts("force-1")
    polite = HostSession(host, "sh", "-c", 'trap "echo hung; exit 5" HUP; echo ready; while :; do sleep 0.1; done')
    assert polite.line() == "ready"
    home, away = Stubborn(host, place, "home", "home"), Stubborn(host, place, "away", "away")
    wait_open(plane, "force-1", 3)
    rest = plane.api("POST", "/v1/nodes/force-1/decommission", {})
    assert (rest.status, rest.code) == (409, "active_sessions"), rest
    error = rest.json()["error"]
    assert error["active_sessions"] == 3 and "3 sessions" in error["message"] and "--force" in error["hint"]
    assert plane.api("POST", "/v1/hosts/force-1/decommission", {}).code == "active_sessions"
    for refused in (
        plane.cli("node", "decommission", "force-1", ok=False),
        names("pact", "node", "decommission", "force-1", "--json", plane=plane, ok=False),
        names("plfm", "hosts", "decommission", "force-1", "--json", plane=plane, ok=False),
    ):
        assert refused.code == 3 and refused.error()["code"] == "active_sessions", refused
        assert refused.error()["active_sessions"] == 3
    said = run(ENLIST, "--dir", plane.dir, "node", "decommission", "force-1")
    assert said.code == 3 and "3 sessions are open" in said.err and "--force" in said.err
    request = pb.DecommissionNodeRequest(node_id="force-1")
    refusal = operator.refused("DecommissionNode", request)
    assert (refusal.status, refusal.code) == (Status.FAILED_PRECONDITION, "active_sessions")
    assert refusal.message == "ACTIVE_SESSIONS: 3"
    assert plane.node("force-1")["state"] == "active" and len(shown(plane, "force-1")) == 3

    for _ in range(2):  # the same request again answers the same
        answer = operator.call("DecommissionNode", pb.DecommissionNodeRequest(node_id="force-1", force=True))
        assert (answer.enrollment_state, answer.sessions_terminated) == ("Revoked", 3)
    assert polite.line() == "hung" and polite.ended() == 5
    for stubborn in (home, away):
        until(lambda: not alive(stubborn.pid), "what ignores SIGHUP is dead", 40)
        stubborn.check_ended()
        assert stubborn.session.ended() == 128 + signal.SIGHUP
    closed = lines(plane, "closed", "force-1")
    assert [line["reason"] for line in closed] == ["decommissioned"] * 3 and shown(plane, "force-1") == []
    assert len(lines(plane, "opened", "force-1")) == 3
    ended = [line for line in plane.audit("host.decommissioned") if line["node_id"] == "force-1"]
    assert [line["sessions_terminated"] for line in ended] == [3]
    assert plane.cli("audit", "verify").code == 0
    with Registrant(host, kind="exec", user="root") as late:
        assert late.refused == "identity_revoked_or_fenced"


def test_a_host_that_was_away_ends_its_sessions_when_it_comes_back(plane, hosts):
    """PACT-29: a node that is inactive needs `--force` as well; its sessions end when its agent learns of it, and a revocation ends them too, without a question, before an agent that is to end does."""
    host = hosts("away-1", ENLIST_AGENT_EXIT_ON_REVOKED="true")
    with HostSession(host, "sh", "-c", "echo $$; exec sleep 1000") as session:
        pid = int(session.line())
        wait_open(plane, "away-1", 1)
        host.kill()
        assert plane.cli("node", "decommission", "away-1", ok=False).error()["code"] == "active_sessions"
        assert plane.api("POST", "/v1/nodes/away-1/revoke", {"reason": "stolen"}).status == 200
        assert [line["reason"] for line in lines(plane, "closed", "away-1")] == ["revoked"]
        assert alive(pid)
        host.start()
        assert session.ended() == 128 + signal.SIGHUP and not alive(pid)
        assert host.process.wait(60) == 3


def test_an_agent_that_is_killed_and_started_again_finds_its_sessions(plane, hosts):
    """PACT-28: the session goes on, under the id that it had; what ended meanwhile is recorded as lost."""
    host = hosts("again-1")
    with HostSession(host, "sh", "-c", "read word; exit 3") as stays, HostSession(host, "sh", "-c", "read word") as ends:
        before = {one["session_id"] for one in wait_open(plane, "again-1", 2)}
        host.kill()
        ends.say("now")
        assert ends.ended() == 0 and stays.process.poll() is None
        host.start().wait_connected()
        left = wait_open(plane, "again-1", 1)[0]["session_id"]
        assert left in before
        closed = lines(plane, "closed", "again-1")
        assert [(line["session_id"], line["reason"]) for line in closed] == [(*(before - {left}), "lost")]
        assert len(lines(plane, "opened", "again-1")) == 2
        stays.say("now")
        assert stays.ended() == 3
    wait_open(plane, "again-1", 0)
    assert lines(plane, "closed", "again-1")[-1]["exit_status"] == 3


def test_a_supervisor_that_is_killed_takes_its_command_along(plane, hosts):
    """PACT-28: a session does not escape its record by losing its supervisor."""
    host = hosts("super-1")
    with HostSession(host, "sh", "-c", "echo $$; exec sleep 1000") as session:
        pid = int(session.line())
        wait_open(plane, "super-1", 1)
        session.process.kill()
        session.ended()
        until(lambda: not alive(pid), "the command ends")
    wait_open(plane, "super-1", 0)
    assert lines(plane, "closed", "super-1")[0]["reason"] == "lost"


def test_somebody_who_may_not_open_the_socket_is_told_so(hosts):
    """PACT-28: the remedy is not to start an agent that runs."""
    host = hosts("denied-1")
    command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", str(AGENT), "session", "--json"]
    done = run(*command, "--dir", host.dir, "--kind", "exec", "--user", "nobody", "--", "true")
    assert done.code == 4 and done.error()["code"] == "agent_unavailable", done
    assert "run it as root" in done.error()["hint"], done


def test_what_a_session_waits_for_is_said(hosts):
    """PACT-28: whoever has left a shell with jobs that ignore SIGHUP learns why it does not end at once."""
    host = hosts("left-2")
    with HostSession(host, "sh", "-c", "trap '' HUP; sleep 1000 & sleep 1000 & true") as session:
        assert session.ended() == 0
        assert "waiting for 2 processes of this session; they are killed in " in session.log.read_text()


def test_what_a_session_leaves_in_the_background_ends_with_it(hosts):
    """PACT-29: nothing of a session outlives its record."""
    host = hosts("left-1")
    with HostSession(host, "sh", "-c", "setsid sleep 1000 & echo $!") as session:
        pid = int(session.line())
        assert session.ended() == 0 and not alive(pid)


def test_the_control_plane_is_killed_under_open_sessions(programs):
    """PACT-29, I10: what is on record survives, and what happened meanwhile is told afterwards, once."""
    listen = ("--listen", f"127.0.0.1:{lasting_port()}")
    plane = ControlPlane().found().start(*listen)
    sysfs.allow(plane)
    host = Machine(plane).register("kept-1").start().wait_connected()
    try:
        with HostSession(host, "sleep", "1000"), HostSession(host, "sh", "-c", "read word; exit 4") as other:
            before = wait_open(plane, "kept-1", 2)
            plane.kill()
            other.say("now")
            assert other.ended() == 4
            plane.start(*listen)
            assert {one["session_id"] for one in before} >= {one["session_id"] for one in shown(plane, "kept-1")}
            wait_open(plane, "kept-1", 1)
            assert [line["exit_status"] for line in lines(plane, "closed", "kept-1")] == [4]
            assert len(lines(plane, "opened", "kept-1")) == 2
            assert plane.cli("audit", "verify").code == 0
    finally:
        host.stop()
        host.note_secrets()
        plane.close()


def test_a_flood_of_registrations_is_refused_and_fills_no_trail(plane, hosts):
    """PACT-28: 60 at once, then few; refused with a code and a remedy, and the agent goes on."""
    host = hosts("flood-1")
    granted, refused = 0, []
    for _ in range(150):
        with Registrant(host, kind="exec", user="root") as one:
            if "registered" in one.answer:
                granted += 1
                one.say({"closed": {"exit_status": 0}})
            else:
                refused.append(one.answer["error"])
    assert 60 <= granted <= 80 and {error["code"] for error in refused} == {"too_many_sessions"}
    assert all(error["hint"] for error in refused)
    until(lambda: len(lines(plane, "closed", "flood-1")) == granted, "what was granted is on record")
    assert len(lines(plane, "opened", "flood-1")) == granted and host.connected()


def test_garbage_on_the_socket_harms_nobody(hosts):
    """Lines that are too long, no JSON, no registration, or of nobody; the agent answers the next."""
    host = hosts("garbage-1")
    for bad in (b"{" + b"x" * 8192, b"{}\n", b'{"session":{}}\n', b'{"closed":{}}\n', b'{"session":{"kind":"exec"', b"\0" * 100):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(host.dir / "agent.sock"))
            connection.sendall(bad)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
            assert b"error" in answer or not answer, (bad, answer)
    for fields, code in (
        ({"kind": "door", "user": "root"}, "session_invalid"),
        ({"kind": "exec", "user": "a b"}, "session_invalid"),
        ({"kind": "exec", "user": "no-such-user"}, "session_user_unknown"),
        ({"kind": "exec", "user": "-G"}, "session_user_unknown"),
        ({"kind": "exec", "user": "root", "pid": 2**31 - 1}, "session_invalid"),
    ):
        with Registrant(host, **fields) as one:
            assert one.refused == code, one.answer
    assert host.connected() and host.status()["sessions"] == []


CALLER = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(json.dumps({"session": json.loads(sys.argv[2])}).encode() + b"\\n")
print(connection.makefile().readline())
"""


@contextlib.contextmanager
def socket_for_all(host):
    """The agent's socket as somebody may have opened it to other users."""
    os.chmod(host.dir, 0o711)
    os.chmod(host.dir / "agent.sock", 0o666)
    os.chmod(host.dir.parent, 0o711)
    try:
        yield
    finally:
        os.chmod(host.dir, 0o700)


def as_nobody(script: str, *arguments: str) -> str:
    prefix = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    command = [*prefix, "/usr/bin/python3", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean_env({})).stdout


def ask_as_nobody(host, **registration) -> dict:
    return json.loads(as_nobody(CALLER, str(host.dir / "agent.sock"), json.dumps(registration)))


def test_nobody_registers_a_session_of_another_user(hosts):
    """PACT-28: who calls is the kernel's word. One that is not root speaks for itself alone, and has no process of others ended."""
    host = hosts("claim-1")
    with socket_for_all(host):
        assert ask_as_nobody(host, kind="shell", user="root")["error"]["code"] == "session_not_allowed"
        refused = ask_as_nobody(host, kind="shell", user="nobody", pid=host.process.pid)
        assert refused["error"]["code"] == "session_not_allowed"
        assert "registered" in ask_as_nobody(host, kind="shell", user="nobody")


STATUS = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"status\\n")
print(connection.makefile().readline())
"""


def test_nobody_has_a_session_of_root_ended(plane, hosts):
    """PACT-28: another user learns no id of root's sessions, cannot go on with one whose id it knows, and has no process of it signalled by that."""
    host = hosts("claim-2")
    with socket_for_all(host), HostSession(host, "sh", "-c", "echo $ENLIST_SESSION_ID $$; exec sleep 1000") as session:
        named, pid = session.line().split()
        wait_open(plane, "claim-2", 1)
        assert [one["session_id"] for one in host.status()["sessions"]] == [named]
        told = as_nobody(STATUS, str(host.dir / "agent.sock"))
        assert json.loads(told)["sessions"] == [] and named not in told
        resume = {"session_id": named, "opened_at": 1}
        # While the agent knows the session, and when it is away from it: its supervisor does not run.
        taken = ask_as_nobody(host, kind="exec", user="nobody", supervised=True, resume=resume)
        assert taken["error"]["code"] == "session_in_use"
        os.kill(session.process.pid, signal.SIGSTOP)
        host.kill()
        os.chmod(host.dir, 0o700)
        host.start().wait_connected()
        os.chmod(host.dir, 0o711)
        os.chmod(host.dir / "agent.sock", 0o666)
        taken = ask_as_nobody(host, kind="exec", user="nobody", supervised=True, resume=resume)
        assert taken["error"]["code"] == "session_not_allowed"
        os.kill(session.process.pid, signal.SIGCONT)
        until(lambda: [one["session_id"] for one in host.status()["sessions"]] == [named], "it is registered again")
        assert alive(int(pid))


FLOOD = """
import json, socket, sys
answers = []
for number in range(150):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    connection.sendall(json.dumps({"session": {"kind": "exec", "user": sys.argv[2]}}).encode() + b"\\n")
    answer = json.loads(connection.makefile().readline())
    answers.append(answer["error"]["code"] if "error" in answer else "registered")
print(json.dumps(answers))
"""


def test_a_flood_of_one_user_leaves_root_its_share(hosts):
    """PACT-28: what another user has granted or refused takes nothing of what root may register."""
    host = hosts("flood-2")
    with socket_for_all(host):
        refused = json.loads(as_nobody(FLOOD, str(host.dir / "agent.sock"), "root"))
        assert "registered" not in refused and "session_not_allowed" in refused
        answers = json.loads(as_nobody(FLOOD, str(host.dir / "agent.sock"), "nobody"))
    assert set(answers) <= {"registered", "too_many_sessions"} and answers.count("registered") < 60
    for _ in range(50):
        with Registrant(host, kind="exec", user="root") as one:
            assert "registered" in one.answer, one.answer
            one.say({"closed": {"exit_status": 0}})


ALWAYS_A_CHILD = 'trap "" HUP; while :; do sleep 1; done'


def test_a_session_that_always_has_a_child_is_ended(plane, hosts):
    """PACT-29: a loop of short commands that ignores SIGHUP is killed, whatever it is about to start."""
    host = hosts("loop-1")
    with subprocess.Popen(["sh", "-c", ALWAYS_A_CHILD]) as process:
        try:
            with Registrant(host, kind="shell", user="root", pid=process.pid):
                wait_open(plane, "loop-1", 1)
                plane.cli("node", "decommission", "loop-1", "--force")
                assert process.wait(40) == -signal.SIGKILL
                until(lambda: host.status()["sessions"] == [], "the agent has closed it")
        finally:
            process.kill()


DISOBEYS = """
import json, signal, socket, subprocess, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b'{"session":{"kind":"exec","user":"root","supervised":true}}\\n')
connection.makefile().readline()
print(subprocess.Popen(["sh", "-c", sys.argv[2]]).pid, flush=True)
while True:
    time.sleep(1)
"""


def test_a_supervisor_that_does_not_obey_is_ended_with_its_session(plane, hosts):
    """PACT-29: one that is told to end its session and does not is killed, with all below it."""
    host = hosts("loop-2")
    command = [sys.executable, "-c", DISOBEYS, str(host.dir / "agent.sock"), ALWAYS_A_CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            pid = int(process.stdout.readline())
            wait_open(plane, "loop-2", 1)
            plane.cli("node", "decommission", "loop-2", "--force")
            assert process.wait(40) == -signal.SIGKILL
            until(lambda: not alive(pid), "the command is dead too")
            until(lambda: host.status()["sessions"] == [], "the agent has closed it")
        finally:
            process.kill()


def test_all_that_a_killed_supervisor_leaves_ends_at_once(plane, hosts):
    """PACT-29: SIGHUP to all, one grace of 10 s for all, and what is started meanwhile ends too."""
    host = hosts("super-2")
    loop = f"sh -c '{ALWAYS_A_CHILD}' & echo $!;"
    with HostSession(host, "sh", "-c", loop * 6 + "exec sleep 1000") as session:
        pids = [int(session.line()) for _ in range(6)]
        wait_open(plane, "super-2", 1)
        session.process.kill()
        session.ended()
        until(lambda: not any(map(alive, pids)), "all of them are dead", 40)
    wait_open(plane, "super-2", 0)
    assert lines(plane, "closed", "super-2")[0]["reason"] == "lost"


def test_a_service_of_others_has_its_process_ended(plane, hosts, place):
    """PACT-29: a process that a service registered gets SIGHUP, and SIGKILL after 10 s, with all that is below it."""
    host = hosts("other-1")
    base = place / "other"
    with subprocess.Popen([sys.executable, "-c", IGNORES, str(base), "home"]) as process:
        try:
            with Registrant(host, kind="shell", user="root", pid=process.pid) as service:
                assert wait_open(plane, "other-1", 1)[0]["session_id"] == service.id
                until(base.with_suffix(".last").exists, "it has its way with SIGHUP")
                plane.cli("node", "decommission", "other-1", "--force")
                told = json.loads(service.file.readline())
                assert told == {"terminate": {"grace_seconds": 10}}
                assert process.wait(40) == -signal.SIGKILL
                assert base.with_suffix(".hup").exists()
        finally:
            process.kill()


def running(*words: str) -> bool:
    """Whether a process with exactly this command line is there."""
    wanted = "\0".join([*words, ""]).encode()
    for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if place.read_bytes() == wanted:
                return True
    return False


def test_a_shell_at_a_terminal_has_its_jobs_and_its_interrupts(plane, hosts):
    """PACT-28: the terminal is the shell's: job control, Ctrl-C and Ctrl-Z reach what runs, and the exit status is passed on."""
    host = hosts("tty-1")
    command = [AGENT, "session", "--dir", host.dir, "--kind", "shell", "--user", "root", "--"]
    with Terminal(*command, "bash", "--norc", "-i", env={"PS1": "prompt> "}) as screen:
        screen.until("prompt> ")
        screen.type("sleep 500\n")
        wait_open(plane, "tty-1", 1)
        until(lambda: running("sleep", "500"), "it runs in the foreground")
        screen.interrupt()
        screen.type("echo status=$?.\n")
        screen.until("status=130.")
        screen.type("sleep 501\n")
        until(lambda: running("sleep", "501"), "it runs in the foreground")
        screen.type("\x1a")
        screen.until("Stopped")
        screen.type("jobs; kill %1; tty; exit 9\n")
        text = screen.until("/dev/pts/")
        assert "no job control" not in text
        assert screen.end() == 9
    wait_open(plane, "tty-1", 0)
    assert lines(plane, "closed", "tty-1")[0]["exit_status"] == 9


def test_a_shell_at_a_terminal_is_ended_too(plane, hosts):
    """PACT-29: and says why."""
    host = hosts("tty-2")
    command = [AGENT, "session", "--dir", host.dir, "--kind", "shell", "--user", "root", "--"]
    with Terminal(*command, "bash", "--norc", "-i", env={"PS1": "prompt> "}) as screen:
        screen.until("prompt> ")
        wait_open(plane, "tty-2", 1)
        plane.cli("node", "decommission", "tty-2", "--force")
        assert screen.end() == 128 + signal.SIGHUP
        assert "decommissioned or revoked" in screen.read()


def opened(number: int, user: str = "eve") -> native.pb.OpenSession:
    return native.pb.OpenSession(session_id=f"01ARYZ6S41{number:016d}", kind="exec", user=user, opened_at_ms=1)


def test_a_hostile_node_cannot_fill_the_trail(plane):
    """A node that makes up sessions writes 600 lines and then one a second, on however many streams; what is malformed ends its stream."""
    node = native.enroll(plane)
    number = 0
    for stream in range(3):
        with Live(node, instance=f"start-{stream}") as live:
            for message in range(10):
                ended = []
                for _ in range(64):
                    number += 1
                    ended.append(native.pb.EndedSession(session=opened(number), reason="ended", sequence=number))
                live.say(sessions=native.pb.Sessions(sequence=number, complete=True, ended=ended))
            acks = 0
            for down in live.down:
                acks += down.HasField("ack")
                if acks == 10:
                    break
    count = len(lines(plane, "opened", node.id)) + len(lines(plane, "closed", node.id))
    assert 300 <= count <= 700, count
    for bad in (
        native.pb.Sessions(open=[opened(1, user="two words")]),
        native.pb.Sessions(open=[opened(n) for n in range(257)]),
        native.pb.Sessions(open=[opened(1), opened(1)]),
    ):
        with Live(node, instance="start-9") as live:
            live.say(sessions=bad)
            with pytest.raises(native.grpc.RpcError) as refused:
                for _ in live.down:
                    pass
            assert refused.value.code() == native.grpc.StatusCode.INVALID_ARGUMENT
