"""Ways to bend a data directory that is not in use, drawn at random. None of them knows the key-encryption key.

Each way takes a `Bent` and says in words what it did; what it cannot do to a directory it answers with None.
"""

import hashlib
import hmac
import json
import os
import random
import shutil
import sqlite3
from pathlib import Path

import tampering
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LAST = (1 << 63) - 1
STORES = ("log.db", "audit.db")
SIDES = ("", "-wal", "-shm")


class Bent:
    """A copy of a directory, to be bent: with an older copy of the same and one of another domain beside it."""

    def __init__(self, dir: Path, old: Path, other: Path, chance: random.Random, anchored: bool, stranger: Path):
        self.dir, self.old, self.other, self.chance, self.anchored = dir, old, other, chance, anchored
        #: Where a key-encryption key of the attacker's own may lie.
        self.stranger = stranger

    def files(self) -> list[Path]:
        names = (path.relative_to(self.dir) for path in sorted(self.dir.rglob("*")) if path.is_file())
        return [name for name in names if name.name != "lock"]

    def some_file(self) -> Path:
        return self.chance.choice(self.files())

    def rows(self, table: str, file: str) -> list[tuple]:
        return self.ask(file, f"SELECT * FROM {table} ORDER BY 1")

    def ask(self, file: str, sql: str, *values) -> list[tuple]:
        connection = sqlite3.connect(self.dir / file, isolation_level=None)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()


# Edited.


def bytes_of_a_file(bent: Bent) -> str | None:
    name = bent.some_file()
    data = bytearray((bent.dir / name).read_bytes())
    if not data:
        return None
    places = [bent.chance.randrange(len(data)) for _ in range(bent.chance.choice((1, 1, 1, 4)))]
    for place in places:
        data[place] ^= bent.chance.randrange(1, 256)
    (bent.dir / name).write_bytes(data)
    return f"bytes {places} of {name}"


def bytes_of_a_store(bent: Bent) -> str | None:
    """Where they are part of a row for sure: the free parts of pages are nobody's."""
    file, table, column = bent.chance.choice((("log.db", "entries", "row"), ("audit.db", "lines", "line")))
    key, value = bent.chance.choice(bent.rows(table, file))
    data = bytearray(value if isinstance(value, bytes) else value.encode())
    place = bent.chance.randrange(len(data))
    data[place] ^= 1 << bent.chance.randrange(7)
    changed = bytes(data) if table == "entries" else data.decode(errors="replace")
    named = "idx" if table == "entries" else "seq"
    bent.ask(file, f"UPDATE {table} SET {column} = ? WHERE {named} = ?", changed, key)
    return f"byte {place} of row {key} of {table}"


def entry_removed(bent: Bent) -> str:
    index, _ = bent.chance.choice(bent.rows("entries", "log.db"))
    bent.ask("log.db", "DELETE FROM entries WHERE idx = ?", index)
    return f"entry {index} removed"


def entries_swapped(bent: Bent) -> str:
    (one, first), (two, second) = bent.chance.sample(bent.rows("entries", "log.db"), 2)
    bent.ask("log.db", "UPDATE entries SET row = ? WHERE idx = ?", second, one)
    bent.ask("log.db", "UPDATE entries SET row = ? WHERE idx = ?", first, two)
    return f"entries {one} and {two} swapped"


def entry_doubled(bent: Bent) -> str:
    """At the end, before the beginning, at the highest number there is, or in the place of another."""
    rows = bent.rows("entries", "log.db")
    places = (rows[-1][0] + 1, rows[-1][0] + 100, -1, LAST, -LAST, rows[0][0])
    return double_entry(bent, bent.chance.choice(places))


def double_entry(bent: Bent, to: int) -> str:
    index, row = bent.chance.choice(bent.rows("entries", "log.db")[1:])
    bent.ask("log.db", "INSERT OR REPLACE INTO entries VALUES (?, ?)", to, row)
    return f"entry {index} once more at {to}"


