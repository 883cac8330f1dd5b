"""Founding a domain."""

import errno
import json
import os
import pathlib
import signal
import subprocess

import pytest

import evidence
import native
from machine import ENLIST, PATIENCE, clean_env, need, run, until
from mounts import need_root
from plane import ControlPlane
from starts import picture, refused


def test_an_init_does_not_touch_what_is_there(stopped, place):
    """Neither a data directory nor somebody's files."""
    before = picture(stopped.dir)
    done = stopped.init_command()
    assert done.code == 1, done
    assert done.error()["hint"]
    assert picture(stopped.dir) == before
    (place / "file").write_text("mine")
    done = run(ENLIST, "server", "init", "--dir", place, "--domain", "x.example", "--kek", f"file:{place}/k")
    assert done.code == 1, done
    assert [path.name for path in place.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--domain", "x.example"],
        ["--kek", "file:KEK"],
        ["--domain", "x.example", "--kek", "floppy:A"],
        ["--domain", "Not A Domain", "--kek", "file:KEK"],
        ["--domain", "x.example", "--kek", "file:KEK", "--listen", "nowhere"],
        ["--domain", "x.example", "--kek", "file:KEK", "--profile", "nope"],
        ["--domain", "x.example", "--kek", "file:KEK", "--advertise", "http://x"],
    ],
)
def test_a_wrong_command_line_is_usage(place, arguments):
    """Exit 2, and nothing was made."""
    named = [argument.replace("KEK", str(place / "kek")) for argument in arguments]
    done = run(ENLIST, "server", "init", "--dir", place / "d", *named)
    assert done.code == 2, done
    assert list(place.iterdir()) == []


def test_the_root_key_is_shown_once_and_stored_nowhere(place):
    """As a PEM block between two lines that say what it is; or in a file of mode 0600, and then not shown. Proves PROBE-09, PROBE-27."""
    kek = place / "kek"
    base = ("--domain", "x.example", "--kek", f"file:{kek}", "--listen", "127.0.0.1:0")
    done = run(ENLIST, "server", "init", "--dir", place / "a", *base)
    assert done.code == 0, done
    block = done.out[done.out.index("-----BEGIN") : done.out.index("-----END")]
    assert "PRIVATE KEY" in block
    lines = done.out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("-----BEGIN"))
    end = next(i for i, line in enumerate(lines) if line.startswith("-----END"))
    assert lines[begin - 1].strip() and lines[end + 1].strip(), done
    assert "root" in (lines[begin - 1] + lines[end + 1]).lower(), done
    pem = "\n".join(lines[begin : end + 1]) + "\n"
    evidence.private_key("root", pem.encode())
    raw = evidence.keys[f"root-{len(evidence.keys) - 1}"]
    for path in (place / "a").rglob("*"):
        if path.is_file():
            assert not any(spelling in path.read_bytes() for spelling in evidence.spellings(raw)), path
    out = place / "root.key"
    done = run(ENLIST, "server", "init", "--dir", place / "b", *base, "--root-key-out", out, "--json")
    assert done.code == 0 and "PRIVATE KEY" not in done.out, done
    assert done.json().get("root_key_pem") is None
    assert out.stat().st_mode & 0o777 == 0o600 and "PRIVATE KEY" in out.read_text()
    assert kek.stat().st_mode & 0o777 == 0o600


def test_founding_says_what_was_made(place):
    """`server init --json` has the promised fields."""
    plane = ControlPlane()
    founded = plane.found().founded
    fields = {"domain", "dir", "trust_domain", "ca_pin", "root_fingerprint", "root_key_pem", "server_url"}
    assert fields <= founded.keys()
    assert founded["server_url"] is None, "the port is still to be chosen"
    assert founded["domain"] == "test.example" and founded["dir"] == str(plane.dir)


@pytest.mark.parametrize("form", ["hex", "base64"])
def test_the_key_encryption_key_may_come_from_the_environment(form):
    """64 hex digits, or base64 of 32 bytes; without the variable it does not start."""
    import base64

    key = os.urandom(32)
    evidence.key("kek-env", key)
    value = key.hex() if form == "hex" else base64.b64encode(key).decode()
    evidence.tokens.add(value)
    plane = ControlPlane(kek="env:TEST_KEK", env={"TEST_KEK": value}).found().start()
    try:
        native.enroll(plane)
        plane.stop()
        plane.env = {}
        refused(plane, words=("key-encryption key", "TEST_KEK"))
        plane.env = {"TEST_KEK": "00" * 32}
        refused(plane, words=("key-encryption key",))
        plane.env = {"TEST_KEK": value}
        plane.start()
    finally:
        plane.close()


def test_a_key_beside_what_it_protects_is_warned_of(place):
    """A key-encryption key inside DIR works, with a warning."""
    directory = place / "d"
    done = run(
        ENLIST,
        "server",
        "init",
        "--dir",
        directory,
        "--domain",
        "x.example",
        "--kek",
        f"file:{directory}/keys/kek",
        "--listen",
        "127.0.0.1:0",
        "--root-key-out",
        place / "root",
    )
    assert done.code == 0, done
    assert "warn" in done.err.lower() and "key-encryption key" in done.err


