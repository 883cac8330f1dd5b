"""Acts on a selection of nodes: each node has a result, one that is refused ends nothing, and scripts say `--yes`."""

import contextlib
import socket
import threading

import pytest

import native
from machine import ENLIST, PATIENCE, run, scratch
from selections import Operator, known, label
from terminal import Terminal, plain, shown

VERBS = ("rotate", "revoke", "drain", "undrain", "quarantine", "release")


def draining(plane) -> set[str]:
    return {node["node_id"] for node in plane.nodes() if node["draining"]}


def results(done) -> dict[str, str]:
    return {line["node_id"]: line["result"] for line in done.lines()}


@pytest.fixture
def fleet(plane_of_its_own):
    """Six nodes: two vClusters, two tenants, two racks, and one that has ended."""
    plane = plane_of_its_own
    assert plane.api("POST", "/v1/tenants", {"name": "red"}).status == 201
    for name in ("ml", "web"):
        assert plane.api("POST", "/v1/vclusters", {"name": name}).status == 201
    known(plane, "ml-1", "ml-2", vcluster="ml")
    known(plane, "web-1", vcluster="web")
    known(plane, "gone-1", vcluster="ml")
    known(plane, "red-1", "red-2", tenant="red")
    for name, rack in (("ml-1", "7"), ("web-1", "7"), ("ml-2", "8"), ("red-1", "7")):
        label(plane, name, rack=rack, site="lon")
    assert plane.api("POST", "/v1/nodes/gone-1/revoke", {"reason": "lost"}).status == 200
    return plane


@pytest.mark.parametrize(
    "selection, selected",
    [
        (("--vcluster", "ml"), {"ml-1", "ml-2"}),
        (("--tenant", "red"), {"red-1", "red-2"}),
        (("--state", "registered"), {"ml-1", "ml-2", "web-1", "red-1", "red-2"}),
        (("--label", "rack=7"), {"ml-1", "web-1", "red-1"}),
        (("--label", "rack=7", "--label", "site=lon", "--tenant", "default"), {"ml-1", "web-1"}),
        (("--vcluster", "ml", "--label", "rack=8", "--state", "registered"), {"ml-2"}),
    ],
)
def test_a_selection_is_all_that_it_says_together(fleet, selection, selected):
    """Each selector, and several at once; a node that has ended is selected only by its state. A line for each node."""
    done = fleet.cli("node", "drain", *selection, "--yes")
    assert results(done) == dict.fromkeys(selected, "done")
    assert all(line["node"]["draining"] and line["error"] is None for line in done.lines())
    assert draining(fleet) == selected


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_selects_for_every_act(plane, verb):
    """Ids and hostnames, a line each, with comments and blank lines, from a file or from standard input."""
    names = [f"{verb}-{number}" for number in (1, 2)]
    nodes = [native.enroll(plane, plane.token(node=name), hostname=f"host-of-{name}") for name in names]
    for node in nodes:
        node.confirm()
    text = f"# the rack\n{names[0]}\n\n  host-of-{names[1]}  # by its hostname\n{names[1]}\n"
    file = scratch("selection") / "nodes.txt"
    file.write_text(text)
    for more, stdin in ((("-f", file), b""), (("--file", "-"), text.encode())):
        done = plane.cli("node", verb, *more, "--yes", stdin=stdin)
        assert results(done) == dict.fromkeys(names, "done")
        assert len(done.lines()) == 2, "one that is named twice is acted on once"
    event = {
        "rotate": "certificate.rotation_ordered",
        "revoke": "host.revoked",
        "drain": "host.draining",
        "quarantine": "host.quarantined",
    }.get(verb)
    if event:
        assert {line["node_id"] for line in plane.audit(event)} >= set(names)


