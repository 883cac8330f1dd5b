"""storage = "memory" (D19, PACT-03, PACT-07): keys, tokens and configuration in the memory of the agent, and what outlives its process."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import certs
import images
import rolls
import sysfs
from daemons import Daemon
from machine import AGENT, clean_env, need, run, scratch, until
from managers import Manager
from memories import InMemory
from mounts import need_root
from sysfs import Sysfs

SYS_ADMIN, IPC_LOCK = 1 << 21, 1 << 14
# Before a command that may lock no memory.
WEAK = ("setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit", "--memlock=65536:65536")


@pytest.fixture(scope="module", autouse=True)
def allowed(plane):
    need_root()
    sysfs.allow(plane)
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", "3s")


@pytest.fixture
def host(plane):
    """Agents that end with their test."""
    made = []

    def make(*arguments, **named) -> InMemory:
        made.append(InMemory(plane, *arguments, **named))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture
def manager():
    made = []

    def make(**named) -> Manager:
        made.append(Manager(**named))
        return made[-1]

    yield make
    for one in made:
        one.close()


def enrollments(plane, node_id: str) -> int:
    return sum(line.get("node_id") == node_id for line in plane.audit("host.enrolled"))


@pytest.mark.parametrize("way", ["hardware", "token"])
def test_a_killed_agent_goes_on_with_the_identity_that_the_service_manager_keeps(plane, host, manager, way):
    """PACT-07: a restart reuses the certificate in memory; nobody enrolls again."""
    systemd = manager()
    agent = host(plane.token() if way == "token" else None)
    if way == "hardware":
        agent.register("mem-kept")
    systemd.start(agent)
    agent.wait_connected()
    status = agent.status()
    node, serial, key = status["node_id"], status["cert_serial"], agent.key()
    assert (status["storage"], status["memory"]["kept_over_restart"]) == ("memory", "yes"), status
    assert (status["disk"]["path"], status["disk"]["available_bytes"]) == (str(agent.dir), None)
    for _ in range(3):
        agent.kill()
        stopped = agent.status()
        assert (stopped["storage"], stopped["reasons"]) == ("memory", ["daemon_stopped"]), stopped
        systemd.start(agent)
        agent.wait_connected()
        assert agent.status()["cert_serial"] == serial and agent.key() == key
    assert enrollments(plane, node) == 1 and len(systemd.kept) == 1
    assert agent.on_disk() == {"agent.toml", "agent.sock"}
    assert "going on with what an earlier process" in agent.log()


def test_without_a_store_a_machine_waits_until_it_is_taken_for_gone(plane, host, manager):
    """PACT-07: nothing was kept, so the control plane refuses with already_active; log and status say so until it lets the machine in."""
    plane.policy("liveness.grace", "15s")
    try:
        agent = host().register("mem-lost")
        systemd = manager(keeps=False)
        systemd.start(agent)
        agent.wait_connected()
        serial = agent.status()["cert_serial"]
        assert agent.status()["memory"]["kept_over_restart"] == "unknown"
        agent.kill()
        systemd.start(agent)
        until(lambda: (agent.status() or {}).get("waiting", {}).get("code") == "already_active", "it waits, and says what for")
        assert agent.status()["storage"] == "memory" and "already_active" in agent.log()
        plane.policy("liveness.grace", "3s")
        agent.wait_connected(120)
        assert agent.status()["cert_serial"] != serial and enrollments(plane, "mem-lost") == 2
    finally:
        plane.policy("liveness.grace", "3s")


def test_no_core_is_dumped_nothing_is_swapped_and_the_right_to_mount_is_gone(plane, host):
    # Without the right to trace others, so that another process with the same rights is one that could look into it.
    fewer = (need("setpriv"), "--bounding-set", "-sys_ptrace,-perfmon")
    agent = host().register("mem-locked")
    agent.prefix = fewer
    agent.start().wait_connected()
    limits = pathlib.Path(f"/proc/{agent.process.pid}/limits").read_text()
    core = next(line.split() for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core[4:6] == ["0", "0"], core
    assert int(agent.of_process("VmLck")) > 0 and agent.status()["memory"]["locked"]
    assert not agent.capabilities() & SYS_ADMIN and agent.capabilities() & IPC_LOCK
    few = [need("setpriv"), "--bounding-set", "-sys_ptrace,-perfmon,-sys_admin"]
    read = lambda pid: subprocess.run([*few, "cat", f"/proc/{pid}/environ"], capture_output=True).returncode == 0
    with subprocess.Popen([*few, "sleep", "600"]) as other:
        until(lambda: read(other.pid), "what can be dumped can be read")
        other.kill()
    assert not read(agent.process.pid), "it can be dumped"


def test_it_needs_the_right_to_mount_and_never_takes_a_disk_instead(plane, host):
    agent = host().register("mem-noright")
    weak = [need("setpriv"), "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    done = run(*weak, AGENT, "run", "--dir", agent.dir, "--json", env=agent.environment)
    assert (done.code, done.error()["code"]) == (1, "memory_unavailable"), done
    assert "CAP_SYS_ADMIN" in done.error()["hint"] and agent.on_disk() == {"agent.toml"}
    assert plane.node("mem-noright")["state"] == "registered"


def test_two_agents_do_not_use_one_directory(plane, host):
    agent = host().register("mem-twice").start().wait_connected()
    second = run(AGENT, "run", "--dir", agent.dir, "--json", env=agent.environment)
    assert (second.code, second.error()["code"]) == (1, "dir_in_use"), second
    # Nor one socket, where the directories differ.
    agent.stop()
    path = scratch("sock") / "agent.sock"
    first = host(settings=f'socket = "{path}"\n').register("mem-sock").start().wait_connected()
    other = host(settings=f'socket = "{path}"\n')
    second = run(AGENT, "run", "--dir", other.dir, "--json", env=other.environment)
    assert (second.code, second.error()["code"]) == (1, "dir_in_use"), second
    assert str(path) in second.error()["message"] and "socket" in second.error()["hint"]
    assert first.connected() and first.on_disk() == {"agent.toml"}


def test_a_stopped_process_goes_on_where_it_was(plane, host, manager):
    """SIGSTOP for longer than the grace: the node is taken for gone meanwhile, and comes back with the same certificate."""
    agent = host().register("mem-stopped").start().wait_connected()
    serial = agent.status()["cert_serial"]
    agent.process.send_signal(signal.SIGSTOP)
    until(lambda: plane.node("mem-stopped")["state"] == "inactive", "it is taken for gone")
    agent.process.send_signal(signal.SIGCONT)
    until(lambda: plane.node("mem-stopped")["state"] == "active", "it is back")
    agent.wait_connected()
    assert agent.status()["cert_serial"] == serial and enrollments(plane, "mem-stopped") == 1


def directory(path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def planted_disk(place, agent) -> int:
    """A directory on disk that looks like an agent's memory."""
    fake = place / "fake"
    fake.mkdir(mode=0o700)
    (fake / "owner.json").write_text(json.dumps({"form": 1, "dir": str(agent.dir), "made_at": "2030-01-01T00:00:00Z"}))
    return directory(fake)


