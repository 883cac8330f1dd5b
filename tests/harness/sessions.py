"""Sessions on a host: those of `enlist-agent session`, and those of a service that speaks to the agent's socket itself."""

import json
import socket
import subprocess

import evidence
from machine import AGENT, clean_env, until


class HostSession:
    """`enlist-agent session` with pipes."""

    def __init__(self, host, *command, kind: str = "exec", user: str = "root", env: dict | None = None):
        self.log = evidence.log("session-err")
        flags = ["--dir", str(host.dir), "--kind", kind, "--user", user, "--"]
        with self.log.open("wb") as err:
            self.process = subprocess.Popen(
                [str(AGENT), "session", *flags, *map(str, command)],
                env=clean_env(env or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )

    def line(self) -> str:
        return self.process.stdout.readline().rstrip("\n")

    def say(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def ended(self, patience: float = 60) -> int:
        return self.process.wait(patience)

    def close(self) -> None:
        """A supervisor that is asked to end ends its session first."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> "HostSession":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Registrant:
    """A service of others: one connection is one session."""

    def __init__(self, host, **registration):
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(30)
        self.connection.connect(str(host.dir / "agent.sock"))
        self.file = self.connection.makefile("rw")
        self.say({"session": registration})
        self.answer = json.loads(self.file.readline())

    def say(self, document: dict) -> None:
        self.file.write(json.dumps(document) + "\n")
        self.file.flush()

    @property
    def id(self) -> str:
        return self.answer["registered"]["session_id"]

    @property
    def refused(self) -> str:
        return self.answer["error"]["code"]

    def close(self) -> None:
        self.file.close()
        self.connection.close()

    def __enter__(self) -> "Registrant":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def shown(plane, node_id: str) -> list[dict]:
    return plane.node(node_id)["sessions"]


def wait_open(plane, node_id: str, count: int, patience: float = 60) -> list[dict]:
    until(lambda: len(shown(plane, node_id)) == count, f"{count} sessions of {node_id} are on record", patience)
    return shown(plane, node_id)


def lines(plane, kind: str, node_id: str) -> list[dict]:
    return [line for line in plane.audit(f"session.{kind}") if line["node_id"] == node_id]
