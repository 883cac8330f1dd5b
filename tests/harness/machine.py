"""Where the programs are, and how a process is started, awaited and ended. Every one by its own pid."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

import evidence

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("ENLIST_BIN_DIR", ROOT / "target" / "debug")).resolve()
ENLIST = BIN / "enlist"
AGENT = BIN / "enlist-agent"
# What tests/setup has fetched.
os.environ["PATH"] = f"{ROOT / 'target' / 'tools'}:{os.environ['PATH']}"
PROTO = ROOT / "crates" / "api" / "proto"
PATIENCE = 60.0
"""How long a condition may take on a slow machine. No test passes sooner for a smaller number."""


def missing(what: str) -> None:
    """A component is not on this machine: skipped on a laptop, a failure where all must be there."""
    if os.environ.get("ENLIST_REQUIRE_ALL") == "1":
        pytest.fail(f"{what} is missing", pytrace=False)
    pytest.skip(f"{what} is missing", allow_module_level=True)


def missing_pkilint() -> bool:
    import importlib.util

    return importlib.util.find_spec("pkilint") is None


def need(command: str) -> str:
    path = shutil.which(command)
    if path is None:
        missing(f"the command {command}")
    return path


made: list[pathlib.Path] = []


def scratch(name: str = "t") -> pathlib.Path:
    """A directory of one test. Short, because the path of a Unix socket may have 107 bytes only."""
    place = pathlib.Path(tempfile.mkdtemp(prefix=f"enl-{name[:8]}-", dir="/tmp"))
    made.append(place)
    return place


def secret(path: pathlib.Path, text: str) -> pathlib.Path:
    """A file that only its owner may read: others are refused."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
    return path


def until(condition, what: str, patience: float = PATIENCE):
    """The first true value of `condition`, or a failure that says what never came true."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"within {patience:.0f} s it did not happen that {what}")
        time.sleep(0.02)


def clean_env(extra: dict | None = None) -> dict:
    """The environment without anything that would steer the programs."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ENLIST", "FAKETIME", "LD_PRELOAD"))}
    # Whoever runs the tests may have contexts of their own, and no agent makes an interface outside of a test's own namespaces.
    steered = {"ENLIST_LOG": "debug", "XDG_CONFIG_HOME": "/nonexistent", "ENLIST_AGENT_OVERLAY_BACKEND": "off"}
    return {**kept, **steered, **(extra or {})}


class Done:
    """What a finished command left."""

    def __init__(self, code: int, out: bytes, err: bytes, command: list[str]):
        self.code, self.out, self.err = code, out.decode(errors="replace"), err.decode(errors="replace")
        self.command = command

    def __repr__(self) -> str:
        shown = " ".join(os.path.basename(part) for part in self.command[:4])
        return f"<{shown}: exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}>"

    def json(self):
        return json.loads(self.out)

    def lines(self) -> list:
        return [json.loads(line) for line in self.out.splitlines() if line.strip()]

    def error(self) -> dict:
        """The error document that `--json` puts on standard error."""
        for line in self.err.splitlines():
            if line.startswith('{"error"'):
                return json.loads(line)["error"]
        return json.loads(self.err)["error"]


def run(*command, env: dict | None = None, stdin: bytes = b"", patience: float = PATIENCE, cwd=None) -> Done:
    """Runs one of our programs to its end. Its standard error is kept as evidence."""
    command = [str(part) for part in command]
    process = subprocess.Popen(
        command,
        env=clean_env(env),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    evidence.note_arguments(process.pid)
    try:
        out, err = process.communicate(stdin, timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end within {patience} s: {Done(-9, out, err, command)}") from None
    evidence.log(os.path.basename(command[0])).write_bytes(err)
    return Done(process.returncode, out, err, command)


def tool(*command, stdin: bytes = b"", check: bool = True, patience: float = PATIENCE) -> Done:
    """Runs somebody else's program, such as openssl or curl."""
    need(str(command[0]))
    command = [str(part) for part in command]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=patience, check=False)
    result = Done(done.returncode, done.stdout, done.stderr, command)
    assert not check or result.code == 0, result
    return result
