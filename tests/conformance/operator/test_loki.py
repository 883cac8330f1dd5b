"""The audit trail at Loki: every line at least once and in order, whatever happens to either side. PACT-16."""

import base64
import contextlib
import json
import sqlite3

import native
import pytest
from loki import Loki, seq
from machine import ENLIST, run, scratch, secret, until
from plane import ControlPlane
from recorder import Recorder


@pytest.fixture
def loki():
    with Loki() as running:
        yield running
        assert running.faults == []


def configured(loki_url: str, more: str = "") -> ControlPlane:
    """Initialized, not started."""
    plane = ControlPlane().found()
    config = plane.dir / "enlist.toml"
    config.write_text(config.read_text() + f'\n[loki]\nurl = "{loki_url}"\n{more}\n')
    return plane


@contextlib.contextmanager
def forwarding(loki: Loki, more: str = ""):
    plane = configured(loki.url, more)
    try:
        yield plane.start()
    finally:
        plane.close()


def exported(plane) -> list[str]:
    """The lines of the trail as they are stored, without the footer."""
    done = run(ENLIST, "audit", "export", "--dir", plane.dir)
    assert done.code == 0, done
    return [line for line in done.out.splitlines() if "seq" in json.loads(line) and "event_type" in json.loads(line)]


def busy(plane, count: int = 5) -> None:
    for _ in range(count):
        plane.api("DELETE", f"/v1/tokens/{plane.mint()['token_id']}")


def all_there(plane, loki: Loki) -> list[str]:
    """Waits until Loki has the whole trail, and holds one against the other."""
    until(lambda: loki.first_arrivals() == exported(plane), "the whole trail is at Loki, in its order")
    return loki.first_arrivals()


def metric(plane, name: str, labels: str = "") -> float | None:
    text = plane.api("GET", "/metrics").body.decode()
    found = [line.split()[-1] for line in text.splitlines() if line.startswith(f"{name}{labels} ")]
    return float(found[0]) if found else None


def alerts(plane) -> list[dict]:
    return plane.items("/v1/alerts?kind=audit_forwarding_failing")


def test_every_attempt_to_enroll_reaches_loki(loki):
    """Proves PACT-16: granted and refused enrollments, with job, domain and event type as labels and the line as stored."""
    with forwarding(loki) as plane:
        node = native.enroll(plane)
        with native.door(plane) as door:
            door.refused("enroll_" + "A" * 43, "x")
        lines = all_there(plane, loki)
        assert [seq(line) for line in lines] == list(range(1, len(lines) + 1))
        until(lambda: plane.audit("enrollment.refused"), "the refusal is in the trail")
        all_there(plane, loki)
        labels = {dict(labels)["event_type"]: dict(labels) for labels in loki.streams}
        assert {"host.enrolled", "enrollment.refused", "enrollment_token.created"} <= set(labels)
        assert {found["domain"] for found in labels.values()} == {"test.example"}
        (line,) = [line for line in loki.first_arrivals() if '"host.enrolled"' in line]
        assert json.loads(line)["node_id"] == node.id
        assert until(lambda: metric(plane, "enlist_loki_lag_lines") == 0, "nothing is left to send")
        assert metric(plane, "enlist_loki_last_success_timestamp_seconds") > 1_700_000_000


def test_nothing_is_lost_or_out_of_order_whatever_happens_to_loki(loki):
    """Loki stops, refuses, is slow, answers garbage and is restarted empty; the control plane is killed in between.

    Proves PACT-16: every line of the export arrived at least once, first arrivals in the trail's order.
    """
    with forwarding(loki) as plane:
        busy(plane)
        until(lambda: loki.arrived, "something has arrived")

        loki.stop()
        busy(plane)
        plane.kill()
        plane.start()
        busy(plane)
        loki.start()
        until(lambda: loki.first_arrivals() == exported(plane), "it has caught up after the outage and the kill")

        refusals = [(429, {"Retry-After": "1"}, "slow down"), (503, {}, "later"), (500, {}, "oh"), "hang", "garbage"]
        loki.behave = lambda _lines: refusals.pop(0) if refusals else None
        busy(plane, 20)
        until(lambda: not refusals, "each of them was answered", 120)
        plane.kill()
        loki.released.set()
        plane.start()
        busy(plane)
        all_there(plane, loki)

        loki.stop()
        loki.start()
        busy(plane)
        plane.kill()
        plane.start()
        lines = all_there(plane, loki)
        assert [seq(line) for line in lines] == list(range(1, len(lines) + 1))
        assert plane.api("GET", "/v1/audit?limit=1").status == 200