@pytest.mark.parametrize("kind", ["pipe", "disk", "tmpfs", "another agent", "closed to nobody"])
def test_what_is_not_this_agents_memory_is_not_used(plane, host, manager, place, kind):
    """A store that holds garbage: named in the log, removed from the store, and the agent begins anew."""
    systemd, agent = manager(), host()
    name = f"mem-garbage-{kind.replace(' ', '-')}"
    agent.register(name)
    if kind == "pipe":
        reader, writer = os.pipe()
        os.close(writer)
        systemd.put(reader)
        why = "not a directory"
    elif kind == "disk":
        systemd.put(planted_disk(place, agent))
        why = "not in memory"
    elif kind == "tmpfs":
        systemd.put(directory("/dev/shm"))
        why = "not in memory"
    else:
        donor, other = manager(), host()
        other.register(f"{name}-donor")
        donor.start(other)
        other.wait_connected()
        _, descriptor = donor.kept.pop()
        why = f"of the agent of {other.dir}"
        if kind == "closed to nobody":
            os.chmod(f"/proc/self/fd/{descriptor}", 0o755)
            why = "not this user's alone"
        systemd.put(descriptor)
        other.stop()
    systemd.start(agent)
    agent.wait_connected()
    assert why in agent.log(), agent.log()
    assert agent.status()["node_id"] == name
    until(lambda: len(systemd.kept) == 1, "only what is its own is kept")
    if kind == "disk":
        assert sorted(os.listdir(place / "fake")) == ["owner.json"]
    # What is in the store now is good.
    serial = agent.status()["cert_serial"]
    agent.kill()
    systemd.start(agent)
    agent.wait_connected()
    assert agent.status()["cert_serial"] == serial


