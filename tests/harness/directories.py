"""Data directories of replicas that are copied and put back, as somebody would who takes a copy for a backup."""

import pathlib
import shutil

from clusters import Replica
from machine import scratch


def copy(replica) -> pathlib.Path:
    """Its directory as it is now; `cp -a`."""
    place = scratch("copy") / "d"
    shutil.copytree(replica.dir, place, symlinks=True, ignore=shutil.ignore_patterns("operator.sock"))
    return place


def put_back(replica, older: pathlib.Path) -> None:
    """The directory is the older one again, and nothing of the newer one is left."""
    shutil.rmtree(replica.dir)
    shutil.copytree(older, replica.dir, symlinks=True)


class Twin(Replica):
    """Another process with the identity of a replica, on a copy of its directory, with addresses of its own."""

    def __init__(self, original: Replica, older: pathlib.Path):
        super().__init__(original)
        self.founded = original.founded
        shutil.copytree(older, self.dir, symlinks=True)
        settings = self.dir / "enlist.toml"
        text = settings.read_text()
        assert str(original.peer_port) in text, text
        settings.write_text(text.replace(str(original.peer_port), str(self.peer_port)))
        assert self.peer_port != original.peer_port


def reasons(replica) -> list[str]:
    return replica.health()["reasons"]
