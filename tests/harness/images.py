"""A disk of one test: a file with a file system in it, every byte of which can be searched afterwards."""

import contextlib
import ctypes
import mmap
import os
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


class Swap:
    """Swap space in a file of its own; what was written to it stays there to be searched."""

    def __init__(self, mebibytes: int = 64):
        need_root()
        self.file = scratch("swap") / "swap"
        with self.file.open("wb") as file:
            file.truncate(mebibytes << 20)
        self.file.chmod(0o600)
        subprocess.run([need("mkswap"), str(self.file)], check=True, capture_output=True)
        looped = subprocess.run([need("losetup"), "-f", "--show", str(self.file)], capture_output=True, text=True)
        if looped.returncode != 0:
            missing(f"a loop device: {looped.stderr}")
        self.device = looped.stdout.strip()
        on = subprocess.run([need("swapon"), self.device], capture_output=True, text=True)
        if on.returncode != 0:
            subprocess.run([need("losetup"), "-d", self.device], check=True)
            missing(f"swap space: {on.stderr}")
        self.on = True

    def off(self) -> None:
        if self.on:
            subprocess.run([need("swapoff"), self.device], check=True)
            subprocess.run([need("losetup"), "-d", self.device], check=True)
            self.on = False

    def holds(self, what: bytes) -> bool:
        assert not self.on
        return what in self.file.read_bytes()


@contextlib.contextmanager
def swap():
    made = Swap()
    try:
        yield made
    finally:
        made.off()
        made.file.unlink()


PROCESS_MADVISE, MADV_PAGEOUT = 440, 21


class _Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def page_out(pid: int) -> None:
    """Asks the kernel to swap out all memory of a process that it may swap out."""
    call, descriptor = ctypes.CDLL(None).syscall, os.pidfd_open(pid)
    try:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, mode = line.split()[:2]
            if "w" in mode:
                first, last = (int(number, 16) for number in place.split("-"))
                asked = _Range(first, last - first)
                call(PROCESS_MADVISE, descriptor, ctypes.byref(asked), 1, MADV_PAGEOUT, 0)
    finally:
        os.close(descriptor)
