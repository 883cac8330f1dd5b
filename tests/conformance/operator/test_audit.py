"""The audit trail: what it holds, and that nobody changes it unnoticed."""

import json
import re
import sqlite3

import pytest

import evidence
from plane import ControlPlane
from trails import busy, other_byte

COMMON = {"seq", "at", "event_type", "actor", "source", "request_id", "correlation_id", "prev_hash", "hash"}
KNOWN = re.compile(
    r"enrollment_token\.(created|revoked|expired)|enrollment\.refused"
    r"|host\.(enrolled|confirmed|active|inactive|draining|undrained|quarantined|released|decommissioned|revoked"
    r"|reinstated|registered|assigned|unassigned|moved|imported)"
    r"|certificate\.(renewed|superseded|adopted)|recovery\.(requested|issued|refused|resolved)"
    r"|recovery_token\.rotated|repair_bundle\.issued|ca\.(prepared|activated|retired|revoked)"
    r"|operator\.(added|removed)|operator_key\.(created|revoked)|tenant\.created|vcluster\.(created|configured)"
    r"|policy\.changed|cluster\.(joined|removed|restored)|audit\.(checkpoint|gap|pruned)|session\.(opened|closed)"
    r"|alert\.(raised|cleared)"
)
OWN = {"domain.founded", "server_certificate.issued", "registry.tidied"}
"""Lines of this program that no document names."""


@pytest.fixture
def trail():
    """A control plane of one test with a trail worth changing."""
    with ControlPlane() as plane:
        busy(plane)
        yield plane


def store(plane) -> sqlite3.Connection:
    return sqlite3.connect(plane.dir / "audit.db", timeout=30)


def verify(plane) -> dict:
    """What `enlist audit verify` says, and that its exit code agrees."""
    done = plane.cli("audit", "verify", ok=False)
    report = done.json()
    assert done.code == (0 if report["ok"] else 3), done
    return report


def rewrite(plane, seq: int, change) -> None:
    with store(plane) as connection:
        (line,) = connection.execute("SELECT line FROM lines WHERE seq = ?", (seq,)).fetchone()
        changed = change(line)
        assert changed != line
        connection.execute("UPDATE lines SET line = ? WHERE seq = ?", (changed, seq))
    connection.close()


def test_a_whole_trail_verifies(trail):
    """`audit verify`: ok, from the first line to the last, with the head that the last line has."""
    report = verify(trail)
    lines = trail.audit()
    assert report["ok"] and report["fault"] is None
    assert report["first_seq"] == 1 == lines[0]["seq"]
    assert report["last_seq"] >= lines[-1]["seq"]
    assert report["head"] == trail.audit()[-1]["hash"] or report["last_seq"] > lines[-1]["seq"]
    assert "checkpoint" in report


