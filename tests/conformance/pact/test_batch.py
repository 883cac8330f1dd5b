"""A file of machines: CSV and JSON lines, bad lines, repeats, kills in the middle, long files (PACT-32)."""

import json
import signal
import subprocess
import time

import pytest

import pacts
import racks
from machine import ENLIST, PATIENCE, clean_env, run, until
from operators import code_of, curl, make_key
from plane import ControlPlane
from terminal import Terminal, plain


def batch(plane, text: str | bytes, *flags, ok: bool = True):
    text = text.encode() if isinstance(text, str) else text
    return plane.cli("node", "register", "--batch", "-", *flags, ok=ok, stdin=text)


def known(plane, prefix: str) -> set[str]:
    return {node["node_id"] for node in plane.nodes() if node["node_id"].startswith(prefix)}


def test_each_line_has_its_result(plane, place):
    """PACT-32: not atomic; refused lines do not keep the others out, and the header is line 1."""
    racks.vcluster(plane, "rack")
    shared = racks.mac()
    file = place / "nodes.csv"
    file.write_text(
        "node_id,mac,bmc_serial,vcluster\n"
        f"b-1,{shared},S1,rack\n"
        f"b-2,{shared},S2,\n"
        f'b-3,"{racks.mac()}; {racks.mac()}","S 3, quoted",\n'
        "\n"
        "b-4,00:00:00:00:00:00,S4,\n"
        f"b-5,{racks.mac()},S1,\n"
        f"b-6,{racks.mac()},,nowhere\n"
        f"not an id,{racks.mac()},,\n"
        f"b-7,{racks.mac()}\n"
        f"b-8,{racks.mac()},S8,,,,\n"
    )
    done = run(ENLIST, "node", "register", "--batch", file, "--dir", plane.dir, "--json")
    assert done.code == 3 and done.error()["code"] == "lines_refused" and "6 of 9" in done.error()["message"], done
    assert [(line["line"], line["node_id"], line["ok"], line["code"]) for line in done.lines()] == [
        (2, "b-1", True, None),
        (3, "b-2", False, "hardware_identity_conflict"),
        (4, "b-3", True, None),
        (6, "b-4", False, "mac_invalid"),
        (7, "b-5", False, "hardware_identity_conflict"),
        (8, "b-6", False, "vcluster_not_found"),
        (9, "not an id", False, "bad_request"),
        (10, "b-7", True, None),
        (11, None, False, "bad_request"),
    ]
    assert known(plane, "b-") == {"b-1", "b-3", "b-7"}
    assert plane.node("b-1")["vcluster"] == "rack" and plane.node("b-3")["hardware"]["bmc_serial"] == "S 3, quoted"
    said = run(ENLIST, "node", "register", "--batch", file, "--dir", plane.dir)
    assert said.code == 3 and "9 lines: 0 registered, 3 registered before, 6 refused" in said.out
    assert "line 6: node b-4: mac_invalid: " in said.out and "line 2:" not in said.out


def test_json_lines_and_what_spreadsheets_write_are_read_alike(plane):
    """PACT-32: a byte order mark, CRLF, several addresses, columns in any order; a line of JSON each."""
    a, b, c = racks.mac(), racks.mac(), racks.mac()
    rows = f"\ufeffbmc_serial,node_id,mac\r\nJ1,j-1,{a};{b}\r\n,,\r\n"
    assert [line["line"] for line in batch(plane, rows).lines()] == [2]
    objects = [{"node_id": "j-2", "mac": [c]}, {"node_id": "j-3", "mac": racks.mac(), "bmc_serial": "J3"}]
    text = "".join(json.dumps(each) + "\n" for each in objects) + '{"node_id": "j-4", "macs": []}\nnonsense\n'
    done = batch(plane, text, ok=False)
    assert [(line["line"], line["ok"]) for line in done.lines()] == [(1, True), (2, True), (3, False), (4, False)]
    assert plane.node("j-1")["hardware"]["macs"] == sorted([a, b]) and plane.node("j-3")["hardware"]["bmc_serial"] == "J3"


