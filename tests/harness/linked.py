"""The two programs under the names that other documents call them by."""

import evidence
from machine import ENLIST, Done, run, scratch

NAMES = ("plfm", "pact", "probectl-control", "taskrun", "plfm-agent", "probectl-agent")


class Names:
    """A directory with the links, and how a test calls them."""

    def __init__(self):
        self.bin = scratch("bin") / "bin"
        done = run(ENLIST, "compat", "link", "--dir", self.bin, "--json")
        assert done.code == 0, done
        self.report = done.json()

    def __call__(self, name: str, *arguments, plane=None, ok: bool = True, env: dict | None = None, **more) -> Done:
        """Runs one to its end, with ENLIST_DIR of this control plane."""
        where = {"ENLIST_DIR": str(plane.dir)} if plane else {}
        done = run(self.bin / name, *arguments, env={**where, **(env or {})}, **more)
        assert not ok or done.code == 0, done
        return done


def on_command_line(token: str) -> str:
    """A token that the document puts among the arguments."""
    evidence.token(token)
    evidence.on_command_line.add(token)
    return token


def mode(path) -> int:
    """Of what a link leads to."""
    return path.stat().st_mode & 0o7777