def entries_renumbered(bent: Bent) -> str:
    rows = bent.rows("entries", "log.db")
    index = bent.chance.choice(rows[1:])[0]
    bent.ask("log.db", "DELETE FROM entries WHERE idx = ?", index)
    for later in range(index + 1, rows[-1][0] + 1):
        bent.ask("log.db", "UPDATE entries SET idx = ? WHERE idx = ?", later - 1, later)
    return f"entry {index} removed, those after it moved up"


def entry_emptied(bent: Bent) -> str:
    index, row = bent.chance.choice(bent.rows("entries", "log.db"))
    new = bent.chance.choice((b"", b"\x02", "text", tampering.checksummed(tampering.payload(row)), b"\x03" + row[1:]))
    bent.ask("log.db", "UPDATE entries SET row = ? WHERE idx = ?", new, index)
    return f"entry {index} is {new[:8]!r}"


def revocation_forgotten(bent: Bent) -> str:
    older = bent.chance.random() < 0.5
    tampering.forget(bent.dir, b"\xa6revoke", b"record_checkpoint", older=older)
    if older and bent.chance.random() < 0.5:
        tampering.make_older(bent.dir)
    return f"the revocation taken out, {older=}"


def value_removed(bent: Bent) -> str:
    key, _ = bent.chance.choice(bent.rows("meta", "log.db"))
    bent.ask("log.db", "DELETE FROM meta WHERE key = ?", key)
    return f"the value of {key} removed"


def value_changed(bent: Bent) -> str:
    """By that of another, that of before, or the same with a checksum."""
    rows = dict(bent.rows("meta", "log.db"))
    key = bent.chance.choice(sorted(rows))
    before = dict(sqlite3.connect(bent.old / "log.db").execute("SELECT * FROM meta").fetchall())
    new = bent.chance.choice(
        (rows[bent.chance.choice(sorted(rows))], before.get(key, b""), tampering.checksummed(tampering.payload(rows[key])))
    )
    bent.ask("log.db", "UPDATE meta SET row = ? WHERE key = ?", new, key)
    return f"the value of {key} is another"


def values_of_before(bent: Bent) -> str:
    """Where the log ends and what was committed, as an older copy says, and the log cut there."""
    before = dict(sqlite3.connect(bent.old / "log.db").execute("SELECT * FROM meta").fetchall())
    last = sqlite3.connect(bent.old / "log.db").execute("SELECT max(idx) FROM entries").fetchone()[0]
    bent.ask("log.db", "DELETE FROM entries WHERE idx > ?", last)
    for key, row in before.items():
        bent.ask("log.db", "INSERT OR REPLACE INTO meta VALUES (?, ?)", key, row)
    return f"the log cut after entry {last}, with its values of then"


#: What SQLite would do of its own: leave out what is written, or show something else than is stored.
SCHEMAS = [
    ("log.db", "CREATE TRIGGER t BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END"),
    ("log.db", "CREATE TRIGGER t BEFORE INSERT ON meta BEGIN SELECT RAISE(IGNORE); END"),
    ("log.db", "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE idx = NEW.idx; END"),
    ("log.db", "CREATE INDEX i ON entries (row)"),
    ("log.db", "CREATE TABLE another (x)"),
    ("audit.db", "CREATE TRIGGER t BEFORE INSERT ON lines BEGIN SELECT RAISE(IGNORE); END"),
    ("audit.db", "CREATE TRIGGER t AFTER INSERT ON lines BEGIN UPDATE lines SET line = '{}' WHERE seq = NEW.seq; END"),
    ("audit.db", "ALTER TABLE lines RENAME TO hidden; CREATE VIEW lines AS SELECT * FROM hidden WHERE seq < 9"),
]


def schema_changed(bent: Bent) -> str:
    return change_schema(bent, *bent.chance.choice(SCHEMAS))


def change_schema(bent: Bent, file: str, sql: str) -> str:
    connection = sqlite3.connect(bent.dir / file)
    connection.executescript(sql)
    connection.close()
    return f"{file}: {sql}"


