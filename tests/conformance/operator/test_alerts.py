"""Alerts: raised by what goes wrong, seen by those concerned, acknowledged, told to a webhook (D17)."""

import http.server
import json
import threading

import pytest

import clocks
import evidence
import native
from machine import ENLIST, run, scratch, until
from operators import code_of, curl, make_key
from plane import ControlPlane
from recorder import Recorder
from streams import Events
from terminal import shown as at_a_terminal

FIELDS = {"alert_id", "kind", "node_id", "since", "count", "detail", "acknowledged"}


def alerts(plane, node_id: str, kind: str | None = None) -> list[dict]:
    return plane.items(f"/v1/alerts?node={node_id}" + (f"&kind={kind}" if kind else ""))


def unkept(plane, **fields) -> native.Node:
    """A node whose host could not keep its identity."""
    node = native.enroll(plane, plane.token(**fields))
    assert node.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="disk full").state == "enrolled"
    return node


def lines(plane, event_type: str, alert_id: str) -> list[dict]:
    return [line for line in plane.audit(event_type) if line["alert_id"] == alert_id]


def test_a_host_that_could_not_keep_its_identity_raises_an_alert(plane):
    """D17: Confirm FAILED leaves the node `enrolled` and raises `enrollment_not_persisted`, once."""
    node = unkept(plane)
    (alert,) = alerts(plane, node.id)
    assert set(alert) == FIELDS
    assert (alert["kind"], alert["node_id"], alert["detail"]) == ("enrollment_not_persisted", node.id, "disk full")
    assert (alert["count"], alert["acknowledged"]) == (1, False)
    node.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="disk full")
    assert alerts(plane, node.id) == [alert]
    shown = plane.node(node.id)
    assert (shown["state"], shown["health"]["reason"]) == ("enrolled", "enrollment_not_persisted")
    assert shown["alerts"] == [alert]
    (line,) = lines(plane, "alert.raised", alert["alert_id"])
    assert (line["kind"], line["node_id"]) == (alert["kind"], node.id)


def test_what_is_cured_is_cleared(plane):
    """A later success ends the enrollment's alerts, with an audit line."""
    node = unkept(plane)
    (alert,) = alerts(plane, node.id)
    node.confirm()
    assert alerts(plane, node.id) == []
    assert plane.node(node.id)["health"]["reason"] is None
    assert len(lines(plane, "alert.cleared", alert["alert_id"])) == 1


def test_an_unconfirmed_enrollment_is_noticed(plane):
    """D17: unconfirmed for `enrolled.stuck_after` raises `enrollment_stuck`; the first contact clears it."""
    plane.policy("enrolled.stuck_after", "1s")
    try:
        node = native.enroll(plane)
        (alert,) = until(lambda: alerts(plane, node.id, "enrollment_stuck"), "the enrollment was found stuck")
        assert alert["count"] == 1
        node.confirm()
        until(lambda: not alerts(plane, node.id), "the alert was cleared")
    finally:
        plane.policy("enrolled.stuck_after", "10m")


def test_a_certificate_that_nobody_renews_is_noticed(plane_of_its_own):
    """`cert_expiring` before the end and again at the end; then health is `cert_expired`; a new enrollment ends both.

    Proves TASK-18.
    """
    plane = plane_of_its_own
    node = native.enroll(plane)
    node.confirm()
    assert plane.node(node.id)["health"]["reason"] is None

    def at(hours: float) -> None:
        plane.stop()
        clocks.sweep(plane.process.pid)
        plane.start(env=clocks.shifted(hours))

    # A day long, to be renewed after two thirds of it.
    at(17)
    away = native.enroll(plane)
    away.confirm()
    at(21)
    (alert,) = until(lambda: alerts(plane, node.id), "the alert was raised")
    assert (alert["kind"], alert["count"]) == ("cert_expiring", 1)
    assert plane.node(node.id)["health"]["reason"] == "cert_expiring"
    at(25)
    shown = until(lambda: (n := plane.node(node.id))["health"]["reason"] == "cert_expired" and n, "it has ended")
    assert shown["health"]["since"] == shown["cert_not_after"] and shown["cert_serial"] in shown["health"]["evidence"]
    (ended,) = alerts(plane, node.id)
    assert (ended["alert_id"], ended["count"]) == (alert["alert_id"], 2) and "ended at" in ended["detail"]
    again = native.enroll(plane, plane.token(node=node.id))
    assert again.id == node.id and alerts(plane, node.id) == []
    assert plane.node(node.id)["health"]["reason"] is None
    assert len(lines(plane, "alert.cleared", alert["alert_id"])) == 1
    assert alerts(plane, away.id) == [], "it has time yet"


