"""`enlist-agent reconcile`, and the daemon that does it by itself: names, directories, modes. GPU-26, GPU-36, D27."""

import json
import os
import subprocess

import pytest

from daemons import Daemon
from linked import mode
from machine import AGENT, run, until
from mounts import need_root, with_hosts
from plane import ControlPlane

OTHERS = "127.0.0.1 localhost\n# somebody's note\n10.9.9.9\ttheirs.example  alias\n"
NAMES = '[hosts]\n"cp.enlist.test" = "127.0.0.1"\n"terminal.enlist.test" = "192.0.2.7"\n'


@pytest.fixture
def host(place):
    """A directory with agent.toml, and a hosts file beside it."""
    directory = place / "a"
    directory.mkdir(mode=0o700)
    (place / "hosts").write_text(OTHERS)
    (directory / "agent.toml").write_text(f'hosts_file = "{place}/hosts"\n{NAMES}')
    return directory


def reconcile(directory, *options):
    done = run(AGENT, "reconcile", "--dir", directory, "--json", *options)
    return done.code, done.json()


def hosts(directory) -> str:
    return (directory.parent / "hosts").read_text()


def test_a_lost_mapping_comes_back_and_nothing_else_moves(host):
    """Proves GPU-26, GPU-36: names that a reboot lost are mapped again; every other byte stays."""
    code, report = reconcile(host)
    assert code == 0 and report["ok"], report
    assert {f["what"] for f in report["changed"] if f["kind"] == "name"} == {"cp.enlist.test", "terminal.enlist.test"}
    text = hosts(host)
    assert text.startswith(OTHERS) and "127.0.0.1 cp.enlist.test\n" in text and "192.0.2.7 terminal.enlist.test\n" in text
    before = os.stat(host.parent / "hosts")
    code, report = reconcile(host)
    assert code == 0 and not report["changed"] and not report["drift"], report
    after = os.stat(host.parent / "hosts")
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns), "written although nothing changed"
    (host.parent / "hosts").write_text(text.replace("127.0.0.1 cp.", "127.0.0.9 cp."))
    code, report = reconcile(host)
    (finding,) = report["drift"]
    assert (code, finding["found"], finding["expected"]) == (0, "127.0.0.9", "127.0.0.1")
    assert hosts(host) == text


def test_a_dry_run_changes_nothing(host):
    code, report = reconcile(host, "--dry-run")
    assert code == 0 and report["dry_run"] and report["changed"]
    assert hosts(host) == OTHERS and not (host / "diagnostics").exists()


def test_mode_and_owner_of_the_hosts_file_stay(host):
    need_root()
    file = host.parent / "hosts"
    file.chmod(0o664)
    os.chown(file, 12345, 54321)
    assert reconcile(host)[0] == 0
    found = file.stat()
    assert (found.st_uid, found.st_gid, mode(file)) == (12345, 54321, 0o664)


def test_what_somebody_else_maps_is_told_and_left(host):
    """Proves GPU-26: drift is told with both addresses, and a name of somebody else's is not taken."""
    with (host / "agent.toml").open("a") as file:
        file.write('"theirs.example" = "192.0.2.8"\n')
    code, report = reconcile(host)
    (fault,) = report["faults"]
    assert code == 1 and not report["ok"]
    assert (fault["found"], fault["expected"], fault["class"]) == ("10.9.9.9", "192.0.2.8", "endpoint_profile_drift")
    assert hosts(host).startswith(OTHERS) and "192.0.2.8" not in hosts(host)
    assert "cp.enlist.test" in hosts(host), "the others are put right all the same"
    told = run(AGENT, "reconcile", "--dir", host)
    assert told.code == 1 and "10.9.9.9" in told.out and "remedy" in told.out