def test_of_two_of_one_name_the_one_with_an_identity_is_used(plane, host, manager):
    systemd, agent = manager(), host().register("mem-two")
    systemd.start(agent)
    agent.wait_connected()
    serial = agent.status()["cert_serial"]
    agent.kill()
    # An empty one of the same agent: as from a process that was killed before it had an identity.
    donor = manager()
    away = {"ENLIST_AGENT_SERVER": "https://127.0.0.1:1"}
    before, agent.environment = agent.environment, {**agent.environment, **away}
    donor.start(agent)
    until(lambda: donor.kept, "the other process has its memory kept")
    agent.kill()
    agent.environment = before
    systemd.put(donor.kept.pop()[1])
    systemd.start(agent)
    agent.wait_connected()
    assert agent.status()["cert_serial"] == serial and "more of this agent's memory" in agent.log()
    until(lambda: len(systemd.kept) == 1, "one is kept")


def test_hooks_read_what_they_are_for_and_inherit_nothing(plane, host, manager, place):
    """Key and certificates after a renewal, the document after a change: on standard input, since no path leads there."""
    plane.cli("vcluster", "create", "mem-hooks")
    renewed, configured = place / "renewed", place / "configured"
    # Each run has a file of its own: the hook of an agent that was killed may still be at it.
    script = 'cat > "$0.$$"; ls -l /proc/self/fd > "$0.fds"; env > "$0.env"; mv "$0.$$" "$0"'
    command = lambda path: json.dumps(["sh", "-c", script, str(path)])
    settings = f"on_renew = {command(renewed)}\non_config = {command(configured)}\n"
    agent = host(settings=settings).register("mem-hooks-1", "--vcluster", "mem-hooks")
    systemd = manager()
    systemd.start(agent)
    agent.wait_connected()
    agent.kill()
    systemd.start(agent)
    agent.wait_connected()
    sysfs.configure(plane, place, "mem-hooks", {"marker": "configured-in-memory"})
    until(configured.exists, "on_config was run")
    until(lambda: json.loads(configured.read_text() or "null") == {"marker": "configured-in-memory"}, "it read the document")
    until(lambda: agent.status()["config"] == {"marker": "configured-in-memory"}, "it is told")
    plane.cli("node", "rotate", "mem-hooks-1")
    until(renewed.exists, "on_renew was run")
    text = renewed.read_bytes()
    key, leaf = certs.serialization.load_pem_private_key(text, None), certs.certificate(text[text.index(b"-----BEGIN CERT"):])
    assert certs.public_der(key) == certs.public_der(leaf)
    until(lambda: certs.serial(leaf) == agent.status()["cert_serial"], "it is told")
    for hook in (renewed, configured):
        inherited = pathlib.Path(f"{hook}.fds").read_text()
        numbers = [line.split()[-3] for line in inherited.splitlines() if "->" in line]
        assert set(numbers) <= {"0", "1", "2", "3"} and "ramfs" not in inherited, inherited
        assert " -> /\n" not in inherited and "LISTEN_" not in pathlib.Path(f"{hook}.env").read_text()
    assert agent.on_disk() == {"agent.toml", "agent.sock"}
    for left in place.iterdir():
        left.unlink()


