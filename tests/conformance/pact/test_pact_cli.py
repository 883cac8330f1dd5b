"""The command lines of 001, typed as the document has them (PACT-09, PACT-31, PACT-32, PACT-33)."""


import pytest

import racks



def test_a_node_is_enrolled_and_inspected(names, plane):
    """PACT-09, PACT-33: `pact node enroll ID --mac M --bmc-serial S`, then `inspect`; the profile is that of pact."""
    mac = racks.mac()
    done = names("pact", "node", "enroll", "pc-1", "--mac", mac, "--bmc-serial", "PC1", plane=plane)
    assert "pc-1 is Registered" in done.out
    shown = names("pact", "node", "inspect", "pc-1", plane=plane).out
    assert mac in shown and "PC1" in shown and "Registered" in shown
    node = names("pact", "node", "inspect", "pc-1", "--json", plane=plane).json()
    assert (node["enrollment_state"], node["vcluster_id"], node["profile"]) == ("Registered", None, "pact")
    assert node["hardware"]["macs"] == [mac]
    again = names("pact", "node", "enroll", "pc-1", "--mac", mac, "--json", plane=plane, ok=False)
    assert (again.code, again.error()["code"]) == (3, "node_already_enrolled")
    other = names("pact", "node", "enroll", "pc-2", "--mac", mac, "--json", plane=plane, ok=False)
    assert (other.code, other.error()["code"]) == (3, "hardware_identity_conflict")


def test_a_batch_is_enrolled(names, plane, place):
    """PACT-32: `pact node enroll --batch nodes.csv`: a result for each, and again it is done already."""
    (place / "nodes.csv").write_text(racks.csv([f"pb-{n}" for n in range(20)]))
    done = names("pact", "node", "enroll", "--batch", "nodes.csv", "--json", plane=plane, cwd=place)
    assert [(line["line"], line["ok"], line["code"]) for line in done.lines()] == [(n + 2, True, None) for n in range(20)]
    assert plane.node("pb-7")["profile"] == "pact"
    again = names("pact", "node", "enroll", "--batch", "nodes.csv", "--json", plane=plane, cwd=place)
    assert {(line["ok"], line["code"]) for line in again.lines()} == {(True, "node_already_enrolled")}
    said = names("pact", "node", "enroll", "--batch", "nodes.csv", plane=plane, cwd=place)
    assert said.out == "20 lines: 0 registered, 20 registered before, 0 refused\n" and said.err == ""


@pytest.mark.parametrize("flags", [True, False], ids=["flags", "positional"])
def test_a_node_is_assigned_moved_and_unassigned(names, plane, flags):
    """PACT-26, PACT-33: `assign --vcluster`, `move --to-vcluster` and `unassign`; the name may also follow the id."""
    suffix = "f" if flags else "p"
    first, second, id = f"pv-a{suffix}", f"pv-b{suffix}", f"pm-{suffix}"
    for name in (first, second):
        racks.vcluster(plane, name)
    racks.register(plane, id)

    def pact(verb, *rest):
        return names("pact", "node", verb, id, *rest, "--json", plane=plane).json()

    assert pact("assign", *(["--vcluster", first] if flags else [first]))["vcluster_id"] == first
    assert pact("move", *(["--to-vcluster", second] if flags else [second]))["vcluster_id"] == second
    assert pact("unassign")["vcluster_id"] is None
    for wrong in (("assign", id), ("move", id), ("assign", id, first, "--vcluster", first)):
        assert names("pact", "node", *wrong, plane=plane, ok=False).code == 2, wrong
    unknown = names("pact", "node", "assign", id, "nowhere", "--json", plane=plane, ok=False)
    assert (unknown.code, unknown.error()["code"]) == (3, "vcluster_not_found")
    nobody = names("pact", "node", "assign", "nobody", first, "--json", plane=plane, ok=False)
    assert (nobody.code, nobody.error()["code"]) == (3, "node_not_found")


def test_nodes_are_listed_by_the_states_of_the_document(names, plane):
    """PACT-33: `list [--state S] [--vcluster V] [--unassigned]`, states in either case."""
    racks.vcluster(plane, "pl")
    racks.register(plane, "pl-1", vcluster="pl")
    racks.register(plane, "pl-2")
    racks.register(plane, "pl-3", vcluster="pl")
    plane.cli("node", "decommission", "pl-3")

    def listed(*flags):
        return {node["node_id"] for node in names("pact", "node", "list", *flags, "--json", plane=plane).lines()}

    assert {"pl-1", "pl-2", "pl-3"} <= listed()
    assert listed("--vcluster", "pl", "--state", "REGISTERED") == {"pl-1"}
    assert "pl-3" in listed("--state", "revoked") and "pl-1" not in listed("--state", "Revoked")
    assert "pl-2" in listed("--unassigned") and "pl-1" not in listed("--unassigned")
    assert listed("--state", "active") == set()
    table = names("pact", "node", "list", plane=plane).out
    assert plane.node("pl-1")["macs"][0] in table and "VCLUSTER" in table and "Registered" in table and "Revoked" in table
    assert names("pact", "node", "list", "--state", "asleep", plane=plane, ok=False).code == 2


def test_a_node_is_decommissioned_and_only_enrolled_anew(names, plane):
    """PACT-31: `decommission ID [--force]` ends it; a new `enroll` re-admits it as another generation."""
    for flags in ((), ("--force",)):
        id = "pd-force" if flags else "pd"
        mac = racks.mac()
        names("pact", "node", "enroll", id, "--mac", mac, plane=plane)
        assert "is Revoked" in names("pact", "node", "decommission", id, *flags, plane=plane).out
        again = names("pact", "node", "enroll", id, "--mac", mac, "--json", plane=plane).json()
        assert (again["enrollment_state"], again["generation"]) == ("Registered", 2)
    done = names("pact", "node", "decommission", "nobody", "--json", plane=plane, ok=False)
    assert (done.code, done.error()["code"]) == (3, "node_not_found")


def test_half_a_command_line_is_a_usage_error(names, plane):
    """PACT-33: exit code 2, and help names every command."""
    for wrong in (("node",), ("node", "enroll"), ("node", "enroll", "x"), ("node", "frobnicate"), ("nodes", "list")):
        assert names("pact", *wrong, plane=plane, ok=False).code == 2, wrong
    help = names("pact", "node", "--help").out
    for verb in ("enroll", "decommission", "assign", "unassign", "move", "list", "inspect"):
        assert verb in help
    both = names("pact", "node", "enroll", "x", "--mac", racks.mac(), "--batch", "f", plane=plane, ok=False)
    assert both.code == 2
