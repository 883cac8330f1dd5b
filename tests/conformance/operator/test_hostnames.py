"""Hostnames in place of ids, searching, and the counts below a list. A hostname is a host's own word: an id comes first, and a
name that several hosts claim stands for none of them."""

import pytest

import native
from machine import ENLIST, run
from selections import Operator, known
from terminal import shown


def enroll(plane, name: str, hostname: str, **fields) -> native.Node:
    node = native.enroll(plane, plane.token(node=name, **fields), hostname=hostname)
    node.confirm()
    return node


def ids(done) -> list[str]:
    return [item["node_id"] for item in done.lines()]


@pytest.fixture(scope="module")
def tenants(plane):
    for name in ("green", "grey"):
        assert plane.api("POST", "/v1/tenants", {"name": name}).status == 201


def test_a_hostname_stands_for_the_node_that_alone_has_it(plane):
    """For `show`, its timeline and every act, in any case; it is in the list and its JSON."""
    enroll(plane, "n-alone", "alone.example.org")
    assert plane.cli("node", "show", "ALONE.example.org").json()["node_id"] == "n-alone"
    assert plane.cli("node", "show", "alone.example.org", "--timeline").lines()[0]["node_id"] == "n-alone"
    name = "alone.example.org"
    for command in (
        ("drain", name),
        ("undrain", name),
        ("quarantine", name),
        ("release", name),
        ("rotate", name),
        ("label", name, "env=prod"),
        ("recovery", "revoke", name),
        ("decommission", name),
        ("reinstate", name),
        ("revoke", name),
    ):
        assert plane.cli("node", *command).json()["node_id"] == "n-alone", command
    lines = plane.cli("audit", "list", "--node", name, "--event", "host.revoked").lines()
    assert [line["node_id"] for line in lines] == ["n-alone"]
    mistyped = plane.cli("alert", "list", "--node", "aloen")
    assert mistyped.lines() == [] and "no node has the id or the hostname aloen" in mistyped.err
    (item,) = plane.cli("node", "list", "--search", "alone").lines()
    assert item["hostname"] == name
    text = shown(ENLIST, "node", "list", "--search", "alone", "--dir", plane.dir)
    assert "HOSTNAME" in text.lines()[0] and name in text.lines()[1] and not text.too_wide(), text.lines()


def test_a_name_that_two_hosts_claim_stands_for_none(plane):
    """A host that calls itself like another gets none of the acts meant for that one: exit 3 with the ids of both."""
    enroll(plane, "n-honest", "shared-name")
    enroll(plane, "n-liar", "Shared-Name")
    for command in (("show",), ("show", "--timeline"), ("revoke",), ("drain",), ("label", "a=b")):
        verb, *more = command
        done = plane.cli("node", verb, "shared-name", *more, ok=False)
        assert (done.code, done.error()["code"]) == (3, "hostname_ambiguous"), done
        assert "n-honest, n-liar" in done.error()["hint"], done
    assert {plane.node(name)["state"] for name in ("n-honest", "n-liar")} == {"active"}
    assert run(ENLIST, "explain", "hostname_ambiguous").code == 0


def test_an_id_comes_before_a_hostname(plane):
    """A host that calls itself by the id of another is not asked."""
    enroll(plane, "n-target", "target-host")
    enroll(plane, "n-impostor", "n-target")
    assert plane.cli("node", "drain", "n-target").json()["node_id"] == "n-target"
    assert plane.node("n-impostor")["draining"] is False


def test_an_ended_record_gives_way_to_the_host_that_was_installed_again(plane):
    """Of one living and any number of ended nodes the living one is meant; of ended ones alone, the only one."""
    enroll(plane, "n-old", "again")
    plane.cli("node", "revoke", "again")
    assert plane.cli("node", "show", "again").json()["node_id"] == "n-old"
    enroll(plane, "n-older", "again")
    plane.cli("node", "revoke", "again")
    assert plane.node("n-older")["state"] == "revoked"
    assert plane.cli("node", "show", "again", ok=False).error()["code"] == "hostname_ambiguous"
    enroll(plane, "n-new", "again")
    assert plane.cli("node", "drain", "again").json()["node_id"] == "n-new"