def test_links_to_the_identity_are_refused_by_name(plane, host):
    """A link on a disk cannot lead into memory that is mounted nowhere."""
    for settings, key in (('layout = "taskrun"\n', "layout"), ('[files]\nkey = "/etc/key.pem"\n', "files.key")):
        agent = host(settings=settings)
        done = run(AGENT, "run", "--dir", agent.dir, "--json", env=agent.environment)
        assert (done.code, done.error()["code"]) == (2, "config_invalid"), done
        assert [mistake["at"] for mistake in done.error()["mistakes"]] == [f"agent.toml {key}"], done


def test_commands_that_end_refuse_and_say_what_to_do(plane, host, place):
    agent = host(plane.token())
    enroll = run(AGENT, "enroll", "--dir", agent.dir, "--json", env=agent.environment)
    recover = run(AGENT, "recover", "--dir", agent.dir, "--json", env=agent.environment)
    for done in (enroll, recover):
        assert (done.code, done.error()["code"]) == (2, "storage_memory"), done
        assert "enlist-agent run" in done.error()["hint"]
    reconcile = run(AGENT, "reconcile", "--dir", agent.dir, "--json", env=agent.environment)
    assert (reconcile.code, reconcile.error()["code"]) == (1, "storage_memory"), reconcile
    assert agent.on_disk() == {"agent.toml"}


def test_reconcile_beside_the_daemon_knows_what_the_daemon_knows(plane, host, place):
    hosts = place / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    agent = host(settings=f'hosts_file = "{hosts}"\n[hosts]\n"cp.mem.example" = "10.9.8.7"\n').register("mem-names").start().wait_connected()
    until(lambda: "cp.mem.example" in hosts.read_text(), "the name is kept in the hosts file")
    assert str(agent.dir) in hosts.read_text() and "/proc/" not in hosts.read_text()
    hosts.write_text("127.0.0.1 localhost\n")
    done = run(AGENT, "reconcile", "--dir", agent.dir, "--json")
    assert done.code == 0 and "cp.mem.example" in hosts.read_text(), done
    assert agent.on_disk() == {"agent.toml", "agent.sock"}


def test_somebody_who_may_not_ask_the_daemon_is_told_so(plane, host):
    """D19: `status` and `doctor` of another user do not take a daemon that they may not ask for a stopped one."""
    agent = host().register("mem-denied").start().wait_connected()
    os.chmod(agent.dir.parent, 0o711)
    nobody = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", str(AGENT), "--json")
    shown = run(*nobody, "status", "--dir", agent.dir)
    assert shown.code == 1 and shown.error()["code"] == "dir_unusable", shown
    assert "may not be asked" in shown.error()["message"] and "as root" in shown.error()["hint"], shown
    found = json.loads(run(*nobody, "doctor", "--dir", agent.dir).out)
    identity = next(check for check in found["checks"] if check["name"] == "identity")
    assert "may not be asked" in identity["evidence"] and "as root" in identity["remedy"], identity


def test_such_a_host_is_given_no_recovery_token(plane, host):
    """It could only lie on the disk, or be lost with the identity; that is on record at the enrollment."""
    agent = host(plane.token()).start().wait_connected()
    until(lambda: agent.status().get("recovery_eligible") is False, "the control plane has said so")
    said = run(AGENT, "status", "--dir", agent.dir).out
    assert "no recovery token is kept" in said and "another profile" not in said, said
    assert not agent.status()["recovery_ready"] and not list((agent.store / "recovery").glob("token*"))
    assert not plane.audit("recovery_token.rotated") or agent.node_id() not in json.dumps(plane.audit("recovery_token.rotated"))


def test_a_revoked_host_stays_revoked_over_a_restart_and_comes_back_when_registered_again(plane, host, manager):
    agent, systemd = host().register("mem-revoked"), manager()
    systemd.start(agent)
    agent.wait_connected()
    plane.cli("node", "revoke", "mem-revoked", "--reason", "test", "--yes", ok=False)
    if plane.node("mem-revoked")["state"] != "revoked":
        plane.cli("node", "revoke", "mem-revoked", "--reason", "test")
    until(lambda: agent.status()["state"] == "revoked", "it has heard of it")
    agent.kill()
    systemd.start(agent)
    until(lambda: (agent.status() or {}).get("state") == "revoked", "it still knows")
    said = run(AGENT, "status", "--dir", agent.dir).out
    assert "enlist node reinstate ID" in said and "--replace" not in said, said