def test_every_line_has_the_promised_fields_and_a_known_name(trail):
    """Sequence without gaps, hashes that chain, times that never run backwards, names from the one table."""
    lines = trail.audit()
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    for before, line in zip(lines, lines[1:]):
        assert line["prev_hash"] == before["hash"]
        assert line["at"] >= before["at"]
    for line in lines:
        assert COMMON <= line.keys(), line
        assert KNOWN.fullmatch(line["event_type"]) or line["event_type"] in OWN, line["event_type"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", line["at"])
        assert re.fullmatch(r"(user|local|key|node|replica):\S+|system:\S+|stranger", line["actor"]), line
        if line["event_type"].startswith("host."):
            assert line["host_id"] == line["node_id"] and line["timestamp"] == line["at"]


def test_minting_is_on_record_as_its_document_says(trail):
    """`enrollment_token.created` with token_id, created_by, expires_at, timestamp. Proves PLFM-28."""
    minted = trail.mint()
    line = trail.audit("enrollment_token.created")[-1]
    assert line["token_id"] == minted["token_id"]
    assert line["created_by"] == line["actor"] and line["created_by"].startswith("local:")
    assert line["expires_at"] == minted["expires_at"]
    assert line["timestamp"] == line["at"]
    assert minted["token"] not in json.dumps(trail.audit())


def test_refused_attempts_are_on_record(trail):
    """With the exact reason, however little the caller was told."""
    reasons = [line["reason"] for line in trail.audit("enrollment.refused")]
    assert "token_invalid" in reasons
    assert all({"reason", "count", "samples"} <= line.keys() for line in trail.audit("enrollment.refused"))


def test_ids_of_a_request_are_on_its_line(trail):
    """X-Request-Id and X-Correlation-Id of the caller are found in what the request did."""
    headers = {"X-Request-Id": "req-77", "X-Correlation-Id": "corr-88"}
    answer = trail.api("POST", "/v1/tenants", {"name": "traced"}, headers)
    assert answer.headers["X-Request-Id"] == "req-77"
    line = trail.audit("tenant.created")[-1]
    assert (line["request_id"], line["correlation_id"]) == ("req-77", "corr-88")


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_changed_byte_is_found_while_the_server_runs(trail, place):
    """Exit 3, and the fault names the line."""
    count = len(trail.audit())
    seq = {"first": 1, "middle": count // 2, "last": count}[place]
    rewrite(trail, seq, other_byte)
    report = verify(trail)
    assert not report["ok"] and report["fault"]["seq"] == seq, report
    assert str(seq) in report["fault"]["what"]


def test_a_line_rewritten_with_a_matching_hash_is_found(trail):
    """Somebody who can compute hashes still breaks the chain to the next line."""
    lines = trail.audit()
    seq = len(lines) // 2
    with store(trail) as connection:
        (text,) = connection.execute("SELECT line FROM lines WHERE seq = ?", (seq + 1,)).fetchone()
        connection.execute("UPDATE lines SET line = ? WHERE seq = ?", (text, seq))
    connection.close()
    report = verify(trail)
    assert not report["ok"] and report["fault"]["seq"] in (seq, seq + 1)


def test_a_deleted_line_in_the_middle_is_found(trail):
    """And named as missing."""
    seq = len(trail.audit()) // 2
    with store(trail) as connection:
        connection.execute("DELETE FROM lines WHERE seq = ?", (seq,))
    connection.close()
    report = verify(trail)
    assert not report["ok"] and report["fault"]["seq"] == seq and "missing" in report["fault"]["what"]


def test_a_deleted_tail_is_found_and_refilled_at_the_next_start(trail):
    """While it runs the missing lines are named; at start they come back from the log, and that is recorded."""
    lines = trail.audit()
    first = len(lines) - 2
    with store(trail) as connection:
        connection.execute("DELETE FROM lines WHERE seq >= ?", (first,))
    connection.close()
    report = verify(trail)
    assert not report["ok"] and report["fault"]["seq"] == first and "missing" in report["fault"]["what"]
    trail.restart()
    again = trail.audit()
    assert again[: len(lines)] == lines
    (gap,) = trail.audit("audit.gap")
    assert gap["refilled"] is True and gap["from"] == first and gap["to"] >= len(lines)
    assert verify(trail)["ok"]


def test_a_tail_deleted_while_it_was_stopped_is_refilled(trail):
    """The same after a clean stop: the trail is whole again and says what happened."""
    trail.stop()
    with store(trail) as connection:
        (last,) = connection.execute("SELECT max(seq) FROM lines").fetchone()
        connection.execute("DELETE FROM lines WHERE seq > ?", (last - 3,))
    connection.close()
    trail.start()
    (gap,) = trail.audit("audit.gap")
    assert (gap["refilled"], gap["from"], gap["to"]) == (True, last - 2, last)
    assert verify(trail)["ok"]


def test_a_deleted_store_is_found(trail):
    """While it runs, a store that is gone is a fault; at start it comes back from the log or is refused by name."""
    lines = trail.audit()
    for suffix in ("", "-wal", "-shm"):
        (trail.dir / f"audit.db{suffix}").unlink(missing_ok=True)
    report = verify(trail)
    assert not report["ok"] and report["fault"]["what"], report
    trail.kill()
    trail.start()
    assert trail.audit()[: len(lines)] == lines
    assert any(gap["refilled"] and gap["from"] == 1 for gap in trail.audit("audit.gap"))
    assert verify(trail)["ok"]


def test_a_byte_changed_while_it_was_stopped_is_found(trail):
    """It does not start on a trail that differs from the log, or it starts and verify names the line."""
    trail.stop()
    rewrite(trail, 4, other_byte)
    trail.launch()
    from machine import until

    until(lambda: trail.process.poll() is not None or "ready https" in trail.out.read_text(), "it started or refused")
    if trail.process.poll() is None:
        report = verify(trail)
        assert not report["ok"] and report["fault"]["seq"] == 4
    else:
        assert trail.process.returncode == 1
        assert "audit" in trail.log() and "4" in trail.log()


def walked(plane, query: str, limit: int = 3) -> list[dict]:
    """All pages of a query, small ones."""
    return plane.items(f"/v1/audit?limit={limit}{query}")


def test_lines_are_chosen_by_node_kind_and_time(trail):
    """Each filter alone and all together give what a filter over all lines gives, from either end."""
    lines = trail.audit()
    nodes = {line["node_id"] for line in lines if line.get("node_id")}
    assert len(nodes) >= 2
    node = sorted(nodes)[0]
    about = [line for line in lines if line.get("node_id") == node]
    assert walked(trail, f"&node={node}") == about and len(about) < len(lines)
    assert walked(trail, f"&node={node}&order=desc") == about[::-1]
    kind = [line for line in lines if line["event_type"] == "host.enrolled"]
    assert walked(trail, "&event_type=host.enrolled") == kind and len(kind) >= 2
    assert walked(trail, f"&event_type=host.enrolled&node={node}") == [line for line in kind if line in about]
    middle = lines[len(lines) // 2]["at"]
    late = [line for line in lines if line["at"] >= middle]
    assert 0 < len(late) < len(lines)
    for limit in (1, 3, 1000):
        assert walked(trail, f"&since={middle}", limit) == late
        assert walked(trail, f"&since={middle}&order=desc", limit) == late[::-1]
        assert walked(trail, "&order=desc", limit) == lines[::-1]
    assert walked(trail, "&since=7d") == lines
    assert walked(trail, "&since=2999-01-01T00:00:00Z") == []


def test_a_query_that_means_nothing_is_refused(trail):
    """400 with the words that are allowed."""
    for query in ("since=yesterday", "order=up", "cursor=x", "limit=0"):
        answer = trail.api("GET", f"/v1/audit?{query}")
        assert answer.status == 400 and query.split("=")[0] in answer.json()["error"]["message"], answer


def test_the_command_gives_the_newest_lines_oldest_first(trail):
    """--limit with and without other filters; --since; what is no time, no number or no event is a usage error."""
    lines = trail.audit()
    listed = lambda *options: trail.cli("audit", "list", *options).lines()  # noqa: E731
    assert listed() == lines
    assert listed("--limit", "3") == lines[-3:]
    assert listed("--limit", "100000") == lines
    kind = [line for line in lines if line["event_type"] == "host.enrolled"]
    assert listed("--limit", "1", "--event", "host.enrolled") == kind[-1:]
    node = kind[0]["node_id"]
    about = [line for line in lines if line.get("node_id") == node]
    assert listed("--node", node, "--since", "1h", "--limit", "2") == about[-2:]
    assert listed("--since", lines[-1]["at"])[-1] == lines[-1]
    for options in (("--since", "soon"), ("--limit", "0"), ("--limit", "x"), ("--event", "host.enroled")):
        done = trail.cli("audit", "list", *options, ok=False)
        assert done.code == 2, done
    assert "host.enrolled" in done.error()["hint"]
    # A name that nothing bears yet is no mistake.
    assert listed("--event", "ca.revoked") == []


def test_only_who_may_read_all_tenants_reads_the_trail(trail):
    """An operator of one tenant is refused, whatever the filter."""
    made = trail.cli("operator", "key", "create", "red", "--role", "viewer", "--tenant", "acme").json()
    evidence.token(made["key"])
    headers = {"Authorization": f"Bearer {made['key']}"}
    for query in ("", "?since=1h", "?order=desc&limit=1"):
        assert trail.https("GET", f"/v1/audit{query}", headers=headers).status == 403