def test_a_line_that_cannot_be_read_is_refused_alone(plane):
    """PACT-32: not UTF-8, far too long, control characters; the lines around them are registered."""
    head = f"node_id,mac\nu-1,{racks.mac()}\n".encode()
    bad = b"u-2,\xff\xfe\n" + b"u-3," + b"x" * 100_000 + b"\n" + b"u-4,\x1b[2J\n" + b'u-5,"open\n'
    done = batch(plane, head + bad + f"u-6,{racks.mac()}\n".encode(), ok=False)
    assert done.code == 3
    assert [(line["line"], line["ok"]) for line in done.lines()] == [
        (2, True),
        (3, False),
        (4, False),
        (5, False),
        (6, False),
        (7, True),
    ]
    assert "\x1b" not in done.out and known(plane, "u-") == {"u-1", "u-6"}


@pytest.mark.parametrize("text", ["", "n1,02:00:00:00:00:01\n", "node_id;mac\n", "node_id,serial\n", "node_id,mac,mac\n"])
def test_a_file_without_a_header_is_refused_before_anything_is_sent(plane, text):
    """PACT-32: exit code 2 and what a header looks like."""
    before = len(plane.nodes())
    done = batch(plane, text, ok=False)
    assert done.code == 2 and "node_id,mac" in done.error()["hint"], done
    assert len(plane.nodes()) == before
    missing = plane.cli("node", "register", "--batch", "/nonexistent.csv", ok=False)
    assert missing.code == 1
    for both in (("n1", "--batch", "f"), ("--batch", "f", "--mac", "02:00:00:00:00:01"), ()):
        assert plane.cli("node", "register", *both, ok=False).code == 2


def test_a_repeat_is_done_already(plane):
    """PACT-32: the same file again is `ok` with `node_already_enrolled`, exit code 0, and no second audit line."""
    text = racks.csv([f"rep-{n}" for n in range(30)])
    text += text.splitlines()[1] + "\n"  # a line that stands twice
    first = batch(plane, text).lines()
    assert [line["code"] for line in first] == [None] * 30 + ["node_already_enrolled"] and all(line["ok"] for line in first)
    again = batch(plane, text).lines()
    assert len(again) == 31 and all((line["ok"], line["code"]) == (True, "node_already_enrolled") for line in again)
    other = text.replace(text.splitlines()[1].split(",")[1], racks.mac())
    changed = batch(plane, other, ok=False)
    assert changed.code == 3 and changed.lines()[0]["code"] == "node_already_enrolled" and not changed.lines()[0]["ok"]
    made = [line["node_id"] for line in plane.audit("host.registered") if line["node_id"].startswith("rep-")]
    assert len(made) == len(set(made)) == 30


def test_a_repeat_that_names_another_vcluster_says_where_the_node_stays(plane):
    """PACT-32: a repeat moves nobody, and does not keep quiet about it."""
    for name in ("stay-a", "stay-b"):
        racks.vcluster(plane, name)
    text = f"node_id,mac,vcluster\nstay-1,{racks.mac()},stay-a\n"
    batch(plane, text)
    (again,) = batch(plane, text.replace("stay-a", "stay-b")).lines()
    assert (again["ok"], again["code"]) == (True, "node_already_enrolled")
    assert again["notice"] == "it was registered before and stays in vCluster stay-a"
    assert plane.node("stay-1")["vcluster"] == "stay-a"
    (same,) = batch(plane, text).lines()
    assert "notice" not in same


def test_flags_apply_to_lines_that_say_nothing(plane):
    """PACT-32: --vcluster, --profile and --tenant for the whole file; a column has the last word."""
    for name in ("flag-a", "flag-b"):
        racks.vcluster(plane, name)
    text = f"node_id,mac,vcluster\nfl-1,{racks.mac()},\nfl-2,{racks.mac()},flag-b\n"
    batch(plane, text, "--vcluster", "flag-a", "--profile", "pact")
    assert [plane.node(id)["vcluster"] for id in ("fl-1", "fl-2")] == ["flag-a", "flag-b"]
    assert plane.node("fl-1")["profile"] == "pact"


