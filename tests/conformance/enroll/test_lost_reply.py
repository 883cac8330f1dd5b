"""The token is spent and the answer never arrives."""

import subprocess

import pytest

import certs
import evidence
import native
from machine import AGENT, PATIENCE, clean_env, run, until
from relay import Relay


def lose_the_answer(plane, relay, token: str, csr: str, key: str | None) -> dict:
    """Sends an enrollment whose answer is swallowed once it is committed; gives the node it made."""
    before = {node["node_id"] for node in plane.nodes()}
    with native.Door(relay.port, plane.bundle) as connection:
        # A refusal first, so that the connection stands before answers begin to get lost.
        connection.refused("enroll_" + "A" * 43, csr)
        relay.lose()
        call = connection.begin(token, csr, key)
        new = until(lambda: [n for n in plane.nodes() if n["node_id"] not in before], "it was committed")
        until(lambda: relay.swallowed > 0, "the answer was on its way")
        relay.cut()
        with pytest.raises(native.grpc.RpcError):
            call.result()
    (node,) = new
    return node


def test_a_lost_answer_can_be_asked_for_again(plane, door):
    """With the idempotency key the repeat gives the very certificate that is on record, byte for byte."""
    token, key = plane.token(), certs.ec_key()
    with Relay(plane.port) as relay:
        made = lose_the_answer(plane, relay, token, certs.csr(key), "lost-1")
    answer = door.enroll(token, certs.csr(key), "lost-1")
    assert answer.node_id == made["node_id"] and answer.cert_serial == made["cert_serial"]
    on_record = [c["fingerprint"] for c in plane.node(made["node_id"])["certificates"]]
    assert on_record == ["sha256:" + certs.fingerprint(certs.certificate(answer.certificate))]
    assert door.enroll(token, certs.csr(key), "lost-1") == answer
    assert native.Node(plane, answer, key).confirm().state == "active"


def test_a_lost_answer_is_still_there_after_a_restart(plane):
    """The same bytes again from a process that never signed them."""
    token, key = plane.token(), certs.ec_key()
    with Relay(plane.port) as relay:
        made = lose_the_answer(plane, relay, token, certs.csr(key), "lost-2")
    plane.kill()
    plane.start()
    with native.door(plane) as connection:
        answer = connection.enroll(token, certs.csr(key), "lost-2")
    on_record = [c["fingerprint"] for c in plane.node(made["node_id"])["certificates"]]
    assert on_record == ["sha256:" + certs.fingerprint(certs.certificate(answer.certificate))]


def test_a_lost_answer_without_the_key_is_lost(plane, door):
    """A client that did not prepare for it is refused: the token was used."""
    token, key = plane.token(), certs.ec_key()
    with Relay(plane.port) as relay:
        lose_the_answer(plane, relay, token, certs.csr(key), None)
    assert door.refused(token, certs.csr(key)).code == "token_used"


def test_the_agent_gets_over_a_lost_answer(plane, place):
    """`enlist-agent enroll` through a line that loses its first answer: there by itself, or with a second run."""
    token = plane.token()
    before = {node["node_id"] for node in plane.nodes()}
    command = [str(AGENT), "enroll", "--token", "-", "--ca-pin", plane.pin, "--dir", str(place / "a"), "--json"]
    with Relay(plane.port) as relay:
        relay.lose()
        out, err = evidence.log("agent-out"), evidence.log("agent-err")
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [*command, "--server", relay.url], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=clean_env()
            )
            process.stdin.write(token.encode())
            process.stdin.close()
        try:
            until(
                lambda: process.poll() is not None or {n["node_id"] for n in plane.nodes()} - before,
                "the agent's enrollment was committed",
            )
            assert process.poll() is None, err.read_text()
            until(lambda: relay.swallowed > 0, "the answer was on its way")
            relay.cut()
            code = process.wait(PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if code != 0:
            again = run(*command, "--server", plane.url, stdin=token.encode())
            assert again.code == 0, (err.read_text(), again)
    new = [node for node in plane.nodes() if node["node_id"] not in before]
    assert len(new) == 1
    leaf = certs.certificate((place / "a" / "identity" / "current" / "cert.pem").read_bytes())
    assert certs.serial(leaf) == new[0]["cert_serial"]
    evidence.private_key("agent", (place / "a" / "identity" / "current" / "key.pem").read_bytes())
