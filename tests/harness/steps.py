"""SIGKILL at one step that changes the disk: strace kills the process when it enters one call on one path."""

import os
import re
import signal
import subprocess
from pathlib import Path

import evidence
from machine import ENLIST, clean_env, need

CALLS = "?rename,?renameat,?renameat2,?unlink,unlinkat,?rmdir,?mkdir,mkdirat,fsync,fdatasync,ftruncate"
LINE = re.compile(r"^(\d+)\s+(\w+)\((.*)")
PATH = re.compile(r'"(/[^"]*)"|<(/[^>]*)>')


def launch(plane, *options, arguments=()) -> None:
    """Runs the control plane under strace."""
    plane.out, plane.err = evidence.log("server-out"), evidence.log("server-err")
    command = [need("strace"), "-f", "-qq", "-y", *options, ENLIST, "server", "run", "--dir", plane.dir, *arguments]
    with plane.out.open("wb") as out, plane.err.open("wb") as err:
        plane.process = subprocess.Popen(
            [str(part) for part in command],
            env=clean_env(plane.env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def end(plane) -> None:
    """strace passes nothing on, so its child is ended by its own id."""
    children = Path(f"/proc/{plane.process.pid}/task/{plane.process.pid}/children")
    for child in children.read_text().split() if children.exists() else []:
        os.kill(int(child), signal.SIGKILL)
    plane.process.wait()


def options_of(step: tuple) -> tuple:
    call, path, occurrence = step
    inject = f"inject={call}:signal=SIGKILL:when={occurrence}"
    return "-o", "/dev/null", "-P", path, "-e", f"trace={call}", "-e", inject


def seen(log: Path, inside: Path) -> list[tuple]:
    """Every step in a log of strace: the call, its first path, and how often its thread had come by there."""
    counted: dict = {}
    steps: list[tuple] = []
    for line in log.read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if not match or not (found := PATH.findall(match[3])):
            continue
        paths = [one or two for one, two in found if (one or two).startswith(str(inside))]
        if paths:
            key = match[1], match[2], paths[0]
            counted[key] = counted.get(key, 0) + 1
            step = match[2], paths[0], counted[key]
            if step not in steps:
                steps.append(step)
    return steps
