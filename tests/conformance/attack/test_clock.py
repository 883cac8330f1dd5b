"""A wall clock that jumps while the control plane runs: NTP is not authenticated, and machines sleep."""

import time

import pytest

import certs
import hosts
import native
import operators
import probectl
import workers
from faults import Patient
from jumping import Jumping
from machine import until
from streams import Live

SKEW = "clock_skew"


@pytest.fixture
def jumping(programs):
    with Jumping() as running:
        running.policy("failures.per_minute", "0")
        yield running


def domain_alerts(plane) -> list:
    return [alert for alert in plane.items("/v1/alerts?limit=100") if alert["kind"] == SKEW and not alert["node_id"]]


@pytest.mark.parametrize("offset", ["+2d", "+400d"])
def test_seconds_of_a_clock_far_ahead_cost_nothing(jumping, offset):
    """Nodes stay in, tokens live for as long as they were made for, the issuer signs on, and a restart needs no help.

    Proves I13, D33.
    """
    node = native.enroll(jumping)
    node.confirm()
    jumping.jump(offset)
    until(lambda: domain_alerts(jumping) or jumping.ahead() > 1000, "the jump was noticed, or believed")
    jumping.stamp()
    jumping.clock.set("+0")
    jumping.wait_well()
    assert abs(jumping.ahead()) < 60, "the wrong time is on record"
    assert native.alert(jumping, node.files) is None
    minted = jumping.mint(expires="10s")
    until(lambda: jumping.token_state(minted["token_id"]) == "expired", "a token of ten seconds has expired", 30)
    assert node.renewed().confirm() and native.enroll(jumping).confirm()
    jumping.restart()
    assert native.alert(jumping, node.files) is None
    native.enroll(jumping).confirm()
    assert jumping.ready().status == 200


def test_a_clock_that_is_set_back_stops_no_time(jumping):
    """A token does not live for longer because the clock says that it is earlier. Proves I13, D33."""
    minted = jumping.mint(expires="10s")
    jumping.jump("-2d")
    until(lambda: jumping.token_state(minted["token_id"]) == "expired", "a token of ten seconds has expired", 30)
    assert jumping.ready().json()["reasons"] == [SKEW]
    jumping.clock.set("+0")
    jumping.wait_well()
    assert abs(jumping.ahead()) < 60
    native.enroll(jumping).confirm()


def test_small_jumps_add_up(jumping):
    """Fifty seconds a hundred times are not believed one by one: the tolerance is counted from the start. Proves I13."""
    for number in range(1, 101):
        jumping.jump(f"+{50 * number}s")
    assert jumping.ahead() <= 61
    assert jumping.ready().status == 503
    jumping.clock.set("+30s")
    jumping.wait_well()


def test_a_revocation_works_whatever_the_clock_says(jumping):
    """While nothing can be issued, a revoked node is out at once, and so are its connections. Proves I13."""
    victim, bystander = native.enroll(jumping), native.enroll(jumping)
    victim.confirm(), bystander.confirm()
    with Live(victim) as cut, Live(bystander) as kept:
        jumping.jump("+400d")
        assert jumping.ready().status == 503
        began = time.monotonic()
        assert jumping.api("POST", f"/v1/nodes/{victim.id}/revoke", {}).status == 200
        with pytest.raises(native.grpc.RpcError):
            for _ in cut.down:
                pass
        # As soon as it is heard of; a busy machine needs longer than that takes.
        assert time.monotonic() - began < 10
        assert "REVOKED" in native.alert(jumping, victim.files)
        # Known certificates, live streams and reading go on.
        kept.say(heartbeat=native.pb.Heartbeat())
        assert native.alert(jumping, bystander.files) is None
        assert jumping.node(bystander.id)["connected"]
        held = jumping.api("POST", f"/v1/nodes/{bystander.id}/quarantine", {"reason": "odd"})
        assert held.status == 200 and held.json()["quarantined"], held


