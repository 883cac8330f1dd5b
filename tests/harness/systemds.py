"""systemd itself, as the first process of a namespace of its own, with nothing to start but the service of a test."""

import json
import os
import pathlib
import signal
import subprocess

from machine import PATIENCE, AGENT, clean_env, missing, need, scratch, until
from mounts import need_root

PROGRAM = pathlib.Path("/lib/systemd/systemd")
CGROUPS = pathlib.Path("/sys/fs/cgroup")

# $0 is the directory with the unit, which is /mnt to the service: its /tmp is its own.
SCRIPT = """
mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/lock && cp "$0"/units/* /run/systemd/system/ &&
mount --bind "$0" /mnt && mount -t tmpfs tmpfs /sys/fs/cgroup &&
if [ "$1" = unified ]; then mount -t cgroup2 cgroup2 /sys/fs/cgroup; else
mkdir /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd,xattr cgroup /sys/fs/cgroup/systemd; fi &&
exec env -i container=test PATH="$PATH" /lib/systemd/systemd --system --unit=test.target --log-target=console --show-status=no
"""


def hierarchies() -> list[pathlib.Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    # A new cpuset has no processors, so nothing can be put there; systemd does not use it.
    return [path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and path.name != "cpuset"]


class Systemd:
    """Runs one service from its unit, drop-in included. `place` is /mnt in it."""

    def __init__(self, name: str, unit: str):
        need_root()
        if not PROGRAM.exists():
            missing("systemd")
        self.name, self.place = name, scratch("systemd")
        units = self.place / "units"
        units.mkdir()
        (units / f"{name}.service").write_text(unit)
        (units / "test.target").write_text("[Unit]\nDefaultDependencies=no\n")
        self.log = self.place / "log"
        self.groups = [path / f"enl-{os.getpid()}-{self.place.name}" for path in hierarchies()]
        self.process: subprocess.Popen | None = None

    def start(self) -> "Systemd":
        for group in self.groups:
            group.mkdir()
        join = " && ".join(f'echo $$ > "{group}/cgroup.procs"' for group in self.groups)
        kind = "unified" if (CGROUPS / "cgroup.controllers").exists() else "legacy"
        space = "unshare --pid --fork --mount --uts --ipc --cgroup --propagation private --kill-child"
        command = ["sh", "-c", f'{join} && exec {space} sh -c "$0" "$1" "$2"', SCRIPT, str(self.place), kind]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_env())
        self.first = until(self._first, "the first process of the namespace is there")
        until(lambda: self.systemctl("is-active", "test.target").returncode == 0, f"systemd has started: {self.log}")
        return self

    def _first(self) -> int | None:
        assert self.process.poll() is None, self.log.read_text(errors="replace")
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def inside(self, *command) -> list[str]:
        return [need("nsenter"), "-t", str(self.first), "--mount", "--pid", *map(str, command)]

    def systemctl(self, *arguments) -> subprocess.CompletedProcess:
        command = self.inside("systemctl", *arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=clean_env())

    def show(self, field: str) -> str:
        return self.systemctl("show", "-P", field, f"{self.name}.service").stdout.strip()

    def status(self, dir) -> dict:
        """What the agent of that directory says."""
        command = self.inside(AGENT, "status", "--dir", dir, "--json")
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=clean_env())
        return json.loads(done.stdout) if done.stdout else {}

    def close(self) -> None:
        if self.process is not None:
            # To the first process of a namespace this is the end of all of it.
            os.kill(self.first, signal.SIGKILL)
            self.process.wait(PATIENCE)
        for group in self.groups:
            for below in sorted(group.rglob("*/"), key=lambda path: -len(path.parts)):
                if below.is_dir():
                    below.rmdir()
            group.rmdir()
