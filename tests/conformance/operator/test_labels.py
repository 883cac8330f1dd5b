"""Labels of nodes: by token, by `node label`, by `PATCH /v1/agents`; shown, filtered by, and kept within tenants."""

import urllib.parse

import native
from machine import ENLIST, run
from selections import Operator, known
from terminal import shown


def labels(plane, node_id: str) -> dict:
    return plane.node(node_id)["labels"]


def listed(plane, *filters) -> list[str]:
    return [item["node_id"] for item in plane.cli("node", "list", *filters).lines()]


def test_a_token_labels_the_node_that_it_enrolls(plane):
    """On the token, in its list, in both audit lines, and on the node; a later token without labels leaves them."""
    wanted = {"env": "prod", "rack": "7"}
    minted = plane.cli("token", "create", "--node", "by-token", "--label", "env=prod", "--label", "rack=7").json()
    assert minted["labels"] == wanted
    assert plane.api("GET", f"/v1/tokens/{minted['token_id']}").json()["labels"] == wanted
    (made,) = [line for line in plane.audit("enrollment_token.created") if line["token_id"] == minted["token_id"]]
    assert made["labels"] == ["env=prod", "rack=7"]
    native.enroll(plane, minted["token"]).confirm()
    assert labels(plane, "by-token") == wanted
    (enrolled,) = [line for line in plane.audit("host.enrolled") if line["node_id"] == "by-token"]
    assert enrolled["labels"] == ["env=prod", "rack=7"]
    native.enroll(plane, plane.token(node="by-token", replace=True))
    assert labels(plane, "by-token") == wanted
    native.enroll(plane, plane.token(node="by-token", replace=True, labels={"env": "test"}))
    assert labels(plane, "by-token") == {"env": "test"}
    plane.restart()
    assert labels(plane, "by-token") == {"env": "test"}


def test_labels_change_one_by_one(plane):
    """`node label` sets and removes, leaves the others, and records a change once; `PATCH /v1/agents` sees the same ones."""
    known(plane, "one-by-one")
    assert plane.api("PATCH", "/v1/agents/one-by-one", {"labels": {"site": "lon", "rack": "7"}}).status == 200
    done = plane.cli("node", "label", "one-by-one", "env=prod", "rack-", "none-")
    assert done.json()["labels"] == {"site": "lon", "env": "prod"} == labels(plane, "one-by-one")
    assert plane.api("GET", "/v1/agents/one-by-one").json()["labels"] == {"site": "lon", "env": "prod"}
    plane.cli("node", "label", "one-by-one", "env=prod")
    lines = [line["labels"] for line in plane.audit("host.described") if line["node_id"] == "one-by-one"]
    assert lines == [["rack=7", "site=lon"], ["env=prod", "site=lon"]]
    text = run(ENLIST, "node", "show", "one-by-one", "--dir", plane.dir).out
    assert "env=prod,site=lon" in text, text


def test_labels_are_bounded_where_they_come_in(plane):
    """32 of a node, keys of 63 and values of 128 characters, nothing that steers a terminal; over REST 400, before a request exit 2."""
    known(plane, "bounded")
    full = {f"k{number}": "v" for number in range(32)}
    assert plane.api("POST", "/v1/nodes/bounded/label", {"set": full}).status == 200
    for body in (
        {"set": {"more": "v"}},
        {"set": {"-k": "v"}},
        {"set": {"k" * 64: "v"}},
        {"set": {"k": "v" * 129}},
        {"set": {"k": "a\u202eb"}},
        {"remove": ["a b"]},
        {"remove": [f"r{number}" for number in range(33)]},
        {"set": {"k0": "w"}, "remove": ["k0"]},
        {"set": {f"n{number}": "v" for number in range(33)}},
        {},
    ):
        answer = plane.api("POST", "/v1/nodes/bounded/label", body)
        assert (answer.status, answer.code) == (400, "bad_request"), body
    assert labels(plane, "bounded") == full
    assert plane.api("POST", "/v1/nodes/bounded/label", {"set": {"more": "v"}, "remove": ["k0"]}).status == 200
    assert plane.api("POST", "/v1/tokens", {"labels": {"-k": "v"}}).status == 400
    for command in (
        ("node", "label", "bounded"),
        ("node", "label", "bounded", "env"),
        ("node", "label", "bounded", "a=1", "a=2"),
        ("token", "create", "--label", "=x"),
        ("node", "list", "--label", "x"),
    ):
        done = plane.cli(*command, ok=False)
        assert (done.code, done.error()["code"]) == (2, "usage"), done


def test_every_label_of_a_filter_holds(plane):
    """`node list --label`, repeated; a comma in a value does not end it."""
    known(plane, "filter-1", "filter-2")
    plane.cli("node", "label", "filter-1", "of=filters", "note=a,b=c", r"path=\x")
    plane.cli("node", "label", "filter-2", "of=filters")
    assert listed(plane, "--label", "of=filters") == ["filter-1", "filter-2"]
    assert listed(plane, "--label", "of=filters", "--label", "note=a,b=c", "--label", r"path=\x") == ["filter-1"]
    assert listed(plane, "--label", "of=Filters") == []
    for bad in ("", "of", "of=filters,", "of=1,of=2", "of=\\"):
        answer = plane.api("GET", f"/v1/nodes?label={urllib.parse.quote(bad)}")
        assert (answer.status, answer.code) == (400, "bad_request"), bad


def test_labels_stand_in_wide_lists(plane):
    """The last column where there is room; where no node has one there is no such column at a terminal."""
    known(plane, "wide-1")
    plane.cli("node", "label", "wide-1", "of=wide")
    wide = shown(ENLIST, "node", "list", "--label", "of=wide", "--dir", plane.dir, columns=200)
    assert wide.lines()[0].rstrip().endswith("LABELS") and "of=wide" in wide.lines()[1], wide.lines()
    known(plane, "bare-1")
    bare = shown(ENLIST, "node", "list", "--search", "bare-1", "--dir", plane.dir, columns=200)
    assert "LABELS" not in bare.lines()[0] and "HOSTNAME" not in bare.lines()[0], bare.lines()


def test_who_may_label(plane):
    """An operator of the node's tenant; not a viewer, not one of another tenant, not one narrowed to a vCluster."""
    assert plane.api("POST", "/v1/tenants", {"name": "blue"}).status == 201
    assert plane.api("POST", "/v1/vclusters", {"name": "blue-v", "tenant": "blue"}).status == 201
    known(plane, "mine", tenant="blue", vcluster="blue-v")
    blue = Operator(plane, "operator", "--tenant", "blue")
    assert blue.cli("node", "label", "mine", "whose=blue").json()["labels"] == {"whose": "blue"}
    for other, code in (
        (Operator(plane, "viewer"), "forbidden"),
        (Operator(plane, "operator", "--tenant", "blue", "--vcluster", "blue-v"), "forbidden"),
        (Operator(plane, "operator", "--tenant", "default"), "node_not_found"),
    ):
        refused = other.cli("node", "label", "mine", "whose=mine", ok=False)
        assert (refused.code, refused.error()["code"]) == (3, code), refused
    assert labels(plane, "mine") == {"whose": "blue"}
    assert Operator(plane, "viewer", "--tenant", "default").cli("node", "list", "--label", "whose=blue").out == ""
