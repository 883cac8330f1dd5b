"""Programs that live at another time."""

import glob
import pathlib

from machine import missing, scratch


def shifted(hours: float) -> dict:
    """The environment in which the clock is ahead by so many hours and runs as fast as any other."""
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        missing("libfaketime")
    return {"LD_PRELOAD": found[0], "FAKETIME": f"{hours * 3600:+.0f}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def sweep(pid: int) -> None:
    """What libfaketime leaves of a killed process: the next one with its pid would refuse to start."""
    for name in (f"sem.faketime_sem_{pid}", f"faketime_shm_{pid}"):
        pathlib.Path("/dev/shm", name).unlink(missing_ok=True)


class Clock:
    """The clock of one program, which can be set while it runs."""

    def __init__(self, offset: str = "+0"):
        self.file = scratch("clock") / "now"
        self.set(offset)

    def set(self, offset: str) -> None:
        """As libfaketime writes it: `+400d`, `-10m`."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.rename(self.file)

    @property
    def env(self) -> dict:
        """Time that passes goes on at its own speed: only what the clock shows is another."""
        found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        if not found:
            missing("libfaketime")
        return {
            "LD_PRELOAD": found[0],
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
