"""Registering machines by their hardware, one at a time (PACT-04, PACT-09, PACT-31, PACT-34, PACT-35, D15, D28)."""

import json

import pacts
import pytest

import racks
from machine import ENLIST, run
from operators import code_of, curl, make_key


def lines(plane, event_type: str, node_id: str) -> list[dict]:
    return [line for line in plane.audit(event_type) if line.get("node_id") == node_id]


def test_a_registered_machine_is_on_record_with_its_hardware(plane):
    """PACT-04, PACT-09: id, MACs, serial, UUID and key hash are kept in canonical form, the state is registered, the vCluster none."""
    racks.vcluster(plane, "reg-ml")
    ek = "AB" * 32
    done = plane.cli(
        *("node", "register", "r-1", "--mac", "02-AA-BB-CC-00-02", "--mac", "02aabbcc0001", "--bmc-serial", "SN 1"),
        *("--system-uuid", "4C4C4544-0036-3510-8052-B4C04F564432", "--tpm-ek-hash", ek),
    )
    assert done.json()["state"] == "registered" and done.json()["vcluster"] is None
    shown = plane.cli("node", "show", "r-1").json()
    hardware = {key: shown["hardware"][key] for key in ("macs", "bmc_serial", "system_uuid", "tpm_ek_hash")}
    assert hardware == {
        "macs": ["02:aa:bb:cc:00:01", "02:aa:bb:cc:00:02"],
        "bmc_serial": "SN 1",
        "system_uuid": "4c4c4544-0036-3510-8052-b4c04f564432",
        "tpm_ek_hash": ek.lower(),
    }
    assert shown["hardware"]["cpu_cores"] is None and shown["cert_serial"] is None
    assert shown["registered_by"].startswith("local:")
    assert shown["capability"] == {"vcluster": None, "schedulable": False, "reasons": ["registered", "unassigned"]}
    (line,) = lines(plane, "host.registered", "r-1")
    assert "mac:02:aa:bb:cc:00:01" in line["hardware"] and line["host_id"] == "r-1"
    assert plane.cli("node", "register", "r-2", "--mac", racks.mac(), "--vcluster", "reg-ml").json()["vcluster"] == "reg-ml"
    assert plane.node("r-2")["capability"]["reasons"] == ["registered"]


def test_who_registers_a_tpm_is_told_that_the_agent_does_not_send_its_hash(plane):
    """PACT-17: everything that is registered must match, and `enlist-agent` sends no hash."""
    register = ("node", "register", "--dir", plane.dir, "--mac", racks.mac())
    done = run(ENLIST, *register, "r-tpm", "--tpm-ek-hash", "7e" * 32)
    assert done.code == 0 and "enlist-agent does not send the hash" in done.err, done
    done = run(ENLIST, "node", "register", "--dir", plane.dir, "--mac", racks.mac(), "r-no-tpm")
    assert done.code == 0 and "enlist-agent does not send the hash" not in done.err, done


def test_the_fields_of_the_api_are_the_flags_of_the_command(plane):
    """PACT-09: one address may stand alone or joined by `;`, unknown fields are refused, the tenant comes by its header."""
    a, b, c = racks.mac(), racks.mac(), racks.mac()
    answer = plane.api("POST", "/v1/nodes", {"node_id": "api-1", "mac": a, "bmc_serial": "", "system_uuid": None})
    assert answer.status == 201 and answer.json()["state"] == "registered", answer
    assert plane.node("api-1")["hardware"]["bmc_serial"] is None
    assert plane.api("POST", "/v1/nodes", {"node_id": "api-2", "mac": [f"{b}; {c}"]}).status == 201
    assert plane.node("api-2")["hardware"]["macs"] == sorted([b, c])
    refused = plane.api("POST", "/v1/nodes", {"node_id": "api-3", "macs": [racks.mac()]})
    assert (refused.status, refused.code) == (400, "bad_request")
    assert plane.api("POST", "/v1/tenants", {"name": "reg-red"}).status == 201
    headers = {"X-Tenant": "reg-red"}
    made = plane.api("POST", "/v1/nodes", {"node_id": "api-4", "mac": racks.mac()}, headers)
    assert made.json()["tenant"] == "reg-red"
    missing = plane.api("POST", "/v1/nodes", {"node_id": "api-5", "mac": racks.mac(), "tenant": "nobody"})
    assert (missing.status, missing.code) == (404, "tenant_not_found")
    unknown = plane.api("POST", "/v1/nodes", {"node_id": "api-5", "mac": racks.mac(), "vcluster": "nowhere"})
    assert (unknown.status, unknown.code) == (404, "vcluster_not_found")
    profile = plane.api("POST", "/v1/nodes", {"node_id": "api-5", "mac": racks.mac(), "profile": "nonesuch"})
    assert profile.code == "profile_not_found"
    assert plane.api("GET", "/v1/nodes/api-5").status == 404


