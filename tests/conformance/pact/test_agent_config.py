"""What the agent does with its configuration: kept, shown, gone on with while the control plane is away."""

import contextlib
import json
import signal

import pytest

import sysfs
from daemons import lasting_port
from machine import AGENT, run, until
from plane import ControlPlane
from sysfs import Machine

DEFAULTS = {"enforcement_mode": "observe", "whitelists": [], "regulated": False}


@pytest.fixture
def machine(plane):
    sysfs.allow(plane)
    made = []

    def make(node_id: str, *flags, **environment) -> Machine:
        made.append(Machine(plane, **environment).register(node_id, *flags))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()
        daemon.note_secrets()


def has(host: Machine, vcluster: str | None, config: dict):
    """Status and file say the same."""
    status = host.status() or {}
    return (status.get("vcluster"), status.get("config"), host.current_config()) == (vcluster, config, config)


def test_the_configuration_follows_the_assignment(plane, place, machine):
    """PACT-01, PACT-26, PACT-28, PACT-38: maintenance defaults without a vCluster; assign, change, move and unassign arrive as they happen, the certificate stays."""
    for name in ("follow-a", "follow-b"):
        plane.cli("vcluster", "create", name)
        sysfs.configure(plane, place, name, {"of": name})
    host = machine("follow-1").start().wait_connected()
    until(lambda: has(host, None, DEFAULTS), "maintenance mode")
    plain = run(AGENT, "status", "--dir", host.dir).out
    assert "maintenance mode" in plain, plain
    serial = host.serial()
    plane.cli("node", "assign", "follow-1", "follow-a")
    until(lambda: has(host, "follow-a", {"of": "follow-a"}), "the vCluster's document")
    sysfs.configure(plane, place, "follow-a", {"of": "follow-a", "n": [1, {"deep": None}]})
    until(lambda: has(host, "follow-a", {"of": "follow-a", "n": [1, {"deep": None}]}), "the change")
    sysfs.configure(plane, place, "follow-b", {"of": "follow-b", "secret": 1})
    plane.cli("node", "move", "follow-1", "follow-b")
    until(lambda: has(host, "follow-b", {"of": "follow-b", "secret": 1}), "the other vCluster's")
    own = sysfs.document(place, "own", {"secret": None, "own": True})
    plane.cli("node", "set-config", "follow-1", "--file", own)
    until(lambda: has(host, "follow-b", {"of": "follow-b", "own": True}), "the node's own over it")
    plane.cli("node", "unassign", "follow-1")
    until(lambda: has(host, None, {**DEFAULTS, "own": True}), "maintenance mode again")
    assert host.serial() == serial and plane.node("follow-1")["cert_serial"] == serial


def test_a_command_is_run_when_the_configuration_changes(plane, place, machine):
    """PACT-38: `on_config`, with the document on disk before it."""
    plane.cli("vcluster", "create", "hook-a")
    seen = place / "seen"
    host = machine("hook-1", "--vcluster", "hook-a")
    host.environment["ENLIST_AGENT_ON_CONFIG"] = f"cp,{host.dir}/config/current.json,{seen}"
    host.start().wait_connected()
    sysfs.configure(plane, place, "hook-a", {"hook": 7})
    until(lambda: seen.exists() and seen.read_bytes() and json.loads(seen.read_text()) == {"hook": 7}, "the hook ran")


def test_a_large_document_arrives_whole(plane, place, machine):
    """PACT-38: as large as a document may be, for the vCluster and for the node together."""
    plane.cli("vcluster", "create", "large-a")
    host = machine("large-1", "--vcluster", "large-a").start().wait_connected()
    large = {"text": "x" * (262_144 - len('{"text": ""}'))}
    sysfs.configure(plane, place, "large-a", large)
    until(lambda: host.current_config() == large, "the document")
    assert host.status()["config"] == large
    own = {"own": "y" * (262_144 - len('{"own": ""}'))}
    plane.cli("node", "set-config", "large-1", "--file", sysfs.document(place, "large-own", own))
    until(lambda: host.current_config() == {**large, **own}, "both")
    assert host.status()["channel"] == "up"


