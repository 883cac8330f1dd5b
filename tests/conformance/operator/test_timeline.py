"""What has happened to one node, in order (GPU-24 in part)."""

import json

import native
from machine import ENLIST, run, until
from operators import code_of, curl, make_key


def timeline(plane, node_id: str, query: str = "") -> list[dict]:
    return plane.items(f"/v1/nodes/{node_id}/timeline{query}")


def storied(plane, **fields) -> native.Node:
    """A node with a past."""
    node = native.enroll(plane, plane.token(**fields))
    node.confirm()
    for act, body in [("drain", {}), ("undrain", {}), ("quarantine", {"reason": "odd"}), ("release", {})]:
        answer = plane.api("POST", f"/v1/nodes/{node.id}/{act}", body, {"X-Correlation-Id": "case-9"})
        assert answer.status == 200, answer
    return node


STORY = "host.enrolled host.confirmed host.active host.draining host.undrained host.quarantined host.released".split()


def test_it_is_the_trails_own_lines_in_order(plane):
    """Every line about the node and no other, byte for byte as in the trail, alerts included."""
    node, other = storied(plane), storied(plane)
    found = timeline(plane, node.id)
    assert [line["event_type"] for line in found] == STORY
    assert {line["node_id"] for line in found} == {node.id}
    assert [line["seq"] for line in found] == sorted(line["seq"] for line in found)
    assert found == [line for line in plane.audit() if line.get("node_id") == node.id]
    assert {line["correlation_id"] for line in found[3:]} == {"case-9"}
    ill = native.enroll(plane)
    ill.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="disk full")
    assert "alert.raised" in [line["event_type"] for line in timeline(plane, ill.id)]
    assert plane.api("POST", f"/v1/nodes/{other.id}/decommission", {}).status == 200
    assert timeline(plane, other.id)[-1]["event_type"] == "host.decommissioned"


def test_names_that_begin_alike_and_words_that_look_like_lines_are_not_taken_for_it(plane):
    """Another node's id in a reason, in the very form of a line, and ids of which one begins the other."""
    short, long = storied(plane, node="rack-1"), storied(plane, node="rack-11")
    reason = 'x","node_id":"rack-1","y":"'
    assert plane.api("POST", f"/v1/nodes/{long.id}/quarantine", {"reason": reason}).status == 200
    assert timeline(plane, short.id)[-1]["event_type"] == "host.released"
    assert {line["node_id"] for line in timeline(plane, short.id)} == {"rack-1"}
    assert timeline(plane, long.id)[-1]["reason"] == reason


def test_it_comes_in_pages(plane):
    """`?limit=&cursor=`; what cannot be asked for is 400."""
    node = storied(plane)
    whole = timeline(plane, node.id)
    assert timeline(plane, node.id, "?limit=2") == whole
    page = plane.api("GET", f"/v1/nodes/{node.id}/timeline?limit=3").json()
    assert page["items"] == whole[:3] and page["next_cursor"]
    for query in ("limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=-1", "colour=red"):
        answer = plane.api("GET", f"/v1/nodes/{node.id}/timeline?{query}")
        assert (answer.status, answer.code) == (400, "bad_request"), query
    past = plane.api("GET", f"/v1/nodes/{node.id}/timeline?cursor={2**64 - 1}")
    assert (past.status, past.json()) == (200, {"items": [], "next_cursor": None})


def test_it_is_for_those_who_may_see_the_node(plane, tenants):
    """Another tenant's operator: 404, as for a node that does not exist; without a credential 401."""
    (red, _), (blue, _) = tenants["red"], tenants["blue"]
    key = make_key(plane, "viewer", "--tenant", "red")["key"]
    status, _, body = curl(plane, "GET", f"/v1/nodes/{red.id}/timeline", key=key)
    assert status == 200 and [line["node_id"] for line in json.loads(body)["items"]] == [red.id]
    for id in (blue.id, "nobody", "%20"):
        status, _, body = curl(plane, "GET", f"/v1/nodes/{id}/timeline", key=key)
        assert (status, code_of(body)) == (404, "node_not_found"), id
    assert curl(plane, "GET", f"/v1/nodes/{red.id}/timeline")[0] == 401


def test_the_command_line_tells_it(plane):
    """`node show ID --timeline`: a row each, or with `--json` the lines as they are in the trail."""
    node = storied(plane)
    done = run(ENLIST, "node", "show", node.id, "--timeline", "--dir", plane.dir)
    head, *rows = done.out.splitlines()
    assert head.split() == ["AT", "EVENT", "ACTOR", "SOURCE", "CORRELATION", "DETAIL"]
    assert [row.split()[1] for row in rows] == STORY
    assert "case-9" in rows[-1] and "reason=odd" in rows[-2]
    lines = plane.cli("node", "show", node.id, "--timeline").out.splitlines()
    assert [json.loads(line) for line in lines] == timeline(plane, node.id)
    assert plane.cli("node", "show", "nobody", "--timeline", ok=False).error()["code"] == "node_not_found"


def test_it_survives_a_restart(plane_of_its_own):
    """The same lines after a kill."""
    plane = plane_of_its_own
    node = storied(plane)
    before = timeline(plane, node.id)
    plane.kill()
    plane.start()
    assert until(lambda: timeline(plane, node.id)[: len(before)] == before, "the trail is whole")
