"""What operators do on the pact API: register, batch, list, inspect, decommission, assign, move. PACT-09, PACT-26, PACT-30 to PACT-35."""

import native
import pacts
import pytest
from machine import until
from operators import make_key
from pacts import Status, hardware, pb
from plane import ControlPlane


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        pacts.allow_hardware(running)
        yield running


@pytest.fixture(scope="module")
def operator(plane):
    with pacts.admin(plane) as door:
        yield door


def told(refusal) -> tuple:
    return refusal.status, refusal.code, refusal.message.split(":")[0]


def entry(node_id: str, identity):
    return pb.RegisterNodeRequest(node_id=node_id, hardware_identity=identity)


def test_an_id_and_hardware_are_registered_once(plane, operator):
    """Proves PACT-34: NODE_ALREADY_ENROLLED for the id, HARDWARE_IDENTITY_CONFLICT for the hardware, with what is meant."""
    identity = hardware(bmc_serial="ONCE-1")
    operator.register("once-1", identity)
    for again in (identity, hardware()):
        refusal = operator.refused("RegisterNode", entry("once-1", again))
        assert told(refusal) == (Status.FAILED_PRECONDITION, "node_already_enrolled", "NODE_ALREADY_ENROLLED")
    for shared in (hardware(identity.mac_address), hardware(bmc_serial="ONCE-1")):
        refusal = operator.refused("RegisterNode", entry("once-2", shared))
        expected = (Status.FAILED_PRECONDITION, "hardware_identity_conflict", "HARDWARE_IDENTITY_CONFLICT")
        assert told(refusal) == expected and "once-1" in refusal.message


def test_a_placeholder_is_no_serial(operator):
    """A serial that machines have which were never given one would identify all of them."""
    refusal = operator.refused("RegisterNode", entry("oem-1", hardware(bmc_serial="To Be Filled By O.E.M.")))
    assert refusal.status == Status.INVALID_ARGUMENT


@pytest.mark.parametrize("node_id", ["", "-x", "a b", "x" * 64])
def test_what_is_no_name_is_refused(operator, node_id):
    assert operator.refused("RegisterNode", entry(node_id, hardware())).status == Status.INVALID_ARGUMENT


def test_only_a_platform_admin_registers_and_decommissions(plane, operator):
    """Proves PACT-09, PACT-35 (E10): other roles and nodes are PERMISSION_DENIED, a bad bearer is UNAUTHENTICATED."""
    machine = pacts.machine(plane, operator, "roles-1")
    for role in ("viewer", "operator"):
        with pacts.Door(plane, key=make_key(plane, role)["key"]) as door:
            for method, request in (
                ("RegisterNode", entry("roles-2", hardware())),
                ("BatchRegisterNodes", pb.BatchRegisterNodesRequest(nodes=[entry("roles-2", hardware())])),
                ("BatchRegisterNodes", pb.BatchRegisterNodesRequest()),
                ("DecommissionNode", pb.DecommissionNodeRequest(node_id="roles-1")),
            ):
                assert door.refused(method, request).status == Status.PERMISSION_DENIED, (role, method)
            assert door.call("InspectNode", pb.InspectNodeRequest(node_id="roles-1")).node_id == "roles-1"
    with machine.door() as door:
        assert door.refused("RegisterNode", entry("roles-2", hardware())).status == Status.PERMISSION_DENIED
        assert door.refused("ListNodes", pb.ListNodesRequest()).status == Status.PERMISSION_DENIED
        request = pb.DecommissionNodeRequest(node_id="roles-1")
        assert door.refused("DecommissionNode", request).status == Status.PERMISSION_DENIED
    assert plane.node("roles-1")["state"] == "active"
    with pacts.Door(plane, key="no-such-key") as door:
        assert door.refused("ListNodes", pb.ListNodesRequest()).status == Status.UNAUTHENTICATED
    assert plane.api("GET", "/v1/nodes/roles-2").status == 404


def test_an_operator_certificate_is_as_good_as_a_key(plane):
    """Operator RPCs take either."""
    place = plane.base / "alice"
    plane.cli("operator", "add", "alice", "--role", "platform-admin", "--out", place)
    with pacts.Door(plane, (place / "cert.pem", place / "key.pem")) as door:
        assert door.register("alice-1", hardware()).enrollment_state == "Registered"
        inspected = door.call("InspectNode", pb.InspectNodeRequest(node_id="alice-1"))
        assert inspected.enrolled_by == "user:alice"


