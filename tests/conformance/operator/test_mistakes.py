"""Mistakes that everybody makes once: the wrong user, a key of another user, a value that would not be in force, a full disk."""

import json
import os
import pathlib
import shutil
import subprocess

import native
import pytest
from machine import ENLIST, PATIENCE, clean_env, run, scratch, until
from mounts import fill, need_root, small_disk
from plane import ControlPlane
from terminal import Terminal, shown

SERVICE = 61234
"""A user that exists nowhere."""


def as_service(*command) -> subprocess.CompletedProcess:
    command = [str(part) for part in command]
    return subprocess.run(command, user=SERVICE, group=SERVICE, env=clean_env({}), capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def of_the_service(programs):
    """A data directory that belongs to the service's user, and programs that it may run."""
    need_root()
    base = pathlib.Path("/tmp") / scratch("service").name
    base.mkdir(exist_ok=True)
    base.chmod(0o755)
    program = base / "enlist"
    shutil.copy(ENLIST, program)
    home = base / "home"
    home.mkdir()
    os.chown(home, SERVICE, SERVICE)
    made = as_service(program, "server", "init", "--dir", home / "d", "--domain", "test.example", "--kek", f"file:{home}/kek", "--listen",
                      "127.0.0.1:0", "--root-key-out", home / "root.pem")
    assert made.returncode == 0, made
    yield base, home, made.stdout
    shutil.rmtree(base, ignore_errors=True)


def owners(place: pathlib.Path) -> set[int]:
    return {path.lstat().st_uid for path in [place, *place.rglob("*")]}


def test_root_leaves_nothing_in_the_directory_of_the_services_user(of_the_service):
    """`server run` and `server clock repair` refuse before they write; `server init` and the missing socket name the user to run as."""
    base, home, said = of_the_service
    assert f"Next, as the user '#{SERVICE}'" in said, said
    for command in (("server", "run"), ("server", "clock", "repair", "--yes")):
        done = run(ENLIST, *command, "--dir", home / "d", "--json")
        assert done.code == 1 and done.error()["code"] == "directory_not_owned", done
        assert f"sudo -u '#{SERVICE}' enlist server run --dir {home}/d" in done.error()["hint"], done
        assert "chown -R root:" in done.error()["hint"], done
    assert owners(home) == {SERVICE}
    checked = run(ENLIST, "server", "check", "--dir", home / "d", "--json")
    assert checked.code == 0 and any("is refused" in warning for warning in checked.json()["warnings"]), checked
    missing = run(ENLIST, "node", "list", "--dir", home / "d", "--json")
    assert missing.code == 4 and f"sudo -u '#{SERVICE}' enlist server run" in missing.error()["hint"], missing
    new = home / "new"
    new.mkdir()
    os.chown(new, SERVICE, SERVICE)
    made = run(ENLIST, "server", "init", "--dir", new, "--domain", "b.example", "--kek", f"file:{base}/kek", "--json")
    assert made.code == 1 and made.error()["code"] == "directory_not_owned" and not list(new.iterdir()), made


def test_files_that_root_left_are_given_back_by_the_command_that_is_named(of_the_service):
    base, home, _ = of_the_service
    os.chown(home / "d" / "log.db", 0, 0)
    (home / "d" / "log.db").chmod(0o600)
    done = as_service(base / "enlist", "server", "run", "--dir", home / "d", "--json")
    error = json.loads(done.stderr.strip().splitlines()[-1])["error"]
    assert done.returncode == 1 and error["code"] == "store_unusable", done
    assert f"chown -R '#{SERVICE}': {home}/d" in error["hint"] or f"chown -R {SERVICE}: {home}/d" in error["hint"], error


def test_a_key_of_another_user_is_made_ones_own_by_the_command_that_is_named(of_the_service, place):
    base, home, _ = of_the_service
    root_key, root = home / "root.pem", home / "d" / "ca" / "bundle.pem"
    command = (ENLIST, "ca", "sign-crl", "--root-key", root_key, "--root-cert", root, "--issuer", root, "--out", place / "crl.pem", "--json")
    refused = run(*command)
    assert refused.code == 1 and refused.error()["code"] == "key_exposed", refused
    assert f"chown root: {root_key}" in refused.error()["hint"], refused
    os.chown(root_key, 0, 0)
    again = run(*command)
    assert "key_exposed" not in again.err, again


def test_a_value_that_would_not_be_in_force_is_refused_with_its_bound(plane):
    refused = plane.cli("policy", "set", "liveness.interval", "4m", ok=False)
    assert refused.code == 3 and refused.error()["code"] == "policy_value_invalid", refused
    assert "2m30s" in refused.error()["message"] or "150s" in refused.error()["message"], refused
    plane.policy("liveness.interval", "2m")
    plane.policy("liveness.interval", "30s")
    unknown = plane.cli("policy", "set", "hardware.tenants", "nobody", ok=False)
    assert unknown.code == 3 and "there is no tenant nobody" in unknown.error()["message"], unknown
    minus = plane.cli("policy", "set", "hardware.max_per_tenant", "-1", ok=False)
    assert minus.code == 3 and minus.error()["code"] == "policy_value_invalid", minus


def test_policy_is_shown_with_what_it_means(plane):
    said = run(ENLIST, "policy", "show", "--dir", plane.dir).out
    assert "  token.default_ttl = 1h\n      Lifetime of a token created without" in said, said
    assert "attestors.require = (empty)" in said, said
    own, _, foreign = said.partition("For the APIs and hosts of plfm")
    assert "profile.taskrun.lifetime" in foreign and "profile.taskrun" not in own, said


def test_what_cannot_be_taken_back_is_asked_about(plane):
    with Terminal(ENLIST, "policy", "set", "token.max_ttl", "23h", "--dir", plane.dir) as terminal:
        terminal.until("Continue?")
        terminal.type("n\n")
        assert terminal.end() == 3
        assert "can only be lowered" in " ".join(terminal.lines())
    assert plane.cli("policy", "show", "token.max_ttl").json()["value"] == "1d"


def test_the_trail_says_where_refused_enrollments_came_from(plane):
    """In a pipe and at 80 columns, where the actor stays as well."""
    with pytest.raises(native.Refused):
        native.enroll(plane, token="enroll_" + "A" * 43)

    def told() -> bool:
        return "network=127." in run(ENLIST, "audit", "list", "--event", "enrollment.refused", "--dir", plane.dir).out

    until(told, "the refusal is on record", 120)
    native.enroll(plane).confirm()
    screen = shown(ENLIST, "audit", "list", "--dir", plane.dir, columns=80)
    assert "ACTOR" in screen.lines()[0] and "DETAIL" in screen.lines()[0], screen.lines()
    assert screen.too_wide() == []


def test_a_full_disk_is_named_as_what_it_is(programs):
    with small_disk(24 * 1024) as disk:
        plane = ControlPlane()
        plane.dir = disk / "d"
        plane.found().start()
        fill(disk)
        causes = []

        def refused() -> bool:
            done = plane.cli("token", "create", ok=False)
            if done.code:
                causes.append(done.err)
            return "cannot write its log" in done.err or plane.process.poll() is not None

        until(refused, "the disk is full", 120)
        assert plane.process.wait(PATIENCE) == 1
        said = plane.log()
        assert "replication_stopped" in said and "full" in said, (causes, said)
        assert not any("bring back enough replicas" in cause for cause in causes), causes
        plane.process = None
        plane.close()