def line_changed(bent: Bent) -> str:
    """With every hash after it made right again, or without."""
    lines = bent.rows("lines", "audit.db")
    at = bent.chance.randrange(len(lines))
    through = bent.chance.random() < 0.6
    head = lines[at - 1][1][-66:-2] if at else "0" * 64
    for seq, line in lines[at:] if through else lines[at : at + 1]:
        said = json.loads(line)
        if seq == lines[at][0]:
            said["actor"] = "local:nobody"
        del said["hash"]
        said["prev_hash"] = head
        body = json.dumps(said, separators=(",", ":"), ensure_ascii=False)[:-1]
        head = hashlib.sha256(body.encode()).hexdigest()
        bent.ask("audit.db", "UPDATE lines SET line = ? WHERE seq = ?", f'{body},"hash":"{head}"}}', seq)
    return f"line {lines[at][0]} changed, {through=}"


def line_removed(bent: Bent) -> str:
    seq, _ = bent.chance.choice(bent.rows("lines", "audit.db"))
    bent.ask("audit.db", "DELETE FROM lines WHERE seq = ?", seq)
    return f"line {seq} removed"


def line_made_odd(bent: Bent) -> str:
    seq, _ = bent.chance.choice(bent.rows("lines", "audit.db"))
    new = bent.chance.choice((None, b"\xff\xfe", 7, "", "{}", "x" * 200_000))
    bent.ask("audit.db", "UPDATE lines SET line = ? WHERE seq = ?", new, seq)
    return f"line {seq} is {str(new)[:9]}"


def line_added(bent: Bent) -> str:
    rows = bent.rows("lines", "audit.db")
    to = bent.chance.choice((rows[-1][0] + 1, rows[-1][0] + 50, 0, -1, LAST))
    bent.ask("audit.db", "INSERT INTO lines VALUES (?, ?)", to, bent.chance.choice(rows)[1])
    return f"a line {to} added"


def mark_moved(bent: Bent) -> str:
    to = bent.chance.choice((0, 1, 1 << 40, LAST, -1))
    bent.ask("audit.db", "UPDATE mark SET seq = ?, applied = ?", to, to)
    return f"the trail's mark is {to}"


def snapshot_renamed(bent: Bent) -> str | None:
    found = sorted((bent.dir / "snapshots").glob("*.snap"))
    if not found:
        return None
    chosen = bent.chance.choice(found)
    index = int(chosen.stem) + bent.chance.choice((-1, 1, 3, 1000))
    shutil.copy(chosen, chosen.with_name(f"{index:020}.snap"))
    if bent.chance.random() < 0.5:
        chosen.unlink()
    return f"{chosen.name} as {index}"


def snapshots_swapped(bent: Bent) -> str | None:
    found = sorted((bent.dir / "snapshots").glob("*.snap"))
    if len(found) < 2:
        return None
    one, two = found[-2].read_bytes(), found[-1].read_bytes()
    found[-2].write_bytes(two)
    found[-1].write_bytes(one)
    return "the snapshots swapped"


def version_changed(bent: Bent) -> str:
    text = bent.chance.choice(("1\n", "3\n", "0\n", "", "2\n2\n", "two\n", "-2\n", "\xff"))
    (bent.dir / "VERSION").write_text(text)
    if bent.chance.random() < 0.4:
        (bent.dir / "keys/log.key.sealed").unlink()
    return f"VERSION is {text!r}"


def log_key_of_ones_own(bent: Bent) -> str:
    """`keys/kek.next` is only a note in the directory."""
    return forged_log(bent, bent.chance.choice(("log.key.sealed", "log.key.next")))


# Cut.


def file_cut(bent: Bent) -> str:
    name = bent.some_file()
    size = (bent.dir / name).stat().st_size
    to = bent.chance.randrange(size) if size and bent.chance.random() < 0.7 else 0
    os.truncate(bent.dir / name, to)
    return f"{name} cut to {to} of {size} bytes"


def file_removed(bent: Bent) -> str:
    name = bent.some_file()
    (bent.dir / name).unlink()
    return f"{name} removed"


def folder_removed(bent: Bent) -> str:
    name = bent.chance.choice(("keys", "ca", "snapshots"))
    shutil.rmtree(bent.dir / name, ignore_errors=True)
    return f"{name} removed"


