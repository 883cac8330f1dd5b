"""Agents that keep everything in memory."""

import pathlib

import evidence
from machine import scratch
from sysfs import Machine, Sysfs


class InMemory(Machine):
    """`enlist-agent run` with storage = "memory", by hardware or with a token, in a directory that holds its settings."""

    def __init__(self, plane, token: str | None = None, sysfs: Sysfs | None = None, settings: str = "", dir=None, **environment):
        super().__init__(plane, sysfs, **environment)
        if token:
            self.environment = {
                **{name: value for name, value in self.environment.items() if name != "ENLIST_AGENT_ATTESTOR"},
                "ENLIST_AGENT_TOKEN": token,
            }
        self.dir = dir or scratch("mem") / "a"
        self.dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        (self.dir / "agent.toml").write_text(f'storage = "memory"\n{settings}')

    @property
    def store(self) -> pathlib.Path:
        return pathlib.Path(self.status()["memory"]["path"])

    @property
    def current(self) -> pathlib.Path:
        return self.store / "identity" / "current"

    def key(self) -> bytes:
        pem = (self.current / "key.pem").read_bytes()
        evidence.private_key("agent", pem)
        return pem

    def on_disk(self) -> set[str]:
        return {str(path.relative_to(self.dir)) for path in self.dir.rglob("*")}

    def capabilities(self) -> int:
        return int(self.of_process("CapEff"), 16)

    def of_process(self, field: str) -> str:
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(line.split()[1] for line in text.splitlines() if line.startswith(f"{field}:"))

    def note_secrets(self) -> None:
        """Nothing of it is in the directory."""