def test_heads_without_end_stall_nobody(loki):
    """`100 Continue` for ever: each connection is ended, enrollments go on, and what was not taken arrives later. PACT-16."""
    loki.behave = lambda _lines: "continue"
    with forwarding(loki) as plane:
        for ended in range(1, 4):
            native.enroll(plane)
            until(lambda ended=ended: loki.ended >= ended, "the control plane ends the connection", 60)
        failures = lambda: metric(plane, "enlist_loki_failures_total", '{reason="unreachable"}') or 0  # noqa: E731
        before = until(failures, "the failures are counted")
        until(lambda: failures() > before, "it is tried again")
        loki.behave = lambda _lines: None
        all_there(plane, loki)


@pytest.mark.parametrize(
    "answer",
    [
        (302, {"Location": "http://127.0.0.1:1/"}, ""),
        (200, {"Content-Type": "text/html"}, "<html>log in"),
        (202, {}, ""),
        (401, {}, "no org id"),
        (404, {}, "no such page"),
        "close",
    ],
    ids=str,
)
def test_what_is_no_success_is_sent_again(loki, answer):
    """Only 204, and 200 that is no page for people, mean that lines have arrived; redirects are not followed."""
    loki.behave = lambda _lines: answer
    with forwarding(loki) as plane:
        until(lambda: loki.attempts >= 3, "it is tried again")
        assert loki.arrived == []
        loki.behave = lambda _lines: None
        all_there(plane, loki)


def test_an_outage_is_an_alert_a_metric_and_nothing_else(loki):
    """One alert without a node after `alert_after`, cleared by the first success; ready all the while; one warning in the log."""
    loki.behave = lambda _lines: (503, {}, "ingester away\x1b[31m")
    with forwarding(loki, 'alert_after = "1s"') as plane:
        (alert,) = until(lambda: alerts(plane), "the alert was raised")
        assert alert["node_id"] is None
        assert loki.url in alert["detail"] and "503" in alert["detail"] and "ingester away" in alert["detail"]
        assert "\x1b" not in alert["detail"]
        busy(plane)
        attempts = loki.attempts
        until(lambda: loki.attempts >= attempts + 2, "it was tried again")
        assert plane.https("GET", "/readyz").status == 200
        failed = lambda: metric(plane, "enlist_loki_failures_total", '{reason="unavailable"}')  # noqa: E731
        until(lambda: failed() >= 3, "the failures are counted")
        until(lambda: metric(plane, "enlist_loki_lag_lines") == len(exported(plane)), "and what has not arrived")
        assert len(plane.audit("alert.raised")) == 1, "the alert's own line raises no other"
        loki.behave = lambda _lines: None
        until(lambda: not alerts(plane), "the alert was cleared")
        all_there(plane, loki)
        assert len(plane.audit("alert.raised")) == 1
        assert plane.err.read_text().count("audit lines did not reach Loki and will be sent again") == 1


def test_an_alert_of_a_loki_that_is_no_longer_configured_is_cleared(loki):
    """The alert ends with the key; without the key nothing is sent and no metric is served."""
    loki.behave = lambda _lines: (503, {}, "")
    plane = configured(loki.url, 'alert_after = "1s"')
    try:
        plane.start()
        until(lambda: alerts(plane), "the alert was raised")
        plane.stop()
        config = plane.dir / "enlist.toml"
        config.write_text(config.read_text().split("[loki]")[0])
        attempts = loki.attempts
        plane.start()
        until(lambda: not alerts(plane), "the alert was cleared")
        assert loki.attempts == attempts
        assert "enlist_loki" not in plane.api("GET", "/metrics").body.decode()
    finally:
        plane.close()


