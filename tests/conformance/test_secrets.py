"""Runs last: nothing of what the whole run left behind holds a secret."""

import pathlib
import re
import subprocess
import tempfile

import pytest

import evidence

TOKEN = re.compile(rb"(?:enroll|recovery)_[A-Za-z0-9_-]{43}")
MADE_UP = re.compile(rb"(?:enroll|recovery)_(.)\1{42}")
"""Tokens that tests make up: one character, repeated."""

AS_DOCUMENTED = re.compile(rb"(?:plfm|probectl)-agent\0[^\n]*?--token\0([^\0\n]+)")
"""Two documents write the token on the command lines of their agents; the scripts do it word for word."""


def files():
    found = [path for path in evidence.LEFT.rglob("*") if path.is_file()]
    assert found
    return found


def holding(secrets: list[bytes]):
    """The files that hold one of these, and their content. Found by `grep`, which looks for thousands at once."""
    pieces = [max(secret.split(b"\n"), key=len) for secret in secrets]
    assert all(len(piece) >= 5 for piece in pieces)
    with tempfile.NamedTemporaryFile() as patterns:
        patterns.write(b"\n".join(pieces))
        patterns.flush()
        command = ["grep", "--text", "--recursive", "--files-with-matches", "--fixed-strings", "-f", patterns.name]
        done = subprocess.run([*command, str(evidence.LEFT)], env={"LC_ALL": "C"}, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    for line in done.stdout.splitlines():
        path = pathlib.Path(line.decode())
        yield path, path.read_bytes()


@pytest.fixture(scope="module", autouse=True)
def whole_run():
    """What every process of the run knew; without one there is nothing to look for."""
    evidence.read_all()
    if not evidence.tokens:
        pytest.skip("nothing was run before")


def test_no_token_is_in_any_log_store_metric_or_argument():
    """Token values leave the program once, on the standard output of who asked; API keys likewise.

    Proves PLFM-06, PLFM-32, PROBE-03, TASK-06, GPU-07.
    """
    known = {token.encode() for token in evidence.tokens}
    allowed = {token.encode() for token in evidence.on_command_line}
    found = []
    for path in files():
        data = path.read_bytes()
        seen = {match for match in TOKEN.findall(data) if not MADE_UP.fullmatch(match)}
        seen |= {run for run in re.findall(rb"[A-Za-z0-9_+/=-]{24,}", data) if run in known}
        if path.name == "arguments":
            seen -= allowed | set(AS_DOCUMENTED.findall(data))
        if seen:
            found.append((str(path.relative_to(evidence.LEFT)), len(seen), sorted(seen)[0][:12]))
    assert not found


def test_no_private_key_is_in_any_log_store_or_metric():
    """Neither in PEM nor as raw bytes, hex or base64: root keys, agent keys, operator keys, key-encryption keys.

    Proves PLFM-32, PROBE-10, PROBE-26, GPU-07.
    """
    patterns = [(label, spelling) for label, raw in evidence.keys.items() for spelling in evidence.spellings(raw)]
    found = []
    for path in files():
        if re.search(rb"-----BEGIN [A-Z ]*PRIVATE KEY", path.read_bytes()):
            found.append((str(path.relative_to(evidence.LEFT)), "PEM"))
    for path, data in holding([spelling for _, spelling in patterns]):
        found += [(str(path.relative_to(evidence.LEFT)), label) for label, spelling in patterns if spelling in data]
    assert not found


def test_no_certificate_is_in_any_log():
    """Nor what is trusted: programs name certificates by serial and fingerprint. Proves GPU-07."""
    logs = [path for path in files() if path.parent.name == "logs"]
    assert logs and not [path.name for path in logs if b"-----BEGIN CERTIFICATE" in path.read_bytes()]


def test_no_token_is_stored_in_another_spelling():
    """The 32 bytes inside a token are in no store either, raw or in hex. Proves PLFM-06."""
    import base64

    prefixed = [token for token in evidence.tokens if token.startswith(("enroll_", "recovery_"))]
    raw = [base64.urlsafe_b64decode(token.partition("_")[2] + "=") for token in prefixed]
    spelt = raw + [secret.hex().encode() for secret in raw]
    found = [str(path) for path, data in holding(spelt) if any(secret in data for secret in spelt)]
    assert not found


def test_something_was_searched():
    """The search itself works: what was put on command lines is found there, by either way of looking."""
    assert "arguments" in [path.name for path, _ in holding([b"server\0run"])]
    arguments = evidence.arguments()
    assert b"server\0run" in arguments
    for token in evidence.on_command_line:
        if f"--token\0{token}".encode() in arguments:
            break
    else:
        if evidence.on_command_line:
            pytest.fail("a token put on a command line was not seen there")