def test_what_needs_the_time_is_refused_and_burns_nothing(jumping):
    """503 `clock_skew` with Retry-After, in the words of each API; the same tokens serve when the clock is right.

    Proves I13.
    """
    node = native.enroll(jumping)
    node.confirm()
    collector = probectl.token(jumping)
    tokens = [jumping.mint(), hosts.mint(jumping)]
    worker = workers.token(jumping)
    jumping.jump("+2d")
    with native.door(jumping) as door, node.door() as own:
        refusals = door.refused(tokens[0]["token"], certs.good_csr()), own.renewal_refused(certs.good_csr())
        for refused in refusals:
            assert refused.code == SKEW and refused.status.name == "UNAVAILABLE", refused
    asked = {
        "plfm": hosts.ask(jumping, hosts.request(tokens[1]["token"])),
        "probectl": probectl.ask_enroll(jumping, collector),
        "taskrun": workers.ask_enroll(jumping, worker, workers.csr()),
        "mint": jumping.api("POST", "/v1/tokens", {}),
        "key": jumping.api("POST", "/v1/operator-keys", {"name": "x", "role": "viewer"}),
        "operator": jumping.api("POST", "/v1/operators", {"name": "x", "role": "viewer", "csr": certs.good_csr()}),
        "roll": jumping.api("POST", "/v1/ca/roll/prepare", {}),
        "rotate": jumping.api("POST", f"/v1/nodes/{node.id}/rotate", {}),
    }
    for name, answer in asked.items():
        assert answer.status == 503, (name, answer)
        assert int(answer.headers["Retry-After"]) > 0, (name, answer)
        assert b"time" in answer.body, (name, answer)
    for name in ("plfm", "mint", "key", "operator", "roll", "rotate"):
        assert asked[name].code == SKEW, (name, asked[name])
    # Even a request that would have burned its token.
    assert hosts.ask(jumping, hosts.request(tokens[1]["token"], csr="nonsense")).code == SKEW
    jumping.clock.set("+0")
    jumping.wait_well()
    native.enroll(jumping, tokens[0]["token"]).confirm()
    assert hosts.ask(jumping, hosts.request(tokens[1]["token"])).status == 201
    assert probectl.ask_enroll(jumping, collector).status == 200
    assert workers.ask_enroll(jumping, worker, workers.csr()).status == 200
    node.renewed().confirm()
    refused = [line for line in jumping.audit() if line["event_type"] in ("enrollment.refused", "certificate.refused")]
    assert refused == []


def test_a_clock_that_is_not_believed_is_told_and_well_again_by_itself(jumping):
    """`/readyz`, an alert of the domain, the metric and the log say it, once a jump, to those of all tenants only.

    Proves I13.
    """
    assert jumping.api("POST", "/v1/tenants", {"name": "red"}).status == 201
    theirs = operators.make_key(jumping, "viewer", "--tenant", "red")["key"]
    all_of_it = operators.make_key(jumping, "viewer")["key"]
    jumping.clock.set("+2d")
    (alert,) = until(lambda: domain_alerts(jumping), "an alert is raised")
    assert "2d ahead" in alert["detail"], alert
    answer = jumping.ready()
    assert answer.status == 503 and answer.json()["reasons"] == [SKEW], answer
    assert jumping.https("GET", "/readyz").status == 503
    offset = metric(jumping, "enlist_clock_offset_seconds")
    assert abs(offset - 2 * 86400) < 5
    assert metric(jumping, f'enlist_alerts{{kind="{SKEW}"}}') == 1
    shown = jumping.cli("server", "clock", "show").json()
    assert not shown["believed"] and abs(shown["offset_ms"] - 172_800_000) < 5000, shown
    for key, sees in ((theirs, False), (all_of_it, True)):
        listed = jumping.https("GET", "/v1/alerts", headers={"Authorization": f"Bearer {key}"}).json()["items"]
        assert (SKEW in [item["kind"] for item in listed]) == sees
        seen = jumping.https("GET", "/v1/server/clock", headers={"Authorization": f"Bearer {key}"})
        assert seen.status == (200 if sees else 403), seen
    jumping.clock.set("+3d")
    until(lambda: domain_alerts(jumping)[0]["count"] == 2, "another jump is counted")
    jumping.clock.set("+0")
    until(lambda: not domain_alerts(jumping), "the alert is cleared")
    jumping.wait_well()
    assert metric(jumping, "enlist_clock_offset_seconds") < 60
    said = jumping.err.read_text()
    assert "the clock is not believed" in said and "the clock is believed again" in said
    raised = [line for line in jumping.audit("alert.raised") if line["kind"] == SKEW]
    assert len(raised) == 2 and all(line["node_id"] is None for line in raised)


