"""A disk of one test: a file with a file system in it, every byte of which can be searched afterwards."""

import contextlib
import mmap
import pathlib
import subprocess

from machine import missing, need, scratch
from mounts import need_root


class Image:
    def __init__(self, mebibytes: int = 48):
        need_root()
        self.file = scratch("img") / "disk.ext4"
        self.place = scratch("mnt")
        with self.file.open("wb") as file:
            file.truncate(mebibytes << 20)
        subprocess.run([need("mkfs.ext4"), "-q", "-F", str(self.file)], check=True, capture_output=True)
        mounted = subprocess.run([need("mount"), "-o", "loop", str(self.file), str(self.place)], capture_output=True)
        if mounted.returncode != 0:
            missing(f"a loop device: {mounted.stderr.decode()}")
        self.mounted = True

    def unmount(self) -> None:
        """Everything is in the file then."""
        if self.mounted:
            subprocess.run([need("umount"), str(self.place)], check=True)
            self.mounted = False

    def holds(self, what: bytes) -> bool:
        assert not self.mounted and len(what) >= 16, what
        with self.file.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as all_of_it:
            return all_of_it.find(what) != -1


@contextlib.contextmanager
def image(mebibytes: int = 48):
    made = Image(mebibytes)
    try:
        yield made
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            made.unmount()
        made.file.unlink(missing_ok=True)


def directory(image: Image, name: str) -> pathlib.Path:
    path = image.place / name
    path.mkdir(mode=0o700)
    return path
