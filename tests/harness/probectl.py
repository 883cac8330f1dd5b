"""A client of the probectl door, from its document alone: JSON over HTTPS, ECDSA over the next request."""

import contextlib
import time

import certs
import evidence
from certs import ec
from machine import scratch
from plane import ControlPlane

UNTOLD = {"x-request-id", "x-server-time", "date"}
"""Headers that differ between two answers that say the same."""


@contextlib.contextmanager
def control_plane(**named):
    """A domain as the document names it, without the limit on failures."""
    with ControlPlane(domain="probectl", **named) as running:
        running.policy("failures.per_minute", "0")
        yield running


def mint(plane, headers: dict | None = None, **fields) -> dict:
    """A join token, by the local platform-admin."""
    answer = plane.api("POST", "/v1/agents/enroll-tokens", fields, headers)
    assert answer.status == 201, answer
    minted = answer.json()
    evidence.token(minted["token"])
    return minted


def token(plane, **named) -> str:
    return mint(plane, **named)["token"]


def ask_enroll(plane, token: str, csr: str | None = None, headers: dict | None = None, **fields):
    """The answer to an enrollment, whatever it is."""
    body = {"token": token, "csr_pem": csr or certs.good_csr(), **fields}
    return plane.https("POST", "/enroll/agent", body, headers)


def proof(key, csr: str) -> str:
    """What the current key says about the next request."""
    return key.sign(csr.encode(), ec.ECDSA(certs.SHA256)).hex()


def ask_rotate(plane, cert: str, csr: str, proof: str, **fields):
    return plane.https("POST", "/enroll/agent/rotate", {"cert_pem": cert, "csr_pem": csr, "proof": proof, **fields})


class Agent:
    """An agent that was let in: its identity as it was told, and its key."""

    def __init__(self, plane, answer, key):
        assert answer.status == 200, answer
        self.plane, self.key, self.told = plane, key, answer.json()
        self.id, self.serial, self.cert = self.told["agent_id"], self.told["serial"], self.told["cert_pem"]
        self.leaf = certs.certificates(self.cert)[0]
        self.files = certs.identity(scratch("agent"), key, self.cert)

    def ask_rotate(self, csr: str, signer=None, cert: str | None = None, **fields):
        return ask_rotate(self.plane, cert or self.cert, csr, proof(signer or self.key, csr), **fields)

    def rotated(self, key=None) -> "Agent":
        """The same agent with its next certificate, which nobody has seen yet."""
        key = key or certs.ec_key()
        return Agent(self.plane, self.ask_rotate(certs.csr(key)), key)

    def shown(self) -> dict:
        answer = self.plane.api("GET", f"/v1/agents/{self.id}", headers={"X-Tenant": self.told["tenant_id"]})
        assert answer.status == 200, answer
        return answer.json()

    def speak(self) -> None:
        """Any authenticated request."""
        import native

        with native.door(self.plane, self.files) as door:
            door.confirm()

    def statuses(self) -> dict:
        return {item["serial"]: item["status"] for item in self.plane.node(self.id)["certificates"]}


def enroll(plane, of: str | None = None, key=None, **fields) -> Agent:
    """Lets a new agent in, the plain way."""
    key = key or certs.ec_key()
    return Agent(plane, ask_enroll(plane, of or token(plane), certs.csr(key), **fields), key)


def said(answer) -> tuple:
    """All of an answer that a caller could tell apart."""
    headers = sorted((name.lower(), value) for name, value in answer.headers.items() if name.lower() not in UNTOLD)
    return answer.status, answer.body, headers


def reasons(plane) -> set[str]:
    """The exact reasons of refusals, as the trail has them."""
    return {line["reason"] for line in plane.audit("enrollment.refused")}


def seconds_from_now(moment: str) -> float:
    import datetime

    return datetime.datetime.fromisoformat(moment).timestamp() - time.time()
