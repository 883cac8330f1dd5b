"""Stands in for systemd: a notification socket, a store for descriptors, and processes that are handed what is in it."""

import os
import socket
import sys
import threading

from machine import scratch

# Puts what was kept at 3 and above, says so to this very process, and becomes the program.
WRAPPER = """
import fcntl, os, sys
kept = [int(number) for number in sys.argv[1].split(",") if number]
moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 200) for number in kept]
for number in kept:
    os.close(number)
for place, number in enumerate(moved):
    os.dup2(number, 3 + place, inheritable=True)
if kept:
    os.environ.update(LISTEN_FDS=str(len(kept)), LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES=sys.argv[2])
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Manager:
    """A service manager with one service. With `keeps` it keeps descriptors as FileDescriptorStoreMax=1 lets it."""

    def __init__(self, keeps: bool = True):
        self.keeps, self.said, self.kept = keeps, [], []
        self.path = scratch("sd") / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 8)
            except OSError:
                return
            fields = dict(line.split("=", 1) for line in text.decode().splitlines())
            name = fields.get("FDNAME", "stored")
            if fields.get("STOP") == "here":
                return
            self.said.append(fields)
            if "FDSTOREREMOVE" in fields:
                self._drop(name)
            for descriptor in descriptors:
                if fields.get("FDSTORE") != "1" or not self.keeps or self._has(descriptor) or len(self.kept) >= 4:
                    os.close(descriptor)
                else:
                    self.kept.append((name, descriptor))

    def _has(self, descriptor: int) -> bool:
        """systemd keeps the same file once; here the same directory counts as the same."""
        new = os.fstat(descriptor)
        return any(os.path.samestat(new, os.fstat(kept)) for _, kept in self.kept)

    def _drop(self, name: str) -> None:
        for kept in [kept for kept in self.kept if kept[0] == name]:
            self.kept.remove(kept)
            os.close(kept[1])

    def put(self, descriptor: int, name: str = "enlist-agent") -> None:
        """Somebody has planted a descriptor."""
        self.kept.append((name, descriptor))

    def start(self, daemon):
        """A process of the service, with what was kept."""
        names, numbers = [name for name, _ in self.kept], [number for _, number in self.kept]
        kept = ",".join(map(str, numbers))
        daemon.environment = {**daemon.environment, "NOTIFY_SOCKET": str(self.path), **({"FDSTORE": "1"} if self.keeps else {})}
        before, daemon.inherited = daemon.prefix, tuple(numbers)
        daemon.prefix = (*before, sys.executable, "-c", WRAPPER, kept, ":".join(names))
        try:
            return daemon.start()
        finally:
            daemon.prefix, daemon.inherited = before, ()

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"STOP=here", str(self.path))
        self.thread.join()
        self.socket.close()
        for _, descriptor in self.kept:
            os.close(descriptor)
