"""`enlist-agent doctor --server URL` before an enrollment: what would be in its way, and not a trace is left."""

import shlex

import pytest

import certs
from agents import enroll
from clocks import shifted
from machine import AGENT, run, secret
from plane import ControlPlane
from recorder import Recorder

NETWORK = ["reachability", "resolution", "tls", "clock"]


def preflight(*arguments, directory=None, env=None, code: int = 0) -> dict:
    place = ("--dir", directory) if directory else ()
    done = run(AGENT, "doctor", "--json", *place, *arguments, env=env)
    assert done.code == code, done
    return {check["name"]: check for check in done.json()["checks"]}


def faults(checks: dict) -> dict:
    return {name: check["class"] for name, check in checks.items() if not check["ok"]}


def everything(directory) -> dict:
    """Every file with its times and mode, so that not even a file that is gone again goes unseen."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode) for path in (directory, *directory.rglob("*"))}


@pytest.fixture
def ca(plane, place):
    (place / "ca.pem").write_bytes(plane.bundle)
    return place / "ca.pem"


def test_a_host_that_is_ready_is_told_how_to_enroll(plane, place, ca):
    """With either kind of trust; the command it is told works as it stands, and nothing is written before it."""
    directory, token = place / "a", place / "token"
    before = everything(place)
    for trust in (("--ca-pin", plane.pin), ("--ca-file", ca)):
        checks = preflight("--server", plane.url, *trust, directory=directory)
        assert list(checks) == NETWORK and not faults(checks), checks
    told = run(AGENT, "doctor", "--dir", directory, "--server", plane.url, "--ca-file", ca)
    assert told.code == 0 and not directory.exists() and everything(place) == before, told
    last = told.out.splitlines()[-1]
    assert last.startswith(f"ready to enroll: {AGENT} enroll --server "), told
    words = shlex.split(last.removeprefix("ready to enroll: "))
    secret(token, plane.token())
    done = run(*(str(token) if word == "FILE" else word for word in words))
    assert done.code == 0 and (directory / "identity/current/cert.pem").exists(), done


def test_the_directory_is_looked_at_if_it_is_there(plane, place):
    """Disk and permissions, and still nothing is written, not even for a moment."""
    directory = place / "a"
    directory.mkdir(mode=0o700)
    (directory / "diagnostics").mkdir(mode=0o700)
    before = everything(place)
    given = ("--server", plane.url, "--ca-pin", plane.pin)
    checks = preflight(*given, directory=directory)
    assert list(checks) == [*NETWORK, "disk", "permissions"] and not faults(checks), checks
    directory.chmod(0o755)
    before[str(directory)] = (before[str(directory)][0], directory.stat().st_mode)
    checks = preflight(*given, directory=directory, code=1)
    assert faults(checks) == {"permissions": "dir_not_private"}, checks
    assert everything(place) == before


def test_an_identity_that_is_there_says_nothing(plane, place):
    """It is judged as a host that has none: by the given trust, without expiry and recovery."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    with ControlPlane(domain="other.example") as other:
        given = ("--server", plane.url, "--ca-pin", other.pin)
        checks = preflight(*given, directory=place / "a", code=1)
    assert faults(checks) == {"tls": "server_tls_untrusted"}, checks
    assert set(checks) <= {*NETWORK, "disk", "permissions"}, checks


def test_each_cause_is_one_fault(plane, place):
    """Nobody there, a name that does not resolve, a wrong clock."""
    pin = ("--ca-pin", plane.pin)
    gone = preflight("--server", "https://127.0.0.1:1", *pin, directory=place / "a", code=1)
    assert faults(gone) == {"reachability": "endpoint_unreachable"}, gone
    assert gone["tls"]["evidence"] == "not checked: control plane unreachable", gone
    nameless = preflight("--server", "https://nowhere.invalid", *pin, directory=place / "a", code=1)
    assert faults(nameless) == {"resolution": "endpoint_unreachable"}, nameless
    given = ("--server", plane.url, *pin)
    skewed = preflight(*given, directory=place / "a", env=shifted(2), code=1)
    assert faults(skewed) == {"clock": "clock_skew"}, skewed
    told = run(AGENT, "doctor", "--dir", place / "a", "--server", "https://127.0.0.1:1", *pin)
    assert told.code == 1 and "ready to enroll" not in told.out, told


def test_an_impostor_hears_nothing(place):
    """A token that lies ready stays where it is."""
    with Recorder() as recorder:
        env = {"ENLIST_AGENT_TOKEN": "hush-hush"}
        given = ("--server", f"https://{recorder.address}", "--ca-pin", "ab" * 32)
        checks = preflight(*given, directory=place / "a", env=env, code=1)
        assert faults(checks) == {"tls": "server_tls_untrusted"} and b"hush" not in recorder.heard, checks
        pin = certs.fingerprint(recorder.certificate)
        preflight("--server", f"https://{recorder.address}", "--ca-pin", pin, directory=place / "a", env=env, code=1)
        assert b"hush" not in recorder.heard


def test_half_a_preflight_is_a_mistake(plane, place):
    """Server without trust and trust without server: exit 2, unless the settings have the other half."""
    half = run(AGENT, "doctor", "--json", "--dir", place / "a", "--server", plane.url)
    assert half.code == 2 and half.error()["code"] == "trust_missing", half
    half = run(AGENT, "doctor", "--json", "--dir", place / "a", "--ca-pin", plane.pin)
    assert half.code == 2 and half.error()["code"] == "server_missing", half
    two = run(AGENT, "doctor", "--json", "--dir", place / "a", "--ca-pin", plane.pin, "--system-roots")
    assert two.code == 2 and two.error()["code"] == "usage", two
    plain = ("--server", "http://127.0.0.1:1", "--ca-pin", plane.pin)
    plain = run(AGENT, "doctor", "--json", "--dir", place / "a", *plain)
    assert plain.code == 2 and plain.error()["code"] == "plain_http_refused", plain
    assert not (place / "a").exists()
    env = {"ENLIST_AGENT_CA_PIN": plane.pin}
    assert not faults(preflight("--server", plane.url, directory=place / "a", env=env))
    (place / "a").mkdir(mode=0o700)
    (place / "a/agent.toml").write_text(f'server = "{plane.url}"\n')
    assert not faults(preflight("--ca-pin", plane.pin, directory=place / "a"))
