"""A snapshot at every clean stop, so that the next start, of a newer version too, has no commands to apply again."""

import sqlite3
import time

import certs
import native
from plane import STOP_LIMIT


def snapshots(plane) -> list[int]:
    """The log indexes that the snapshots end at, the newest first."""
    return sorted((int(file.stem) for file in (plane.dir / "snapshots").glob("*.snap")), reverse=True)


def log_indexes(plane) -> list[int]:
    """The entries that are in the log."""
    connection = sqlite3.connect(f"file:{plane.dir}/log.db?mode=ro", uri=True)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert "entries" in tables, tables
        return [index for (index,) in connection.execute("SELECT idx FROM entries ORDER BY idx")]
    finally:
        connection.close()


def busy(plane) -> list[str]:
    return [native.enroll(plane).id for _ in range(3)]


def timed_stop(plane) -> None:
    began = time.monotonic()
    plane.stop()
    assert time.monotonic() - began < STOP_LIMIT + 4


def test_a_clean_stop_leaves_nothing_to_apply(plane_of_its_own):
    """The newest snapshot ends where the log does, and what was granted is there after the start from it."""
    plane = plane_of_its_own
    nodes = busy(plane)
    assert snapshots(plane) == []
    timed_stop(plane)
    (made,) = snapshots(plane)
    assert made == max(log_indexes(plane))
    assert not list((plane.dir / "snapshots").glob("*.tmp"))
    plane.start()
    assert set(nodes) <= {node["node_id"] for node in plane.nodes()}
    assert plane.cli("audit", "verify").json()["ok"] and not plane.audit("audit.gap")


def test_two_stops_in_a_row_make_one_snapshot(plane_of_its_own):
    """A run that changed nothing leaves the snapshot of the run before; one that did makes the next, and two are kept."""
    plane = plane_of_its_own
    busy(plane)
    plane.stop()
    first = snapshots(plane)
    file = plane.dir / "snapshots" / f"{first[0]:020}.snap"
    written = file.stat().st_mtime_ns
    for _ in range(2):
        plane.start()
        timed_stop(plane)
        assert (snapshots(plane), file.stat().st_mtime_ns) == (first, written)
    for kept in (2, 2):
        plane.start()
        busy(plane)
        plane.stop()
        assert len(snapshots(plane)) == kept and snapshots(plane)[0] > first[0]
    # What the older one holds has left the log by the next start; what it lacks has not.
    newest, older = snapshots(plane)
    plane.start()
    plane.stop()
    assert min(log_indexes(plane)) <= older + 1 and min(log_indexes(plane)) > first[0]
    assert newest in log_indexes(plane)


def test_a_killed_server_applies_its_log_as_before(plane_of_its_own):
    """After SIGKILL the start is from the last snapshot and the log since then, however it came about."""
    plane = plane_of_its_own
    nodes = busy(plane)
    plane.stop()
    made = snapshots(plane)
    plane.start()
    nodes += busy(plane)
    plane.kill()
    assert snapshots(plane) == made and max(log_indexes(plane)) > made[0]
    plane.start()
    assert set(nodes) <= {node["node_id"] for node in plane.nodes()}
    assert plane.cli("audit", "verify").json()["ok"] and not plane.audit("audit.gap")


def test_lines_lost_after_a_clean_stop_come_back(plane_of_its_own):
    """A snapshot that stands on lines which are gone is passed over for the log that can write them again."""
    plane = plane_of_its_own
    for _ in range(3):
        busy(plane)
        lines = plane.audit()
        plane.stop()
        connection = sqlite3.connect(plane.dir / "audit.db")
        with connection:
            (last,) = connection.execute("SELECT max(seq) FROM lines").fetchone()
            connection.execute("DELETE FROM lines WHERE seq = ?", (last - 2,))
        connection.close()
        plane.start()
        assert plane.audit()[: len(lines)] == lines
        assert plane.audit("audit.gap")[-1]["refilled"] is True
        assert plane.cli("audit", "verify").json()["ok"]


def test_a_stop_under_load_stays_within_its_limit(plane_of_its_own):
    """Enrollments until the last moment: what was answered is there, and the snapshot holds it."""
    plane = plane_of_its_own
    granted = []
    tokens = [plane.token() for _ in range(40)]
    with native.door(plane) as door:
        calls = [door.begin(token, certs.good_csr()) for token in tokens]
        granted.append(calls[0].result().node_id)
        timed_stop(plane)
        granted += [call.result().node_id for call in calls[1:] if call.done() and not call.exception()]
    assert snapshots(plane)[0] == max(log_indexes(plane))
    plane.start()
    assert set(granted) <= {node["node_id"] for node in plane.nodes()}
