"""A WireGuard key or an id that a node of another tenant has: nobody's token burns, and an operator hears of it."""

import json

import pytest

import hosts
import workers
from operators import make_key
from plane import ControlPlane

OWN, OTHER = "aardvark", "zebra"


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as plane:
        for name in (OWN, OTHER):
            assert plane.api("POST", "/v1/tenants", {"name": name}).status == 201
        yield plane


def conflicts(plane, node: str) -> list[dict]:
    return [one for one in plane.items(f"/v1/alerts?node={node}") if one["kind"] == "wireguard_key_conflict"]


def test_another_tenants_wireguard_key_burns_no_token_and_raises_an_alert(plane):
    """D01 as amended: refused without burning, an alert with both sources; in the token's own tenant it burns (PLFM-14)."""
    holder = hosts.active(plane, tenant=OWN)
    minted = hosts.mint(plane, OTHER)
    claim = hosts.request(minted["token"], wireguard_public_key=holder.wireguard)
    for _ in range(3):
        answer = hosts.ask(plane, claim)
        assert (answer.status, answer.code) == (409, "wireguard_key_in_use")
        assert OWN not in answer.body.decode() and holder.id not in answer.body.decode()
    [alert] = conflicts(plane, holder.id)
    assert alert["count"] == 1, "once a minute at most"
    assert "127.0.0.1" in alert["detail"], alert

    viewer = make_key(plane, "viewer", "--tenant", OWN)["key"]
    shown = plane.https("GET", "/v1/alerts", headers={"Authorization": f"Bearer {viewer}"})
    assert alert["alert_id"] in shown.body.decode() and OTHER not in shown.body.decode()
    stranger = make_key(plane, "viewer", "--tenant", OTHER)["key"]
    shown = plane.https("GET", "/v1/alerts", headers={"Authorization": f"Bearer {stranger}"})
    assert alert["alert_id"] not in shown.body.decode()

    assert hosts.enroll(plane, minted["token"], tenant=OTHER).id, "the token is as good as before"
    burned = hosts.mint(plane, OWN)
    answer = hosts.ask(plane, hosts.request(burned["token"], wireguard_public_key=holder.wireguard))
    assert (answer.status, answer.code) == (409, "wireguard_key_in_use")
    again = hosts.ask(plane, hosts.request(burned["token"]))
    assert (again.status, again.code) == (409, "token_used")


def test_a_worker_id_of_another_tenant_burns_no_token_and_raises_an_alert(plane):
    """D01 as amended: a worker id that is taken is refused without burning; one of another tenant raises the alert."""
    holder = workers.enroll(plane, id="claimed-by-two", tenant=OWN)
    for tenant, raised in ((OWN, 0), (OTHER, 1)):
        token = workers.token(plane, tenant=tenant)
        answer = workers.ask_enroll(plane, token, workers.csr(workers.certs.ec_key(), f"worker:{holder.id}"))
        assert (answer.status, workers.flat(answer)) == (403, "worker_id_in_use")
        assert len(conflicts(plane, holder.id)) == raised, tenant
        other = f"worker:free-{tenant}"
        assert workers.ask_enroll(plane, token, workers.csr(workers.certs.ec_key(), other)).status == 200


@pytest.mark.parametrize("endpoint, proven", [("127.0.0.1", True), ("192.0.2.55", False)])
def test_an_underlay_address_that_the_host_was_not_seen_at_is_unproven(plane, endpoint, proven):
    """What a host says of its underlay is a claim, unless its request came from there."""
    host = hosts.enroll(plane, underlay_endpoint={"ipv4": endpoint, "port": 51820})
    overlay = plane.node(host.id)["overlay"]
    assert overlay["underlay_proven"] is proven, json.dumps(overlay)