def test_trust_follows_a_roll_and_outlives_a_kill(plane_of_its_own, manager):
    """Everything that a host learns is kept: another trust bundle, then a certificate of the new issuer, each over a SIGKILL."""
    plane, systemd = plane_of_its_own, manager()
    sysfs.allow(plane)
    agent = InMemory(plane).register("mem-roll")

    def again() -> None:
        agent.kill()
        systemd.start(agent)
        agent.wait_connected()

    try:
        systemd.start(agent)
        agent.wait_connected()
        rolls.prepare(plane)
        bundle = lambda: (agent.current / "bundle.pem").read_bytes()
        until(lambda: bundle() == plane.bundle, "the new trust bundle is kept")
        again()
        assert bundle() == plane.bundle
        until(lambda: rolls.status(plane)["missing"] == [], "it has said so")
        plane.cli("ca", "roll", "activate", "--yes")
        before = agent.status()["cert_serial"]
        plane.cli("node", "rotate", "mem-roll")
        until(lambda: agent.status()["cert_serial"] != before, "it has a certificate of the new issuer")
        renewed = agent.status()["cert_serial"]
        again()
        assert agent.status()["cert_serial"] == renewed and enrollments(plane, "mem-roll") == 1
    finally:
        agent.stop()


def test_the_socket_can_be_put_elsewhere_with_storage_on_disk_as_well(plane, place):
    agent = Daemon(plane, plane.token())
    agent.dir.mkdir(mode=0o700)
    (agent.dir / "agent.toml").write_text(f'socket = "{place / "agent.sock"}"\n')
    try:
        agent.start().wait_connected()
        assert agent.status()["storage"] == "disk" and "memory" not in agent.status()
        assert (place / "agent.sock").is_socket() and not (agent.dir / "agent.sock").exists()
        session = run(AGENT, "session", "--dir", agent.dir, "--kind", "exec", "--user", "root", "--", "true")
        assert session.code == 0, session
    finally:
        agent.stop()
        agent.note_secrets()


def doctor(agent, *prefix) -> dict:
    done = run(*prefix, AGENT, "doctor", "--dir", agent.dir, "--json")
    return {check["name"]: check for check in done.json()["checks"]}


def test_the_doctor_looks_into_the_memory_of_the_daemon(plane, host):
    agent = host().register("mem-doctor")
    agent.start().wait_connected()
    (agent.dir / "identity").mkdir()
    checks = doctor(agent)
    assert all(check["ok"] for check in checks.values()), checks
    assert "locked" in checks["storage"]["evidence"] and str(agent.dir / "identity") in checks["storage"]["warning"]
    assert "left, until" in checks["expiry"]["evidence"] and "enrolls again" in checks["recovery"]["evidence"]
    agent.stop()
    checks = doctor(agent)
    assert checks["identity"]["class"] == "not_enrolled" and "enlist-agent run" in checks["identity"]["remedy"], checks


def test_memory_that_cannot_be_locked_is_a_warning_and_with_swap_a_fault(plane, host, place):
    """Swap is shown to the agent by a /proc/swaps of its own: nothing of the machine is changed."""
    agent = host().register("mem-unlocked")
    agent.prefix = WEAK
    agent.start().wait_connected()
    assert agent.status()["memory"]["locked"] is False
    without = pathlib.Path("/proc/swaps").read_text().count("\n") <= 1
    if without:
        assert doctor(agent)["storage"]["ok"] and "LimitMEMLOCK" in doctor(agent)["storage"]["warning"]
        assert "has no swap space now" in agent.log()
    agent.stop()
    swaps = place / "swaps"
    swaps.write_text("Filename Type Size Used Priority\n/dev/sdz1 partition 1048576 0 -2\n")
    script = 'mount --bind "$0" /proc/swaps && exec "$@"'
    agent.prefix = (need("unshare"), "--mount", "--propagation", "private", "sh", "-c", script, str(swaps), *WEAK)
    agent.start().wait_connected(120)
    assert agent.status()["memory"]["swap"] is True
    check = doctor(agent)["storage"]
    assert (check["ok"], check["class"]) == (False, "memory_not_locked"), check
    assert "has swap space: keys in use may be written" in agent.log()