@pytest.mark.parametrize(
    "mac",
    ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "33:33:00:00:00:01", "nonsense", "02:00:00:00:00", "02:00:00:00:00:0g"],
)
def test_what_is_no_address_of_a_machine_is_refused(plane, mac):
    """D28: zero, broadcast, multicast and malformed addresses are `mac_invalid`, and nothing is registered."""
    answer = plane.api("POST", "/v1/nodes", {"node_id": "bad-mac", "mac": [racks.mac(), mac]})
    assert (answer.status, answer.code) == (400, "mac_invalid")
    done = plane.cli("node", "register", "bad-mac", "--mac", mac, ok=False)
    assert (done.code, done.error()["code"]) == (3, "mac_invalid")
    assert plane.api("GET", "/v1/nodes/bad-mac").status == 404


def test_what_identifies_no_machine_is_refused(plane):
    """A serial that boards have which were never given one would make all of them the same machine."""
    for field, text in (
        ("bmc_serial", "To Be Filled By O.E.M."),
        ("bmc_serial", "0000000000"),
        ("system_uuid", "00000000-0000-0000-0000-000000000000"),
        ("system_uuid", "not-a-uuid"),
        ("tpm_ek_hash", "abc"),
        ("bmc_serial", "x" * 65),
    ):
        answer = plane.api("POST", "/v1/nodes", {"node_id": "nobody", "mac": racks.mac(), field: text})
        assert (answer.status, answer.code) == (400, "bad_request"), (field, text, answer)
    # Without any hardware it is a node for an SVID or a token of its own, and no machine's.
    assert plane.api("POST", "/v1/nodes", {"node_id": "nobody", "vcluster": "ml"}).code == "bad_request"
    made = plane.api("POST", "/v1/nodes", {"node_id": "of-spire", "mac": ""})
    assert (made.status, made.json()["state"]) == (201, "registered")
    assert plane.api("POST", "/v1/nodes", {"node_id": "of-spire"}).code == "node_id_in_use"
    many = [racks.mac() for _ in range(65)]
    assert plane.api("POST", "/v1/nodes", {"node_id": "nobody", "mac": many}).code == "bad_request"
    assert plane.api("GET", "/v1/nodes/nobody").status == 404


def test_an_id_and_a_machine_are_registered_once(plane):
    """PACT-34: the same id is `node_already_enrolled`, a shared MAC, serial, UUID or key hash `hardware_identity_conflict`."""
    uuid, ek = "11111111-2222-4333-8444-555555555555", "cd" * 32
    first = racks.register(plane, "one", bmc_serial="ONE-1", system_uuid=uuid, tpm_ek_hash=ek)
    for mac in (first["mac"][0], racks.mac()):
        done = plane.cli("node", "register", "one", "--mac", mac, ok=False)
        assert (done.code, done.error()["code"]) == (3, "node_already_enrolled")
    for field, text in (
        ("mac", [racks.mac(), first["mac"][0].upper().replace(":", "-")]),
        ("bmc_serial", "ONE-1"),
        ("system_uuid", uuid.upper()),
        ("tpm_ek_hash", f"sha256:{ek}"),
    ):
        answer = plane.api("POST", "/v1/nodes", {"node_id": "two", "mac": racks.mac(), field: text})
        assert (answer.status, answer.code) == (409, "hardware_identity_conflict"), (field, answer)
        assert "one" in answer.json()["error"]["message"]
    assert plane.api("GET", "/v1/nodes/two").status == 404
    assert len(lines(plane, "host.registered", "one")) == 1


