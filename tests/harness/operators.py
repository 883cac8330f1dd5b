"""Operators as tests make them, and curl as their client."""

import json

import evidence
from machine import scratch, tool


def make_key(plane, role: str, *options) -> dict:
    made = plane.cli("operator", "key", "create", f"{role}-key", "--role", role, *options).json()
    evidence.token(made["key"])
    return made


def curl(plane, method: str, path: str, *options, key: str | None = None):
    """Status, headers and body as curl got them. The key is passed in a file, as anyone should."""
    arguments = ["curl", "-sS", "-i", "--http1.1", "-X", method, "--cacert", plane.dir / "ca" / "bundle.pem"]
    if key:
        config = scratch("curl") / "config"
        config.write_text(f'header = "Authorization: Bearer {key}"\n')
        arguments += ["-K", config]
    done = tool(*arguments, *options, f"{plane.url}{path}")
    head, _, body = done.out.replace("\r\n", "\n").partition("\n\n")
    status, *fields = head.split("\n")
    headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    return int(status.split()[1]), headers, body


def code_of(body: str) -> str:
    return json.loads(body)["error"]["code"]