def test_a_batch_has_a_result_for_each_and_can_be_repeated(plane, operator):
    """Proves PACT-32: not atomic, a result per node, and the same batch again registers what is missing."""
    taken = hardware()
    operator.register("batch-0", taken)
    good = [entry(f"batch-{number}", hardware()) for number in range(1, 6)]
    bad = [entry("batch-6", hardware("00:00:00:00:00:00")), entry("batch-7", taken), entry("", hardware()), entry("batch-0", hardware())]
    request = pb.BatchRegisterNodesRequest(nodes=[*good, *bad])
    for _ in range(2):
        answer = operator.call("BatchRegisterNodes", request)
        assert (answer.succeeded, answer.failed) == (5, 4)
        assert [result.node_id for result in answer.results] == [node.node_id for node in request.nodes]
        assert all(result.success and result.enrollment_state == "Registered" for result in answer.results[:5])
        codes = [result.error.split(":")[0] for result in answer.results[5:]]
        assert codes == ["mac_invalid", "HARDWARE_IDENTITY_CONFLICT", "bad_request", "NODE_ALREADY_ENROLLED"]
    assert {result.error.split(":")[0] for result in answer.results[:5]} == {"NODE_ALREADY_ENROLLED"}
    assert plane.api("GET", "/v1/nodes/batch-6").status == 404


def test_a_batch_may_have_four_megabytes_and_no_more(plane, operator):
    """A batch of tens of thousands in one request; beyond 4 MiB RESOURCE_EXHAUSTED, for others beyond 64 KiB."""
    nodes = [entry(f"large-{number}", hardware()) for number in range(3000)]
    request = pb.BatchRegisterNodesRequest(nodes=nodes)
    assert request.ByteSize() > 100_000
    answer = operator.call("BatchRegisterNodes", request)
    assert (answer.succeeded, answer.failed) == (3000, 0)
    padded = [entry(f"pad-{number}", hardware(bmc_serial="x" * 60_000)) for number in range(80)]
    refusal = operator.refused("BatchRegisterNodes", pb.BatchRegisterNodesRequest(nodes=padded))
    assert told(refusal) == (Status.RESOURCE_EXHAUSTED, "too_large", "too_large")
    listed = operator.call("ListNodes", pb.ListNodesRequest(state_filter="registered"))
    assert len([node for node in listed.nodes if node.node_id.startswith("large-")]) == 3000


def test_nodes_are_listed_and_inspected_in_pacts_words(plane, operator):
    """Proves PACT-04 and PACT-33: state words, filters in any case, what is on record of a node."""
    identity = hardware(bmc_serial="LIST-1", tpm_ek_hash="ab" * 32)
    operator.register("list-1", identity)
    before = operator.call("InspectNode", pb.InspectNodeRequest(node_id="list-1"))
    assert (before.enrollment_state, before.cert_serial, before.last_seen) == ("Registered", "", "")
    assert before.enrolled_at.endswith("Z") and before.enrolled_by.startswith("key:")
    machine = pacts.boot(plane, identity)
    node = operator.call("InspectNode", pb.InspectNodeRequest(node_id="list-1"))
    assert (node.domain_id, node.enrollment_state, node.vcluster_id) == (plane.domain, "Active", "")
    assert node.hardware_identity == identity
    assert (node.cert_serial, node.cert_expires_at) == (machine.serial, machine.answer.cert_expires_at)
    assert node.last_seen.endswith("Z") and node.active_sessions == 0

    def listed(**filters):
        return {node.node_id: node for node in operator.call("ListNodes", pb.ListNodesRequest(**filters)).nodes}

    for word in ("Active", "active", "ACTIVE"):
        assert listed(state_filter=word)["list-1"].mac_address == identity.mac_address
    assert "list-1" not in listed(state_filter="Registered") and "list-1" in listed(unassigned_only=True)
    assert listed()["list-1"].last_seen >= node.last_seen
    operator.register("list-2", hardware())
    vcluster = pacts.create_vcluster(plane, "list-vc")
    operator.call("AssignNode", pb.AssignNodeRequest(node_id="list-2", vcluster_id=vcluster))
    assert "list-2" in listed() and "list-2" not in listed(unassigned_only=True)
    assert [(one.node_id, one.vcluster_id) for one in listed(vcluster_filter=vcluster).values()] == [("list-2", vcluster)]
    assert "list-1" not in listed(vcluster_filter="no-such")
    assert operator.refused("ListNodes", pb.ListNodesRequest(state_filter="asleep")).status == Status.INVALID_ARGUMENT
    assert told(operator.refused("InspectNode", pb.InspectNodeRequest(node_id="list-none")))[:2] == (
        Status.NOT_FOUND,
        "node_not_found",
    )