def metric(plane, name: str) -> float:
    lines = plane.api("GET", "/metrics").body.decode().splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def test_an_operator_accepts_the_clock_on_the_socket(jumping):
    """It says what ends by it, asks, is on record, and counts at once; over TLS it is refused to everybody.

    Proves I13, D33.
    """
    node = native.enroll(jumping)
    node.confirm()
    minted = jumping.mint(expires="1h")
    admin = operators.make_key(jumping, "platform-admin")["key"]
    jumping.jump("+2h")
    headers = {"Authorization": f"Bearer {admin}"}
    remote = jumping.https("POST", "/v1/server/clock/accept", {"confirm": "clock"}, headers)
    assert remote.status == 403 and remote.code == "local_only", remote
    unasked = jumping.cli("server", "clock", "accept", ok=False)
    assert unasked.code == 3 and unasked.error()["code"] == "confirmation_needed", unasked
    assert "1 unused tokens" in unasked.error()["message"], unasked
    assert jumping.ready().status == 503 and jumping.audit("clock.accepted") == []
    done = jumping.cli("server", "clock", "accept", "--yes").json()
    assert done["believed"] and done["offset_ms"] < 5000, done
    assert jumping.ready().status == 200
    (line,) = jumping.audit("clock.accepted")
    assert line["actor"].startswith("local:") and line["offset"].startswith("+") and line["from"] < line["to"], line
    until(lambda: not domain_alerts(jumping), "the alert is cleared")
    until(lambda: jumping.token_state(minted["token_id"]) == "expired", "time has gone on")
    node.renewed().confirm()
    # Well as it is, there is nothing to accept.
    assert jumping.cli("server", "clock", "accept").json()["believed"]
    assert len(jumping.audit("clock.accepted")) == 1
    # Time never runs backwards.
    jumping.jump("+0")
    back = jumping.cli("server", "clock", "accept", "--yes", ok=False)
    assert back.code == 3 and back.error()["code"] == "clock_behind", back
    jumping.clock.set("+2h")
    jumping.wait_well()


def test_a_clock_accepted_at_the_start_is_on_record(stopped):
    """`--accept-clock` is an operator's word like any other; where it was not needed, there is no line. Proves D33."""
    from clocks import shifted, sweep

    stopped.start("--accept-clock")
    assert stopped.audit("clock.accepted") == []
    stopped.stop()
    stopped.start("--accept-clock", env=shifted(31 * 24))
    (line,) = stopped.audit("clock.accepted")
    assert line["offset"].startswith("+") and line["actor"].startswith("local:"), line
    stopped.stop()
    sweep(stopped.process.pid)


def test_a_host_whose_renewal_is_due_waits(jumping):
    """It is told to try again, keeps its identity and its connection, and renews when the clock is right. Proves I13."""
    jumping.policy("profile.default.lifetime", "10m")
    jumping.policy("profile.default.renew_before", "595s")
    jumping.policy("liveness.interval", "1s")
    host = Patient(jumping, jumping.token()).start()
    try:
        host.wait_connected()
        node = host.node_id()
        jumping.jump("+400d")
        serial, renewals = host.serial(), 'enlist_renewals_total{result="clock_skew"}'
        until(lambda: renewals in jumping.api("GET", "/metrics").body.decode(), "a renewal was refused")
        assert host.connected() and host.serial() == serial
        assert jumping.node(node)["state"] == "active" and jumping.node(node)["connected"]
        jumping.clock.set("+0")
        until(lambda: host.serial() != serial, "it has renewed", 90)
        host.well()
        assert jumping.audit("recovery.requested") == []
    finally:
        host.stop()
        host.note_secrets()