def test_acknowledging_is_done_once(plane):
    """200 with the alert, also the second time, and one audit line; it stays open until its cause is gone."""
    node = unkept(plane)
    (alert,) = alerts(plane, node.id)
    for _ in range(2):
        answer = plane.api("POST", f"/v1/alerts/{alert['alert_id']}/ack")
        assert (answer.status, answer.json()) == (200, {**alert, "acknowledged": True})
    assert alerts(plane, node.id) == [{**alert, "acknowledged": True}]
    assert len(lines(plane, "alert.acknowledged", alert["alert_id"])) == 1


@pytest.mark.parametrize("alert_id", ["01ARYZ6S41TSV4RRFFQ69G5FAV", "nonsense", "%20"])
def test_an_unknown_alert_is_404(plane, alert_id):
    """`alert_not_found`."""
    answer = plane.api("POST", f"/v1/alerts/{alert_id}/ack")
    assert (answer.status, answer.code) == (404, "alert_not_found")


def test_lists_are_paged_and_filtered(plane):
    """`?limit=&cursor=&kind=&node=`; what cannot be asked for is 400."""
    nodes = {unkept(plane).id for _ in range(3)}
    page = plane.api("GET", "/v1/alerts?limit=1").json()
    assert len(page["items"]) == 1 and page["next_cursor"]
    everything = plane.items("/v1/alerts?limit=1")
    assert nodes <= {alert["node_id"] for alert in everything}
    assert everything == plane.items("/v1/alerts?limit=1000")
    assert plane.items("/v1/alerts?kind=clone_suspected") == []
    assert len({alert["alert_id"] for alert in everything}) == len(everything)
    for query in ("kind=nonsense", "limit=0", "cursor=x", "colour=red"):
        answer = plane.api("GET", f"/v1/alerts?{query}")
        assert (query, answer.status, answer.code) == (query, 400, "bad_request")


def test_the_command_line_lists_and_acknowledges(plane):
    """With --json one line per alert; for people a table and one line."""
    node = unkept(plane)
    (alert,) = plane.cli("alert", "list", "--node", node.id).lines()
    assert set(alert) == FIELDS
    assert plane.cli("alert", "list", "--kind", "enrollment_stuck", "--node", node.id).lines() == []
    assert plane.cli("alert", "ack", alert["alert_id"]).json()["acknowledged"] is True
    done = run(ENLIST, "alert", "list", "--node", node.id, "--dir", plane.dir)
    head = " ".join(done.out.splitlines()[0].split())
    assert head == "ALERT ID KIND NODE SINCE COUNT ACKNOWLEDGED DETAIL"
    assert alert["alert_id"] in done.out and "yes" in done.out
    done = run(ENLIST, "alert", "ack", alert["alert_id"], "--dir", plane.dir)
    assert (done.code, done.out) == (0, f"alert {alert['alert_id']} is acknowledged\n")
    done = plane.cli("alert", "ack", "nonsense", ok=False)
    assert (done.code, done.error()["code"]) == (3, "alert_not_found")


def test_alerts_are_for_those_who_may_see_the_node(plane, tenants):
    """Another tenant's alert is not listed and is 404 to acknowledge; a viewer may look, not acknowledge."""
    red, blue = unkept(plane, tenant="red"), unkept(plane, tenant="blue")
    operator = make_key(plane, "operator", "--tenant", "red")["key"]
    viewer = make_key(plane, "viewer", "--tenant", "red")["key"]
    for key in (operator, viewer):
        status, _, body = curl(plane, "GET", "/v1/alerts?limit=1000", key=key)
        assert status == 200
        assert {alert["node_id"] for alert in json.loads(body)["items"]} == {red.id}
    (others,), (own,) = alerts(plane, blue.id), alerts(plane, red.id)
    status, _, body = curl(plane, "POST", f"/v1/alerts/{others['alert_id']}/ack", key=operator)
    assert (status, code_of(body)) == (404, "alert_not_found")
    assert alerts(plane, blue.id) == [others]
    assert curl(plane, "POST", f"/v1/alerts/{own['alert_id']}/ack", key=viewer)[0] == 403
    assert curl(plane, "POST", f"/v1/alerts/{own['alert_id']}/ack", key=operator)[0] == 200