def test_a_line_that_is_refused_is_found_and_never_skipped_silently(loki):
    """What is before it arrives; it is named in the alert; `from` gets past it, and the trail says so."""
    marked = []

    def refuse_one(lines: list[str]):
        marked.extend(line for line in lines if '"tenant.created"' in line and not marked)
        return (400, {}, "entry too far behind") if any(line in marked for line in lines) else None

    loki.behave = refuse_one
    with forwarding(loki, 'alert_after = "1s"') as plane:
        busy(plane, 10)
        plane.api("POST", "/v1/tenants", {"name": "acme"})
        busy(plane, 10)
        (alert,) = until(lambda: alerts(plane), "the alert was raised")
        refused = seq(marked[0])
        assert f"line {refused} is refused" in alert["detail"] and "entry too far behind" in alert["detail"]
        until(lambda: len(loki.first_arrivals()) == refused - 1, "everything before it has arrived")
        assert [seq(line) for line in loki.first_arrivals()] == list(range(1, refused))

        plane.stop()
        config = plane.dir / "enlist.toml"
        config.write_text(config.read_text() + f'from = "{refused + 1}"\n')
        plane.start()
        until(lambda: not alerts(plane), "the alert was cleared")
        (gap,) = plane.audit("audit.forwarding_gap")
        assert (gap["sink"], gap["from"], gap["to"], gap["cause"]) == ("loki", refused, refused, "configured")
        until(lambda: {*exported(plane)} - {*loki.first_arrivals()} == {*marked}, "all but that line has arrived")
        plane.restart()
        assert len(plane.audit("audit.forwarding_gap")) == 1, "once"


def test_a_clean_stop_keeps_the_cursor_and_another_loki_begins_there(loki):
    """SIGTERM sends what is left, and nothing is sent twice; a changed URL goes on where the cursor is."""
    with forwarding(loki) as plane:
        busy(plane, 30)
        all_there(plane, loki)
        busy(plane)
        plane.stop()
        with contextlib.closing(sqlite3.connect(plane.dir / "audit.db")) as store:
            stored = [line for (line,) in store.execute("SELECT line FROM lines ORDER BY seq")]
        assert loki.first_arrivals() == stored, "the last lines too, which the stop has written"
        assert loki.repeated() == 0
        with Loki() as other:
            config = plane.dir / "enlist.toml"
            config.write_text(config.read_text().replace(loki.url, other.url))
            plane.start()
            busy(plane)
            until(
                lambda: loki.first_arrivals() + other.first_arrivals() == exported(plane),
                "the other has what the first has not",
            )
            assert other.faults == []


def test_from_now_leaves_out_what_was_before_and_says_so(loki):
    """`from = "now"`: nothing of before the first start with it; a restart leaves out nothing more."""
    plane = ControlPlane().found()
    try:
        plane.start()
        busy(plane)
        plane.stop()
        config = plane.dir / "enlist.toml"
        config.write_text(config.read_text() + f'\n[loki]\nurl = "{loki.url}"\nfrom = "now"\n')
        plane.start()
        busy(plane)
        (gap,) = until(lambda: plane.audit("audit.forwarding_gap"), "the gap is in the trail")
        assert (gap["from"], gap["cause"]) == (1, "configured")
        loki.stop()
        busy(plane)
        plane.kill()
        plane.start()
        loki.start()
        until(lambda: loki.first_arrivals() == exported(plane)[gap["to"] :], "everything after it has arrived")
    finally:
        plane.close()


def test_lines_that_the_trail_no_longer_has_are_named_as_a_gap(loki):
    """Away for longer than the trail is kept: it goes on with the first line there is, and one audited line names the gap."""
    with forwarding(loki) as plane:
        all_there(plane, loki)
        loki.stop()
        first = len(exported(plane)) + 1
        busy(plane, 10)
        with contextlib.closing(sqlite3.connect(plane.dir / "audit.db", timeout=30)) as store, store:
            store.execute("DELETE FROM lines WHERE seq BETWEEN ? AND ?", (first, first + 6))
        # One attempt may have read its lines before they were gone: the second from here has not.
        failures = lambda: metric(plane, "enlist_loki_failures_total", '{reason="unreachable"}') or 0  # noqa: E731
        before = failures()
        until(lambda: failures() >= before + 2, "two more attempts have failed")
        loki.start()
        (gap,) = until(lambda: plane.audit("audit.forwarding_gap"), "the gap is in the trail")
        assert (gap["sink"], gap["from"], gap["to"], gap["cause"]) == ("loki", first, first + 6, "missing")
        until(lambda: any('"audit.forwarding_gap"' in line for line in loki.first_arrivals()), "Loki is told as well")
        numbers = [seq(line) for line in loki.first_arrivals()]
        assert numbers == [*range(1, first), *range(first + 7, numbers[-1] + 1)]