def test_a_decommissioned_node_is_revoked_and_cut_off(plane, operator):
    """Proves PACT-30 and E9, and of PACT-41 what one replica can show: state Revoked, its serial denied, its connection closed."""
    machine = pacts.machine(plane, operator, "end-1")
    with machine.door() as door, door.subscribe("end-1") as updates:
        updates.opened()
        answer = operator.call("DecommissionNode", pb.DecommissionNodeRequest(node_id="end-1", force=True))
        assert (answer.enrollment_state, answer.cert_serial_revoked) == ("Revoked", machine.serial)
        assert answer.sessions_terminated == 0
        updates.wait_end()
    again = operator.call("DecommissionNode", pb.DecommissionNodeRequest(node_id="end-1"))
    assert again.enrollment_state == "Revoked"
    # The serial itself is denied: it stays so when the node begins a new life.
    operator.register("end-1", hardware())
    denied = {held["serial"]: held["status"] for held in plane.node("end-1")["certificates"]}
    assert denied == {machine.serial: "denied"} and "REVOKED" in native.alert(plane, machine.files).upper()
    assert told(operator.refused("DecommissionNode", pb.DecommissionNodeRequest(node_id="none-1")))[0] == Status.NOT_FOUND


def test_nodes_are_assigned_moved_and_unassigned(plane, operator):
    """Proves PACT-01 and PACT-26: independent of enrollment; a move is one step, names where from, and touches no certificate."""
    for name in ("vc-a", "vc-b"):
        pacts.create_vcluster(plane, name)
    identity = hardware()
    operator.register("assign-1", identity)
    assign = lambda vcluster, node="assign-1": pb.AssignNodeRequest(node_id=node, vcluster_id=vcluster)  # noqa: E731
    move = lambda vcluster, node="assign-1": pb.MoveNodeRequest(node_id=node, to_vcluster_id=vcluster)  # noqa: E731
    assert operator.refused("MoveNode", move("vc-b")).status == Status.FAILED_PRECONDITION
    answer = operator.call("AssignNode", assign("vc-a"))
    assert (answer.node_id, answer.vcluster_id) == ("assign-1", "vc-a")
    assert operator.call("AssignNode", assign("vc-a")).vcluster_id == "vc-a", "again changes nothing"
    machine = pacts.boot(plane, identity)
    assert machine.answer.vcluster_id == "vc-a"
    for refusal in (
        operator.refused("AssignNode", assign("no-such")),
        operator.refused("MoveNode", move("no-such")),
        operator.refused("AssignNode", assign("vc-a", "no-node")),
        operator.refused("MoveNode", move("vc-a", "no-node")),
        operator.refused("UnassignNode", pb.UnassignNodeRequest(node_id="no-node")),
    ):
        assert refusal.status == Status.NOT_FOUND, refusal
    assert operator.refused("AssignNode", assign("vc-b")).status == Status.FAILED_PRECONDITION
    moved = operator.call("MoveNode", move("vc-b"))
    assert (moved.from_vcluster_id, moved.to_vcluster_id) == ("vc-a", "vc-b")
    node = operator.call("InspectNode", pb.InspectNodeRequest(node_id="assign-1"))
    assert (node.vcluster_id, node.cert_serial) == ("vc-b", machine.serial)
    in_b = operator.call("ListNodes", pb.ListNodesRequest(vcluster_filter="vc-b")).nodes
    assert [node.node_id for node in in_b] == ["assign-1"]
    assert operator.call("UnassignNode", pb.UnassignNodeRequest(node_id="assign-1")).node_id == "assign-1"
    assert operator.call("InspectNode", pb.InspectNodeRequest(node_id="assign-1")).vcluster_id == ""
    operator.call("DecommissionNode", pb.DecommissionNodeRequest(node_id="assign-1"))
    for refusal in (operator.refused("AssignNode", assign("vc-a")), operator.refused("MoveNode", move("vc-a"))):
        assert told(refusal) == (Status.FAILED_PRECONDITION, "node_revoked", "NODE_REVOKED")


def test_an_operator_may_assign(plane, operator):
    """E10: ops assign; registering stays with the platform-admin."""
    pacts.create_vcluster(plane, "vc-ops")
    operator.register("ops-1", hardware())
    with pacts.Door(plane, key=make_key(plane, "operator")["key"]) as door:
        door.call("AssignNode", pb.AssignNodeRequest(node_id="ops-1", vcluster_id="vc-ops"))
    until(lambda: plane.node("ops-1")["vcluster"] == "vc-ops", "the node is assigned")
