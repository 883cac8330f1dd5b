"""A token of SoftHSM in a directory of its own: loaded by the sessions' processes, or behind `p11-kit server`, which can be killed."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from machine import clean_env, missing, need, scratch, secret, tool, until
from plane import ControlPlane

PIN, SO_PIN = "5678-user-pin", "1234-officer-pin"
KEY = "issuer"


def library(name: str, package: str) -> pathlib.Path:
    """A PKCS#11 module, wherever this system keeps it."""
    found = [path for root in ("/usr/lib", "/usr/local/lib") for path in sorted(pathlib.Path(root).rglob(name))]
    if not found:
        missing(f"{name} (Debian package {package})")
    return found[0]


class Token:
    """A token with a label and a PIN, and the environment in which a module finds it."""

    def __init__(self, label: str = "fleet"):
        need("softhsm2-util")
        self.base, self.label = scratch("hsm"), label
        self.store, self.away = self.base / "tokens", self.base / "away"
        self.store.mkdir()
        self.conf = self.base / "softhsm2.conf"
        self.conf.write_text(f"directories.tokendir = {self.store}\nlog.level = ERROR\n")
        self.module = library("libsofthsm2.so", "softhsm2")
        self.pin_file = secret(self.base / "pin", PIN + "\n")
        self.env = {"SOFTHSM2_CONF": str(self.conf)}
        done = self.run(
            "softhsm2-util", "--init-token", "--free", "--label", label, "--so-pin", SO_PIN, "--pin", PIN
        )
        assert done.returncode == 0, done
        (file,) = self.store.glob("*/token.object")
        self.state = file.read_bytes()

    def run(self, *command) -> subprocess.CompletedProcess:
        command = [need(str(command[0])), *map(str, command[1:])]
        return subprocess.run(command, env=clean_env(self.env), capture_output=True, timeout=60, check=False)

    def tool(self, *arguments, login: bool = True) -> str:
        """pkcs11-tool, on the token itself."""
        credentials = ("--login", "--pin", PIN) if login else ()
        done = self.run("pkcs11-tool", "--module", self.module, "--token-label", self.label, *credentials, *arguments)
        assert done.returncode == 0, done
        return done.stdout.decode(errors="replace")

    def make_key(self, kind: str, label: str, number: str) -> None:
        self.tool("--keypairgen", "--key-type", kind, "--label", label, "--id", number)

    def remove_key(self, label: str) -> None:
        for kind in ("privkey", "pubkey"):
            self.tool("--delete-object", "--type", kind, "--label", label)

    def private_keys(self) -> dict[str, str]:
        """What the token says of each private key, by label."""
        shown = self.tool("--list-objects", "--type", "privkey").split("Private Key Object")[1:]
        return {part.split("label:")[1].split("\n")[0].strip(): part for part in shown}

    def mend(self) -> None:
        (file,) = self.store.glob("*/token.object")
        if file.stat().st_size != len(self.state):
            file.write_bytes(self.state)

    def take_out(self) -> None:
        self.store.rename(self.away)
        self.store.mkdir()

    def put_back(self) -> None:
        shutil.rmtree(self.store)
        self.away.rename(self.store)

    def init(self, module=None, key: str = KEY) -> tuple:
        """The flags of `server init`."""
        return (
            *("--issuer", "pkcs11", "--pkcs11-module", module or self.module, "--pkcs11-token", self.label),
            *("--pkcs11-key", key, "--pkcs11-pin", f"file:{self.pin_file}"),
        )


class Remote:
    """The token behind `p11-kit server`, in a process group of its own: it has a child for each client."""

    def __init__(self, token: Token):
        need("p11-kit")
        self.token, self.socket = token, token.base / "p11"
        self.module = library("p11-kit-client.so", "p11-kit-modules")
        self.env = {**token.env, "P11_KIT_SERVER_ADDRESS": f"unix:path={self.socket}"}
        self.process: subprocess.Popen | None = None

    def start(self) -> "Remote":
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            ["p11-kit", "server", "--foreground", "--provider", self.token.module, "--name", self.socket, "pkcs11:"],
            env=clean_env(self.token.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        until(self.answers, "the HSM's socket is there")
        return self

    def answers(self) -> bool:
        """Not as soon as the socket has its name: who comes before it listens is refused."""
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(self.socket))
            return True
        return False

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """As pulling the plug: every session is lost. SoftHSM writes its file of the token anew at each login, and a kill in
        between leaves it empty; what is tested is an HSM that comes back, not one that has lost its keys."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.token.mend()
        self.process = None

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def close(self) -> None:
        if self.process:
            self.kill()


class Spy:
    """OpenSC's spy between the control plane and the token: what was called is in a file."""

    def __init__(self, token: Token):
        self.module = library("pkcs11-spy.so", "opensc-pkcs11")
        self.log = token.base / "spy.log"
        self.env = {**token.env, "PKCS11SPY": str(token.module), "PKCS11SPY_OUTPUT": str(self.log)}

    def calls(self, function: str) -> int:
        return self.log.read_text(errors="replace").count(f": {function}\n") if self.log.exists() else 0


@contextlib.contextmanager
def control_plane(token: Token, through=None, key: str = KEY, start: bool = True):
    """A domain whose issuers' keys are in the token, reached directly or through something."""
    way = through or token
    plane = ControlPlane(init=token.init(way.module, key), env=way.env).found()
    try:
        if start:
            plane.start()
            plane.policy("failures.per_minute", "0")
            # A start does not wait for the HSM for longer than three seconds.
            until_ready(plane)
        yield plane
    finally:
        plane.close()


def reasons(plane) -> list[str]:
    """What /readyz says, on the operator socket."""
    answer = plane.api("GET", "/readyz")
    said = answer.json()
    assert answer.status == (200 if said["ready"] else 503), answer
    return said["reasons"]


def until_ready(plane) -> None:
    until(lambda: reasons(plane) == [], "the control plane is ready")


def until_unavailable(plane) -> None:
    """Also as long as the HSM was not asked yet: why, is not known then."""
    until(lambda: reasons(plane) == ["issuer_unavailable"], "the issuer is unavailable")


def until_logged(plane, words: str) -> None:
    until(lambda: words in plane.err.read_text(errors="replace"), f"{words!r} is in the log")


def sessions(plane) -> list[int]:
    """The processes that the control plane has started for sessions with the token."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (place / "stat").read_text().rsplit(") ", 1)[1].split()[:2]
            arguments = (place / "cmdline").read_bytes().split(b"\0")
            if state != "Z" and int(parent) == plane.process.pid and b"hsm-session" in arguments:
                found.append(int(place.name))
    return found


def is_alive(pid: int) -> bool:
    """One that has ended may wait for whoever inherited it."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False
