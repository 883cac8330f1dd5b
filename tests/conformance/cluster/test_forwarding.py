"""What the leader does for all: the webhook and Loki go on where another leader takes over, and nothing is raised twice."""

import collections
import http.server
import json
import threading
import time

import native
import pytest
from cluster_load import enroll, patiently
from clusters import Cluster, Replica
from loki import Loki, seq
from machine import until

KNOWN = 5
"""Seconds after which the others surely know what was delivered: they ask every second."""


class Webhook:
    """Takes all and remembers it, or none."""

    def __init__(self):
        self.taken: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.refuses = False
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                refuses = webhook.refuses
                (webhook.refused if refuses else webhook.taken).append((body["alert_id"], body["event"]))
                self.send_response(503 if refuses else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class TellingReplica(Replica):
    """One with a webhook and Loki."""

    def __init__(self, first, config: str):
        super().__init__(first)
        self.more = config

    def start(self, *arguments, **options):
        file = self.dir / "enlist.toml"
        if self.more not in file.read_text():
            file.write_text(file.read_text() + self.more)
        return super().start(*arguments, **options)


class TellingCluster(Cluster):
    def __init__(self, webhook: Webhook, loki: Loki):
        super().__init__(3)
        self.config = f'\n[alerts]\nwebhook = "{webhook.url}"\n\n[loki]\nurl = "{loki.url}"\n'

    def replica(self) -> TellingReplica:
        return TellingReplica(self.replicas[0] if self.replicas else None, self.config)


@pytest.fixture
def receivers():
    webhook = Webhook()
    with Loki() as loki:
        yield webhook, loki
        assert loki.faults == []
    webhook.close()


def unkept(replica) -> native.Node:
    """A node whose host could not keep its identity, which is an alert."""
    node = enroll(replica)

    def fail() -> None:
        with native.Door(replica.port, replica.bundle, node.files) as door:
            door.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="disk full")

    patiently(fail)
    return node


def raised(replica, node) -> tuple[str, str]:
    """The alert about it, as the webhook gets it. It is in the trail once."""
    (line,) = [line for line in replica.audit("alert.raised") if line["node_id"] == node.id]
    return line["alert_id"], "raised"


def everything(cluster, loki) -> bool:
    """Whether the whole trail is at Loki, in its order."""
    return loki.first_arrivals() == cluster.until_equal([one for one in cluster.replicas if one.process.poll() is None])[0]


def test_what_a_leader_could_not_deliver_is_delivered_by_the_next_and_not_raised_again(programs, receivers):
    """Webhook and Loki take nothing any more, an alert is raised, and the leader dies: the next leader delivers the alert and the lines.
    One that was delivered just before the next leader died may be delivered again, and is not raised again: one line each in the
    trail, and its count stays. Proves PACT-16, D17."""
    webhook, loki = receivers
    with TellingCluster(webhook, loki) as cluster:
        leader, left = cluster.roles()
        early = unkept(leader)
        until(lambda: raised(leader, early) in webhook.taken, "the webhook works")
        webhook.refuses, loki.behave = True, lambda _: (503, {}, "not now")
        waiting = unkept(left[0])
        until(lambda: raised(left[0], waiting) in webhook.refused, "the leader has tried")
        cluster.until_equal()
        leader.kill()
        webhook.refuses, loki.behave = False, lambda _: None
        new = cluster.leader(left)
        until(lambda: raised(new, waiting) in webhook.taken, "the next leader delivers it", patience=120)
        until(lambda: everything(cluster, loki), "and the lines", patience=120)
        leader.start()
        cluster.until_voting(3)

        late = unkept(new)
        until(lambda: raised(new, late) in webhook.taken, "it is delivered", patience=120)
        leader = cluster.leader()
        leader.kill()
        left = [replica for replica in cluster.replicas if replica is not leader]
        new = cluster.leader(left)
        last = unkept(new)
        # Alerts are delivered in order, so whatever is delivered again has been by then.
        until(lambda: raised(new, last) in webhook.taken, "the leader after it goes on", patience=120)
        until(lambda: everything(cluster, loki), "and so do the lines", patience=120)
        alerts = {alert["alert_id"]: alert["count"] for alert in new.items("/v1/alerts?limit=1000")}
        assert alerts == {raised(new, node)[0]: 1 for node in (early, waiting, late, last)}, alerts
        assert len(new.audit("alert.raised")) == 4


def test_nothing_is_lost_or_told_twice_when_leaders_die(programs, receivers):
    """Alerts are raised and cleared under one leader after the other, each killed. The webhook gets every change of an alert, in order,
    and none a second time that the others knew to be delivered; each alert is raised once in the trail. Loki has every line,
    in order. Proves PACT-16, D17."""
    webhook, loki = receivers
    with TellingCluster(webhook, loki) as cluster:
        settled: list[tuple[str, str]] = []
        for _ in range(3):
            leader, (other, _) = cluster.roles()
            lasting, passing = unkept(other), unkept(leader)
            with native.Door(other.port, other.bundle, passing.files) as door:
                patiently(door.confirm)
            alerts = {alert["node_id"]: alert["alert_id"] for alert in other.items("/v1/alerts?limit=1000")}
            lines = {line["node_id"]: line["alert_id"] for line in other.audit("alert.raised")}
            assert passing.id not in alerts, "it is cleared"
            expected = [(lines[lasting.id], "raised"), (lines[passing.id], "raised"), (lines[passing.id], "cleared")]
            until(lambda expected=expected: set(expected) <= set(webhook.taken), "the webhook has them")
            settled += expected
            known = time.monotonic() + KNOWN
            until(lambda known=known: time.monotonic() > known, "the others know", patience=60)
            leader.kill()
            cluster.leader([replica for replica in cluster.replicas if replica is not leader])
            leader.start()
            cluster.until_voting(3)
        last = unkept(cluster.replicas[1])
        (line,) = [line for line in cluster.replicas[1].audit("alert.raised") if line["node_id"] == last.id]
        until(lambda: (line["alert_id"], "raised") in webhook.taken, "the last leader tells it", patience=120)
        told = collections.Counter(webhook.taken)
        assert {change: told[change] for change in settled} == {change: 1 for change in settled}, webhook.taken
        order = [change for change in webhook.taken if change in settled]
        assert order == settled, "in order"

        ids = [line["alert_id"] for line in cluster.replicas[0].audit("alert.raised")]
        assert len(ids) == len(set(ids)) == 7, ids

        until(lambda: everything(cluster, loki), "the whole trail is at Loki, in its order", patience=120)
        numbers = [seq(line) for line in loki.first_arrivals()]
        assert numbers == list(range(1, len(numbers) + 1))