@pytest.mark.parametrize(
    "pair",
    [
        '"localhost" = "192.0.2.1"',
        '"localhost6.localdomain6" = "192.0.2.1"',
        '"ip6-localhost" = "192.0.2.1"',
        '"a b" = "192.0.2.1"',
        '"cp" = "192.0.2"',
        '"cp" = "0.0.0.0"',
        '"cp" = "255.255.255.255"',
    ],
)
def test_a_wrong_name_is_refused_with_all_settings(host, pair):
    (host / "agent.toml").write_text(f'hosts_file = "{host.parent}/hosts"\n[hosts]\n{pair}\n')
    done = run(AGENT, "reconcile", "--dir", host, "--json")
    assert done.code == 2 and done.error()["code"] == "config_invalid", done
    assert hosts(host) == OTHERS


def test_a_profile_of_the_control_plane_is_mapped_too(host):
    """Proves GPU-26: what agent.toml says wins over the profile; what cannot be a name is told and not written."""
    profile = {
        "id": "site-a",
        "api_urls": ["https://cp.enlist.test:8443"],
        "terminal_url": "",
        "hosts": {"cp.enlist.test": "192.0.2.99", "more.enlist.test": "192.0.2.5", "x\n192.0.2.6 bank": "192.0.2.6"},
    }
    (host / "endpoint_profile.json").write_text(json.dumps(profile))
    code, report = reconcile(host)
    assert code == 1 and len(report["faults"]) == 1, report
    text = hosts(host)
    assert "127.0.0.1 cp.enlist.test\n" in text and "192.0.2.5 more.enlist.test\n" in text and "bank" not in text


def test_a_hosts_file_that_is_mounted_by_itself_is_written_in_place(host):
    """Proves GPU-36: as in a container, where the file cannot be replaced. The name then resolves."""
    (host / "agent.toml").write_text(NAMES)
    file = host.parent / "hosts"
    before = file.stat().st_ino
    done = with_hosts(file, AGENT, "reconcile", "--dir", host, "--json")
    assert done.code == 0, done
    assert file.stat().st_ino == before and "127.0.0.1 cp.enlist.test\n" in hosts(host)
    found = with_hosts(file, "getent", "hosts", "cp.enlist.test")
    assert found.out.split()[:2] == ["127.0.0.1", "cp.enlist.test"], found


def test_directories_come_back_and_secrets_are_closed(host):
    """Proves GPU-36: writable paths are there after a reboot; what is for this user alone is so again."""
    runtime = host.parent / "run" / "work"
    (host / "agent.toml").write_text(f'hosts_file = "{host.parent}/hosts"\n[paths]\nruntime = "{runtime}"\n')
    assert reconcile(host)[0] == 0
    assert runtime.is_dir() and mode(host / "diagnostics") == 0o700
    token = host / "recovery" / "token"
    token.write_text("not a token\n")
    token.chmod(0o644)
    host.chmod(0o755)
    code, report = reconcile(host)
    assert code == 0 and {f["what"] for f in report["changed"]} == {str(token), str(host)}, report
    assert mode(token) == 0o600 and mode(host) == 0o700


@pytest.mark.parametrize("theirs", [".", "agent.toml", "endpoint_profile.json"])
def test_root_does_not_do_what_somebody_else_wants(host, theirs):
    """Proves GPU-36: what another user could write decides nothing, and nothing at all is touched."""
    need_root()
    profile = {"id": "p", "api_urls": [], "hosts": {"evil.example": "192.0.2.66"}}
    (host / "endpoint_profile.json").write_text(json.dumps(profile))
    os.chown(host / theirs, 12345, 12345)
    done = run(AGENT, "reconcile", "--dir", host, "--json")
    assert done.code == 1 and done.error()["code"] == "dir_not_ours", done
    assert hosts(host) == OTHERS
    assert sorted(file.name for file in host.iterdir()) == ["agent.toml", "endpoint_profile.json"]


def test_agents_that_share_a_hosts_file_keep_each_others_names(place):
    """Proves GPU-26: each has lines of its own, whoever comes first."""
    (place / "hosts").write_text(OTHERS)
    directories = [place / f"a{number}" for number in range(4)]
    for number, directory in enumerate(directories):
        directory.mkdir(mode=0o700)
        names = f'[hosts]\n"n{number}.enlist.test" = "192.0.2.{number}"\n'
        (directory / "agent.toml").write_text(f'hosts_file = "{place}/hosts"\n{names}')
    for _ in range(5):
        (place / "hosts").write_text(OTHERS)
        started = [subprocess.Popen([AGENT, "reconcile", "--dir", path], stdout=subprocess.DEVNULL) for path in directories]
        assert [process.wait(60) for process in started] == [0] * len(directories)
        text = (place / "hosts").read_text()
        assert text.startswith(OTHERS), text
        for number in range(len(directories)):
            assert f"192.0.2.{number} n{number}.enlist.test\n" in text, text
    assert not list(place.glob(".hosts*")), "nothing is left behind"