def interrupted(place, *arguments, when, number=signal.SIGINT) -> subprocess.Popen:
    """Ends an initialization by a signal, once a condition holds."""
    base = ("--dir", place / "d", "--domain", "x.example", "--listen", "127.0.0.1:0", "--root-key-out", place / "root.key")
    command = [str(part) for part in (ENLIST, "server", "init", *base, *arguments, "--json")]
    process = subprocess.Popen(
        command, env=clean_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: when() or process.poll() is not None, "it has begun")
        if process.poll() is None:
            process.send_signal(number)
        process.out, process.err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_init_that_is_interrupted_leaves_nothing_in_the_way(place, number):
    """Here it waits for its key-encryption key. The corrected command works at once."""
    kek = place / "kek"
    os.mkfifo(kek, 0o600)
    done = interrupted(place, "--kek", f"file:{kek}", when=(place / "root.key").exists, number=number)
    error = json.loads(done.err)["error"]
    assert done.returncode == 1 and error["code"] == "interrupted" and error["hint"] and done.out == "", (done.out, done.err)
    assert [path.name for path in place.iterdir()] == ["kek"]
    base = ("--dir", place / "d", "--domain", "x.example", "--listen", "127.0.0.1:0", "--root-key-out", place / "root.key")
    done = run(ENLIST, "server", "init", *base, "--kek", f"file:{place}/other", "--json")
    assert done.code == 0, done
    evidence.private_key("root", (place / "root.key").read_bytes())


def test_a_domain_is_made_whole_or_not_at_all(place):
    """Interrupted while the directory is made: either it is there with its root key, or neither is."""
    ends = set()
    for attempt in range(6):
        here = place / str(attempt)
        here.mkdir()
        done = interrupted(here, "--kek", f"file:{place}/kek", when=(here / "d").exists)
        ends.add(done.returncode)
        if done.returncode == 0:
            evidence.private_key("root", (here / "root.key").read_bytes())
            assert (here / "d" / "VERSION").exists() and json.loads(done.out)["root_key_file"] == str(here / "root.key")
        else:
            assert done.returncode == 1 and list(here.iterdir()) == [], (done.err, list(here.rglob("*")))
    assert ends <= {0, 1}


def test_a_mistake_leaves_no_root_key_behind(place):
    """`--issuer pkcs11` was forgotten, or the PIN itself was given: the corrected command finds the paths free."""
    base = ("--dir", place / "d", "--domain", "x.example", "--kek", f"file:{place}/kek", "--root-key-out", place / "root.key")
    hsm = ("--pkcs11-module", "/nonexistent.so", "--pkcs11-token", "t", "--pkcs11-key", "k")
    for arguments, code in (
        ((*hsm, "--pkcs11-pin", "env:PIN"), "usage"),
        (("--issuer", "pkcs11", *hsm, "--pkcs11-pin", "1234"), "config_invalid"),
        (("--listen", "nowhere"), "config_invalid"),
    ):
        done = run(ENLIST, "server", "init", *base, *arguments, "--json")
        error = done.error()
        assert done.code == 2 and error["code"] == code and error["hint"], done
        assert "server check" not in error["hint"], "there is no directory that could be checked"
        assert list(place.iterdir()) == []
    done = run(ENLIST, "server", "init", *base, "--listen", "127.0.0.1:0", "--json")
    assert done.code == 0, done
    evidence.private_key("root", (place / "root.key").read_bytes())


def test_a_command_that_reads_a_key_leaves_no_core_dump_and_nobody_can_look_into_it(place):
    """Also where the limit is lifted, and a program collects dumps: the key of an issuer would be in it."""
    need_root()
    certificate, key = place / "ca.pem", place / "key.pem"
    certificate.write_bytes(b"")
    os.mkfifo(key, 0o600)
    fewer = (need("setpriv"), "--bounding-set", "-sys_ptrace,-perfmon,-sys_admin")
    init = ("server", "init", "--dir", place / "d", "--domain", "x.example", "--kek", f"file:{place}/k")
    init = (*init, "--issuer", "imported", "--ca-cert", certificate, "--ca-key", key)
    line = [str(part) for part in (*fewer, need("prlimit"), "--core=unlimited", ENLIST, *init)]
    with subprocess.Popen(line, env=clean_env(), cwd=place, stderr=subprocess.DEVNULL) as waiting:
        try:
            opened = until(lambda: open_for_writing(key), "it waits for the key")
            limits = pathlib.Path(f"/proc/{waiting.pid}/limits").read_text()
            core = next(line.split() for line in limits.splitlines() if line.startswith("Max core file size"))
            assert core[4:6] == ["0", "0"], core
            looking = subprocess.run([*fewer, "cat", f"/proc/{waiting.pid}/environ"], capture_output=True, check=False)
            assert looking.returncode != 0, "it can be looked into"
            os.close(opened)
        finally:
            waiting.kill()


def open_for_writing(fifo) -> int | None:
    """None as long as nobody reads."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO, error
        return None
