"""An operator whose key nobody else ever has."""

import os
import subprocess

from machine import ENLIST, run


def test_an_operator_comes_with_a_key_that_only_it_has(plane, place):
    """`operator add --csr`: the certificate is for that key, no key is written, and a file with a private key is never sent."""
    name, out = f"alice-{os.urandom(4).hex()}", place / "alice"
    key, csr = place / "key.pem", place / "alice.csr"
    made = subprocess.run(
        ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x", "-keyout", str(key),
         "-out", str(csr)], capture_output=True, check=False)
    assert made.returncode == 0, made
    key.chmod(0o600)
    wrong = plane.cli("operator", "add", name, "--role", "viewer", "--csr", key, "--out", out, ok=False)
    assert wrong.code == 2 and wrong.error()["code"] == "private_key_refused", wrong
    plane.cli("operator", "add", name, "--role", "viewer", "--csr", csr, "--out", out)
    assert sorted(path.name for path in out.iterdir()) == ["ca.pem", "cert.pem", "context.toml"]
    proof = ("--server", plane.url, "--cert", out / "cert.pem", "--key", key, "--ca", out / "ca.pem")
    assert run(ENLIST, "node", "list", *proof).code == 0
    lines = [line for line in plane.audit("operator.added") if line.get("operator") == name]
    assert len(lines) == 1, lines
