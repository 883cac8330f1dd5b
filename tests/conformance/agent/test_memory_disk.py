"""What an agent leaves on a disk (D19, PACT-03): with storage = "memory" no key, no token, no configuration, over kills, renewals and restarts; with storage = "disk" the same search finds them."""

import secrets

import certs
import evidence
import images
import sysfs
from daemons import Daemon
from machine import secret, until
from managers import Manager
from memories import InMemory
from sysfs import Machine


class Watched:
    """An agent whose keys are read off all the while, so that the search knows what to look for."""

    def __init__(self, agent, store, manager: Manager | None):
        self.agent, self.store, self.manager, self.keys = agent, store, manager, set()

    def start(self) -> None:
        self.manager.start(self.agent) if self.manager else self.agent.start()
        self.agent.wait_connected()

    def look(self) -> int:
        for path in list(self.store().glob("identity/0*/key.pem")):
            try:
                self.keys.add(path.read_bytes())
            except FileNotFoundError:
                pass
        return len(self.keys)

    def renewals(self, keys: int) -> None:
        until(lambda: self.look() >= keys, f"{keys} keys were in use", 120)


def test_no_byte_of_the_disk_holds_a_key_a_token_or_the_configuration(plane_of_its_own, place):
    """Proves PACT-03, D19: after enrollments, renewals and kills the whole image of the disk holds none of them; the same search finds them where storage is disk."""
    plane = plane_of_its_own
    sysfs.allow(plane)
    plane.policy("profile.default.lifetime", "60s")
    plane.policy("profile.default.renew_before", "55s")
    plane.cli("vcluster", "create", "marked")
    marker = f"marker-{secrets.token_hex(24)}"
    sysfs.configure(plane, place, "marked", {"secret": marker})
    tokens = [plane.token(), plane.token()]
    managers = [Manager(), Manager()]
    with images.image() as memory, images.image() as disk:
        on = lambda image, name: images.directory(image, name)
        environment = lambda image: {"TMPDIR": str(image.place), "HOME": str(image.place)}
        by_hardware = InMemory(plane, dir=on(memory, "hardware"), **environment(memory))
        by_hardware.register("disk-a", "--vcluster", "marked")
        by_token = InMemory(plane, tokens[0], dir=on(memory, "token"), **environment(memory))
        kept = Machine(plane, **environment(disk)).register("disk-b", "--vcluster", "marked")
        kept.dir = on(disk, "hardware")
        file = secret(disk.place / "token.txt", tokens[1])
        kept_token = Daemon(plane, arguments=("--token-file", file), **environment(disk))
        kept_token.dir = on(disk, "token")
        agents = [
            Watched(by_hardware, lambda: by_hardware.store, managers[0]),
            Watched(by_token, lambda: by_token.store, managers[1]),
            Watched(kept, lambda: kept.dir, None),
            Watched(kept_token, lambda: kept_token.dir, None),
        ]
        try:
            for watched in agents:
                watched.start()
            for agent in (by_hardware, kept):
                until(lambda: (agent.status()["config"] or {}).get("secret") == marker, "the configuration is there")
            sizes = [watched.agent.memory_kib() for watched in agents]
            evidence.log("agent-memory").write_text(f"resident, KiB: memory {sizes[:2]}, disk {sizes[2:]}\n")
            print(f"resident, KiB: memory {sizes[:2]}, disk {sizes[2:]}")
            for round in range(3):
                for watched in agents:
                    watched.renewals(2 * round + 2)
                    watched.agent.kill()
                    watched.start()
                    watched.look()
            for watched in agents:
                watched.agent.wait_connected()
            assert not by_hardware.current_config() and by_hardware.on_disk() == {"agent.toml", "agent.sock"}
        finally:
            for watched in agents:
                watched.agent.stop()
            for manager in managers:
                manager.close()
        memory.unmount()
        disk.unmount()
        for watched in agents:
            assert len(watched.keys) >= 6
        in_memory = [key for watched in agents[:2] for key in watched.keys]
        found = [form for key in in_memory for form in certs.private_forms(key) if memory.holds(form)]
        assert not found, f"{len(found)} keys on a disk that was to hold none"
        assert not memory.holds(tokens[0].encode()) and not memory.holds(marker.encode())
        assert memory.holds(b'storage = "memory"'), "the search looks at the right bytes"
        # The same search finds what an agent that keeps it on disk has left there: the two that it keeps, and what was
        # removed since and not overwritten.
        for watched in agents[2:]:
            assert sum(disk.holds(key.strip()) for key in watched.keys) >= 2, "keys that were kept on disk are not found"
        assert disk.holds(tokens[1].encode()) and disk.holds(marker.encode())
        for key in in_memory:
            assert not disk.holds(key.strip())
