"""What a person on a host meets: a service that restarts at once, a tenant that is kept, a clock, a doctor without rights."""

import json
import shutil
import signal
import socket
import subprocess

from clocks import shifted
from machine import AGENT, PATIENCE, clean_env, run, scratch, until
from mounts import need_root


def enrolled(plane, *arguments, env=None, **token):
    place = scratch("host")
    done = run(AGENT, "enroll", "--server", plane.url, "--ca-pin", plane.pin, "--token", "-", "--dir", place / "a", *arguments, "--json",
               stdin=plane.token(**token).encode(), env=env or {})
    return place / "a", done


def test_a_restart_waits_for_no_control_plane(plane_of_its_own):
    """With an identity on disk READY=1 is sent at once, also where the control plane is away."""
    place, done = enrolled(plane_of_its_own)
    assert done.code == 0, done
    plane_of_its_own.stop()
    notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notes.bind(str(place.parent / "notify"))
    notes.settimeout(PATIENCE)
    env = clean_env({"NOTIFY_SOCKET": str(place.parent / "notify")})
    process = subprocess.Popen([str(AGENT), "run", "--dir", str(place)], env=env, stderr=subprocess.DEVNULL)
    try:
        assert b"READY=1" in notes.recv(4096)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        notes.close()


def test_the_tenant_that_was_given_is_kept_and_compared_with_what_is_stored(plane):
    """`enroll --tenant` writes it to agent.toml; an identity of another tenant is used neither by `enroll` nor by `run`."""
    place, done = enrolled(plane, "--tenant", "default")
    assert done.code == 0, done
    settings = place / "agent.toml"
    assert 'tenant = "default"' in settings.read_text()
    again = run(AGENT, "enroll", "--dir", place, "--tenant", "red", "--json")
    assert again.code == 2 and again.error()["code"] == "tenant_mismatch", again
    settings.write_text(settings.read_text().replace('"default"', '"red"'))
    started = run(AGENT, "run", "--dir", place, "--json")
    assert started.code == 2 and started.error()["code"] == "tenant_mismatch", started
    assert (place / "identity" / "current" / "key.pem").exists()


def test_a_user_without_rights_gets_one_fault_and_what_helps(plane):
    need_root()
    place, done = enrolled(plane)
    assert done.code == 0, done
    base = scratch("open")
    base.chmod(0o755)
    place.parent.chmod(0o755)
    program = base / "enlist-agent"
    shutil.copy(AGENT, program)
    examined = subprocess.run([str(program), "doctor", "--dir", str(place), "--json"], user=61234, group=61234, env=clean_env({}),
                              capture_output=True, text=True, timeout=PATIENCE)
    found = json.loads(examined.stdout)
    faults = [check for check in found["checks"] if not check["ok"]]
    assert examined.returncode == 1 and [fault["name"] for fault in faults] == ["permissions"], found
    assert "as root" in faults[0]["remedy"], faults
    names = {check["name"] for check in found["checks"]}
    assert {"reachability", "resolution", "tls", "clock", "disk", "expiry", "recovery"} <= names


def test_enrolling_with_a_clock_an_hour_ahead_says_so(plane):
    """The certificate is valid by that clock too; the next one may not be."""
    place = scratch("host")
    done = run(AGENT, "enroll", "--server", plane.url, "--ca-pin", plane.pin, "--token", "-", "--dir", place / "a",
               stdin=plane.token().encode(), env=shifted(1))
    assert done.code == 0 and "clock" in done.err and "ahead" in done.err, done
