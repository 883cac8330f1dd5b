"""Starting, refusing to start, and stopping."""

import glob
import hashlib
import os
import signal
import sqlite3
import time

import evidence
import native
import pytest
from machine import ENLIST, clean_env, missing, run, tool, until
from plane import STOP_LIMIT, ControlPlane

KEK = bytes(range(32))


def picture(place) -> dict:
    """Every file with a hash of what is in it. SQLite's shared-memory index is rebuilt by any reader."""
    files = (path for path in place.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def stopped():
    """A control plane with something in it, stopped."""
    plane = ControlPlane().found().start()
    native.enroll(plane)
    plane.stop()
    yield plane
    plane.close()


def refused(plane, *arguments, env=None, words: tuple = (), code: int = 1):
    """It does not start, says why and what to do, and changes nothing."""
    before = picture(plane.dir)
    done = plane.run_to_end(*arguments, env=env)
    assert done.code == code, done
    assert done.out == "", "standard output holds only the ready line"
    said = done.err.lower()
    for word in words:
        assert word.lower() in said, (word, done)
    after = picture(plane.dir)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert not changed, (changed, done)
    return done


def test_standard_output_is_one_line(stopped):
    """`ready https://ADDR:PORT` and nothing else; the port is the one that was chosen."""
    stopped.start()
    assert stopped.https("GET", "/readyz").status == 200
    stopped.stop()
    assert stopped.out.read_text() == f"ready {stopped.url}\n"
    assert stopped.url.startswith("https://127.0.0.1:") and stopped.port > 0


def test_every_mistake_of_a_configuration_is_reported_at_once(stopped):
    """Three mistakes, three complaints, exit 2; by `check` and by `run` alike, and nothing is opened."""
    config = stopped.dir / "enlist.toml"
    good = config.read_text()
    kept = "\n".join(line for line in good.splitlines() if not line.startswith(("listen", "advertise")))
    config.write_text(kept + '\nlisten = ["nowhere"]\nadvertise = ["http://plain.example"]\ncolour = "red"\n')
    for command in ("check", "run"):
        done = run(ENLIST, "server", command, "--dir", stopped.dir)
        assert done.code == 2, done
        for word in ("listen", "nowhere", "advertise", "http://plain.example", "colour"):
            assert word in done.err, (word, done)
    config.write_text(good)
    assert run(ENLIST, "server", "check", "--dir", stopped.dir).code == 0


def test_a_file_that_is_no_toml_is_a_mistake(stopped):
    """Exit 2 with the place."""
    (stopped.dir / "enlist.toml").write_text('listen = ["127.0.0.1:0"\n')
    refused(stopped, code=2, words=("enlist.toml",))


def test_a_newer_store_is_refused(stopped):
    """VERSION larger than known."""
    (stopped.dir / "VERSION").write_text("9\n")
    refused(stopped, words=("newer", "9"))


@pytest.mark.parametrize("text", ["", "one\n", "0\n", "-1\n"])
def test_a_store_without_a_version_is_refused(stopped, text):
    """VERSION holds one integer, or the start ends."""
    (stopped.dir / "VERSION").write_text(text)
    refused(stopped, words=("version",))


def test_a_damaged_log_is_refused(stopped):
    """Bytes turned over in log.db are found before anything is served or changed."""
    file = stopped.dir / "log.db"
    data = bytearray(file.read_bytes())
    with sqlite3.connect(file) as connection:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    for position in range(page, len(data)):
        if position % 64 == 7:
            data[position] ^= 0xFF
    file.write_bytes(bytes(data))
    refused(stopped, words=("log.db",))


def test_a_changed_entry_in_the_log_is_refused(stopped):
    """A log that SQLite finds sound but whose entries were altered is refused too, or told by the audit chain."""
    file = stopped.dir / "log.db"
    connection = sqlite3.connect(file)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    changed = 0
    for table in tables:
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        blobs = [c[1] for c in columns if c[2].upper() == "BLOB"]
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall() if blobs else []
        for row in rows[1:2]:
            for index, column in enumerate(columns):
                value = row[index + 1]
                if column[1] in blobs and isinstance(value, bytes) and len(value) > 40:
                    spoiled = bytearray(value)
                    spoiled[len(value) // 2] ^= 0xFF
                    connection.execute(f"UPDATE {table} SET {column[1]} = ? WHERE rowid = ?", (bytes(spoiled), row[0]))
                    changed += 1
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    if not changed:
        pytest.skip("the log has no entry to change: all is in a snapshot")
    refused(stopped, words=("log",))


def test_a_missing_log_is_refused(stopped):
    """An empty log in a used directory would be a domain without its past."""
    for file in stopped.dir.glob("log.db*"):
        file.unlink()
    refused(stopped, words=("log",))


def test_a_directory_that_is_none_is_refused(place):
    """Missing, empty, or something else entirely: exit 1 with what to do."""
    for directory in (place / "missing", place):
        done = run(ENLIST, "server", "run", "--dir", directory)
        assert done.code == 1, done
        assert "server init" in done.err
    assert list(place.iterdir()) == []


def test_a_wrong_key_encryption_key_is_refused(stopped):
    """Known by what was sealed with it; nothing is touched."""
    stopped.kek_file.write_text("ab" * 32)
    refused(stopped, words=("key-encryption key",))


def test_a_missing_key_encryption_key_is_refused(stopped):
    """`run` never makes a new one."""
    stopped.kek_file.unlink()
    refused(stopped, words=("key-encryption key",))
    assert not stopped.kek_file.exists()


def test_a_malformed_key_encryption_key_is_refused(stopped):
    """Too short to be one."""
    stopped.kek_file.write_text("abcd")
    done = refused(stopped, words=("key-encryption key",))
    assert "abcd" not in done.err


def test_a_directory_in_use_is_refused(stopped):
    """One process at a time; the one that runs does not notice."""
    stopped.start()
    stopped.process.send_signal(signal.SIGSTOP)
    try:
        refused(stopped, words=("in use",))
    finally:
        stopped.process.send_signal(signal.SIGCONT)
    assert stopped.https("GET", "/readyz").status == 200
    assert stopped.cli("node", "list").code == 0, "the operator socket is still the running process's"


def test_a_port_in_use_is_refused(stopped):
    """Exit 1 with the address, and the directory as it was."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = stopped.dir / "enlist.toml"
        config.write_text(config.read_text().replace("127.0.0.1:0", address))
        refused(stopped, words=(address,))


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
        ["--kek", "file:/tmp/none"],
        ["--domain", "x.example", "--kek", "floppy:A"],
        ["--domain", "Not A Domain", "--kek", "file:/tmp/none"],
        ["--domain", "x.example", "--kek", "file:/tmp/none", "--listen", "nowhere"],
        ["--domain", "x.example", "--kek", "file:/tmp/none", "--profile", "nope"],
        ["--domain", "x.example", "--kek", "file:/tmp/none", "--advertise", "http://x"],
    ],
)
def test_a_wrong_command_line_is_usage(place, arguments):
    """Exit 2, and nothing was made."""
    done = run(ENLIST, "server", "init", "--dir", place / "d", *arguments)
    assert done.code == 2, done
    assert not (place / "d").exists() and not os.path.exists("/tmp/none")


def test_the_root_key_is_shown_once_and_stored_nowhere(place):
    """As a PEM block between two lines that say what it is; or in a file of mode 0600, and then not shown. Proves PROBE-09 but the command's name."""
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
    done = run(ENLIST, "server", "init", "--dir", directory, "--domain", "x.example",
               "--kek", f"file:{directory}/keys/kek", "--listen", "127.0.0.1:0", "--root-key-out", place / "root")
    assert done.code == 0, done
    assert "warn" in done.err.lower() and "key-encryption key" in done.err


def faketime(offset: str) -> dict:
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not found:
        missing("libfaketime")
    return {"LD_PRELOAD": found[0], "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.mark.parametrize("offset", ["-10m", "-400d", "+31d"])
def test_a_wrong_clock_is_refused(stopped, offset):
    """5 min behind the last entry or 30 d ahead of it needs --accept-clock."""
    refused(stopped, env=faketime(offset), words=("clock", "--accept-clock"))


@pytest.mark.parametrize("offset", ["-2m", "+20d"])
def test_a_clock_that_may_be_right_is_taken(stopped, offset):
    """Within the limits it starts without a word."""
    stopped.start(env=faketime(offset))
    stopped.stop()


def test_a_clock_that_the_operator_vouches_for_is_taken(stopped):
    """`--accept-clock`, and time on record still never runs backwards."""
    stopped.start("--accept-clock", env=faketime("-10m"))
    stopped.mint()
    lines = stopped.audit()
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert stopped.cli("audit", "verify").json()["ok"]
    stopped.stop()


def test_sigterm_ends_it_in_time_with_open_connections(stopped):
    """0 within 10 s, although somebody holds connections, a watch and half a request."""
    import socket

    stopped.start()
    idle = socket.create_connection(("127.0.0.1", stopped.port))
    held = stopped.context().wrap_socket(socket.create_connection(("127.0.0.1", stopped.port)), server_hostname="127.0.0.1")
    held.sendall(b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    watch = socket.socket(socket.AF_UNIX)
    watch.connect(str(stopped.dir / "operator.sock"))
    watch.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert watch.recv(100).startswith(b"HTTP/1.1 200")
    began = time.monotonic()
    stopped.stop()
    assert time.monotonic() - began <= STOP_LIMIT + 2
    assert not (stopped.dir / "operator.sock").exists()
    for connection in (idle, held, watch):
        connection.close()


def test_a_stale_socket_does_not_stand_in_the_way(stopped):
    """After SIGKILL the next start takes the socket over."""
    stopped.start()
    stopped.kill()
    assert (stopped.dir / "operator.sock").exists()
    stopped.start()
    assert stopped.cli("node", "list").code == 0


def test_it_tells_the_supervisor_when_it_is_ready(stopped):
    """sd_notify: READY=1 on NOTIFY_SOCKET when it serves."""
    import socket

    path = stopped.base / "n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(path))
        notify.settimeout(60)
        stopped.start(env={"NOTIFY_SOCKET": str(path)})
        said = b""
        while b"READY=1" not in said:
            said += notify.recv(4096) + b"\n"


def test_metrics_are_served_where_asked(stopped):
    """`--metrics ADDR:PORT`, in a form that a scraper reads; off unless given."""
    import re
    import socket
    import urllib.request

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stopped.start("--metrics", f"127.0.0.1:{port}")
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    evidence.log("metrics").write_text(text)
    sample = re.compile(r'[a-zA-Z_:][\w:]*(\{([a-z_]\w*="[^"]*",?)*\})? [-+0-9.eE]+(inf|nan)?( \d+)?')
    for line in text.splitlines():
        assert not line or line.startswith("#") or sample.fullmatch(line), line
    assert "enlist_" in text
