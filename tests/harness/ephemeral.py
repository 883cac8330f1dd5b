"""Control planes whose node certificates are signed by a CA in memory."""

import contextlib
import os
import resource
import signal
import subprocess

import certs
import evidence
from machine import ENLIST, clean_env, scratch, until
from plane import ControlPlane

INIT = ("--issuer", "ephemeral")


@contextlib.contextmanager
def control_plane(*arguments, init: tuple = (), **named):
    """A domain with ephemeral issuers, without the limit on failures."""
    plane = ControlPlane(init=(*INIT, *init), **named).found().start(*arguments)
    try:
        plane.policy("failures.per_minute", "0")
        yield plane
    finally:
        plane.close()


def issuers(plane, kind: str = "ephemeral") -> list[dict]:
    return [issuer for issuer in plane.api("GET", "/v1/ca").json()["issuers"] if issuer["kind"] == kind]


def current(plane) -> dict:
    """The ephemeral issuer that signs."""
    (found,) = [issuer for issuer in issuers(plane) if issuer["state"] == "active"]
    return found


def exported(plane, *arguments) -> list:
    """The certificates of `ca export`."""
    return certs.certificates(plane.cli("ca", "export", *arguments).json()["pem"])


def anchor(plane, issuer: dict | None = None):
    """The certificate of an ephemeral issuer."""
    wanted = (issuer or current(plane))["id"]
    (found,) = [ca for ca in exported(plane) if certs.fingerprint(ca).removeprefix("sha256:").startswith(wanted)]
    return found


class Dumping(ControlPlane):
    """Started where a core dump would be allowed and written into a directory of its own."""

    def __init__(self, **named):
        super().__init__(init=INIT, **named)
        self.cores = scratch("cores")

    def launch(self, *arguments, env: dict | None = None) -> None:
        self.out, self.err = evidence.log("server-out"), evidence.log("server-err")
        command = [str(ENLIST), "server", "run", "--dir", str(self.dir), *map(str, arguments)]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                env=clean_env({**self.env, **(env or {})}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.cores,
                preexec_fn=unlimited,
            )

    def crash(self) -> bool:
        """Whether its death by a bad address left a core dump, in a file or with whoever collects them."""
        return crashed(self.process)


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def crashed(process: subprocess.Popen) -> bool:
    """The first signal only ends Rust's own handler, which looks whether a stack has overflowed."""
    status = until(lambda: ended(process), "it has died")
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV, status
    process.returncode = -signal.SIGSEGV
    return os.WCOREDUMP(status)


def ended(process: subprocess.Popen) -> int | None:
    os.kill(process.pid, signal.SIGSEGV)
    pid, status = os.waitpid(process.pid, os.WNOHANG)
    return status if pid else None
