"""The configuration streams: StreamBootConfig and SubscribeConfigUpdates. PACT-26, PACT-38, D36."""

import hashlib
import json
import queue

import pacts
import pytest
from machine import until
from pacts import Status, pb
from plane import ControlPlane

DEFAULTS = {"enforcement_mode": "observe", "whitelists": [], "regulated": False}


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


def put(operator, node: str, vcluster: str) -> None:
    operator.call("AssignNode", pb.AssignNodeRequest(node_id=node, vcluster_id=vcluster))


def base(chunks) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.DESCRIPTOR.name == "OverlayChunk")


def kinds(chunks) -> list[str]:
    return [chunk.DESCRIPTOR.name for chunk in chunks]


def denied(call) -> pacts.Refused:
    with pytest.raises(pacts.Refused) as refused:
        call()
    assert refused.value.status == Status.PERMISSION_DENIED, refused.value
    return refused.value


def test_a_node_in_no_vcluster_gets_the_domains_defaults(plane, operator):
    """Proves PACT-38 and PACT-28's default policy: observe, empty whitelists, not regulated."""
    machine = pacts.machine(plane, operator, "maintenance-1")
    with machine.door() as door:
        chunks = door.boot_config(machine.id)
    assert kinds(chunks) == ["OverlayChunk", "ConfigComplete"]
    assert json.loads(base(chunks)) == DEFAULTS and chunks[0].vcluster_id == ""
    assert chunks[0].checksum == hashlib.sha256(base(chunks)).hexdigest()
    assert (chunks[-1].base_version, chunks[-1].node_version) == (0, 0)
    assert chunks[-1].timestamp.seconds > 1_700_000_000


def test_a_vcluster_without_a_document_is_empty(plane, operator):
    pacts.create_vcluster(plane, "vc-empty")
    machine = pacts.machine(plane, operator, "empty-1")
    put(operator, machine.id, "vc-empty")
    with machine.door() as door:
        chunks = door.boot_config(machine.id, "vc-empty")
    assert (base(chunks), chunks[0].version, chunks[0].vcluster_id) == (b"{}", 0, "vc-empty")


def test_a_large_document_comes_in_pieces(plane, operator):
    """Base document, node delta, completion; pieces in order, one checksum of the whole; who has it gets the completion only."""
    document = json.dumps({"rows": ["x" * 100] * 2400})
    assert 200_000 < len(document) <= 262_144
    pacts.create_vcluster(plane, "vc-large")
    pacts.set_config(plane, "vc-large", document=document)
    machine = pacts.machine(plane, operator, "large-1")
    put(operator, machine.id, "vc-large")
    pacts.set_config(plane, "--node", machine.id, document={"mine": 1})
    with machine.door() as door:
        chunks = door.boot_config(machine.id)
        pieces = chunks[:-2]
        assert base(chunks).decode() == document and len(pieces) > 1
        assert [piece.chunk_index for piece in pieces] == list(range(len(pieces)))
        assert {piece.total_chunks for piece in pieces} == {len(pieces)}
        assert {piece.checksum for piece in pieces} == {hashlib.sha256(document.encode()).hexdigest()}
        delta, complete = chunks[-2:]
        assert (delta.node_id, delta.version, json.loads(delta.data)) == (machine.id, 1, {"mine": 1})
        assert delta.checksum == hashlib.sha256(delta.data).hexdigest()
        assert (complete.base_version, complete.node_version) == (1, 1)
        assert kinds(door.boot_config(machine.id, last_known_version=1)) == ["ConfigComplete"]
        assert base(door.boot_config(machine.id, last_known_version=0)).decode() == document


def test_a_node_reads_its_own_configuration_alone(plane, operator):
    """Another node, another vCluster and one that does not exist are PERMISSION_DENIED on both streams."""
    for name in ("vc-own", "vc-other"):
        pacts.create_vcluster(plane, name)
    machine, other = (pacts.machine(plane, operator, f"own-{number}") for number in (1, 2))
    put(operator, machine.id, "vc-own")
    with machine.door() as door:
        for node, vcluster in ((other.id, ""), ("", ""), (machine.id, "vc-other"), (machine.id, "no-such")):
            denied(lambda node=node, vcluster=vcluster: door.boot_config(node, vcluster))
            with door.subscribe(node, vcluster) as updates:
                assert updates.wait_end().status == Status.PERMISSION_DENIED
        assert base(door.boot_config(machine.id, "vc-own")) == b"{}"
    with other.door() as door:
        assert denied(lambda: door.boot_config(other.id, "vc-own")).code == "not_your_vcluster"
    with pytest.raises(pacts.Refused) as refused:
        operator.boot_config(machine.id)
    assert refused.value.status in (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)


