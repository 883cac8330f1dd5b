"""`enlist-agent enroll` interrupted, doubled, or without a place to write."""

import os
import random
import subprocess
import time

import certs
import evidence
from agents import enroll, enroll_command, listed, serialization_key
from machine import PATIENCE, clean_env, scratch

SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))


def test_sigkill_in_the_middle_leaves_nothing_half_done(plane):
    """Killed at random moments: the next run with the same token ends enrolled, as one node, with whole files."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for number in range(8):
        directory, token = scratch("kill") / "a", plane.token()
        before = {node["node_id"] for node in plane.nodes()}
        command = enroll_command(plane, directory, "--token", "-")
        with evidence.log("agent-killed").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=clean_env())
            process.stdin.write(token.encode())
            process.stdin.close()
            time.sleep(chance.uniform(0.0, 0.15))  # the moment of the fault
            process.kill()
            process.wait()
        current = directory / "identity" / "current"
        if current.exists():
            cert = certs.certificate((current / "cert.pem").read_bytes())
            key = serialization_key((current / "key.pem").read_bytes())
            assert certs.public_der(cert.public_key()) == certs.public_der(key)
        done = enroll(plane, directory, token=token)
        assert done.code == 0, (number, done)
        assert len({node["node_id"] for node in plane.nodes()} - before) == 1
        assert listed(plane, directory)["state"] == "active", number


def test_two_agents_in_one_directory_make_one_identity(plane, place):
    """Started at the same time with two tokens: whole files, and the one on disk is active."""
    tokens = [plane.mint() for _ in range(2)]
    with evidence.log("agent-two").open("wb") as log:
        command = enroll_command(plane, place / "a", "--token", "-")
        processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=clean_env()) for _ in tokens
        ]
        for process, minted in zip(processes, tokens):
            process.stdin.write(minted["token"].encode())
            process.stdin.close()
        codes = [process.wait(PATIENCE) for process in processes]
    assert 0 in codes
    assert listed(plane, place / "a")["state"] == "active"
    key = serialization_key((place / "a" / "identity" / "current" / "key.pem").read_bytes())
    leaf = certs.certificate((place / "a" / "identity" / "current" / "cert.pem").read_bytes())
    assert certs.public_der(key) == certs.public_der(leaf.public_key())


def test_an_unwritable_directory_costs_no_token(plane, place):
    """What cannot be stored is noticed before the token is sent."""
    (place / "file").write_text("in the way")
    minted = plane.mint()
    done = enroll(plane, place / "file" / "a", token=minted["token"])
    assert done.code in (1, 2), done
    assert plane.token_state(minted["token_id"]) == "unused"
