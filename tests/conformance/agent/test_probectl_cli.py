"""The command lines of 002, word for word, through the linked names."""

import hashlib
import re

import pytest

import certs
import evidence
from agents import status
from linked import mode, on_command_line
from machine import run, tool
from plane import ControlPlane
from terminal import shown

JOIN = re.compile(r"pjt_[0-9a-f]{64}")


@pytest.fixture(scope="module")
def control(names):
    """A control plane founded by the document's own command."""
    plane = ControlPlane(domain="probectl")
    env = {"ENLIST_DIR": str(plane.dir), "ENLIST_KEK": plane.kek}
    done = names("probectl-control", "agent-ca", "init", "-listen", "127.0.0.1:0", "-json", env=env)
    plane.founded = done.json()
    evidence.private_key("root", plane.founded["root_key_pem"].encode())
    plane.start()
    assert plane.api("POST", "/v1/tenants", {"name": "acme"}).status == 201
    yield plane
    plane.close()


def minted(names, control, *arguments) -> dict:
    done = names("probectl-control", "enroll-token", "-json", *arguments, plane=control)
    evidence.token(done.json()["token"])
    return done.json()


def test_a_hierarchy_is_made_once(names, place):
    """Proves PROBE-09: the root key is printed and stored nowhere; a second init is refused."""
    env = {"ENLIST_DIR": str(place / "d")}
    done = names("probectl-control", "agent-ca", "init", env=env)
    key = re.search(r"-----BEGIN PRIVATE KEY-----.+?-----END PRIVATE KEY-----\n", done.out, re.S).group()
    evidence.private_key("root", key.encode())
    assert "warning" in done.err and "key-encryption key" in done.err
    root = certs.certificate((place / "d/ca/bundle.pem").read_bytes())
    assert certs.public_der(certs.serialization.load_pem_private_key(key.encode(), None)) == certs.public_der(root)
    constraints = root.extensions.get_extension_for_class(certs.x509.BasicConstraints).value
    assert constraints.ca and constraints.path_length == 1
    assert (root.not_valid_after_utc - root.not_valid_before_utc).days >= 3650
    secret = key.splitlines()[1].encode()
    assert not [path for path in (place / "d").rglob("*") if path.is_file() and secret in path.read_bytes()]
    again = names("probectl-control", "agent-ca", "init", env=env, ok=False)
    assert again.code != 0 and "PRIVATE KEY" not in again.out + again.err, again


def test_the_domain_is_the_documents(control):
    """Proves PROBE-09, PROBE-12: one pinned trust domain."""
    assert control.founded["trust_domain"] == "probectl"


def test_what_verifies_agents_is_exported(names, control, place):
    """Proves PROBE-13: root and intermediate, to a file or to standard output."""
    shown = names("probectl-control", "agent-ca", "export", "-", plane=control).out
    names("probectl-control", "agent-ca", "export", place / "ca.pem", plane=control)
    assert (place / "ca.pem").read_text() == shown
    assert len(certs.certificates(shown)) == 2


@pytest.mark.parametrize("dash", ["-", "--"])
def test_a_token_is_minted_with_one_dash_or_two(names, control, dash):
    """Proves PROBE-02, PROBE-03, PROBE-04, PROBE-22: token, id, expiry, pin and the agent's command."""
    agent = f"probe{len(dash)}"
    flags = (f"{dash}tenant", "acme", f"{dash}agent", agent, f"{dash}ttl", "30m")
    done = names("probectl-control", "enroll-token", *flags, plane=control)
    token = evidence.token(JOIN.search(done.out).group())
    (line,) = [item for item in control.items("/v1/tokens") if item["node"] == agent]
    leaf = certs.certificates((control.dir / "ca/server.pem").read_bytes())[0]
    pin = hashlib.sha256(certs.der(leaf)).hexdigest()
    assert line["tenant"] == "acme" and line["profile"] == "probectl"
    for word in (line["token_id"], line["expires_at"], pin):
        assert word in done.out
    assert f"probectl-agent enroll --server {control.url} --token {token} --dir " in done.out
    assert f"--ca-pin {pin}" in done.out


