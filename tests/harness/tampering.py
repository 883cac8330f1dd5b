"""What somebody can do to a data directory that is not in use, without its key-encryption key."""

import shutil
import sqlite3
import zlib
from pathlib import Path

#: Bytes before the payload of a stored row: a version, then a CRC-32 (version 1) or an authentication code (version 2).
HEADER = {1: 5, 2: 33}


def payload(row: bytes) -> bytes:
    return row[HEADER[row[0]] :]


def checksummed(data: bytes) -> bytes:
    """A row as versions before authentication wrote it, with a checksum that is right."""
    return b"\x01" + zlib.crc32(b"\x01" + data).to_bytes(4, "little") + data


def blank(row: bytes) -> bytes:
    """The payload of an entry that says nothing, in the place of this one."""
    data = payload(row)
    place = data.index(b"\xa7payload") + len(b"\xa7payload")
    return data[:place] + b"\xa5blank"


def log(directory: Path) -> sqlite3.Connection:
    return sqlite3.connect(directory / "log.db", isolation_level=None)


def entries(directory: Path) -> dict[int, bytes]:
    connection = log(directory)
    found = dict(connection.execute("SELECT idx, row FROM entries ORDER BY idx").fetchall())
    connection.close()
    return found


def forget(directory: Path, *words: bytes, older: bool = False) -> int:
    """Takes every command of these names out of the log, and lets the trail be made again from what is left. With `older`
    every row gets the form of before authentication; else rows that are changed get it only where all have it. How many."""
    connection, changed = log(directory), 0
    for index, row in entries(directory).items():
        named = any(word in row for word in words)
        data = blank(row) if named else payload(row)
        changed += named
        whole = checksummed(data) if older or row[0] == 1 else row[: HEADER[2]] + data
        connection.execute("UPDATE entries SET row = ? WHERE idx = ?", (whole, index))
    connection.execute("DELETE FROM meta WHERE key = 'audit_seq'")
    if older:
        connection.execute("DELETE FROM meta WHERE key IN ('head', 'base')")
        for key, row in connection.execute("SELECT key, row FROM meta").fetchall():
            connection.execute("UPDATE meta SET row = ? WHERE key = ?", (checksummed(payload(row)), key))
    connection.close()
    for name in ("audit.db", "audit.db-wal", "audit.db-shm"):
        (directory / name).unlink(missing_ok=True)
    shutil.rmtree(directory / "snapshots", ignore_errors=True)
    return changed


def make_older(directory: Path) -> None:
    """As if it had never been taken in by a version that authenticates."""
    (directory / "VERSION").write_text("1\n")
    for name in ("keys/log.key.sealed", "checkpoint"):
        (directory / name).unlink(missing_ok=True)


def copy(directory: Path, to: Path) -> Path:
    shutil.copytree(directory, to, ignore=shutil.ignore_patterns("operator.sock"))
    return to


def put_back(copied: Path, directory: Path) -> None:
    shutil.rmtree(directory)
    copy(copied, directory)
