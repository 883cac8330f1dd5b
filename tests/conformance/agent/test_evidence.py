"""What hosts say of themselves: read, kept, bounded, and what follows from it (GPU-06, GPU-24, GPU-34, D36 in part)."""

import contextlib
import time

import pytest

import native
from machine import ENLIST, run, until
from streams import Events

CLASSES = (
    "endpoint_unreachable server_tls_untrusted cert_expired identity_revoked_or_fenced endpoint_profile_drift "
    "recovery_enrollment_blocked disk_full clock_skew"
).split()
LATE = "2036-01-02T03:04:05Z"
"""After every certificate: an attempt before the one in use says nothing any more."""
KINDS = {"renewal_failing", "clock_skew", "endpoint_profile_drift", "disk_full"}


def alerts(plane, node_id: str) -> dict[str, dict]:
    """Open alerts about a node by kind."""
    return {alert["kind"]: alert for alert in plane.items(f"/v1/alerts?node={node_id}")}


def listed(plane, node_id: str) -> dict:
    return next(node for node in plane.nodes() if node["node_id"] == node_id)


def failing(plane, word: str) -> int:
    """How many nodes say this, as the metrics have it."""
    name = f'enlist_node_failures{{class="{word}"}} '
    metrics = plane.api("GET", "/metrics").body.decode()
    return next(int(line.removeprefix(name)) for line in metrics.splitlines() if line.startswith(name))


@contextlib.contextmanager
def speaking(plane, token: str | None = None):
    """A node with an open live stream: its machine, and the stream."""
    node = native.enroll(plane, token)
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        yield node, live
        live.close()


def say(live, **fields) -> None:
    """Says it, and waits until it was read."""
    live.evidence(**fields)
    live.next("ack")


def attempt(ok: bool, code: str = "") -> native.pb.Attempt:
    return native.pb.Attempt(at=LATE, ok=ok, code=code, correlation_id="c-7")


def everything(node) -> dict:
    places = {"cert": 1 << 20, "diagnostic": 2 << 20, "task_retry": 3 << 20, "runtime": 4 << 20}
    return {
        "cert_serial": node.serial,
        "cert_not_after": node.answer.not_after,
        "bundle_version": 1,
        "last_renewal": attempt(False, "unavailable"),
        "last_recovery": attempt(False, "token_superseded"),
        "clock_offset_ms": -1234,
        "disk_free_bytes": 5 << 20,
        "class": "disk_full",
        "detail": "no space left on device",
        "correlation_id": "c-8",
        "endpoint_profile_id": "east",
        "diagnostic_writable": False,
        "free_space": [
            native.pb.FreeSpace(name=name, path=f"/{name}", available_bytes=size) for name, size in places.items()
        ],
        "recovery_ready": True,
        "drift_count": 3,
        "observability_pressure": True,
    }


def shown(node) -> dict:
    """The same as REST shows it."""
    failed = {"at": LATE, "ok": False, "correlation_id": "c-7"}
    free = [("cert", 1 << 20), ("diagnostic", 2 << 20), ("task_retry", 3 << 20), ("runtime", 4 << 20)]
    return {
        **everything(node),
        "last_renewal": {**failed, "code": "unavailable"},
        "last_recovery": {**failed, "code": "token_superseded"},
        "free_space": [{"name": name, "path": f"/{name}", "available_bytes": size} for name, size in free],
        "terminal_url": None,
    }


def without(item: dict, *names: str) -> dict:
    return {name: value for name, value in item.items() if name not in names}


def test_everything_that_a_host_says_can_be_read(plane):
    """GPU-24: certificate, attempts and why they failed, profile, diagnostics, free space by name; REST and CLI."""
    with speaking(plane) as (node, live):
        say(live, **everything(node))
        found = plane.node(node.id)
        assert without(found["evidence"], "at") == shown(node)
        assert found["cert_not_after"] == node.answer.not_after
        assert plane.cli("node", "show", node.id).json()["evidence"] == found["evidence"]
        done = run(ENLIST, "node", "show", node.id, "--dir", plane.dir)
        for word in (
            "disk_full: no space left on device",
            f"{LATE} failed: unavailable (c-7)",
            f"{LATE} failed: token_superseded (c-7)",
            "cannot be written",
            "task_retry 3 MiB at /task_retry",
            "no: disk_full, node_observability_disk_pressure",
            "-1234 ms",
            "east",
        ):
            assert word in done.out, (word, done.out)


