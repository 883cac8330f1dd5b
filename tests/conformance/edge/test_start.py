"""Starting, refusing to start, and stopping."""

import signal
import sqlite3

import pytest

from machine import ENLIST, run
from starts import refused

KEK = bytes(range(32))


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
        keys = [column[1] for column in columns if column[5]]
        for blob in (column[1] for column in columns if column[2].upper() == "BLOB" and keys):
            order = (
                f"SELECT {keys[0]}, {blob} FROM {table} WHERE length({blob}) > 40 ORDER BY {keys[0]} LIMIT 1 OFFSET 1"
            )
            for key, value in connection.execute(order).fetchall():
                spoiled = (
                    value[: len(value) // 2] + bytes([value[len(value) // 2] ^ 0xFF]) + value[len(value) // 2 + 1 :]
                )
                connection.execute(f"UPDATE {table} SET {blob} = ? WHERE {keys[0]} = ?", (spoiled, key))
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
    """Missing, empty, or something else entirely: refused with what to do."""
    for directory in (place / "missing", place):
        done = run(ENLIST, "server", "run", "--dir", directory)
        assert done.code in (1, 2), done
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


def test_a_metrics_port_in_use_is_refused_with_its_own_remedy(stopped):
    """Exit 1 with the address, and what to change."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = stopped.run_to_end("--metrics", address)
        assert done.code == 1 and address in done.err and "--metrics" in done.err, done