def test_tenant_credentials_and_ca_are_sent_and_checked(programs):
    """`tenant`, `username` with `password_file`, `bearer_file` (read again when it changes), `ca_file`."""
    place = scratch("loki")
    with Recorder() as recorder:
        context = recorder.context
    context.set_alpn_protocols(["http/1.1"])
    password = secret(place / "password", "hush-hush-pass\n")
    bearer = secret(place / "bearer", "first-bearer-token\n")
    with Loki(context) as loki:
        more = f'ca_file = "{recorder.ca_file}"\ntenant = "team-7"\nusername = "ada"\npassword_file = "{password}"'
        with forwarding(loki, more) as plane:
            all_there(plane, loki)
            plane.stop()
            sent = loki.requests[-1]["headers"]
            assert sent["x-scope-orgid"] == "team-7"
            assert base64.b64decode(sent["authorization"].removeprefix("Basic ")) == b"ada:hush-hush-pass"
            config = plane.dir / "enlist.toml"
            text = config.read_text().replace(f'username = "ada"\npassword_file = "{password}"', f'bearer_file = "{bearer}"')
            config.write_text(text)
            plane.start()
            busy(plane)
            all_there(plane, loki)
            assert loki.requests[-1]["headers"]["authorization"] == "Bearer first-bearer-token"
            # Says what it was sent, as a gateway for debugging might.
            loki.behave = lambda _lines: (401, {}, "you sent first-bearer-token")
            busy(plane)
            attempts = loki.attempts
            until(lambda: loki.attempts > attempts + 1, "it was refused")
            # Who is sent the second would not know the first.
            loki.behave = lambda _lines: (401, {}, "no")
            bearer.write_text("second-bearer-token\n")
            attempts = loki.attempts
            # One may have read the file before.
            until(lambda: loki.attempts > attempts + 1, "it was refused again")
            loki.behave = lambda _lines: None
            all_there(plane, loki)
            assert loki.requests[-1]["headers"]["authorization"] == "Bearer second-bearer-token"
            assert "first-bearer-token" not in plane.err.read_text()
        assert loki.faults == []


def test_a_loki_that_is_not_the_one_gets_nothing(programs):
    """Over https with a certificate of nobody that is trusted, no line and no credential is sent."""
    with Recorder() as impostor:
        plane = configured(impostor.url)
        try:
            plane.start()
            until(lambda: metric(plane, "enlist_loki_failures_total", '{reason="untrusted"}'), "it is not trusted")
            assert impostor.heard == b""
        finally:
            plane.close()


def test_mistakes_are_told_at_once_and_plain_http_is_warned_of(programs):
    """`server check`: every mistake of the table with its key, no secret shown; http to another machine is a warning."""
    plane = configured("http://u:hush@loki.example", 'tenant = "a b"\nusername = "ada"\nfrom = "yesterday"\ncolour = "red"')
    done = run(ENLIST, "server", "check", "--dir", plane.dir)
    assert done.code == 2
    said = done.out + done.err
    for key in ("loki.url", "loki.tenant", "loki.password_file", "loki.from", "loki.colour"):
        assert key in said, key
    assert "hush" not in said
    plane.close()
    plane = configured("http://loki.example:3100")
    done = run(ENLIST, "server", "check", "--dir", plane.dir)
    assert done.code == 0 and "loki.url" in done.out + done.err and "use https" in done.out + done.err
    plane.close()
    plane = configured("http://127.0.0.1:3100/")
    done = run(ENLIST, "server", "check", "--dir", plane.dir)
    assert done.code == 0 and "loki.url" not in done.out + done.err
    plane.close()
