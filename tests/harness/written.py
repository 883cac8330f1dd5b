"""How often files of a directory were put in the place of others, as the kernel counts it."""

import ctypes
import os
import struct
import threading

MOVED_TO, NONBLOCK = 0x80, os.O_NONBLOCK
HEAD = struct.Struct("iIII")
libc = ctypes.CDLL(None, use_errno=True)


class Written:
    """Counts renames onto each name in these directories, from its beginning on."""

    def __init__(self, *directories):
        self.fd = libc.inotify_init1(NONBLOCK)
        assert self.fd >= 0, os.strerror(ctypes.get_errno())
        self.counts: dict[str, int] = {}
        self.places: dict[int, str] = {}
        self.ended = threading.Event()
        for directory in directories:
            watch = libc.inotify_add_watch(self.fd, os.fsencode(directory), MOVED_TO)
            assert watch >= 0, os.strerror(ctypes.get_errno())
            self.places[watch] = os.path.basename(directory)
        self.reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Written":
        self.reader.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.reader.join()
        os.close(self.fd)

    def _read(self) -> None:
        while not self.ended.wait(0.05):
            self._take()

    def _take(self) -> None:
        try:
            events = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return
        while events:
            watch, _, _, length = HEAD.unpack_from(events)
            name = events[HEAD.size : HEAD.size + length].rstrip(b"\0").decode()
            place = f"{self.places[watch]}/{name}"
            self.counts[place] = self.counts.get(place, 0) + 1
            events = events[HEAD.size + length :]
