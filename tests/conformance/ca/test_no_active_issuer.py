"""No issuer signs any more: an alert says so until one does, and `[ready] issuer` says what a load balancer is told."""

import native
import pytest
from machine import until
from plane import ControlPlane
from rolls import issuers, prepare


@pytest.fixture
def plane(programs):
    made = ControlPlane().found()
    try:
        yield made
    finally:
        made.close()


def alerts(plane) -> list[dict]:
    return [alert for alert in plane.items("/v1/alerts") if alert["kind"] == "no_active_issuer"]


def revoke_node_issuer(plane) -> None:
    (issuer,) = issuers(plane, "node")
    plane.cli("ca", "revoke", issuer["id"], "--reason", "stolen", "--yes")


def test_an_alert_says_that_no_issuer_is_active_until_one_is(plane):
    """About no node; it names the use, and ends when another issuer is activated."""
    plane.start()
    assert not alerts(plane)
    revoke_node_issuer(plane)
    (alert,) = until(lambda: alerts(plane), "the alert is raised")
    assert alert["node_id"] is None and "nodes and operators" in alert["detail"], alert
    assert "ca roll prepare --csr-out" in alert["detail"]
    # A restart says it no second time.
    plane.restart()
    assert [one["alert_id"] for one in alerts(plane)] == [alert["alert_id"]]
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    until(lambda: not alerts(plane), "the alert is over")


@pytest.mark.parametrize("setting", ["required", "warn"])
def test_readyz_without_an_issuer_is_as_configured(plane, setting):
    """`warn`: 200 and the issuer among the reasons; `required`, the default: 503. What needs no issuer works all the same."""
    if setting == "warn":
        toml = plane.dir / "enlist.toml"
        toml.write_text(toml.read_text() + '\n[ready]\nissuer = "warn"\n')
    plane.start()
    node = native.enroll(plane)
    node.confirm()
    assert plane.api("GET", "/readyz").status == 200
    revoke_node_issuer(plane)
    answer = plane.api("GET", "/readyz")
    expected = (503, False) if setting == "required" else (200, True)
    assert (answer.status, answer.json()["ready"]) == expected and answer.json()["reasons"] == ["issuer_unavailable"], answer
    text = plane.api("GET", "/metrics").body.decode()
    assert f"enlist_ready {int(expected[1])}" in text
    plane.cli("node", "list")
    assert native.alert(plane, node.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"


def test_another_word_for_ready_is_refused(plane):
    toml = plane.dir / "enlist.toml"
    toml.write_text(toml.read_text() + '\n[ready]\nissuer = "perhaps"\n')
    done = plane.run_to_end()
    assert done.code == 2 and "ready.issuer" in done.err and "required or warn" in done.err, done