def test_events_tell_of_nodes_and_alerts(plane):
    """`node` as in the list, also when its health changes; `alert` as in the list with what has happened."""
    with Events(plane) as events:
        node = native.enroll(plane)
        events.wait("node", "the node appeared", lambda n: n["node_id"] == node.id and n["state"] == "enrolled")
        node.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="no room")
        alert = events.wait("alert", "the alert was told", lambda a: a["node_id"] == node.id)
        assert alert["event"] == "raised" and {**alert, "event": None} == {**alerts(plane, node.id)[0], "event": None}
        ill = "enrollment_not_persisted"
        events.wait("node", "its health was told", lambda n: n["node_id"] == node.id and n["health"]["reason"] == ill)
        plane.api("POST", f"/v1/alerts/{alert['alert_id']}/ack")
        events.wait(
            "alert",
            "the acknowledgement was told",
            lambda a: a["alert_id"] == alert["alert_id"] and a["event"] == "acknowledged" and a["acknowledged"],
        )
        node.confirm()
        events.wait(
            "alert",
            "the end was told",
            lambda a: a["alert_id"] == alert["alert_id"] and a["event"] == "cleared",
        )
        events.wait("node", "it became active", lambda n: n["node_id"] == node.id and n["state"] == "active")
        plane.api("POST", f"/v1/nodes/{node.id}/drain")
        events.wait("node", "it drains", lambda n: n["node_id"] == node.id and n["draining"])


def test_events_are_of_ones_own_tenants(plane, tenants):
    """Neither nodes nor alerts of others."""
    key = make_key(plane, "viewer", "--tenant", "red")["key"]
    with Events(plane, key) as events:
        blue = unkept(plane, tenant="blue")
        red = unkept(plane, tenant="red")
        events.wait("alert", "its own alert was told", lambda a: a["node_id"] == red.id)
        assert blue.id not in json.dumps(events.seen)


def test_events_end_when_the_rights_go(plane):
    """At once: nothing that happens after the key's end is told."""
    made = make_key(plane, "viewer")
    with Events(plane, made["key"]) as events:
        plane.cli("operator", "key", "revoke", made["key_id"])
        node = native.enroll(plane)
        assert events.ended.wait(60), "the stream goes on"
        assert node.id not in json.dumps(events.seen)


def test_events_end_when_the_operator_is_removed(plane):
    """With a certificate the connection itself is cut."""
    out = scratch("op") / "o"
    plane.cli("operator", "add", "fay", "--role", "viewer", "--out", out)
    evidence.private_key("operator", (out / "key.pem").read_bytes())
    with Events(plane, certificate=(out / "cert.pem", out / "key.pem")) as events:
        plane.cli("operator", "remove", "fay")
        node = native.enroll(plane)
        assert events.ended.wait(60), "the stream goes on"
        assert node.id not in json.dumps(events.seen)