def test_whose_machine_it_is_in_another_tenant_is_not_said(plane):
    """D03, PACT-34: a conflict with another tenant names no node, and is an alert in both tenants. Hardware is registered by operators of
    all tenants, or by a tenant's platform-admins where policy names it, up to a number of machines."""
    for tenant in ("conf-red", "conf-blue"):
        assert plane.api("POST", "/v1/tenants", {"name": tenant}).status == 201
    held = racks.register(plane, "red-secret", tenant="conf-red")
    key = make_key(plane, "platform-admin", "--tenant", "conf-blue")["key"]

    def register(name: str, mac: str):
        body = f'{{"node_id":"{name}","mac":"{mac}"}}'
        status, _, answer = curl(plane, "POST", "/v1/nodes", "-H", "Content-Type: application/json", "-d", body, key=key)
        return status, "" if status == 201 else code_of(answer), answer

    def conflicts(**named) -> list[dict]:
        _, _, body = curl(plane, "GET", "/v1/alerts?kind=hardware_conflict", **named)
        return json.loads(body)["items"]

    (address,) = held["mac"]
    assert register("blue-1", address)[:2] == (403, "forbidden")
    batch = '{"nodes":[{"node_id":"blue-1","mac":"02:00:00:00:bb:01"}]}'
    status, _, answer = curl(plane, "POST", "/v1/nodes/batch", "-H", "Content-Type: application/json", "-d", batch, key=key)
    assert (status, code_of(answer)) == (403, "forbidden")
    with pacts.Door(plane, key=key) as door:
        request = pacts.pb.RegisterNodeRequest(node_id="blue-1", hardware_identity=pacts.hardware())
        assert door.refused("RegisterNode", request).code == "forbidden"
    plane.policy("hardware.tenants", "conf-blue")
    plane.policy("hardware.max_per_tenant", "1")
    try:
        for name in ("blue-1", "blue-2"):
            status, code, answer = register(name, address)
            assert (status, code) == (409, "hardware_identity_conflict"), answer
            assert not any(word in answer for word in ("red-secret", "conf-red", address)), answer
        assert register("blue-3", racks.mac())[0] == 201
        assert register("blue-4", racks.mac())[:2] == (409, "hardware_quota")
        assert register("blue-4", address)[:2] == (409, "hardware_quota"), "nothing is looked up beyond it"
    finally:
        plane.policy("hardware.tenants", "")
        plane.policy("hardware.max_per_tenant", "20000")
    (own,) = conflicts(key=key)
    assert (own["tenant"], own["node_id"], own["count"]) == ("conf-blue", None, 1)
    assert "blue-1" in own["detail"] and not any(word in own["detail"] for word in ("red-secret", "conf-red", address))
    red = make_key(plane, "viewer", "--tenant", "conf-red")["key"]
    (other,) = conflicts(key=red)
    assert (other["tenant"], other["node_id"]) == ("conf-red", None)
    assert "red-secret" in other["detail"] and "blue" not in other["detail"]


def test_only_a_platform_admin_registers_and_decommissions(plane):
    """PACT-35, E10: neither a viewer nor an operator registers or decommissions; a node may not either."""
    racks.register(plane, "e10")
    for role in ("viewer", "operator"):
        key = make_key(plane, role)["key"]
        json = ("-H", "Content-Type: application/json", "-d")
        tries = {
            "/v1/nodes": f'{{"node_id":"e10-{role}","mac":"{racks.mac()}"}}',
            "/v1/nodes/batch": f'{{"nodes":[{{"node_id":"e10-{role}","mac":"{racks.mac()}"}}]}}',
            "/v1/nodes/e10/decommission": "{}",
            "/v1/vclusters": '{"name":"e10"}',
            "/v1/nodes/e10/config": "{}",
            "/v1/vcluster-defaults": "{}",
        }
        for path, body in tries.items():
            status, _, answer = curl(plane, "POST", path, *json, body, key=key)
            assert (status, code_of(answer)) == (403, "forbidden"), (role, path, answer)
    assert plane.node("e10")["state"] == "registered"
    assert not [node for node in plane.nodes() if node["node_id"].startswith("e10-")]
    assert curl(plane, "POST", "/v1/nodes", "-H", "Content-Type: application/json", "-d", "{}")[0] == 401


def test_a_new_registration_readmits_a_decommissioned_node(plane):
    """PACT-31, D15: only it does; a new generation begins, perhaps with other hardware, and in no vCluster."""
    racks.vcluster(plane, "reg-again")
    first = racks.register(plane, "again", vcluster="reg-again")
    assert plane.cli("node", "decommission", "again").json()["state"] == "decommissioned"
    again = racks.register(plane, "again")
    assert (again["state"], again["generation"], again["vcluster"]) == ("registered", 2, None)
    assert plane.node("again")["hardware"]["macs"] == again["mac"]
    # What it had before may be another's now.
    racks.register(plane, "heir", mac=first["mac"])


def test_the_timeline_shows_where_a_node_was(plane):
    """PACT-26, PACT-33: registered, assigned, moved and unassigned stand in the node's history, with names."""
    for name in ("tl-a", "tl-b"):
        racks.vcluster(plane, name)
    racks.register(plane, "tl", vcluster=None)
    for act in (("assign", "tl", "tl-a"), ("move", "tl", "tl-b"), ("unassign", "tl")):
        plane.cli("node", *act)
    told = plane.cli("node", "show", "tl", "--timeline").lines()
    assert [line["event_type"] for line in told] == [
        "host.registered",
        "host.assigned",
        "host.moved",
        "host.unassigned",
    ]
    assert (told[2]["from_vcluster"], told[2]["vcluster"]) == ("tl-a", "tl-b")
