"""Small file systems, and a host's own files in a namespace of their own. Nothing of the machine itself is touched."""

import contextlib
import os
import pathlib
import subprocess

from machine import Done, clean_env, missing, need, scratch


def need_root() -> None:
    if os.geteuid() != 0:
        missing("the right to mount")


@contextlib.contextmanager
def small_disk(kibibytes: int):
    """A file system with so much room, gone afterwards."""
    need_root()
    place = scratch("disk")
    done = subprocess.run(
        [need("mount"), "-t", "tmpfs", "-o", f"size={kibibytes}k,mode=0700", "none", str(place)], capture_output=True
    )
    if done.returncode != 0:
        missing(f"a tmpfs: {done.stderr.decode()}")
    try:
        yield place
    finally:
        subprocess.run([need("umount"), "-l", str(place)], check=True)


def fill(place: pathlib.Path) -> pathlib.Path:
    """Takes all the room there is."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return filler


def with_hosts(hosts: pathlib.Path, *command, env: dict | None = None) -> Done:
    """Runs a command for which `hosts` is /etc/hosts: mounted by itself, as in a container."""
    need_root()
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    whole = [need("unshare"), "--mount", "--propagation", "private", "sh", "-c", script, str(hosts), *map(str, command)]
    done = subprocess.run(whole, env=clean_env(env), capture_output=True, timeout=60)
    return Done(done.returncode, done.stdout, done.stderr, whole)


class Etc:
    """An /etc of one process: what programs need of the machine's own, and nothing of a host that enrolled."""

    def __init__(self):
        need_root()
        need("unshare")
        self.path = scratch("etc") / "etc"
        self.path.mkdir(mode=0o755)
        for name in ("hosts", "nsswitch.conf", "passwd", "group", "ld.so.cache"):
            found = pathlib.Path("/etc", name)
            if found.exists():
                (self.path / name).write_bytes(found.read_bytes())

    @property
    def prefix(self) -> tuple:
        """What to put before a command line so that the process finds this as its /etc."""
        script = 'mount --bind "$0" /etc && exec "$@"'
        return (need("unshare"), "--mount", "--propagation", "private", "sh", "-c", script, str(self.path))