def wal_cut(bent: Bent) -> str | None:
    """In the middle of what is not yet in the file itself."""
    names = [f"{store}-wal" for store in STORES if (bent.dir / f"{store}-wal").exists()]
    cut = [name for name in names if bent.chance.random() < 0.7]
    for name in cut:
        size = (bent.dir / name).stat().st_size
        os.truncate(bent.dir / name, bent.chance.randrange(size + 1))
    return f"cut: {cut}" if cut else None


def tail_cut(bent: Bent) -> str:
    rows = bent.rows("entries", "log.db")
    index = bent.chance.choice(rows)[0]
    bent.ask("log.db", "DELETE FROM entries WHERE idx >= ?", index)
    if bent.chance.random() < 0.5:
        for name in ("audit.db", "audit.db-wal", "audit.db-shm"):
            (bent.dir / name).unlink(missing_ok=True)
    return f"the log cut at entry {index}"


def trail_cut(bent: Bent) -> str:
    seq = bent.chance.choice(bent.rows("lines", "audit.db"))[0]
    side = bent.chance.choice((">=", "<="))
    bent.ask("audit.db", f"DELETE FROM lines WHERE seq {side} ?", seq)
    if bent.chance.random() < 0.5:
        bent.ask("audit.db", "UPDATE mark SET seq = 0, applied = 0")
    return f"the lines {side} {seq} removed"


# Put back.


def put_back(bent: Bent, name: Path, source: Path) -> None:
    (bent.dir / name).unlink(missing_ok=True)
    if (source / name).exists():
        (bent.dir / name).parent.mkdir(exist_ok=True)
        shutil.copy(source / name, bent.dir / name)


def whole_store(name: Path) -> list[Path]:
    """A store with its side files: as whoever copies it would."""
    stem = name.name.removesuffix("-wal").removesuffix("-shm")
    return [name.with_name(stem + side) for side in SIDES] if stem in STORES else [name]


def both(bent: Bent, source: Path) -> list[Path]:
    found = {*bent.files(), *(path.relative_to(source) for path in source.rglob("*") if path.is_file())}
    return sorted(name for name in found if name.name not in ("lock", "enlist.toml"))


def older_file(bent: Bent) -> str:
    name = bent.chance.choice(both(bent, bent.old))
    for part in whole_store(name) if bent.chance.random() < 0.7 else [name]:
        put_back(bent, part, bent.old)
    return f"{name} as it was before"


def older_files(bent: Bent) -> str:
    """Without an anchor all of them but the checkpoint: with that it would be a whole older copy."""
    names = [name for name in both(bent, bent.old) if bent.anchored or name.name != "checkpoint"]
    names = bent.chance.sample(names, bent.chance.randrange(2, len(names) + 1))
    for name in names:
        for part in whole_store(name):
            put_back(bent, part, bent.old)
    return f"as before: {[str(name) for name in names]}"


def older_store(bent: Bent) -> str:
    """Everything that the history is in, but the checkpoint."""
    for name in both(bent, bent.old):
        if name.name != "checkpoint" and name.parts[0] not in ("keys", "ca"):
            put_back(bent, name, bent.old)
    return "log, trail and snapshots as before"


def older_directory(bent: Bent) -> str | None:
    if not bent.anchored:
        return None
    tampering.put_back(bent.old, bent.dir)
    return "the whole directory as before"


# Of another domain.


def other_file(bent: Bent) -> str:
    name = bent.chance.choice(both(bent, bent.other))
    for part in whole_store(name) if bent.chance.random() < 0.7 else [name]:
        put_back(bent, part, bent.other)
    return f"{name} of another domain"


def other_history(bent: Bent) -> str:
    kept = bent.chance.choice((("keys",), ("keys", "ca"), ("keys", "checkpoint"), ("keys", "ca", "snapshots")))
    for name in both(bent, bent.other):
        if name.parts[0] not in kept:
            put_back(bent, name, bent.other)
    return f"all of another domain but {kept}"