def test_a_kill_in_the_middle_loses_nothing_and_a_repeat_completes_it(place):
    """PACT-32, I10: command and control plane are killed while lines are registered; what was reported is there, and a repeat
    registers the rest, each node once."""
    with ControlPlane() as plane:
        file = place / "nodes.csv"
        count = 6000
        file.write_text(racks.csv([f"k-{n}" for n in range(count)]))
        command = [str(ENLIST), "node", "register", "--batch", str(file), "--dir", str(plane.dir), "--json"]
        out = place / "out"
        with out.open("wb") as stdout:
            process = subprocess.Popen(command, env=clean_env(), stdout=stdout, stderr=subprocess.DEVNULL)
        try:
            until(lambda: out.read_bytes().count(b"\n") >= 500, "some lines have a result")
        finally:
            process.kill()
            process.wait()
        plane.kill()
        reported = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
        assert 500 <= len(reported) < count, "it was not killed in the middle"
        plane.start()
        there = known(plane, "k-")
        assert {line["node_id"] for line in reported if line["ok"]} <= there
        again = run(*command)
        assert again.code == 0, again.err
        results = again.lines()
        assert len(results) == count and all(line["ok"] for line in results)
        assert {line["node_id"] for line in results if line["code"]} == there
        assert len(known(plane, "k-")) == count
        made = [line["node_id"] for line in plane.audit("host.registered")]
        assert len(made) == len(set(made)) == count
        assert plane.cli("audit", "verify").json()["ok"]


def peak_of(process: subprocess.Popen) -> int:
    """The most memory that a process has had, in KiB, as seen last before its end."""
    peak = 0
    while process.poll() is None:
        with open(f"/proc/{process.pid}/status") as status:
            found = [line.split()[1] for line in status if line.startswith("VmHWM:")]
        peak = max([peak, *map(int, found)])
        time.sleep(0.01)
    return peak