def test_a_refusal_in_the_middle_is_exit_3_and_the_others_are_done(plane):
    """The refused one has its code and remedy in its line, and the error says how many there were."""
    for name in ("middle-1", "middle-3"):
        native.enroll(plane, plane.token(node=name)).confirm()
    known(plane, "middle-2")
    names = b"middle-1\nmiddle-2\nno-such-node\nmiddle-3\n"
    done = plane.cli("node", "rotate", "-f", "-", "--yes", stdin=names, ok=False)
    assert (done.code, done.error()["code"]) == (3, "nodes_refused"), done
    assert "2 of 4 nodes" in done.error()["message"]
    lines = {line["node_id"]: line for line in done.lines()}
    assert [line["result"] for line in done.lines()] == ["done", "refused", "refused", "done"]
    assert lines["middle-2"]["error"]["code"] == "no_certificate" and lines["middle-2"]["node"] is None
    assert lines["no-such-node"]["error"]["code"] == "node_not_found" and lines["no-such-node"]["error"]["hint"]
    assert all(plane.node(name)["rotation_ordered_at"] for name in ("middle-1", "middle-3"))
    people = run(ENLIST, "node", "rotate", "-f", "-", "--yes", "--dir", plane.dir, stdin=names)
    assert people.code == 3 and "node middle-2: no_certificate: " in people.out, people
    assert people.out.splitlines()[-1] == "4 nodes: 2 done, 2 refused", people


def test_without_a_terminal_a_selection_is_confirmed_with_yes(fleet):
    """Exit 3 with `confirmation_needed` and the number of nodes; nothing was changed. One node by its id asks nothing."""
    for more in ((), ("--json",)):
        done = run(ENLIST, "node", "drain", "--label", "rack=7", "--dir", fleet.dir, *more)
        assert done.code == 3 and "confirmation_needed" in done.err and "--yes" in done.err, done
    error = done.error()
    assert error["affected"] == 3 and "ml-1, red-1, web-1" in error["message"], error
    assert draining(fleet) == set()
    fleet.cli("node", "drain", "ml-1")
    assert draining(fleet) == {"ml-1"}


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_terminal_asks_with_the_number_of_nodes(fleet, answer):
    with Terminal(ENLIST, "node", "drain", "--vcluster", "ml", "--dir", fleet.dir) as terminal:
        asked = " ".join(terminal.until("Continue? [y/N] ").split())
        assert "2 nodes: ml-1, ml-2" in asked and not terminal.too_wide(), asked
        terminal.type(f"{answer}\n")
        assert terminal.end() == (0 if answer == "y" else 3), terminal.written
    assert draining(fleet) == ({"ml-1", "ml-2"} if answer == "y" else set())
    if answer == "y":
        assert "2 nodes: 2 done, 0 refused" in plain(terminal.written)
    done = shown(ENLIST, "node", "undrain", "--vcluster", "ml", "--yes", "--dir", fleet.dir)
    assert "Continue?" not in done.written