def test_a_damaged_cache_is_fetched_again(plane, place, machine):
    """PACT-23: what is half-written or changed is never taken for the configuration."""
    plane.cli("vcluster", "create", "damage-a")
    sysfs.configure(plane, place, "damage-a", {"whole": True})
    host = machine("damage-1", "--vcluster", "damage-a").start().wait_connected()
    until(lambda: host.current_config() == {"whole": True}, "the document")
    received, current = (host.dir / "config" / name for name in ("received.json", "current.json"))
    whole = received.read_bytes()

    def fetched() -> bool:
        """The daemon may be connected before it has looked at what is damaged."""
        try:
            return host.current_config() == {"whole": True}
        except ValueError:
            return False

    for damage in (b"", whole[: len(whole) // 2], whole.replace(b"whole", b"other"), b"\x00" * 100):
        host.kill()
        received.write_bytes(damage)
        current.write_bytes(b'{"half"')
        host.start().wait_connected()
        until(fetched, "fetched again")
    host.kill()
    current.write_bytes(b'{"changed": 1}')
    host.start().wait_connected()
    until(lambda: host.current_config() == {"whole": True}, "made again from what was received")


def test_quarantine_holds_the_configuration_back(plane, place, machine):
    """D36: nothing new while quarantined; what was missed comes with the release."""
    plane.cli("vcluster", "create", "quarantine-a")
    sysfs.configure(plane, place, "quarantine-a", {"n": 1})
    host = machine("quarantine-1", "--vcluster", "quarantine-a").start().wait_connected()
    until(lambda: host.current_config() == {"n": 1}, "the document")
    plane.cli("node", "quarantine", "quarantine-1")
    until(lambda: "quarantined" in host.reasons(), "quarantined")
    sysfs.configure(plane, place, "quarantine-a", {"n": 2})
    host.kill()
    host.start().wait_connected()
    assert host.status()["config"] == {"n": 1}
    plane.cli("node", "release", "quarantine-1")
    until(lambda: host.current_config() == {"n": 2}, "what was missed")


def test_it_goes_on_with_what_it_has_while_the_control_plane_is_away(place):
    """PACT-23, PACT-40: the control plane killed, then the agent killed and started: the configuration is there and said to be cached; both back, changes arrive again, and nobody enrolled twice."""
    listen = ("--listen", f"127.0.0.1:{lasting_port()}")
    plane = ControlPlane().found().start(*listen)
    with contextlib.closing(plane):
        sysfs.allow(plane)
        plane.cli("vcluster", "create", "away-a")
        sysfs.configure(plane, place, "away-a", {"n": 1})
        host = Machine(plane).register("away-1", "--vcluster", "away-a").start().wait_connected()
        try:
            until(lambda: has(host, "away-a", {"n": 1}), "the configuration")
            assert host.status()["config_state"]["cached"] is False
            plane.kill()
            until(lambda: host.status()["channel"] == "down", "the control plane is away")
            for _ in range(2):
                status = host.status()
                assert (status["vcluster"], status["config"]) == ("away-a", {"n": 1}), status
                assert status["config_state"]["cached"] is True and host.current_config() == {"n": 1}
                assert "cached" in run(AGENT, "status", "--dir", host.dir).out
                host.kill()
                assert has(host, "away-a", {"n": 1}), "without a daemon"
                host.start()
                until(lambda: "endpoint_unreachable" in host.reasons(), "it runs and finds nobody")
            host.process.send_signal(signal.SIGSTOP)
            plane.start(*listen)
            sysfs.configure(plane, place, "away-a", {"n": 2})
            host.process.send_signal(signal.SIGCONT)
            host.wait_connected()
            until(lambda: has(host, "away-a", {"n": 2}), "what was missed")
            assert host.status()["config_state"]["cached"] is False
            lines = [line for line in plane.audit("host.enrolled") if line["node_id"] == "away-1"]
            assert len(lines) == 1
        finally:
            host.stop()
            host.note_secrets()


def test_past_the_end_of_its_certificate_it_goes_on_and_tries_again(place):
    """Proves PACT-23: a host that cannot renew keeps its certificate until it ends, and its configuration after that; it goes on trying,
    and is back by itself, with a new certificate and what it missed, once the control plane answers."""
    listen = ("--listen", f"127.0.0.1:{lasting_port()}")
    plane = ControlPlane().found().start(*listen)
    with contextlib.closing(plane):
        sysfs.allow(plane)
        for key, value in {"profile.pact.lifetime": "60s", "liveness.interval": "1s", "liveness.grace": "5s"}.items():
            plane.policy(key, value)
        plane.cli("vcluster", "create", "past-a")
        sysfs.configure(plane, place, "past-a", {"n": 1})
        host = Machine(plane).register("past-1", "--vcluster", "past-a", "--profile", "pact").start().wait_connected()
        try:
            until(lambda: has(host, "past-a", {"n": 1}), "the configuration")
            plane.kill()
            last = host.serial()
            until(lambda: "endpoint_unreachable" in host.reasons(), "nobody answers")
            assert host.serial() == last and "cert_expired" not in host.reasons(), "it has its certificate until that ends"
            until(lambda: "cert_expired" in host.reasons(), "its certificate has ended", 120)
            assert host.process.poll() is None and has(host, "past-a", {"n": 1})
            assert host.status()["config_state"]["cached"] is True
            plane.start(*listen)
            sysfs.configure(plane, place, "past-a", {"n": 2})
            host.wait_connected(120)
            until(lambda: has(host, "past-a", {"n": 2}), "what was missed")
            assert host.serial() != last and plane.node("past-1")["state"] == "active"
        finally:
            host.stop()
            host.note_secrets()
