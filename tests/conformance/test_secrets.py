"""Runs last: nothing of what the whole run left behind holds a secret."""

import re

import pytest

import evidence

TOKEN = re.compile(rb"enroll_[A-Za-z0-9_-]{43}")
MADE_UP = re.compile(rb"enroll_(.)\1{42}")
"""Tokens that tests make up: one character, repeated."""

AS_DOCUMENTED = re.compile(rb"(?:plfm|probectl)-agent\0[^\n]*?--token\0([^\0\n]+)")
"""Two documents write the token on the command lines of their agents; the scripts do it word for word."""


def files():
    found = [path for path in evidence.DIR.rglob("*") if path.is_file()]
    assert found
    return found


def whole_run() -> None:
    if not evidence.tokens:
        pytest.skip("nothing was run before")


def test_no_token_is_in_any_log_store_metric_or_argument():
    """Token values leave the program once, on the standard output of who asked; API keys likewise.

    Proves PROBE-03, TASK-06.
    """
    whole_run()
    known = {token.encode() for token in evidence.tokens}
    allowed = {token.encode() for token in evidence.on_command_line}
    found = []
    for path in files():
        data = path.read_bytes()
        seen = {match for match in TOKEN.findall(data) if not MADE_UP.fullmatch(match)}
        seen |= {run for run in re.findall(rb"[A-Za-z0-9_+/=-]{24,}", data) if run in known}
        if path == evidence.ARGUMENTS:
            seen -= allowed | set(AS_DOCUMENTED.findall(data))
        if seen:
            found.append((str(path.relative_to(evidence.DIR)), len(seen), sorted(seen)[0][:12]))
    assert not found


def test_no_private_key_is_in_any_log_store_or_metric():
    """Neither in PEM nor as raw bytes, hex or base64: root keys, agent keys, operator keys, key-encryption keys. Proves PROBE-10, PROBE-26."""
    whole_run()
    patterns = [(label, spelling) for label, raw in evidence.keys.items() for spelling in evidence.spellings(raw)]
    found = []
    for path in files():
        data = path.read_bytes()
        if re.search(rb"-----BEGIN [A-Z ]*PRIVATE KEY", data):
            found.append((str(path.relative_to(evidence.DIR)), "PEM"))
        found += [(str(path.relative_to(evidence.DIR)), label) for label, spelling in patterns if spelling in data]
    assert not found


def test_no_token_is_stored_in_another_spelling():
    """The 32 bytes inside a token are in no store either, raw or in hex."""
    whole_run()
    import base64

    chosen = sorted(token for token in evidence.tokens if token.startswith("enroll_"))[
        :: max(len(evidence.tokens) // 40, 1)
    ]
    raw = [base64.urlsafe_b64decode(token[7:] + "=") for token in chosen]
    found = []
    for path in files():
        data = path.read_bytes()
        found += [str(path) for secret in raw if secret in data or secret.hex().encode() in data]
    assert not found


def test_something_was_searched():
    """The search itself works: hashes of tokens, which may be stored, are found in a store."""
    whole_run()
    arguments = evidence.ARGUMENTS.read_bytes()
    assert b"server\0run" in arguments
    for token in evidence.on_command_line:
        if f"--token\0{token}".encode() in arguments:
            break
    else:
        if evidence.on_command_line:
            pytest.fail("a token put on a command line was not seen there")