@pytest.mark.alone
def test_with_swap_on_nothing_of_a_locked_agent_is_swapped(plane, host, place):
    """Proves PACT-03: real swap space, and the kernel is asked to swap out all it may: nothing of the agent, but much of one that may not lock its memory."""
    marker = f"swapped-{os.urandom(16).hex()}"
    script = f"import sys; held = [bytearray(({marker!r} + str(n)).encode()) for n in range(20000)]; print(1, flush=True); sys.stdin.read()"
    with images.swap() as swap, subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        locked, loose = host().register("mem-swap-locked"), host().register("mem-swap-loose")
        loose.prefix = WEAK
        keys = []
        for agent in (locked, loose):
            agent.start().wait_connected()
            keys.append(agent.key())
            images.page_out(agent.process.pid)
        images.page_out(other.pid)
        assert (locked.of_process("VmSwap"), locked.status()["memory"]["swap"]) == ("0", True)
        until(lambda: int(loose.of_process("VmSwap")) > 0, "an agent that is not locked is swapped")
        assert doctor(locked)["storage"]["ok"]
        check = doctor(loose)["storage"]
        assert (check["ok"], check["class"]) == (False, "memory_not_locked"), check
        assert locked.connected() and loose.connected()
        locked.stop(), loose.stop(), other.communicate()
        swap.off()
        assert swap.holds(marker.encode()), "the search finds what was swapped"
        assert not any(swap.holds(form) for form in certs.private_forms(keys[0]))


def test_it_works_on_a_read_only_root(plane, host, manager, place):
    """Proves PACT-03: the directory is part of a read-only image and holds the settings alone; the socket is in /run. All of / is read-only to the agent."""
    agent = host(dir=scratch("image") / "a")
    agent.register("mem-readonly")
    script = (
        'mount -t tmpfs none /run && mount -o bind,ro / /mnt && mount --rbind /proc /mnt/proc && mount --rbind /dev /mnt/dev && '
        'mount --rbind /run /mnt/run && mount --rbind "$0" "/mnt$0" && exec chroot /mnt "$@"'
    )
    systemd = manager()
    sd = str(systemd.path.parent)
    agent.prefix = (need("unshare"), "--mount", "--propagation", "private", "sh", "-c", script, sd)
    systemd.start(agent)
    inside = lambda *command: [need("nsenter"), "-t", str(agent.process.pid), "--mount", "--root", *command]

    def status() -> dict:
        assert agent.process.poll() is None, agent.log()
        done = run(*inside(str(AGENT), "status", "--dir", str(agent.dir), "--json"))
        return json.loads(done.out) if done.out else {}

    until(lambda: status().get("channel") == "up", "it is connected")
    assert status()["storage"] == "memory" and status()["ready"], status()
    assert subprocess.run(inside("test", "-S", "/run/enlist-agent/agent.sock")).returncode == 0
    session = inside(str(AGENT), "session", "--dir", str(agent.dir), "--kind", "exec", "--user", "root", "--", "true")
    assert subprocess.run(session, capture_output=True, env=clean_env()).returncode == 0
    assert subprocess.run(inside("touch", "/var/tmp/x"), capture_output=True).returncode != 0, "the root is read-only"
    second = subprocess.run(inside(str(AGENT), "run", "--dir", str(agent.dir), "--json"), env=clean_env(agent.environment), capture_output=True)
    assert second.returncode == 1 and b"dir_in_use" in second.stderr, second
    assert agent.on_disk() == {"agent.toml"}
    checks = run(*inside(str(AGENT), "doctor", "--dir", str(agent.dir), "--json")).json()
    assert checks["ok"], checks
    serial = status()["cert_serial"]
    agent.kill()
    systemd.start(agent)
    until(lambda: status().get("channel") == "up", "it is connected again")
    assert status()["cert_serial"] == serial and enrollments(plane, "mem-readonly") == 1
