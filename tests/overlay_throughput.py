"""TCP throughput between two agents, beside the same tunnel without an agent and beside wireguard-go, in the same namespaces.

    target/venv/bin/python tests/overlay_throughput.py [SECONDS] [ROUNDS]

Needs root, iperf3, wg and wireguard-go, and programs built with `cargo build --release -p enlist -p enlist-agent --example bare_tunnel`
(ENLIST_BIN_DIR=target/release). The rounds take turns, so that all meet the same noise. Prints a table for docs/benchmarks.md.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("ENLIST_BIN_DIR", str(ROOT / "target" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "harness"))

from machine import BIN, until  # noqa: E402
from namespaces import Overlay, inside, outer, private_run  # noqa: E402


def keypair() -> tuple[str, str]:
    private = subprocess.run(["wg", "genkey"], capture_output=True, text=True, check=True).stdout.strip()
    public = subprocess.run(["wg", "pubkey"], input=private, capture_output=True, text=True, check=True).stdout.strip()
    return private, public


def measured(server, client, address: str, seconds: int) -> float:
    """Mbit/s from one to the other."""
    listening = subprocess.Popen([*inside(server.namespace), "iperf3", "-s", "-1", "-B", address], stdout=subprocess.DEVNULL)
    until(lambda: ":5201" in server.run("ss", "-tln").stdout, "iperf3 listens")
    done = client.run("iperf3", "-6", "-c", address, "-t", seconds, "-J", patience=seconds + 60)
    listening.wait(30)
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6


class Bare:
    """A tunnel between the two hosts, at another port and another address."""

    def __init__(self, name: str, port: int, hosts, program):
        self.address = f"fd99:{port:x}::1"
        pairs, processes = [keypair(), keypair()], []
        for number, host in enumerate(hosts):
            other = 1 - number
            processes.append(program(name, port, host, pairs[number][0], pairs[other][1], hosts[other], f"fd99:{port:x}::{other}"))
            until(lambda: f" {name}:" in host.links(), f"{name} is there")
            host.run("ip", "link", "set", name, "mtu", "1420", "up")
            host.run("ip", "-6", "addr", "add", f"fd99:{port:x}::{number}/64", "dev", name, "nodad")
        self.processes = processes
        until(lambda: hosts[0].pings(self.address), f"{name} carries packets")

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def gotatun(name, port, host, private, public, other, allowed):
    endpoint = f"{outer(other.number, '4')}:{port}"
    command = [BIN / "examples" / "bare_tunnel", name, port, private, public, endpoint, allowed]
    return subprocess.Popen([*inside(host.namespace), *map(str, command)], stdout=subprocess.DEVNULL)


def wireguard_go(name, port, host, private, public, other, allowed):
    process = subprocess.Popen([*inside(host.namespace), *private_run(), "wireguard-go", "-f", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    beside = ["nsenter", "-t", str(process.pid), "-n", "-m"]
    until(lambda: subprocess.run([*beside, "wg", "show", name], capture_output=True).returncode == 0, "wireguard-go runs")
    setting = ["wg", "set", name, "listen-port", str(port), "private-key", "/dev/stdin", "peer", public]
    setting += ["endpoint", f"{outer(other.number, '4')}:{port}", "allowed-ips", f"{allowed}/128"]
    subprocess.run([*beside, *setting], input=private, text=True, check=True)
    return process


def main() -> None:
    seconds, rounds = (int(word) for word in (*sys.argv[1:], "5", "5")[:2])
    with Overlay() as overlay:
        hosts = one, other = overlay.joined("4", "4")
        one.wait_pings(other.address)
        bare = {"gotatun alone": Bare("bare0", 51900, hosts, gotatun), "wireguard-go": Bare("go0", 51901, hosts, wireguard_go)}
        try:
            ways = {"agents": other.address, **{name: tunnel.address for name, tunnel in bare.items()}}
            found = {name: [] for name in ways}
            for _ in range(rounds):
                for name, address in ways.items():
                    found[name].append(measured(other, one, address, seconds))
        finally:
            for tunnel in bare.values():
                tunnel.close()
    middle = {name: statistics.median(values) for name, values in found.items()}
    print("| tunnel | Mbit/s, median | lowest to highest | of gotatun alone |\n|---|---|---|---|")
    for name, values in found.items():
        share = middle[name] / middle["gotatun alone"]
        print(f"| {name} | {middle[name]:.0f} | {min(values):.0f} to {max(values):.0f} | {share:.0%} |")


if __name__ == "__main__":
    main()
