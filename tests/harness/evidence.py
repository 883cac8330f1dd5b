"""What a whole run leaves behind, and the secrets that must not be found in it.

Every log, audit line, metric and process argument of a run is kept below one directory, each process of tests in its own
place. Whoever learns of a secret notes it here; test_secrets.py looks for all of them at the end.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
import tempfile
import threading

RUN = pathlib.Path(os.environ.get("ENLIST_EVIDENCE") or tempfile.mkdtemp(prefix="enl-run-", dir="/tmp"))
LEFT = RUN / "left"
"""What all processes of the run leave; the secrets themselves are noted beside it."""
DIR = LEFT / os.environ.get("ENLIST_SHARD", "all")
DIR.mkdir(parents=True, exist_ok=True)
ARGUMENTS = DIR / "arguments"
PROGRAMS = ("enlist", "enlist-agent", "plfm", "plfm-agent", "probectl-control", "probectl-agent", "taskrun")

LOOKS = 20
"""How often a process is looked at before it is known: for a second."""

tokens: set[str] = set()
"""Tokens and API keys, as strings."""
keys: dict[str, bytes] = {}
"""Private keys and key-encryption keys: a label and the raw secret bytes."""
on_command_line: set[str] = set()
"""Tokens that a test itself put on a command line, where a document demands that this works."""

_lock = threading.Lock()
_seen: set[bytes] = set()


def token(value: str) -> str:
    with _lock:
        tokens.add(value)
    return value


def key(label: str, raw: bytes) -> None:
    with _lock:
        keys[f"{label}-{len(keys)}"] = raw


def private_key(label: str, pem: bytes) -> None:
    """Notes the secret number of a PEM private key."""
    from certs import ec, serialization

    loaded = serialization.load_pem_private_key(pem, None)
    if isinstance(loaded, ec.EllipticCurvePrivateKey):
        size = (loaded.key_size + 7) // 8
        key(label, loaded.private_numbers().private_value.to_bytes(size, "big"))


def write_down() -> None:
    """Keeps what this process knows, for the one that searches."""
    known = {
        "tokens": sorted(tokens),
        "keys": {label: raw.hex() for label, raw in keys.items()},
        "on_command_line": sorted(on_command_line),
    }
    with open(RUN / f"secrets-{DIR.name}.json", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(known, file)


def read_all() -> None:
    """Takes in what the other processes of this run knew."""
    for path in RUN.glob("secrets-*.json"):
        known = json.loads(path.read_text())
        tokens.update(known["tokens"])
        on_command_line.update(known["on_command_line"])
        for label, raw in known["keys"].items():
            key(label, bytes.fromhex(raw))


def arguments() -> bytes:
    """What was seen on command lines, by any process of this run."""
    return b"".join(path.read_bytes() for path in LEFT.glob("*/arguments"))


def log(name: str) -> pathlib.Path:
    """A new file for one stream of one process."""
    path = DIR / "logs"
    path.mkdir(exist_ok=True)
    fd, file = tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=path)
    os.close(fd)
    return pathlib.Path(file)


def is_ours(pid: int) -> bool:
    """Whether this run started a process: others on the machine may use the same programs."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rsplit(")", 1)[1].split()[1])
    return False


def note_arguments(pid: int) -> None:
    """Keeps what anyone on the machine could read of a process."""
    try:
        line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        name = line.split(b"\0", 1)[0].rsplit(b"/", 1)[-1].decode(errors="replace")
    except OSError:
        return
    if name not in PROGRAMS or not is_ours(pid):
        return
    with _lock:
        if line not in _seen:
            _seen.add(line)
            with ARGUMENTS.open("ab") as file:
                file.write(line + b"\n")


def watch_arguments(stop: threading.Event) -> None:
    """Samples the arguments of our programs until told to stop; children they start are seen this way."""
    looks: dict[int, int] = {}
    while not stop.wait(0.05):
        present = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()}
        looks = {pid: number for pid, number in looks.items() if pid in present}
        for pid in present:
            # A process shows its own arguments soon after it was started, and keeps them.
            if looks.setdefault(pid, 0) < LOOKS:
                looks[pid] += 1
                note_arguments(pid)


def keep_directory(name: str, source: pathlib.Path) -> None:
    """Copies a data directory as it is on disk, and its audit lines as text."""
    target = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=DIR))
    for path in source.rglob("*"):
        if path.is_file() and not path.is_symlink():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    audit = target / "audit.db"
    if audit.exists():
        try:
            with contextlib.closing(sqlite3.connect(audit)) as connection:
                lines = connection.execute("SELECT line FROM lines ORDER BY seq").fetchall()
            (target / "audit.jsonl").write_text("\n".join(str(line) for (line,) in lines))
        except sqlite3.DatabaseError:
            pass


def spellings(raw: bytes) -> list[bytes]:
    """The ways in which secret bytes could have been written down: as they are, hex, base64 at any offset."""
    found = [raw, raw.hex().encode(), raw.hex().upper().encode()]
    for shift in range(3):
        padded = b"\0" * shift + raw
        text = base64.b64encode(padded)
        first = 0 if shift == 0 else 4
        inner = text[first : len(text) - 4]
        found += [inner, inner.replace(b"+", b"-").replace(b"/", b"_")]
    return found
