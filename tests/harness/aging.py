"""A control plane and one agent that grow old together: both live so many hours after the enrollment."""

import clocks
import certs
from daemons import Daemon, lasting_port
from machine import AGENT, run, until
from plane import ControlPlane


class Aging:
    def __init__(self, enrolling, certificate: str = "identity/current/cert.pem", **domain):
        """`enrolling` makes the agent of a control plane, with its token in the environment."""
        self.plane = ControlPlane(env=clocks.shifted(0), **domain).found()
        self.listen = ("--listen", f"127.0.0.1:{lasting_port()}")
        self.plane.start(*self.listen)
        self.agent: Daemon = enrolling(self.plane)
        self.agent.environment |= self.plane.env
        self.certificate = self.agent.dir / certificate
        self.work()

    def status(self) -> dict:
        assert self.agent.process.poll() is None, self.agent.log()
        done = run(AGENT, "status", "--dir", self.agent.dir, "--json", env=self.plane.env)
        return done.json() if done.out else {"channel": "down"}

    def connected(self) -> bool:
        return self.status()["channel"] == "up"

    def leaf(self):
        """What whoever uses the identity reads."""
        return certs.certificates(self.certificate.read_bytes())[0]

    def rest(self) -> None:
        pid = self.agent.process.pid
        assert self.agent.stop() == 0
        clocks.sweep(pid)

    def at(self, hours: float) -> None:
        """The control plane lives then, and the agent will when it works again."""
        pid = self.plane.process.pid
        self.plane.stop()
        clocks.sweep(pid)
        self.plane.env = clocks.shifted(hours)
        self.agent.environment |= self.plane.env
        for token in ("ENLIST_AGENT_TOKEN", "TASKRUN_BOOTSTRAP_TOKEN"):
            self.agent.environment.pop(token, None)
        self.plane.start(*self.listen, "--accept-clock")

    def work(self) -> None:
        self.agent.start()
        until(self.connected, "it is connected")

    def close(self) -> None:
        for process in (self.agent, self.plane):
            pid = process.process.pid
            process.stop() if process is self.agent else process.close()
            clocks.sweep(pid)
        self.agent.note_secrets()