def test_it_outlives_a_restart_and_the_host(plane_of_its_own):
    """GPU-24, GPU-34: killed, started again, the host silent: its last word is still read, and is why it is ill."""
    plane = plane_of_its_own
    plane.policy("liveness.grace", "1s")
    with speaking(plane) as (node, live), Events(plane) as events:
        say(live, **everything(node))
        before = plane.node(node.id)
        # Told to those who watch when it is written down.
        ill = lambda n: n["node_id"] == node.id and n["health"]["reason"] == "disk_full"  # noqa: E731
        assert "disk_full" in events.wait("node", "its trouble was told", ill)["excluded"]
        until(lambda: KINDS & alerts(plane, node.id).keys() == {"renewal_failing", "disk_full"}, "alerts were raised")
        raised = alerts(plane, node.id)
    plane.kill()
    plane.start()
    after = until(lambda: (n := plane.node(node.id))["state"] == "inactive" and n, "the node fell silent")
    assert after["evidence"] == before["evidence"]
    assert after["health"]["reason"] == "disk_full" and "no space left" in after["health"]["evidence"]
    assert after["excluded"] == ["inactive", "disk_full", "node_observability_disk_pressure"]
    assert alerts(plane, node.id) == raised
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        say(live, last_renewal=attempt(True))
        until(lambda: not alerts(plane, node.id), "what is over was cleared")
        well = plane.node(node.id)
        assert (well["health"]["reason"], well["schedulable"], well["excluded"]) == (None, True, [])
        live.close()


def test_pressure_is_not_taken_for_silence(plane_of_its_own):
    """GPU-34: `node_observability_disk_pressure` stays the reason when the node falls silent; else it is out of reach."""
    plane = plane_of_its_own
    with speaking(plane) as (pressed, live), speaking(plane) as (quiet, other):
        say(live, observability_pressure=True)
        say(other)
        assert plane.node(pressed.id)["health"]["reason"] == "node_observability_disk_pressure"
        assert plane.node(quiet.id)["health"]["reason"] is None
        # Not before: either could have fallen silent by now.
        plane.policy("liveness.grace", "1s")
    until(lambda: {n["state"] for n in plane.nodes()} == {"inactive"}, "both fell silent")
    assert plane.node(pressed.id)["health"]["reason"] == "node_observability_disk_pressure"
    silent = plane.node(quiet.id)
    assert silent["health"]["reason"] == "endpoint_unreachable" and silent["excluded"] == ["inactive"]
    assert "no contact since" in silent["health"]["evidence"]


@pytest.mark.parametrize("word", CLASSES)
def test_each_class_keeps_work_away_and_is_the_health(plane, word):
    """GPU-06, GPU-24: the host's own word in list, show and metrics; drift is told apart from a bad credential."""
    with speaking(plane) as (node, live):
        assert listed(plane, node.id)["schedulable"] is True
        before = failing(plane, word)
        say(live, **{"class": word, "detail": "because"})
        item = listed(plane, node.id)
        assert (item["schedulable"], item["excluded"]) == (False, [word])
        assert item["health"]["reason"] == word and item["health"]["evidence"] == "reported by the host: because"
        since = item["health"]["since"]
        assert failing(plane, word) == before + 1
        say(live, **{"class": word, "detail": "still"})
        assert listed(plane, node.id)["health"]["since"] == since, "it began then"
        say(live)
        item = listed(plane, node.id)
        assert (item["schedulable"], item["excluded"]) == (True, []) and failing(plane, word) == before
        until(lambda: listed(plane, node.id)["health"]["reason"] is None, "nothing about it is open")


def test_every_other_reason_to_keep_work_away(plane):
    """GPU-24, D36: the state, draining, quarantine; all of them at once."""
    node = native.enroll(plane)
    assert listed(plane, node.id)["excluded"] == ["enrolled"]
    node.confirm()
    assert listed(plane, node.id)["excluded"] == []
    for act, words in [
        ("drain", ["draining"]),
        ("quarantine", ["draining", "quarantined"]),
        ("undrain", ["quarantined"]),
        ("release", []),
        ("revoke", ["revoked"]),
        ("reinstate", ["registered"]),
        ("decommission", ["decommissioned"]),
    ]:
        answer = plane.api("POST", f"/v1/nodes/{node.id}/{act}", {})
        assert answer.status == 200 and answer.json()["excluded"] == words, act
        assert plane.node(node.id)["schedulable"] is (not words)
    done = run(ENLIST, "node", "list", "--dir", plane.dir)
    assert any(node.id in row and "decommissioned" in row for row in done.out.splitlines())


