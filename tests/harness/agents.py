"""How tests run the agent and look at what it left."""

import certs
import evidence
from machine import AGENT, run


def enroll_command(plane, directory, *options, server: str | None = None, trust=None) -> list[str]:
    """The agent's command line, without a token unless the options name one."""
    trust = ("--ca-pin", plane.pin) if trust is None else trust
    command = AGENT, "enroll", "--server", server or plane.url, "--dir", directory, *trust, *options
    return [str(word) for word in command]


def enroll(plane, directory, *options, token: str | None = None, server: str | None = None, trust=None, env=None):
    """Runs the agent with a token on its standard input, unless the options say otherwise."""
    given = () if token is None else ("--token", "-")
    command = enroll_command(plane, directory, "--json", *given, *options, server=server, trust=trust)
    done = run(*command, stdin=(token or "").encode(), env=env)
    current = directory / "identity" / "current" / "key.pem"
    if current.exists():
        evidence.private_key("agent", current.read_bytes())
    return done


def serial_on_disk(directory) -> str:
    return certs.serial(certs.certificate((directory / "identity" / "current" / "cert.pem").read_bytes()))


def listed(plane, directory) -> dict:
    (node,) = [n for n in plane.nodes() if n["cert_serial"] == serial_on_disk(directory)]
    return node


def status(directory) -> dict:
    """What it says; the exit code agrees with it."""
    done = run(AGENT, "status", "--dir", directory, "--json")
    told = done.json()
    assert done.code == (0 if told["ready"] else 1), done
    return told


def serialization_key(pem: bytes):
    from certs import serialization

    return serialization.load_pem_private_key(pem, None)
