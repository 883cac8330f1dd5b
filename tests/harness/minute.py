"""Hosts whose certificates end. A certificate lives for 60 seconds at least, so it happens while other tests run."""

import concurrent.futures
import threading
import time

import certs
from daemons import lasting_port
from faults import RECOVERY_TRUST, RUNTIME_TRUST, Patient, kinds
from machine import until
from plane import ControlPlane

LIFE = 60
BLOCKED = "recovery_enrollment_blocked"


class Minute:
    """Two control planes and their hosts.

    The first goes away for longer than any of its certificates lives. The second stays, and refuses to renew.
    """

    def __init__(self):
        self.away, self.stays = short_lived(lasting_port()), short_lived(lasting_port())
        self.patients = {
            name: Patient(self.stays if name == "online" else self.away)
            for name in ("online", "waiting", "off", "revoked", "stale")
        }
        self.ended = threading.Event()
        self.passing = concurrent.futures.ThreadPoolExecutor(1)

    def begin(self) -> "Minute":
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(enroll, self.patients.values()))
        self.nodes = {name: patient.node_id() for name, patient in self.patients.items()}
        for name in ("off", "revoked", "stale"):
            self.patients[name].stop()
        # A renewal brings another.
        self.tokens = {name: patient.wait_token() for name, patient in self.patients.items()}
        self.away.cli("node", "revoke", self.nodes["revoked"], "--reason", "sold")
        self.patients["stale"].forget_trust(RUNTIME_TRUST, RECOVERY_TRUST)
        # Keys of agents are P-256: from here on nobody who stays is renewed.
        self.stays.policy("profile.default.keys", "rsa")
        self.away.stop()
        self.passed = self.passing.submit(self._pass)
        return self

    def _pass(self) -> None:
        ends = max(not_after(patient) for patient in self.patients.values())
        until(lambda: self.ended.is_set() or time.time() > ends + 1, "all certificates have ended", LIFE + 30)
        if self.ended.is_set():
            return
        # The same rule refuses the key that comes with a recovery: told as blocked, not as anything else.
        self.patients["online"].told(BLOCKED)
        assert kinds(self.stays, self.nodes["online"], "recovery.issued") == []
        self.stays.policy("profile.default.keys", "p256,p384,ed25519,rsa")
        self.away.start("--listen", f"127.0.0.1:{self.away.fixed}")
        for name in ("off", "revoked", "stale"):
            self.patients[name].start()

    def wait(self) -> "Minute":
        """Until everybody is back who can be."""
        self.passed.result(LIFE + 120)
        return self

    def close(self) -> None:
        self.ended.set()
        self.passing.shutdown()
        for patient in self.patients.values():
            patient.stop()
            patient.note_secrets()
        self.away.close()
        self.stays.close()


def enroll(patient: Patient) -> None:
    patient.environment["ENLIST_AGENT_TOKEN"] = patient.plane.token()
    patient.start().wait_connected()
    patient.wait_token()


def short_lived(port: int) -> ControlPlane:
    plane = ControlPlane(init=("--advertise", f"https://127.0.0.1:{port}")).found()
    plane.fixed = port
    plane.start("--listen", f"127.0.0.1:{port}")
    plane.policy("failures.per_minute", "0")
    plane.policy("profile.default.lifetime", f"{LIFE}s")
    plane.policy("profile.default.renew_before", "40s")
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", "2s")
    return plane


def not_after(patient: Patient) -> float:
    return certs.certificate((patient.current / "cert.pem").read_bytes()).not_valid_after_utc.timestamp()