@pytest.mark.parametrize(
    ("said", "kind", "word"),
    [
        ({"last_renewal": attempt(False, "issuer_unavailable")}, "renewal_failing", "see its evidence"),
        ({"class": "clock_skew"}, "clock_skew", "clock"),
        ({"clock_offset_ms": 300_001}, "clock_skew", "ahead"),
        ({"clock_offset_ms": -(2**63)}, "clock_skew", "behind"),
        ({"class": "endpoint_profile_drift"}, "endpoint_profile_drift", "endpoint profile"),
        ({"class": "disk_full"}, "disk_full", "written"),
    ],
)
def test_what_a_host_tells_is_an_alert_until_it_tells_otherwise(plane, said, kind, word):
    """GPU-06, GPU-24: one open alert of its kind, not counted up by the same word; cleared by a newer word."""
    with speaking(plane) as (node, live):
        say(live, **said)
        found = until(lambda: alerts(plane, node.id), "the alert was raised")
        assert found.keys() == {kind} and word in found[kind]["detail"] and found[kind]["count"] == 1
        assert plane.node(node.id)["health"]["reason"] is not None
        say(live, **said, disk_free_bytes=1)
        say(live)
        until(lambda: not alerts(plane, node.id), "the alert was cleared")
        story = [line["event_type"] for line in plane.items(f"/v1/nodes/{node.id}/timeline")]
        assert story.count("alert.raised") == story.count("alert.cleared") == 1


def test_a_clock_within_the_tolerance_is_good(plane_of_its_own):
    """GPU-24: hosts are told `clock.tolerance`; another one is applied to what was said before."""
    plane = plane_of_its_own
    with speaking(plane) as (node, live):
        say(live, clock_offset_ms=-300_000)
        plane.policy("clock.tolerance", "4m")
        until(lambda: "clock_skew" in alerts(plane, node.id), "the clock is too far off now")
        plane.policy("clock.tolerance", "6m")
        until(lambda: not alerts(plane, node.id), "and no more")
    with node.door() as door:
        live = door.live(node.id)
        assert live.next("welcome").clock_tolerance_ms == 360_000
        live.close()
    for value in ("999ms", "2d", "x"):
        assert plane.api("PUT", "/v1/policy", {"key": "clock.tolerance", "value": value}).status == 400


def test_a_renewal_and_a_new_enrollment_end_what_was_said_before(plane):
    """GPU-24: what is over for the control plane is cleared without another word of the host."""
    with speaking(plane) as (node, live):
        say(live, last_renewal=attempt(False, "unavailable"), **{"class": "disk_full"})
        until(lambda: alerts(plane, node.id).keys() == {"renewal_failing", "disk_full"}, "alerts were raised")
        node.renewed()
        assert alerts(plane, node.id).keys() == {"disk_full"}
    native.enroll(plane, plane.token(node=node.id, replace=True))
    assert alerts(plane, node.id).keys() == {"node_replaced"} and plane.node(node.id)["evidence"] is None


def test_the_same_trouble_in_a_new_life_is_told_anew(plane):
    """GPU-24: what the machine before it said is not this one's, and what this one says counts."""
    with speaking(plane) as (node, live):
        say(live, **{"class": "disk_full"})
        first = until(lambda: alerts(plane, node.id), "the alert was raised")["disk_full"]
    with speaking(plane, plane.token(node=node.id, replace=True)) as (again, live):
        assert again.id == node.id and plane.node(node.id)["excluded"] == []
        say(live, **{"class": "disk_full"})
        second = until(lambda: alerts(plane, node.id).get("disk_full"), "the alert was raised again")
        assert second["alert_id"] != first["alert_id"]


def test_a_node_in_quarantine_is_heard(plane):
    """D36: it may send evidence, which is shown; it is given no work."""
    with speaking(plane) as (node, live):
        assert plane.api("POST", f"/v1/nodes/{node.id}/quarantine", {"reason": "odd"}).status == 200
        say(live, diagnostic_writable=True, **{"class": "clock_skew"})
        found = plane.node(node.id)
        assert found["evidence"]["diagnostic_writable"] is True
        assert found["excluded"] == ["quarantined", "clock_skew"]


