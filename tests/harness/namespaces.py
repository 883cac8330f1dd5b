"""Hosts in network namespaces of their own, with real packets between them, and agents that make an overlay of them.

One namespace holds a bridge; every host, and the control plane, has a link to it. The network between them (the underlay) is
10.88.0.0/16 and fd88::/64; a host may have one family only. Nothing of it is in the namespace of the machine. A host's
/run/wireguard is a file system of its own, so that every one of them can call its interface wg0.
"""

import ipaddress
import itertools
import os
import re
import signal
import subprocess
import time

import evidence
from daemons import Daemon
from machine import AGENT, PATIENCE, clean_env, missing, need, tool, until
from partitions import ip
from plane import ControlPlane

PORT = 8443
PLANE = 1
"""The control plane's number in the underlay."""
_networks = itertools.count()
AS_CONFIGURED = {"ENLIST_AGENT_OVERLAY_BACKEND": ""}
"""An empty variable counts as none."""
PRIVATE = "mkdir -p /run/wireguard && mount -t tmpfs -o mode=755 none /run/wireguard && exec \"$@\""


class Underlay:
    """The bridge, and a namespace for each host."""

    def __init__(self):
        for command in ("ip", "nsenter", "unshare", "ping"):
            need(command)
        if os.geteuid() != 0:
            missing("the right to make network namespaces")
        self.name = f"ov-{os.getpid()}-{next(_networks)}"
        self.made: list[str] = []
        self.numbers = itertools.count(PLANE + 1)
        self.bridge = self.add("b")
        ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "br0", "up")

    def add(self, name: str) -> str:
        namespace = f"{self.name}-{name}"
        ip("netns", "add", namespace)
        self.made.append(namespace)
        ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def attach(self, number: int, families: str = "46") -> str:
        """A namespace with a link to the bridge, and an address of each family."""
        namespace = self.add(str(number))
        ip("link", "add", f"p{number}", "netns", self.bridge, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", self.bridge, "link", "set", f"p{number}", "master", "br0", "up")
        ip("-n", namespace, "link", "set", "eth0", "up")
        for family in families:
            self.address(namespace, number, family)
        return namespace

    def address(self, namespace: str, number: int, family: str, verb: str = "add") -> None:
        flags = ["nodad"] if family == "6" and verb == "add" else []
        ip("-n", namespace, "addr", verb, f"{outer(number, family)}/{64 if family == '6' else 16}", "dev", "eth0", *flags)

    def close(self) -> None:
        for namespace in reversed(self.made):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)

    def __enter__(self) -> "Underlay":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def outer(number: int, family: str) -> str:
    """A host's address in the underlay."""
    return f"fd88::{number:x}" if family == "6" else f"10.88.{number // 256}.{number % 256}"


def url(family: str = "4") -> str:
    at = outer(PLANE, family)
    return f"https://[{at}]:{PORT}" if family == "6" else f"https://{at}:{PORT}"


class OverlayPlane(ControlPlane):
    """A control plane in a namespace of the underlay."""

    def __init__(self, underlay: Underlay, init: tuple = ()):
        names = ("--listen", f"[::]:{PORT}", "--name", outer(PLANE, "4"), "--name", outer(PLANE, "6"))
        super().__init__(init=(*names, *init))
        self.namespace = underlay.attach(PLANE)
        self.prefix = inside(self.namespace)

    def overlay_of(self, node_id: str) -> dict:
        return self.node(node_id)["overlay"]