def test_the_daemon_puts_a_mapping_back_by_itself(plane, place):
    """Proves GPU-26, GPU-36, GPU-23: at its start and while it runs; counted as drift."""
    file = place / "hosts"
    file.write_text(OTHERS)
    daemon = Daemon(
        plane,
        plane.token(),
        ENLIST_AGENT_HOSTS_FILE=str(file),
        ENLIST_AGENT_HOSTS="cp.enlist.test=127.0.0.1",
        ENLIST_AGENT_CHECK_INTERVAL="1s",
        ENLIST_AGENT_METRICS_TEXTFILE=str(place / "metrics"),
    ).start()
    try:
        daemon.wait_connected()
        assert "127.0.0.1 cp.enlist.test\n" in file.read_text()
        file.write_text(OTHERS)
        until(lambda: "127.0.0.1 cp.enlist.test\n" in file.read_text(), "the mapping is back")
        drifts = "enlist_agent_endpoint_profile_drift_total 2\n"
        until(lambda: drifts in (place / "metrics").read_text(), "both losses are counted")
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_a_hosts_file_that_cannot_be_written_stops_nothing(plane, place):
    """Proves GPU-09: the daemon goes on, and says endpoint_profile_drift."""
    daemon = Daemon(
        plane,
        plane.token(),
        ENLIST_AGENT_HOSTS_FILE=str(place / "no" / "such" / "hosts"),
        ENLIST_AGENT_HOSTS="cp.enlist.test=127.0.0.1",
    ).start()
    try:
        daemon.wait_connected()
        until(lambda: "endpoint_profile_drift" in daemon.status()["reasons"], "it says so")
        records = until(lambda: diagnostics(daemon.dir), "it is written down")
        assert records[0]["class"] == "endpoint_profile_drift" and records[0]["remedy"], records
    finally:
        daemon.stop()
        daemon.note_secrets()


def diagnostics(directory) -> list[dict]:
    """Those that are whole: the daemon may be writing one."""
    lines = [line for file in sorted((directory / "diagnostics").glob("*.jsonl")) for line in file.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_the_daemon_lives_by_the_profile_that_it_is_sent(place):
    """Proves GPU-02, GPU-24, GPU-26: names of the endpoint profile are mapped, its id is told on both sides, and a host
    finds the control plane by it after a restart."""
    plane = ControlPlane().found()
    with (plane.dir / "enlist.toml").open("a") as file:
        file.write('\n[endpoint_profile]\nid = "site-a"\napi_urls = ["https://localhost:8443"]\n')
        file.write('[endpoint_profile.hosts]\n"cp.enlist.test" = "192.0.2.10"\n')
    plane.start()
    (place / "hosts").write_text(OTHERS)
    daemon = Daemon(plane, plane.token(), ENLIST_AGENT_HOSTS_FILE=str(place / "hosts")).start()
    try:
        daemon.wait_connected()
        until(lambda: "192.0.2.10 cp.enlist.test\n" in (place / "hosts").read_text(), "the name is mapped")
        until(lambda: daemon.status()["endpoint_profile"] == "site-a", "status says so")
        assert json.loads((daemon.dir / "endpoint_profile.json").read_text())["id"] == "site-a"
        daemon.stop()
        (place / "hosts").write_text(OTHERS)
        plane.stop()
        daemon.start()
        mapped = lambda: "192.0.2.10 cp.enlist.test\n" in (place / "hosts").read_text()  # noqa: E731
        until(mapped, "it is mapped again without anybody to ask")
    finally:
        daemon.stop()
        daemon.note_secrets()
        plane.close()
