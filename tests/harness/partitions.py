"""Replicas between which packets can be dropped, in either direction.

Each replica runs in a network namespace of its own. All namespaces have a link to one more, the router, which forwards between
them: a rule there (`ip rule ... iif LINK to ADDRESS blackhole`) drops what comes from one replica for another, without an answer, as
a broken cable would. What is lost while a link is cut is sent again by TCP when it is whole.

Clients are not cut off: what connects to a replica's port on loopback is passed into its namespace by a process of its own.
"""

import itertools
import os
import pathlib
import subprocess
import sys

from clusters import Cluster, Replica
from daemons import free_port
from machine import missing, need, until

PEER_PORT = 8444
ENTRANCE = pathlib.Path(__file__).with_name("entrance.py")
_networks = itertools.count()


def ip(*words) -> str:
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


class Network:
    """A router, and a namespace for each replica: number N has the address 10.77.N.2."""

    def __init__(self):
        for command in ("ip", "nsenter"):
            need(command)
        if os.geteuid() != 0:
            missing("the right to make network namespaces")
        self.name = f"enl-{os.getpid()}-{next(_networks)}"
        self.router = f"{self.name}-r"
        self.namespaces: list[str] = []
        self.cuts: set[tuple[int, int]] = set()
        self.made: list[str] = []
        self._add(self.router)
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        subprocess.run(["nsenter", f"--net=/run/netns/{self.router}", "sh", "-c", forward], check=True)

    def _add(self, namespace: str) -> None:
        ip("netns", "add", namespace)
        self.made.append(namespace)
        ip("-n", namespace, "link", "set", "lo", "up")

    def attach(self) -> int:
        """The number of a new namespace."""
        number = len(self.namespaces)
        namespace = f"{self.name}-{number}"
        self._add(namespace)
        self.namespaces.append(namespace)
        ip("link", "add", f"v{number}", "netns", self.router, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        for where, link, last in ((self.router, f"v{number}", 1), (namespace, "eth0", 2)):
            ip("-n", where, "addr", "add", f"10.77.{number}.{last}/24", "dev", link)
            ip("-n", where, "link", "set", link, "up")
        ip("-n", namespace, "route", "add", "default", "via", f"10.77.{number}.1")
        return number

    def cut(self, source: int, target: int) -> None:
        """Nothing gets from one to the other any more."""
        if (source, target) not in self.cuts:
            self._rule("add", source, target)
            self.cuts.add((source, target))

    def heal(self) -> None:
        """Everything gets everywhere."""
        for source, target in list(self.cuts):
            self._rule("del", source, target)
            self.cuts.discard((source, target))

    def _rule(self, verb: str, source: int, target: int) -> None:
        ip("-n", self.router, "rule", verb, "iif", f"v{source}", "to", f"{address(target)}/32", "blackhole")

    def close(self) -> None:
        for namespace in reversed(self.made):
            ip("netns", "del", namespace)
        self.made.clear()


def address(number: int) -> str:
    return f"10.77.{number}.2"


class CutReplica(Replica):
    """A replica in a namespace. Hosts and operators reach it on loopback, other replicas through the router."""

    def __init__(self, network: Network, first: "Replica | None" = None, init: tuple = ()):
        super().__init__(first, init)
        self.network, self.number = network, network.attach()
        self.namespace = f"/run/netns/{network.namespaces[self.number]}"
        self.prefix = ("nsenter", f"--net={self.namespace}")
        self.client_port, self.entrance = free_port(), None

    @property
    def peer_address(self) -> str:
        return f"{address(self.number)}:{PEER_PORT}"

    def launch(self, *arguments, env: dict | None = None) -> None:
        if self.entrance is None:
            command = [sys.executable, ENTRANCE, self.namespace, str(self.client_port)]
            self.entrance = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            assert self.entrance.stdout.readline() == b"listening\n"
        super().launch("--listen", f"127.0.0.1:{self.client_port}", *arguments, env=env)

    def close(self) -> None:
        super().close()
        if self.entrance:
            self.entrance.kill()
            self.entrance.wait()
            self.entrance.stdout.close()


class CutCluster(Cluster):
    """Replicas of which some can be cut off from others."""

    def __enter__(self) -> "CutCluster":
        self.network = Network()
        return super().__enter__()

    def replica(self) -> CutReplica:
        if self.replicas:
            return CutReplica(self.network, self.replicas[0])
        return CutReplica(self.network, init=self.init)

    def others(self, replica) -> list[CutReplica]:
        return [other for other in self.replicas if other is not replica]

    def cut_off(self, replica: CutReplica, direction: str = "both") -> None:
        """Drops what this replica sends to the others (`out`), what they send to it (`in`), or `both`."""
        for other in self.others(replica):
            self.cut(replica, other, direction)

    def cut(self, one: CutReplica, other: CutReplica, direction: str = "both") -> None:
        if direction in ("out", "both"):
            self.network.cut(one.number, other.number)
        if direction in ("in", "both"):
            self.network.cut(other.number, one.number)

    def heal(self) -> None:
        self.network.heal()

    def until_whole(self) -> None:
        """All links are whole, and every replica knows it."""
        self.heal()
        for replica in self.replicas:
            until(lambda replica=replica: replica.health()["ready"], f"replica {replica.id} is ready", patience=120)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.network.close()