def test_hostnames_of_other_tenants_do_not_exist(plane, tenants):
    """Neither found nor in the way: the same name in another tenant makes nothing ambiguous for one who cannot see it."""
    enroll(plane, "n-green", "walled", tenant="green")
    green, grey = (Operator(plane, "operator", "--tenant", name) for name in ("green", "grey"))
    assert green.cli("node", "drain", "walled").json()["node_id"] == "n-green"
    for command in (("show", "walled"), ("undrain", "walled"), ("show", "n-green")):
        refused = grey.cli("node", *command, ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "node_not_found"), refused
    assert grey.cli("node", "list", "--search", "walled").out == ""
    assert grey.api("GET", "/v1/nodes?hostname=walled").json() == {"items": [], "next_cursor": None}
    enroll(plane, "n-grey", "walled", tenant="grey")
    assert grey.cli("node", "show", "walled").json()["node_id"] == "n-grey"
    assert plane.cli("node", "show", "walled", ok=False).error()["code"] == "hostname_ambiguous"


def test_a_name_that_nobody_has_is_not_found(plane):
    for name in ("nobody", "no body", "a/b", "x" * 200):
        done = plane.cli("node", "show", name, ok=False)
        assert (done.code, done.error()["code"]) == (3, "node_not_found"), done


def test_a_search_finds_ids_hostnames_and_labels(plane):
    """Server side, in any case, with the other filters; 1 to 128 characters."""
    enroll(plane, "find-by-id", "somewhere")
    enroll(plane, "n-find-host", "Find-By-Host")
    known(plane, "n-find-label")
    plane.cli("node", "label", "n-find-label", "find-by=label")
    assert ids(plane.cli("node", "list", "--search", "FIND-BY")) == ["find-by-id", "n-find-host", "n-find-label"]
    assert ids(plane.cli("node", "list", "--search", "find-by", "--state", "registered")) == ["n-find-label"]
    assert ids(plane.cli("node", "list", "--search", "by=LAB")) == ["n-find-label"]
    assert plane.cli("node", "list", "--search", "find-by nothing").out == ""
    for bad in ("", "x" * 129):
        answer = plane.api("GET", f"/v1/nodes?search={bad}")
        assert (answer.status, answer.code) == (400, "bad_request")


def test_a_search_has_pages(plane_of_its_own):
    """Of 6,000 nodes one request looks into 5,000: a page may be empty and not the last, and the whole list has every match once."""
    plane = plane_of_its_own
    assert plane.api("POST", "/v1/tenants", {"name": "other"}).status == 201
    rows = [{"node_id": f"n{number:04}", "mac": [f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"]} for number in range(6000)]
    for start in range(0, len(rows), 1000):
        answer = plane.api("POST", "/v1/nodes/batch", {"nodes": rows[start : start + 1000]})
        assert answer.status == 200 and all(result["ok"] for result in answer.json()["results"]), answer
    first = plane.api("GET", "/v1/nodes?search=n59").json()
    assert first["items"] == [] and first["next_cursor"] == "n4999"
    found = ids(plane.cli("node", "list", "--search", "N59"))
    assert found == [f"n{number:04}" for number in range(5900, 6000)]
    pages = list(plane.pages("/v1/nodes?search=9&limit=100"))
    assert [item["node_id"] for page in pages for item in page["items"]] == [row["node_id"] for row in rows if "9" in row["node_id"]]
    assert all(len(page["items"]) <= 100 for page in pages)
    # What another tenant has is not looked into: no cursor names it.
    other = Operator(plane, "viewer", "--tenant", "other")
    assert other.api("GET", "/v1/nodes?search=n").json() == {"items": [], "next_cursor": None}


def test_counts_stand_below_a_list_at_a_terminal_only(plane_of_its_own):
    """`4 nodes: 1 registered, 2 active, 1 revoked`, in the order of a node's life; a pipe and JSON have none."""
    plane = plane_of_its_own
    for number in (1, 2, 3):
        enroll(plane, f"count-{number}", "host")
    known(plane, "count-4")
    plane.cli("node", "revoke", "count-3")
    at_terminal = shown(ENLIST, "node", "list", "--dir", plane.dir)
    assert [line for line in at_terminal.lines() if line][-1] == "4 nodes: 1 registered, 2 active, 1 revoked"
    one = shown(ENLIST, "node", "list", "--search", "count-4", "--dir", plane.dir)
    assert [line for line in one.lines() if line][-1] == "1 node: 1 registered"
    for more in ((), ("--json",)):
        piped = run(ENLIST, "node", "list", "--dir", plane.dir, *more)
        assert len(piped.out.splitlines()) == (4 if more else 5) and "nodes:" not in piped.out + piped.err, piped
    none = shown(ENLIST, "node", "list", "--search", "nothing", "--dir", plane.dir)
    assert [line for line in none.lines() if line] == ["no nodes"]
