"""Renewals every few seconds under an open stream (PACT-20, PACT-22, D10, D32), and renewals that fail (PACT-23)."""

import threading

import sysfs
from machine import until
from sessions import HostSession, wait_open
from sysfs import Machine


def often(plane) -> None:
    """A new certificate every few seconds."""
    sysfs.allow(plane)
    plane.policy("profile.default.lifetime", "60s")
    plane.policy("profile.default.renew_before", "55s")


class Watch:
    """Looks at the channel all the time, and remembers every state that it had."""

    def __init__(self, host: Machine):
        self.host, self.seen, self.done = host, set(), threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self.done.is_set():
            self.seen.add((self.host.status() or {}).get("channel"))

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.done.set()
        self.thread.join()


def test_renewals_under_an_open_stream_break_nothing(plane_of_its_own, place):
    """PACT-20, PACT-22: five certificates one after the other; the channel is never down, the node never leaves active, every configuration change arrives, and a shell that is registered as a session stays open across them."""
    plane = plane_of_its_own
    often(plane)
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", "20s")
    plane.cli("vcluster", "create", "often-a")
    host = Machine(plane, ENLIST_AGENT_METRICS_TEXTFILE=str(place / "agent.prom"))
    host.register("often-1", "--vcluster", "often-a").start().wait_connected()
    shell = HostSession(host, "sh", kind="shell")
    shell.say(f"cd {host.dir}; echo $$")
    pid = shell.line()
    opened = [one["session_id"] for one in wait_open(plane, "often-1", 1)]
    try:
        serials = [host.serial()]
        with Watch(host) as watch:
            for change in range(5):
                until(lambda: host.serial() not in serials, "the next certificate", 60)
                serials.append(host.serial())
                sysfs.configure(plane, place, "often-a", {"change": change})
                until(lambda: host.current_config() == {"change": change}, "the change arrives")
                shell.say("cat identity/current/cert.pem | head -1; echo $$")
                assert "BEGIN CERTIFICATE" in shell.line() and shell.line() == pid
        assert watch.seen <= {"up", "switching"}, watch.seen
        shown = plane.node("often-1")
        assert [one["session_id"] for one in shown["sessions"]] == opened and not plane.audit("session.closed")
        assert shown["state"] == "active" and len({*serials}) == 6
        assert not [line for line in plane.audit("host.inactive") if line["node_id"] == "often-1"]
        kinds = {alert["kind"] for alert in plane.cli("alert", "list").lines()}
        assert not kinds & {"clone_suspected", "already_active", "renewal_failing"}, kinds
        figures = (place / "agent.prom").read_text()
        assert "enlist_agent_reconnects_total 0" in figures, figures
    finally:
        shell.close()
        host.stop()
        host.note_secrets()


def test_killed_at_any_moment_between_renewals_it_goes_on(plane_of_its_own):
    """PACT-22, PACT-23, D32: killed again and again while it renews, it never has to enroll again."""
    plane = plane_of_its_own
    often(plane)
    host = Machine(plane).register("killed-1").start().wait_connected()
    try:
        for _ in range(6):
            before = host.serial()
            # While the answer of a renewal is on its way, or just after.
            until(lambda: (host.dir / "renewal-key.pem").exists() or host.serial() != before, "a renewal", 60)
            host.kill()
            host.start().wait_connected()
            assert host.keys_match()
        assert sum(line["node_id"] == "killed-1" for line in plane.audit("host.enrolled")) == 1
        assert plane.node("killed-1")["state"] == "active"
    finally:
        host.stop()
        host.note_secrets()


def test_a_certificate_that_ended_without_a_recovery_token_comes_back_by_hardware(plane_of_its_own, place):
    """PACT-23, D20: degraded on the cached configuration until the control plane is there again; then the hardware, since there is no recovery token."""
    plane = plane_of_its_own
    often(plane)
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", "5s")
    host = Machine(plane).register("ended-1").start().wait_connected()
    try:
        until(lambda: host.current_config() is not None, "the configuration")
        config, lost = host.current_config(), host.serial()
        host.kill()
        until(lambda: (host.status() or {}).get("state") == "expired", "the certificate has ended", 90)
        for path in (host.dir / "recovery").iterdir():
            path.unlink()
        host.start().wait_connected(60)
        status = host.status()
        assert status["last_recovery"]["ok"] and status["config"] == config, status
        assert host.serial() != lost and host.node_id() == "ended-1"
        assert sum(line["node_id"] == "ended-1" for line in plane.audit("host.enrolled")) == 2
        assert not plane.audit("recovery.issued")
    finally:
        host.stop()
        host.note_secrets()
