"""A client of the plfm door, from its document alone: http.client, ssl and keys made here."""

import base64
import os

import certs
import evidence
from machine import scratch

UNDERLAY = {"ipv4": "127.0.0.1", "port": 51820}
FACTS = {"cpu_cores": 32, "memory_bytes": 137438953472, "disk_bytes": 1099511627776, "arch": "amd64"}


def wireguard_key() -> str:
    """A WireGuard public key, as `wg pubkey` prints it."""
    from cryptography.hazmat.primitives.asymmetric import x25519

    private = x25519.X25519PrivateKey.generate()
    evidence.key("wireguard", private.private_bytes_raw())
    return base64.b64encode(private.public_key().public_bytes_raw()).decode()


def mint(plane, tenant: str | None = None, **fields) -> dict:
    answer = plane.api("POST", "/v1/hosts/enroll-tokens", fields, named(tenant))
    assert answer.status == 201, answer
    minted = answer.json()
    evidence.token(minted["token"])
    return minted


def named(tenant: str | None) -> dict:
    return {"X-Tenant": tenant} if tenant else {}


def request(token: str, csr: str | None = None, **fields) -> dict:
    """The document's request, whole; what is given replaces what it would say."""
    whole = {
        "enrollment_token": token,
        "underlay_endpoint": UNDERLAY,
        "hardware_facts": FACTS,
        "wireguard_public_key": wireguard_key(),
        "mtls_csr": csr or certs.good_csr(),
    }
    return {**whole, **fields}


def ask(plane, body, key: str | None = None):
    """One request to be let in, over TLS and without a client certificate."""
    return plane.https("POST", "/v1/hosts/enroll", body, {"Idempotency-Key": key} if key else {})


def unused(plane, token_id: str, tenant: str | None = None) -> bool:
    listed = plane.api("GET", "/v1/hosts/enroll-tokens?limit=1000", headers=named(tenant)).json()["tokens"]
    return token_id in [token["token_id"] for token in listed]


def token(plane, token_id: str) -> dict:
    listed = plane.api("GET", "/v1/hosts/enroll-tokens?all=true&limit=1000").json()["tokens"]
    return next(token for token in listed if token["token_id"] == token_id)


class Host:
    """A machine that was let in."""

    def __init__(self, plane, answer: dict, key, sent: dict, tenant: str | None = None):
        self.plane, self.answer, self.key, self.sent, self.tenant = plane, answer, key, sent, tenant
        self.id = answer["host_id"]
        self.wireguard = sent["wireguard_public_key"]
        self.address = answer["overlay_config"]["host_overlay_ipv6"]
        self.files = certs.identity(scratch("host"), key, answer["mtls_cert"])

    def ask(self, method: str, path: str, body=None, **named):
        """A request with the host's certificate, about itself unless the path says otherwise."""
        path = path if path.startswith("/") else f"/v1/hosts/{self.id}/{path}"
        return self.plane.https(method, path, body, certificate=self.files, **named)

    def confirm(self, body=None) -> dict:
        answer = self.ask("POST", "confirm-enrollment", body)
        assert answer.status == 200, answer
        return answer.json()

    def overlay(self, query: str = "") -> dict:
        answer = self.ask("GET", f"overlay{query}")
        assert answer.status == 200, answer
        return answer.json()

    def peers(self) -> dict:
        """Its peers now, by their keys."""
        return {peer["public_key"]: peer for peer in self.overlay()["overlay_config"]["peers"]}

    def shown(self) -> dict:
        answer = self.plane.api("GET", f"/v1/hosts/{self.id}", headers=named(self.tenant))
        assert answer.status == 200, answer
        return answer.json()

    def act(self, verb: str, body=None) -> dict:
        answer = self.plane.api("POST", f"/v1/hosts/{self.id}/{verb}", body, named(self.tenant))
        assert answer.status == 200, answer
        return answer.json()


def enroll(plane, token: str | None = None, tenant: str | None = None, key=None, **fields) -> Host:
    key = key or certs.ec_key()
    sent = request(token or mint(plane, tenant)["token"], certs.csr(key), **fields)
    answer = ask(plane, sent)
    assert answer.status == 201, answer
    return Host(plane, answer.json(), key, sent, tenant)


def active(plane, **fields) -> Host:
    host = enroll(plane, **fields)
    assert host.confirm() == {"host_id": host.id, "state": "active"}
    return host


def random_key(length: int = 32) -> str:
    """Bit 255 is clear, as in every public key that WireGuard's programs print."""
    drawn = bytearray(os.urandom(length))
    drawn[-1] &= 0x7F
    return base64.b64encode(drawn).decode()