def test_an_empty_selection_says_so(fleet):
    """And one by a vCluster that is not there is refused: a name that is mistyped does not read as done."""
    assert fleet.api("POST", "/v1/vclusters", {"name": "empty"}).status == 201
    for selection, stdin in ((("--label", "rack=none"), b""), (("--vcluster", "empty"), b""), (("-f", "-"), b"# none\n")):
        done = fleet.cli("node", "revoke", *selection, stdin=stdin)
        assert done.out == "" and "no node is selected: nothing was changed" in done.err, done
    refused = fleet.cli("node", "revoke", "--vcluster", "mll", "--yes", ok=False)
    assert (refused.code, refused.error()["code"]) == (3, "vcluster_not_found"), refused


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--yes",),
        ("ml-1", "--vcluster", "ml"),
        ("ml-1", "--label", "rack=7"),
        ("ml-1", "-f", "-"),
        ("ml-1", "--yes"),
        ("--tenant", "red", "-f", "-"),
        ("--label", "rack"),
        ("--label", "rack=7", "--label", "rack=8", "--yes"),
        ("--state", "asleep"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(plane, arguments):
    """Exit 2 before anything is asked: neither id nor selection, both, two kinds, or a label that is none."""
    for verb in VERBS:
        done = plane.cli("node", verb, *arguments, ok=False)
        assert (done.code, done.error()["code"]) == (2, "usage"), done


@pytest.mark.parametrize("text", [b"a b\n", b"\xff\xfe\n", b"x" * 5000 + b"\n"])
def test_a_file_that_holds_something_else_is_refused_before_anything_is_done(fleet, text):
    done = fleet.cli("node", "drain", "-f", "-", "--yes", stdin=b"ml-1\n" + text, ok=False)
    assert (done.code, done.error()["code"]) == (2, "usage") and "line 2" in done.error()["message"], done
    assert draining(fleet) == set()


def test_a_tenants_operator_selects_none_of_anothers(fleet):
    """Neither by label, nor by state, nor by name; the tenant itself is not there for it."""
    red = Operator(fleet, "operator", "--tenant", "red")
    assert results(red.cli("node", "drain", "--label", "rack=7", "--yes")) == {"red-1": "done"}
    assert results(red.cli("node", "drain", "--state", "registered", "--yes")) == {"red-1": "done", "red-2": "done"}
    refused = red.cli("node", "drain", "--vcluster", "ml", "--yes", ok=False)
    assert (refused.code, refused.error()["code"]) == (3, "vcluster_not_found")
    refused = red.cli("node", "drain", "--tenant", "default", "--yes", ok=False)
    assert (refused.code, refused.error()["code"]) == (3, "tenant_not_found")
    refused = red.cli("node", "drain", "-f", "-", "--yes", stdin=b"ml-1\n", ok=False)
    assert refused.lines()[0]["error"]["code"] == "node_not_found"
    assert draining(fleet) == {"red-1", "red-2"}
    viewer = Operator(fleet, "viewer")
    refused = viewer.cli("node", "undrain", "--tenant", "red", "--yes", ok=False)
    assert refused.code == 3 and {line["error"]["code"] for line in refused.lines()} == {"forbidden"}


class Gate:
    """An operator socket that passes everything on, and holds back the answer to one request until it is opened."""

    def __init__(self, plane, held: str):
        self.target, self.held = str(plane.dir / "operator.sock"), held.encode()
        self.path = scratch("gate") / "operator.sock"
        self.reached, self.opened = threading.Event(), threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.target)
        threading.Thread(target=self.answers, args=(server, client), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.held in data:
                    self.reached.set()
                    self.opened.wait(PATIENCE)
                server.sendall(data)

    @staticmethod
    def answers(server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


def test_ctrl_c_ends_after_the_node_under_way_and_says_what_is_done(fleet):
    """The act that is under way is completed; what was done and what was not has a line each, and the exit code is 1."""
    gate = Gate(fleet, "/v1/nodes/red-1/drain")
    command = (ENLIST, "node", "drain", "--state", "registered", "--yes", "--socket", gate.path)
    with Terminal(*command) as terminal:
        assert gate.reached.wait(PATIENCE), terminal.read()
        terminal.interrupt()
        terminal.until("the command ends after the node that is under way")
        gate.opened.set()
        assert terminal.end() == 1, terminal.written
        text = plain(terminal.written)
    for name in ("ml-1", "ml-2", "red-1"):
        assert f"node {name} is registered, draining" in text, text
    for name in ("red-2", "web-1"):
        assert f"node {name}: not done" in text, text
    said = " ".join(text.split())
    assert "error: interrupted: " in said and "5 nodes: 3 done, 0 refused, 2 not done" in said, text
    assert draining(fleet) == {"ml-1", "ml-2", "red-1"}


def test_a_control_plane_that_goes_away_ends_the_command(fleet):
    """Exit 4: the node under way may be done, and the others have a line that says that they are not."""
    gate = Gate(fleet, "/v1/nodes/ml-2/drain")
    ended = []

    def drain() -> None:
        command = ("node", "drain", "--vcluster", "ml", "--label", "site=lon", "--yes", "--json", "--socket", gate.path)
        ended.append(run(ENLIST, *command))

    thread = threading.Thread(target=drain)
    thread.start()
    assert gate.reached.wait(PATIENCE)
    fleet.kill()
    gate.opened.set()
    thread.join(PATIENCE)
    (done,) = ended
    assert done.code == 4 and "1 done" in done.error()["message"], done
    assert results(done) == {"ml-1": "done", "ml-2": "failed"}