class OverlayHost(Daemon):
    """A host with an agent."""

    def __init__(self, plane: OverlayPlane, underlay: Underlay, families: str = "46", settings: str = "", **environment):
        super().__init__(plane, **environment)
        del self.environment["ENLIST_AGENT_SERVER"], self.environment["ENLIST_AGENT_CA_PIN"]
        self.environment.update(AS_CONFIGURED)
        self.underlay, self.families = underlay, families
        self.number = next(underlay.numbers)
        self.namespace = underlay.attach(self.number, families)
        self.prefix = (*inside(self.namespace), *private_run())
        self.settings = settings
        self.interface = "wg0"

    def enroll(self, *options, node: str | None = None, settings: str = "[overlay]\nenable = true\n") -> "OverlayHost":
        """With a token, over the first family that it has; `settings` is its agent.toml."""
        self.dir.mkdir(mode=0o700)
        (self.dir / "agent.toml").write_text(settings + self.settings)
        token = self.plane.token(**({"node": node} if node else {}))
        trust = "--ca-pin", self.plane.pin
        command = [AGENT, "enroll", "--server", url(self.families[0]), "--dir", self.dir, *trust, "--json", "--token", "-"]
        done = self.run(*command, *options, stdin=token)
        assert done.returncode == 0, (done.stdout, done.stderr)
        evidence.private_key("agent", (self.dir / "identity" / "current" / "key.pem").read_bytes())
        self.note_wireguard_key()
        return self

    def note_wireguard_key(self) -> None:
        key = self.dir / "wireguard" / "private.key"
        if key.exists():
            import base64

            evidence.key("wireguard", base64.b64decode(key.read_bytes()))

    def run(self, *command, stdin: str = "", patience: float = PATIENCE) -> subprocess.CompletedProcess:
        """A command in its namespace."""
        words = [*inside(self.namespace), *map(str, command)]
        return subprocess.run(
            words, input=stdin, capture_output=True, text=True, timeout=patience, check=False, env=clean_env(AS_CONFIGURED)
        )

    def beside(self, *command) -> subprocess.CompletedProcess:
        """A command that sees the agent's own /run/wireguard too."""
        words = ["nsenter", "-t", str(self.process.pid), "-n", "-m", *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def overlay(self) -> dict:
        """What its status says of the overlay; empty while the daemon says nothing."""
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log()}"
        return (self.status() or {}).get("overlay") or {}

    def wait_up(self, peers: int | None = None) -> "OverlayHost":
        """The interface is there, with so many peers if a number is given."""

        def up() -> bool:
            now = self.overlay()
            return now.get("state") == "up" and (peers is None or now["peers"] == peers)

        try:
            until(up, f"the overlay of host {self.number} is up with {peers} peers")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.overlay()}; {self.log()[-3000:]}") from None
        return self

    @property
    def address(self) -> str:
        return self.overlay()["address"]

    def pings(self, address: str, count: int = 1, wait: float = 1.0) -> bool:
        return self.run("ping", "-6", "-n", "-q", "-c", count, "-W", wait, "-i", "0.05", address).returncode == 0

    def wait_pings(self, address: str, patience: float = PATIENCE) -> float:
        """Until it gets an answer from there; how long that took."""
        began = time.monotonic()
        until(lambda: self.pings(address), f"host {self.number} reaches {address}", patience)
        return time.monotonic() - began

    def links(self) -> str:
        return self.run("ip", "-o", "link").stdout

    def has_interface(self) -> bool:
        return f" {self.interface}:" in self.links()

    def shown(self) -> dict[str, dict]:
        """What `wg show` tells of the interface: by public key, each peer's endpoint, addresses and keepalive."""
        need("wg")
        done = self.beside("wg", "show", self.interface, "dump")
        assert done.returncode == 0, done.stderr
        first, *rest = [line.split("\t") for line in done.stdout.splitlines()]
        self.shown_key, self.shown_port = first[1], int(first[2])
        names = ("psk", "endpoint", "allowed_ips", "handshake", "received", "sent", "keepalive")
        return {line[0]: dict(zip(names, line[1:])) for line in rest}

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Pinger:
    """A ping that goes on, and what was answered when."""

    def __init__(self, host: OverlayHost, address: str, every: float = 0.02):
        self.log = evidence.log("ping")
        command = [*inside(host.namespace), "ping", "-6", "-n", "-D", "-O", "-i", str(every), address]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def answers(self) -> list[tuple[float, int]]:
        """When each answer came, by the wall clock, and the number of what it answers."""
        found = re.findall(r"^\[(\d+\.\d+)\] \d+ bytes from .*icmp_seq=(\d+)", self.log.read_text(errors="replace"), re.M)
        return [(float(at), int(number)) for at, number in found]

    def wait_answers(self, more: int = 1) -> "Pinger":
        before = len(self.answers())
        until(lambda: len(self.answers()) >= before + more, "the ping is answered")
        return self

    def last_answer(self) -> float:
        answers = self.answers()
        return answers[-1][0] if answers else 0.0

    def wait_silence(self, seconds: float = 1.5, patience: float = PATIENCE) -> float:
        """Until nothing has been answered for so long; when the last answer came."""
        until(lambda: time.time() - self.last_answer() > seconds, "the ping is answered no more", patience)
        return self.last_answer()

    def end(self) -> tuple[int, int]:
        """How many were sent and answered."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE)
        text = self.log.read_text(errors="replace")
        sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", text).groups()
        return int(sent), int(received)

    def longest_silence(self) -> float:
        """Between two answers."""
        times = [at for at, _ in self.answers()]
        return max((later - earlier for earlier, later in zip(times, times[1:])), default=0.0)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Overlay:
    """An underlay, a control plane and hosts; all of it is gone in the end."""

    def __init__(self, init: tuple = ()):
        self.underlay = Underlay()
        self.hosts: list[OverlayHost] = []
        self.pingers: list[Pinger] = []
        try:
            self.plane = OverlayPlane(self.underlay, init)
            self.plane.found().start()
            self.plane.policy("failures.per_minute", "0")
        except BaseException:
            self.close()
            raise

    def host(self, families: str = "46", settings: str = "", **environment) -> OverlayHost:
        made = OverlayHost(self.plane, self.underlay, families, settings, **environment)
        self.hosts.append(made)
        return made

    def joined(self, *families: str) -> list[OverlayHost]:
        """Hosts that are enrolled and in the overlay, all of them with each other."""
        made = [self.host(each).enroll().start() for each in families]
        for host in made:
            host.wait_up(len(self.running()) - 1)
        return made

    def running(self) -> list[OverlayHost]:
        return [host for host in self.hosts if host.process and host.process.poll() is None]

    def ping(self, host: OverlayHost, address: str, every: float = 0.02) -> Pinger:
        made = Pinger(host, address, every)
        self.pingers.append(made)
        return made

    def all_reach_all(self, hosts: list[OverlayHost], patience: float = PATIENCE) -> None:
        addresses = {host: host.address for host in hosts}
        for one, other in itertools.permutations(hosts, 2):
            one.wait_pings(addresses[other], patience)

    def close(self) -> None:
        for pinger in self.pingers:
            pinger.close()
        for host in self.hosts:
            host.close()
        if hasattr(self, "plane"):
            self.plane.close()
        self.underlay.close()

    def __enter__(self) -> "Overlay":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def inside(namespace: str) -> tuple:
    return "nsenter", f"--net=/run/netns/{namespace}"


def private_run() -> tuple:
    return "unshare", "--mount", "--propagation", "private", "sh", "-c", PRIVATE, "sh"


def is_inside(address: str) -> bool:
    """Whether this is an address for private networks, which overlays use."""
    return ipaddress.ip_address(address) in ipaddress.ip_network("fc00::/7")