def test_hostile_words_are_bounded(plane):
    """GPU-24: long, steering, unknown and absurd: cut, left out, and nothing else happens."""
    hostile = "\x1b[2J\u202e" + "x" * 2000
    places = [native.pb.FreeSpace(name="cert", path=hostile, available_bytes=2**64 - 1)]
    places += [native.pb.FreeSpace(name=hostile, path=hostile)] * 4
    with speaking(plane) as (node, live):
        say(
            live,
            cert_serial=hostile,
            cert_not_after=hostile,
            bundle_version=2**64 - 1,
            last_renewal=native.pb.Attempt(at=hostile, code=hostile, correlation_id=hostile),
            clock_offset_ms=2**63 - 1,
            disk_free_bytes=2**64 - 1,
            detail=hostile,
            correlation_id=hostile,
            endpoint_profile_id=hostile,
            free_space=places,
            drift_count=2**64 - 1,
            **{"class": "on_fire"},
        )
        found = plane.node(node.id)["evidence"]
        assert found["class"] is None and found["detail"] == "[2J" + "x" * 197
        for name in ("correlation_id", "cert_serial", "cert_not_after", "endpoint_profile_id"):
            assert found[name] is None, name
        assert found["last_renewal"] == {"at": None, "ok": False, "code": None, "correlation_id": None}
        ((name, path),) = [(free["name"], free["path"]) for free in found["free_space"]]
        assert name == "cert" and path == found["detail"]
        assert found["bundle_version"] == plane.api("GET", "/v1/ca").json()["bundle_version"]
        until(lambda: alerts(plane, node.id).keys() == {"renewal_failing", "clock_skew"}, "it counts as told")
        assert all(len(alert["detail"]) < 120 for alert in alerts(plane, node.id).values())
        done = run(ENLIST, "node", "show", node.id, "--dir", plane.dir)
        assert done.code == 0 and "\x1b" not in done.out and "\u202e" not in done.out


def test_a_host_that_changes_its_mind_does_not_fill_the_trail(plane):
    """GPU-24: alternating words lead to a few lines, and the last one is the one that counts."""
    began = time.monotonic()
    with speaking(plane) as (node, live):
        for number in range(40):
            say(live, **{"class": "disk_full" if number % 2 else ""})
        say(live, **{"class": "disk_full"})
        until(lambda: alerts(plane, node.id).keys() == {"disk_full"}, "the last word counts")
        story = [line["event_type"] for line in plane.items(f"/v1/nodes/{node.id}/timeline")]
        # It is looked at every ten seconds.
        most = 3 + (time.monotonic() - began) / 10
        assert len([name for name in story if name.startswith("alert.")]) <= most, story


PROFILE = """
[endpoint_profile]
id = "east"
api_urls = ["https://a.example:8443", "https://b.example"]
terminal_url = "https://terminal.example"

[endpoint_profile.hosts]
"a.example" = "192.0.2.7"
"""


def test_the_endpoint_profile_reaches_hosts(plane_of_its_own):
    """GPU-06, GPU-24: with Confirm and on every stream, as written; without one nothing is sent."""
    plane = plane_of_its_own
    node = native.enroll(plane)
    assert not node.confirm().HasField("endpoint_profile")
    plane.stop()
    config = plane.dir / "enlist.toml"
    bare = config.read_text()
    config.write_text(bare + PROFILE)
    plane.start()
    expected = native.pb.EndpointProfile(
        id="east",
        api_urls=["https://a.example:8443", "https://b.example"],
        terminal_url="https://terminal.example",
        hosts={"a.example": "192.0.2.7"},
    )
    assert node.confirm().endpoint_profile == expected
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        assert live.next("endpoint_profile") == expected
        for id, terminal in (("west", None), ("east", "https://terminal.example")):
            say(live, endpoint_profile_id=id)
            found = plane.node(node.id)["evidence"]
            assert (found["endpoint_profile_id"], found["terminal_url"]) == (id, terminal)
        live.close()
    wrong = PROFILE.replace("east", "two words").replace("https://b", "http://b").replace("192.0.2.7", "nowhere")
    config.write_text(bare + wrong)
    done = run(ENLIST, "server", "check", "--dir", plane.dir)
    assert done.code != 0
    for key in ("endpoint_profile.id", "endpoint_profile.api_urls", "endpoint_profile.hosts.a.example"):
        assert key in done.err, done.err
    config.write_text(bare)
