"""A host of 000 in the very places that the document names, and through the life of its certificate."""

import datetime
import os
import signal
import subprocess

import pytest

import certs
import clocks
import evidence
import hosts
from daemons import lasting_port
from linked import mode, on_command_line
from machine import PATIENCE, clean_env, run, secret, until
from mounts import Etc
from plane import ControlPlane

DAY = 24


class PlfmHost:
    """A machine on which `plfm-agent` keeps its files in /etc/plfm-agent."""

    def __init__(self, names, plane, **environment):
        self.program, self.etc = names.bin / "plfm-agent", Etc()
        self.dir = self.etc.path / "plfm-agent"
        self.environment = {
            "ENLIST_AGENT_SERVER": plane.url,
            "ENLIST_AGENT_CA_FILE": str(plane.dir / "ca" / "bundle.pem"),
            **environment,
        }
        self.process: subprocess.Popen | None = None

    def __call__(self, *arguments, env: dict | None = None):
        return run(*self.etc.prefix, self.program, *arguments, env={**self.environment, **(env or {})})

    def start(self) -> "PlfmHost":
        """`plfm-agent run`: `unshare` and `sh` are replaced by it, so that its pid is this one's."""
        self.log = evidence.log("agent-err")
        with self.log.open("wb") as err:
            self.process = subprocess.Popen(
                [*self.etc.prefix, str(self.program), "run"],
                env=clean_env(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        return self

    def status(self) -> dict:
        return self("status", "--json").json()

    def connected(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.status()["channel"] == "up"

    def leaf(self):
        return certs.certificates((self.dir / "certs/agent.crt").read_bytes())[0]

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)
            clocks.sweep(self.process.pid)
        for key in self.dir.glob("identity/*/key.pem"):
            evidence.private_key("agent", key.read_bytes())


@pytest.fixture
def host(names, plane):
    made = []

    def make(plane=plane, **environment) -> PlfmHost:
        made.append(PlfmHost(names, plane, **environment))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_the_agent_starts_unenrolled(host, programs):
    """Proves PLFM-10: with a token and nothing else; neither certificate nor WireGuard configuration until it is let in.

    It starts while nobody answers, so that what it has before the enrollment can be looked at for as long as it takes.
    """
    plane = ControlPlane().found()
    port = lasting_port()
    plane.url = f"https://127.0.0.1:{port}"
    plane.start("--listen", f"127.0.0.1:{port}")
    token = hosts.mint(plane)
    plane.stop()
    try:
        new = host(plane, PLFM_ENROLLMENT_TOKEN=token["token"])
        assert not new.dir.exists()
        new.start()
        until(lambda: "not enrolled yet" in new.log.read_text(), "it has tried")
        shown = new.status()
        assert shown["state"] in ("unenrolled", "pending") and shown["node_id"] is None, shown
        assert (shown["cert_serial"], shown["cert_not_after"], shown["channel"]) == (None, None, "down")
        assert not (new.dir / "certs/agent.crt").exists() and not (new.dir / "identity/current").exists()
        assert not (new.dir / "wireguard").exists() or os.listdir(new.dir / "wireguard") == ["private.key"]
        issued = [path for path in new.dir.rglob("*") if path.is_file() and b"BEGIN CERT" in path.read_bytes()]
        assert issued == [], "no certificate of any kind, a request at most"
        plane.start("--listen", f"127.0.0.1:{port}")
        until(new.connected, "it is let in as soon as somebody answers")
        assert hosts.token(plane, token["token_id"])["used_by_host_id"] == new.status()["node_id"]
        assert new.status()["cert_serial"] == certs.serial(new.leaf())
    finally:
        plane.close()


PLACES = ("command line", "environment", "file")


@pytest.mark.parametrize("given", [PLACES[first:] for first in range(3)], ids=lambda given: given[0].replace(" ", "-"))
def test_a_token_comes_from_each_of_the_three_places(host, plane, given):
    """Proves PLFM-11, PLFM-12, PLFM-19: `/etc/plfm-agent/enrollment-token` itself; the more explicit place wins."""
    minted = {place: hosts.mint(plane) for place in given}
    new, arguments, env = host(), [], {}
    for place, token in minted.items():
        if place == "command line":
            arguments = ["--token", on_command_line(token["token"])]
        elif place == "environment":
            env = {"PLFM_ENROLLMENT_TOKEN": token["token"]}
        else:
            new.dir.mkdir(mode=0o700)
            secret(new.dir / "enrollment-token", token["token"] + "\n")
    done = new("enroll", *arguments, "--json", env=env)
    assert done.code == 0, done
    used = {place: hosts.token(plane, token["token_id"])["used_by_host_id"] for place, token in minted.items()}
    assert used == {place: done.json()["node_id"] if place == given[0] else None for place in given}
    for name, bits in (("certs/agent.key", 0o600), ("certs/agent.crt", 0o644), ("wireguard/private.key", 0o600)):
        assert mode(new.dir / name) == bits, name
    assert certs.uris(new.leaf())[0].endswith("/" + done.json()["node_id"])


def test_a_token_file_elsewhere_is_not_read(host, plane):
    """Proves PLFM-11: the name counts. Without it the agent is told of all three places."""
    new = host()
    new.dir.mkdir(mode=0o700)
    minted = hosts.mint(plane)
    secret(new.dir / "enrollment-token.txt", minted["token"])
    done = new("enroll", "--json")
    assert (done.code, done.error()["code"]) == (2, "token_missing"), done
    for word in ("--token", "PLFM_ENROLLMENT_TOKEN", "enrollment-token"):
        assert word in done.error()["hint"], word
    assert hosts.unused(plane, minted["token_id"])


def test_a_certificate_of_90_days_renews_itself(host, programs):
    """Proves PLFM-31: nothing happens until day 60; afterwards the agent has renewed without anybody's help.

    Jitter may add a twentieth of the 90 days.
    """
    plane = ControlPlane(env=clocks.shifted(0)).found()
    port = lasting_port()
    listen = ("--listen", f"127.0.0.1:{port}")
    plane.start(*listen)
    new = host(plane, PLFM_ENROLLMENT_TOKEN=hosts.mint(plane)["token"], **clocks.shifted(0))

    def later(days: int) -> None:
        new.stop()
        pid = plane.process.pid
        plane.stop()
        clocks.sweep(pid)
        plane.env = clocks.shifted(days * DAY)
        new.environment |= plane.env
        new.environment.pop("PLFM_ENROLLMENT_TOKEN", None)
        plane.start(*listen, "--accept-clock")
        new.start()
        until(new.connected, f"it is connected on day {days}")

    def renewals() -> list[dict]:
        return [line for line in plane.audit("certificate.renewed") if line["node_id"] == node]

    try:
        new.start()
        until(new.connected, "it is let in")
        node, first = new.status()["node_id"], new.leaf()
        assert certs.seconds(first) == 90 * 86400 + 60
        later(59)
        due = datetime.datetime.fromisoformat(new.status()["renew_at"]) - first.not_valid_before_utc
        assert 60 <= due.total_seconds() / 86400 <= 65
        assert renewals() == [] and certs.serial(new.leaf()) == certs.serial(first)
        later(66)
        until(lambda: certs.serial(new.leaf()) != certs.serial(first), "it renews by itself")
        until(lambda: plane.node(node)["cert_serial"] == certs.serial(new.leaf()), "both agree on it")
        (line,) = renewals()
        assert line["actor"] == f"node:{node}", "nobody ordered it"
        assert certs.public_der(new.leaf()) != certs.public_der(first) and certs.uris(new.leaf()) == certs.uris(first)
        later(100)
        assert plane.node(node)["state"] == "active" and len(plane.audit("host.enrolled")) == 1
    finally:
        new.stop()
        plane.close()
        clocks.sweep(plane.process.pid)
