"""Machines that are known by their hardware: a tree that stands for /sys, and an agent that reads it."""

import json
import os
import random

from daemons import Daemon
from machine import scratch


def mac() -> str:
    """Locally administered, of one machine, and of no other in this run."""
    return ":".join(f"{octet:02x}" for octet in (0x02, *random.SystemRandom().randbytes(5)))


class Sysfs:
    """Cards and firmware as the kernel shows them."""

    def __init__(self, *macs: str, **dmi: str):
        self.root = scratch("sys") / "sys"
        self.dmi = self.root / "class" / "dmi" / "id"
        self.dmi.mkdir(parents=True)
        self.card("lo", "00:00:00:00:00:00", device=False)
        self.card("docker0", mac(), device=False)
        self.macs = list(macs) or [mac()]
        for number, address in enumerate(self.macs):
            self.card(f"eth{number}", address)
        for name, text in dmi.items():
            (self.dmi / name).write_text(text + "\n")

    def card(self, name: str, address: str, device: bool = True):
        place = self.root / "class" / "net" / name
        place.mkdir(parents=True)
        (place / "address").write_text(address + "\n")
        if device:
            (place / "device").symlink_to("../../../devices/pci0000:00")
        return place


class Machine(Daemon):
    """`enlist-agent run` without a token anywhere."""

    def __init__(self, plane, sysfs: Sysfs | None = None, **environment):
        self.sysfs = sysfs or Sysfs()
        hardware = {"ENLIST_AGENT_ATTESTOR": "hardware", "ENLIST_AGENT_SYSFS_ROOT": str(self.sysfs.root)}
        super().__init__(plane, None, **{**hardware, **environment})

    def register(self, node_id: str, *flags: str) -> "Machine":
        cards = [word for address in self.sysfs.macs for word in ("--mac", address)]
        self.plane.cli("node", "register", node_id, *cards, *flags)
        return self

    def reasons(self) -> list[str]:
        return (self.status() or {}).get("reasons", [])

    def current_config(self):
        """The document in `config/current.json`; nothing while there is none."""
        try:
            return json.loads((self.dir / "config" / "current.json").read_text())
        except FileNotFoundError:
            return None


def allow(plane) -> None:
    plane.policy("attestors", "join-token,recovery-token,hardware")


def document(place, name: str, content) -> os.PathLike:
    path = place / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


def configure(plane, place, vcluster: str, content) -> None:
    plane.cli("vcluster", "set-config", vcluster, "--file", document(place, vcluster, content))