WAYS = [
    bytes_of_a_file,
    bytes_of_a_store,
    entry_removed,
    entries_swapped,
    entry_doubled,
    entries_renumbered,
    entry_emptied,
    revocation_forgotten,
    value_removed,
    value_changed,
    values_of_before,
    schema_changed,
    line_changed,
    line_removed,
    line_made_odd,
    line_added,
    mark_moved,
    snapshot_renamed,
    snapshots_swapped,
    version_changed,
    log_key_of_ones_own,
    file_cut,
    file_removed,
    folder_removed,
    wal_cut,
    tail_cut,
    trail_cut,
    older_file,
    older_files,
    older_store,
    older_directory,
    other_file,
    other_history,
]
#: What is drawn more often, because it is many ways in one.
OFTEN = [bytes_of_a_file, bytes_of_a_store, file_cut, file_removed, older_file, other_file, schema_changed]


def draw(count: int, chance: random.Random) -> list:
    """Every way before any comes again."""
    drawn: list = []
    while len(drawn) < count:
        turn = WAYS + OFTEN
        chance.shuffle(turn)
        drawn += turn
    return drawn[:count]


# What the authentication codes are, by the description alone.


def code(key: bytes, kind: str, index: int, after: bytes, data: bytes) -> bytes:
    place = b"enlist log v2\0" + kind.encode() + b"\0" + index.to_bytes(8, "big") + after
    return hmac.digest(key, place + data, "sha256")


def sealed(kek: bytes, purpose: str, data: bytes) -> bytes:
    nonce = os.urandom(12)
    return b"\x02" + nonce + AESGCM(kek).encrypt(nonce, data, f"enlist seal v2/{purpose}".encode())


def forged_log(bent: Bent, name: str) -> str:
    """The revocation taken out, and every row and the checkpoint in codes of the attacker's own key."""
    key, kek, nothing = os.urandom(32), os.urandom(32), bytes(32)
    bent.stranger.write_text(kek.hex())
    bent.stranger.chmod(0o600)
    keys = bent.dir / "keys"
    (keys / name).write_bytes(sealed(kek, "log", key))
    (keys / name).chmod(0o600)
    (keys / "kek.next").write_text(f"file:{bent.stranger}\n")
    values = dict(bent.rows("meta", "log.db"))
    after = nothing
    if base := values.get("base"):
        after = tampering.payload(base)[-32:] if len(base) > 65 else nothing
    for index, row in bent.rows("entries", "log.db"):
        data = tampering.blank(row) if b"\xa6revoke" in row or b"record_checkpoint" in row else tampering.payload(row)
        after = code(key, "entry", index, after, data)
        bent.ask("log.db", "UPDATE entries SET row = ? WHERE idx = ?", b"\x02" + after + data, index)
    for name_of, row in values.items():
        data = tampering.payload(row)
        if name_of == "head":
            data = head_of(data, after)
        whole = b"\x02" + code(key, name_of, 0, nothing, data) + data
        bent.ask("log.db", "UPDATE meta SET row = ? WHERE key = ?", whole, name_of)
    for side in SIDES:
        (bent.dir / f"audit.db{side}").unlink(missing_ok=True)
    shutil.rmtree(bent.dir / "snapshots", ignore_errors=True)
    data = nothing_yet()
    (bent.dir / "checkpoint").write_bytes(b"\x02" + code(key, "checkpoint", 0, nothing, data) + data)
    return f"the log in codes of one's own key, in {name}"


def head_of(data: bytes, after: bytes) -> bytes:
    """MessagePack of {index, code}, the code as an array of numbers: the last thing in it."""
    place = data.index(b"\xa4code") + 5
    return data[:place] + b"\xdc\x00\x20" + b"".join(bytes([n]) if n < 128 else bytes([0xCC, n]) for n in after)


def nothing_yet() -> bytes:
    """A checkpoint of before the first line."""
    head = b"\x82\xa3seq\x00\xa4head" + b"\xc4\x20" + bytes(32)
    return b"\x83\xa5audit" + head + b"\xa5index\x00\xa8anchored\xc2"


def trail(directory: Path) -> dict:
    """What the files of the trail are, to tell whether a way has touched them."""
    found = (directory / f"audit.db{side}" for side in ("", "-wal"))
    return {path.name: path.read_bytes() for path in found if path.exists()}
