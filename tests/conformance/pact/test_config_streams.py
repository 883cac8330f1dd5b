"""Configuration as it changes, on pact's subscription and on the native live stream. PACT-01, PACT-26, PACT-28, PACT-38, D36."""

import hashlib
import json

import native
import pacts
import pytest
from machine import until

DEFAULTS = '{"enforcement_mode":"observe","whitelists":[],"regulated":false}'


@pytest.fixture(scope="module")
def operator(plane):
    pacts.allow_hardware(plane)
    with pacts.admin(plane) as door:
        yield door


def assign(operator, node: str, vcluster: str) -> None:
    operator.call("AssignNode", pacts.pb.AssignNodeRequest(node_id=node, vcluster_id=vcluster))


def move(operator, node: str, vcluster: str) -> None:
    operator.call("MoveNode", pacts.pb.MoveNodeRequest(node_id=node, to_vcluster_id=vcluster))


def live_machine(plane, operator, name: str):
    """A machine that enrolls through the native API."""
    identity = pacts.hardware()
    operator.register(name, identity)
    said = native.pb.HardwareIdentity(macs=[identity.mac_address])
    key = native.certs.ec_key()
    with native.door(plane) as door:
        answer = door.enroll("", native.certs.csr(key), hardware_identity=said)
    return native.Node(plane, answer, key)


def checked(config):
    """A Config whose checksums are those of its documents."""
    assert config.base_checksum == hashlib.sha256(config.base).hexdigest()
    assert config.node_checksum == (hashlib.sha256(config.node).hexdigest() if config.node else "")
    return config


def test_a_move_leaks_nothing_of_the_other_vcluster(plane, operator):
    """PACT-26: node_change names the new vCluster, then its documents alone come; the certificate stays."""
    for name in ("red", "blue"):
        pacts.create_vcluster(plane, name)
        pacts.set_config(plane, name, document={"secret of": name, "round": 0})
    machine = pacts.machine(plane, operator, "mover")
    heard = []
    with machine.door() as door, door.subscribe(machine.id).opened() as updates:
        assign(operator, machine.id, "red")
        heard.append(updates.next())
        assert json.loads(heard[-1][2]) == {"node_id": "mover", "vcluster_id": "red"}
        pacts.set_config(plane, "red", document={"secret of": "red", "round": 1})
        heard.append(updates.next())
        pacts.set_config(plane, "blue", document={"secret of": "blue", "round": 2})
        move(operator, machine.id, "blue")
        heard.append(updates.next())
        pacts.set_config(plane, "red", document={"secret of": "red", "round": 3})
        pacts.set_config(plane, "--defaults", document=json.loads(DEFAULTS) | {"round": 4})
        pacts.set_config(plane, "blue", document={"secret of": "blue", "round": 5})
        heard.append(updates.next())
    kinds = [kind for _, kind, _ in heard]
    assert kinds == ["node_change", "vcluster_change", "node_change", "vcluster_change"]
    assert json.loads(heard[2][2]) == {"node_id": "mover", "vcluster_id": "blue"}
    assert [json.loads(text)["round"] for _, kind, text in heard if kind == "vcluster_change"] == [1, 5]
    sequences = [sequence for sequence, _, _ in heard]
    assert sequences == sorted(set(sequences))
    # Who was away hears what was said to it, and still nothing of red after the move.
    with machine.door() as door, door.subscribe(machine.id, from_sequence=sequences[0]) as updates:
        missed = [updates.next()]
        while missed[-1][0] < sequences[-1]:
            missed.append(updates.next())
    assert missed[-1] == heard[-1]
    assert not any("red" in text for _, _, text in missed)
    assert plane.node(machine.id)["cert_serial"] == machine.serial


def test_the_native_stream_brings_the_whole_configuration_and_every_change(plane, operator):
    """PACT-01, PACT-28, PACT-38: the domain's defaults in maintenance mode, then those of the vCluster, then its own."""
    pacts.create_vcluster(plane, "green")
    node = live_machine(plane, operator, "native-host")
    assert node.answer.vcluster == ""
    with node.door() as door:
        live = door.live(node.id, config_wanted=True)
        live.next("welcome")
        config = checked(live.next("config"))
        assert config.vcluster == ""
        assert json.loads(config.base)["enforcement_mode"] == "observe"
        assign(operator, node.id, "green")
        config = checked(live.next("config"))
        assert (config.vcluster, config.base_version, config.base) == ("green", 0, b"{}")
        pacts.set_config(plane, "green", document='{"a": 1}')
        config = checked(live.next("config"))
        assert (config.base_version, config.base, config.node_version) == (1, b'{"a": 1}', 0)
        pacts.set_config(plane, "--node", node.id, document='{"b": 2}')
        last = checked(live.next("config"))
        assert (last.base, last.node_version, last.node) == (b'{"a": 1}', 1, b'{"b": 2}')
        assert last.sequence > config.sequence
        live.close()
    with node.door() as door:
        live = door.live(node.id, config_wanted=True, config_sequence=last.sequence)
        live.next("welcome")
        pacts.set_config(plane, "green", document='{"a": 2}')
        assert checked(live.next("config")).base_version == 2, "what it has is not said again"
        live.close()
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        live.heartbeat()
        live.next("ack")
        assert "config" not in [kind for kind, _ in list(live.down.queue)], "it does not want it"
        live.close()


def test_a_quarantined_node_gets_no_configuration_until_it_is_released(plane, operator):
    """D36."""
    pacts.create_vcluster(plane, "violet")
    node = live_machine(plane, operator, "suspect")
    assign(operator, node.id, "violet")
    assert plane.api("POST", f"/v1/nodes/{node.id}/quarantine", {"reason": "test"}).status == 200
    with node.door() as door:
        live = door.live(node.id, config_wanted=True)
        assert live.next("welcome").standing.quarantined
        pacts.set_config(plane, "violet", document='{"kept": "back"}')
        live.heartbeat()
        seen = []
        until(lambda: seen.append(live.down.get(timeout=60)[0]) or seen[-1] == "ack", "it was answered")
        assert "config" not in seen
        assert plane.api("POST", f"/v1/nodes/{node.id}/release", {}).status == 200
        assert checked(live.next("config")).base == b'{"kept": "back"}'
        live.close()


def test_a_large_document_reaches_many_streams_as_it_is(plane, operator):
    """PACT-38: the longest document that may be, on several connections at once."""
    pacts.create_vcluster(plane, "large")
    document = json.dumps({"x": "y" * 262_000})
    nodes = [live_machine(plane, operator, f"many-{number}") for number in range(6)]
    doors = [node.door() for node in nodes]
    streams = [door.live(node.id, config_wanted=True) for node, door in zip(nodes, doors)]
    for live in streams:
        live.next("config")
    for node in nodes:
        assign(operator, node.id, "large")
    for live in streams:
        assert live.next("config").vcluster == "large"
    pacts.set_config(plane, "large", document=document)
    for live, door in zip(streams, doors):
        assert checked(live.next("config")).base == document.encode()
        live.heartbeat()
        live.next("ack")
        live.close()
        door.close()