def test_a_long_file_takes_no_more_memory_than_a_short_one(plane_of_its_own, place):
    """PACT-32: the file is read in parts; the peak of the command's memory does not grow with the number of lines."""
    plane = plane_of_its_own
    peaks = {}
    for count in (2_000, 20_000):
        file = place / f"{count}.csv"
        file.write_text(racks.csv([f"m{count}-{n}" for n in range(count)]))
        command = [str(ENLIST), "node", "register", "--batch", str(file), "--dir", str(plane.dir)]
        before = time.monotonic()
        process = subprocess.Popen(command, env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            peaks[count] = peak_of(process)
        finally:
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        assert out.decode() == f"{count} lines: {count} registered, 0 registered before, 0 refused\n"
        print(f"{count} lines: {count / (time.monotonic() - before):.0f} a second, peak {peaks[count]} KiB")
    assert peaks[20_000] < peaks[2_000] + 16 * 1024, peaks


def test_progress_is_shown_at_a_terminal_and_nowhere_else(plane, place):
    """A bar on standard error while lines are registered, gone at the end; in a pipe nothing but the result."""
    pacts.allow_hardware(plane)
    file = place / "nodes.csv"
    file.write_text(racks.csv([f"pg-{n}" for n in range(8000)]))
    line = ("node", "register", "--batch", file, "--dir", plane.dir)
    with Terminal(ENLIST, *line, columns=80) as terminal:
        assert terminal.end() == 0, plain(terminal.written)
        assert "registering: [" in terminal.written and "%" in terminal.written
        assert terminal.lines()[-2:] == ["8000 lines: 8000 registered, 0 registered before, 0 refused", ""]
        assert not terminal.too_wide()
    piped = run(ENLIST, *line)
    assert piped.code == 0 and piped.err == "" and "registering" not in piped.out


def test_who_registers_machines_that_policy_refuses_is_told(place):
    """D05: hardware is off until an operator turns it on, and registering says so; once it is on, nothing is said."""
    with ControlPlane() as plane:
        for name, told in (("off-1", True), ("on-1", False)):
            done = run(ENLIST, "node", "register", name, "--mac", racks.mac(), "--dir", plane.dir)
            assert done.code == 0, done
            assert ("enlist policy set attestors join-token,recovery-token,hardware" in done.err) is told, done
            pacts.allow_hardware(plane)


def test_an_interrupted_batch_says_how_far_it_came(plane, place):
    """Ctrl-C: what was registered, what may be, and that a repeat is safe."""
    file = place / "nodes.csv"
    file.write_text(racks.csv([f"int-{n}" for n in range(30_000)]))
    with Terminal(ENLIST, "node", "register", "--batch", file, "--dir", plane.dir, columns=140) as terminal:
        terminal.until("registering: [")
        terminal.interrupt()
        assert terminal.end() == 1
        said = " ".join(terminal.lines())
    assert "interrupted" in said and "registered before" in said and "run the command again" in said, said
    left = len(known(plane, "int-"))
    assert 0 < left < 30_000
    until(lambda: plane.api("GET", "/readyz").status == 200, "the control plane serves")


def test_a_control_plane_that_goes_away_is_said_with_what_was_done(place):
    """PACT-32: exit code 4, how far it came, and that the file can be given again."""
    with ControlPlane() as plane:
        file = place / "nodes.csv"
        file.write_text(racks.csv([f"aw-{n}" for n in range(30_000)]))
        command = [str(ENLIST), "node", "register", "--batch", str(file), "--dir", str(plane.dir), "--json"]
        out = place / "out"
        with out.open("wb") as stdout:
            process = subprocess.Popen(command, env=clean_env(), stdout=stdout, stderr=subprocess.PIPE)
        try:
            until(lambda: out.stat().st_size > 0, "a line has a result")
            plane.process.send_signal(signal.SIGKILL)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        plane.process.wait()
        message = json.loads(err)["error"]["message"]
        assert process.returncode == 4 and "up to line" in message and "run again" in message, err


def test_the_batch_of_the_api_is_bounded(plane):
    """PACT-32: results by place from 1; 4 MiB for operators, refused beyond; a stranger may send 64 KiB."""
    nodes = [{"node_id": f"rest-{n}", "mac": racks.mac()} for n in range(300)]
    answer = plane.api("POST", "/v1/nodes/batch", {"nodes": [*nodes, {"node_id": "rest-x", "mac": "x"}]})
    assert answer.status == 200, answer
    told = answer.json()
    assert (told["succeeded"], told["failed"]) == (300, 1)
    assert [line["line"] for line in told["results"]] == list(range(1, 302))
    assert told["results"][300]["code"] == "mac_invalid" and told["results"][0]["node_id"] == "rest-0"
    assert plane.api("POST", "/v1/nodes/batch", {"nodes": [{"id": "x"}]}).code == "bad_request"
    assert plane.api("POST", "/v1/nodes/batch", {"nodes": []}).json()["results"] == []
    large = {"nodes": [{"node_id": "big", "mac": [racks.mac(1 << 30)], "bmc_serial": "x" * 3_000_000}]}
    assert plane.api("POST", "/v1/nodes/batch", large).json()["results"][0]["code"] == "bad_request"
    large["nodes"][0]["bmc_serial"] = "x" * (4 << 20)
    assert (plane.api("POST", "/v1/nodes/batch", large).code) == "too_large"
    body = json.dumps({"nodes": [{"node_id": "s", "mac": "x" * 100_000}]}).encode()
    stranger = plane.https("POST", "/v1/nodes/batch", body, {"Content-Type": "application/json"})
    assert stranger.status in (401, 413), stranger
    key = make_key(plane, "viewer")["key"]
    json_type = ("-H", "Content-Type: application/json", "-d")
    status, _, text = curl(plane, "POST", "/v1/nodes/batch", *json_type, '{"nodes":[]}', key=key)
    assert (status, code_of(text)) == (403, "forbidden")
    assert plane.api("GET", "/v1/nodes/batch").status == 404  # a node may be called so