def test_a_new_token_fits_the_terminal(names, control):
    """At a terminal of 80 columns only a word that is longer than a line is."""
    done = shown(names.bin / "probectl-control", "enroll-token", env={"ENLIST_DIR": str(control.dir)})
    evidence.token(JOIN.search(done.written).group())
    assert all(len(line.split()) == 1 for line in done.too_wide()), done.too_wide()


def test_a_life_may_have_several_units(names, control):
    """Durations as that program's language writes them."""
    token = minted(names, control, "-ttl", "1h30m0s")
    record = control.api("GET", f"/v1/tokens/{token['id']}").json()
    from datetime import datetime

    life = datetime.fromisoformat(record["expires_at"]) - datetime.fromisoformat(record["created_at"])
    assert life.total_seconds() == 5400


def test_refusals_and_usage(names, control):
    """3 for what the control plane refuses, 2 for what nobody understands."""
    done = names("probectl-control", "enroll-token", "-tenant", "nobody", "-json", plane=control, ok=False)
    assert (done.code, done.error()["code"]) == (3, "tenant_not_found"), done
    assert names("probectl-control", "enroll-token", "-colour", plane=control, ok=False).code == 2
    assert names("probectl-control", "agent-ca", plane=control, ok=False).code == 2
    assert "-tenant" in names("probectl-control", "enroll-token", "--help").out


def test_an_agent_is_enrolled_with_the_printed_command(names, control, place):
    """Proves PROBE-21, PROBE-22, PROBE-12: every file for this user alone, the key as SEC1."""
    token = minted(names, control, "-tenant", "acme", "-agent", "a-1")
    words = token["agent_command"].split()
    on_command_line(token["token"])
    words[words.index("--dir") + 1] = str(place / "id")
    assert words[0] == "probectl-agent"
    names(*words)
    there = place / "id"
    for name in ("key.pem", "cert.pem", "ca.pem"):
        assert mode(there / name) == 0o600 and (there / name).is_symlink()
    key = (there / "key.pem").read_bytes()
    evidence.private_key("agent", key)
    assert key.startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    assert "NIST CURVE: P-256" in tool("openssl", "ec", "-in", there / "key.pem", "-noout", "-text").out
    leaf, *chain = certs.certificates((there / "cert.pem").read_bytes())
    assert certs.uris(leaf) == ["spiffe://probectl/tenant/acme/agent/a-1"] and len(chain) == 1
    assert certs.public_der(leaf) == certs.public_der(certs.serialization.load_pem_private_key(key, None))
    assert certs.verifies(certs.pem(leaf), (there / "ca.pem").read_bytes())
    files = ("--cacert", there / "ca.pem", "--cert", there / "cert.pem", "--key", there / "key.pem")
    assert tool("curl", "-sS", "--fail", *files, f"{control.url}/readyz").code == 0
    assert status(there)["node_id"] == "a-1"


def test_a_wrong_pin_is_refused_and_costs_nothing(names, control, place):
    """Proves PROBE-22: no trust on first use; without a pin only public trust counts."""
    token = minted(names, control, "-tenant", "acme")
    base = ("enroll", "--server", control.url, "--token", "-", "--dir", place / "id", "--timeout", "60s")
    for trust in (("--ca-pin", "ab" * 32), ()):
        done = names("probectl-agent", *base, *trust, ok=False, stdin=token["token"].encode())
        assert done.code == 4, done
        assert control.token_state(token["id"]) == "unused"
    done = names(
        "probectl-agent", *base, "-ca-pin", token["server_cert_pin"], stdin=token["token"].encode(), ok=False
    )
    assert done.code == 0, done
    evidence.private_key("agent", (place / "id/key.pem").read_bytes())


def test_defaults_are_the_documents(names):
    """Proves PROBE-21."""
    assert "/var/lib/probectl-agent/identity" in names("probectl-agent", "enroll", "--help").out
    assert run(names.bin / "probectl-agent", "enroll", "--server").code == 2