class Receiver:
    """A webhook: refuses the first deliveries, then takes all."""

    def __init__(self, refuse: int):
        self.refuse, self.refused, self.taken = refuse, [], []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                assert self.headers["Content-Type"] == "application/json"
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if len(receiver.refused) < receiver.refuse:
                    receiver.refused.append(body)
                    self.send_response(503)
                else:
                    # Said twice if the answer came too late: at least once is what is promised.
                    if receiver.taken[-1:] != [(self.path, body)]:
                        receiver.taken.append((self.path, body))
                    self.send_response(204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/in?from=test"

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_webhook_is_told_until_it_takes_it(programs):
    """`[alerts] webhook`: the alert object and `event`, in order, retried; open ones again after a restart."""
    plane = ControlPlane().found()
    with Receiver(refuse=2) as receiver:
        config = plane.dir / "enlist.toml"
        config.write_text(config.read_text() + f'\n[alerts]\nwebhook = "{receiver.url}"\n')
        assert run(ENLIST, "server", "check", "--dir", plane.dir).code == 0
        plane.start()
        try:
            first, second = unkept(plane), unkept(plane)
            (one,), (two,) = alerts(plane, first.id), alerts(plane, second.id)
            until(lambda: len(receiver.taken) >= 2, "both alerts were delivered")
            assert receiver.refused == [{"event": "raised", **one}] * 2
            assert [body for _, body in receiver.taken] == [{"event": "raised", **one}, {"event": "raised", **two}]
            assert {path for path, _ in receiver.taken} == {"/in?from=test"}
            plane.cli("alert", "ack", one["alert_id"])
            first.confirm()
            until(lambda: len(receiver.taken) >= 4, "its end was delivered")
            told = [(body["alert_id"], body["event"]) for _, body in receiver.taken[2:4]]
            assert told == [(one["alert_id"], "acknowledged"), (one["alert_id"], "cleared")]
            # The receiver knows of it before the sender has the answer.
            counted = 'enlist_alert_deliveries_total{result="ok"} 4'
            until(lambda: counted in plane.api("GET", "/metrics").body.decode(), "the deliveries were counted")
            metrics = plane.api("GET", "/metrics").body.decode()
            assert 'enlist_alerts{kind="enrollment_not_persisted"} 1' in metrics
            receiver.taken.clear()
            plane.restart()
            until(lambda: receiver.taken, "the open alert was told again")
            assert receiver.taken[0][1] == {"event": "raised", **two}
            assert "from=test" not in plane.log()
        finally:
            plane.close()


def test_a_webhook_over_tls_must_be_trusted(programs):
    """Nothing is said to a receiver whose certificate the system does not trust."""
    plane = ControlPlane().found()
    with Recorder() as receiver:
        config = plane.dir / "enlist.toml"
        config.write_text(config.read_text() + f'\n[alerts]\nwebhook = "https://{receiver.address}/in"\n')
        plane.start()
        try:
            node = unkept(plane)
            until(lambda: receiver.connections >= 2, "it was tried, and tried again")
            assert receiver.heard == b""
            plane.stop()
            plane.start(env={"SSL_CERT_FILE": str(receiver.ca_file)})
            until(lambda: b"}" in receiver.heard, "the alert was sent to the trusted receiver")
            head, _, body = receiver.heard.partition(b"\r\n\r\n")
            assert head.startswith(b"POST /in HTTP/1.1\r\n")
            told, _ = json.JSONDecoder().raw_decode(body.decode())
            assert told == {"event": "raised", **alerts(plane, node.id)[0]}
        finally:
            plane.close()


def test_a_webhook_that_is_away_does_not_hinder_the_end(programs):
    """SIGTERM still ends it in time, and what it does goes on."""
    plane = ControlPlane().found()
    config = plane.dir / "enlist.toml"
    config.write_text(config.read_text() + '\n[alerts]\nwebhook = "http://127.0.0.1:9/"\n')
    plane.start()
    try:
        node = unkept(plane)
        assert len(alerts(plane, node.id)) == 1
        plane.stop()
    finally:
        plane.close()


def test_mistakes_in_alerts_are_reported(programs):
    """`server check` names each; exit 2."""
    plane = ControlPlane().found()
    config = plane.dir / "enlist.toml"
    config.write_text(config.read_text() + '\n[alerts]\nwebhook = "mailto:a@b.example"\ncolour = "red"\n')
    done = run(ENLIST, "server", "check", "--dir", plane.dir)
    assert done.code == 2
    said = done.out + done.err
    assert "alerts.webhook" in said and "alerts.colour" in said
    plane.close()


def test_one_alert_is_shown_with_its_whole_detail_and_what_to_do(plane):
    """`alert show` and `GET /v1/alerts/{id}`; the remedy is that of the page on alerts; other tenants' alerts are not there."""
    node = unkept(plane)
    (alert,) = alerts(plane, node.id)
    path = f"/v1/alerts/{alert['alert_id']}"
    assert plane.api("GET", path).json() == alert
    shown = plane.cli("alert", "show", alert["alert_id"]).json()
    assert {name: shown[name] for name in FIELDS} == alert
    assert "could not store its new identity" in shown["raised_when"] and "confirms" in shown["cleared_when"]
    assert shown["remedy"].startswith("make room on the host's disk")
    text = run(ENLIST, "alert", "show", alert["alert_id"], "--dir", plane.dir).out
    assert "detail: disk full\n" in text and f"remedy: {shown['remedy']}\n" in text, text
    assert plane.api("POST", "/v1/tenants", {"name": "elsewhere"}).status == 201
    key = make_key(plane, "viewer", "--tenant", "elsewhere")["key"]
    for missing in (alert["alert_id"], "01JD2Q3R4S5T6V7W8X9Y0Z1A2B", "none"):
        status, _, body = curl(plane, "GET", f"/v1/alerts/{missing}", key=key)
        assert (status, code_of(body)) == (404, "alert_not_found"), missing


def test_a_list_of_alerts_keeps_its_nodes_at_80_columns(plane):
    """What there is no room for is named, with the command that shows it; the id is whole."""
    node = unkept(plane, node="edge-with-a-name-that-needs-room-7f3a")
    (alert,) = alerts(plane, node.id)
    done = at_a_terminal(ENLIST, "alert", "list", "--node", node.id, "--dir", plane.dir, columns=80)
    head, row, *note = [line for line in done.lines() if line]
    assert "NODE" in head and alert["alert_id"] in row and "edge-with-" in row and not done.too_wide(), done.lines()
    assert "`enlist alert show ID`" in " ".join(note), done.lines()
    wide = at_a_terminal(ENLIST, "alert", "list", "--node", node.id, "--dir", plane.dir, columns=200)
    assert node.id in wide.lines()[1] and "disk full" in wide.lines()[1], wide.lines()
    shown = at_a_terminal(ENLIST, "alert", "show", alert["alert_id"], "--dir", plane.dir, columns=80)
    assert not shown.too_wide(), shown.too_wide()
