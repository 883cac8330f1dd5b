"""Agents that run: started, killed, looked at."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess

import certs
import evidence
from machine import AGENT, PATIENCE, clean_env, run, scratch, until


claims: list[socket.socket] = []
"""A name in the kernel for each port that this process of tests was given. It is gone when the process ends, however it ends."""


def lasting_port() -> int:
    """One that nobody is given by chance, for what is stopped and comes back to it: below those that the system gives to connections,
    and no other process of tests is given it while this one runs."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0enlist-tests-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        claims.append(claim)
        return port


free_port = lasting_port
"""Between the look and its use, a port of the system's own may be given to any connection of the tests beside this one."""


class Daemon:
    """`enlist-agent run` in a directory of its own."""

    def __init__(self, plane, token: str | None = None, arguments: tuple = (), **environment):
        self.plane, self.arguments = plane, arguments
        self.dir = scratch("ag") / "a"
        self.environment = {
            "ENLIST_AGENT_SERVER": plane.url,
            "ENLIST_AGENT_CA_PIN": plane.pin,
            **({"ENLIST_AGENT_TOKEN": token} if token else {}),
            **environment,
        }
        self.process: subprocess.Popen | None = None
        self.prefix: tuple = ()
        self.inherited: tuple = ()
        self.program = AGENT
        self.logs: list = []

    def start(self) -> "Daemon":
        log = evidence.log("agent-err")
        self.logs.append(log)
        with log.open("wb") as err:
            self.process = subprocess.Popen(
                [*map(str, self.prefix), str(self.program), "run", "--dir", str(self.dir), *map(str, self.arguments)],
                env=clean_env(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                pass_fds=self.inherited,
            )
        return self

    def log(self) -> str:
        """All of it, as far as it is of use: what an agent says first must not depend on how much it says later."""
        return "".join(log.read_text(errors="replace") for log in self.logs)[-2_000_000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process is None or self.process.poll() is not None:
            return self.process.returncode if self.process else 0
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def status(self) -> dict | None:
        done = run(AGENT, "status", "--dir", self.dir, "--json")
        return json.loads(done.out) if done.out else None

    def connected(self) -> bool:
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log()}"
        status = self.status()
        return bool(status and status["channel"] == "up")

    def wait_connected(self, patience: float = PATIENCE) -> "Daemon":
        until(self.connected, f"the agent is connected: {self.dir}", patience)
        return self

    @property
    def current(self):
        return self.dir / "identity" / "current"

    @property
    def files(self) -> tuple:
        return self.current / "cert.pem", self.current / "key.pem"

    def serial(self) -> str:
        return certs.serial(certs.certificate((self.current / "cert.pem").read_bytes()))

    def is_confirmed(self) -> bool:
        """Whether it has a certificate of its own that it has confirmed. Until then a host with an SVID goes to its own certificate once
        more, to confirm it."""
        return (self.current / "cert.pem").exists() and not (self.dir / "unconfirmed").exists()

    def node_id(self) -> str:
        return self.status()["node_id"]

    def keys_match(self) -> bool:
        """Of one generation: the next may be put to use between two looks, and this one removed."""

        def read() -> list[bytes] | None:
            place = self.current.parent / os.readlink(self.current)
            try:
                return [(place / name).read_bytes() for name in ("key.pem", "cert.pem")]
            except FileNotFoundError:
                return None if (self.current / "key.pem").exists() else [b"", b""]

        key, leaf = until(read, "a generation stays for a moment")
        key = certs.serialization.load_pem_private_key(key, None)
        return certs.public_der(key) == certs.public_der(certs.certificate(leaf))

    def note_secrets(self) -> None:
        for key in self.dir.glob("identity/*/key.pem"):
            evidence.private_key("agent", key.read_bytes())

    def memory_kib(self) -> int:
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def size(self) -> int:
        """All but the room that is kept for bad days, which has its own fixed size."""
        kept = self.dir / "ballast"
        return sum(size(path) for path in self.all_files() if path != kept)

    def all_files(self) -> list[pathlib.Path]:
        """What lies in the directory; a generation that the agent removes meanwhile is not there."""
        walked = os.walk(self.dir)
        found = [pathlib.Path(place, name) for place, _, names in walked for name in names]
        return [path for path in found if path.is_file() and not path.is_symlink()]


def size(path) -> int:
    """Nothing for a file that the daemon has renamed or removed meanwhile."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