def test_changes_arrive_as_they_are_made_and_resume_where_it_ended(plane, operator):
    """Every change in order, each once; `from_sequence` is exclusive; one in the future is OUT_OF_RANGE."""
    pacts.create_vcluster(plane, "vc-live")
    machine = pacts.machine(plane, operator, "live-1")
    put(operator, machine.id, "vc-live")
    with machine.door() as door:
        with door.subscribe(machine.id, "vc-live") as updates:
            updates.opened()
            pacts.set_config(plane, "vc-live", document={"n": 1})
            seen = []
            while not seen or seen[-1][1] != "vcluster_change":
                seen.append(updates.next())
            assert json.loads(seen[-1][2]) == {"n": 1}
            pacts.set_config(plane, "--node", machine.id, document={"mine": 2})
            sequence, kind, text = updates.next()
            assert (kind, json.loads(text)) == ("node_change", {"mine": 2}) and sequence > seen[-1][0]
        for number in (3, 4, 5):
            pacts.set_config(plane, "vc-live", document={"n": number})
        with door.subscribe(machine.id, from_sequence=sequence) as updates:
            missed = [updates.next() for _ in range(3)]
            assert [json.loads(text)["n"] for _, _, text in missed] == [3, 4, 5]
            assert sequence < missed[0][0] < missed[1][0] < missed[2][0]
            pacts.set_config(plane, "vc-live", document={"n": 6})
            last = updates.next()
            assert json.loads(last[2]) == {"n": 6}
        with door.subscribe(machine.id, from_sequence=last[0] + 1_000) as updates:
            refused = updates.wait_end()
            assert (refused.status, refused.code) == (Status.OUT_OF_RANGE, "out_of_range")


def test_a_move_is_told_and_the_stream_follows(plane, operator):
    """Proves PACT-26: `node_change` with the new vCluster, then its changes and nothing of the one before."""
    for name in ("vc-from", "vc-to"):
        pacts.create_vcluster(plane, name)
    machine = pacts.machine(plane, operator, "move-1")
    put(operator, machine.id, "vc-from")
    with machine.door() as door, door.subscribe(machine.id) as updates:
        assert json.loads(updates.next()[2]) == {"node_id": "move-1", "vcluster_id": "vc-from"}
        operator.call("MoveNode", pb.MoveNodeRequest(node_id="move-1", to_vcluster_id="vc-to"))
        _, kind, text = updates.next()
        assert (kind, json.loads(text)) == ("node_change", {"node_id": "move-1", "vcluster_id": "vc-to"})
        pacts.set_config(plane, "vc-from", document={"secret": "of the other"})
        pacts.set_config(plane, "vc-to", document={"to": 1})
        _, kind, text = updates.next()
        assert (kind, json.loads(text)) == ("vcluster_change", {"to": 1})
        operator.call("UnassignNode", pb.UnassignNodeRequest(node_id="move-1"))
        assert json.loads(updates.next()[2]) == {"node_id": "move-1", "vcluster_id": ""}


def test_quarantine_silences_until_release(plane, operator):
    """D36: no configuration while quarantined; a subscription stays open and is told everything afterwards."""
    pacts.create_vcluster(plane, "vc-quiet")
    machine = pacts.machine(plane, operator, "quiet-1")
    put(operator, machine.id, "vc-quiet")
    with machine.door() as door, door.subscribe(machine.id) as updates:
        updates.next()
        plane.cli("node", "quarantine", machine.id)
        refused = denied(lambda: door.boot_config(machine.id))
        assert refused.code == "node_quarantined" and refused.message.startswith("NODE_QUARANTINED")
        pacts.set_config(plane, "vc-quiet", document={"quiet": 1})
        with pytest.raises(queue.Empty):
            updates.down.get(timeout=1)
        plane.cli("node", "release", machine.id)
        assert json.loads(updates.next()[2]) == {"quiet": 1}


def test_an_open_subscription_is_a_sign_of_life(plane, operator):
    """PACT-18: the node is connected while its subscription is open."""
    machine = pacts.machine(plane, operator, "alive-1")
    with machine.door() as door:
        with door.subscribe(machine.id) as updates:
            updates.opened()
            until(lambda: plane.node(machine.id)["connected"], "it is connected")
        until(lambda: not plane.node(machine.id)["connected"], "it has left")


@pytest.mark.alone
def test_who_never_reads_costs_little_and_is_let_go(plane, operator):
    """A subscription whose client takes nothing shares the documents with all others, keeps nobody waiting, and ends."""
    pacts.create_vcluster(plane, "vc-slow")
    slow, quick = (pacts.machine(plane, operator, f"slow-{number}") for number in (1, 2))
    for machine in (slow, quick):
        put(operator, machine.id, "vc-slow")
    with slow.door() as unread, quick.door() as door, door.subscribe(quick.id) as updates:
        request = pacts.config_pb.SubscribeRequest(node_id=slow.id)
        calls = [unread.config.SubscribeConfigUpdates(request) for _ in range(4)]
        for call in calls:
            call.initial_metadata()
        until(lambda: plane.node(slow.id)["connected"], "it is connected")
        updates.next()
        before = plane.status("VmRSS")
        for number in range(40):
            pacts.set_config(plane, "vc-slow", document={"n": number, "pad": "x" * 250_000})
            assert json.loads(updates.next()[2])["n"] == number
        assert plane.status("VmRSS") - before < 60_000, "KiB: a copy for each stream would be 40 MB beside those kept"
        until(lambda: not plane.node(slow.id)["connected"], "those who do not read have lost their places", 120)
        pacts.set_config(plane, "vc-slow", document={"n": "last"})
        assert json.loads(updates.next()[2])["n"] == "last"
        for call in calls:
            call.cancel()
