"""Power loss under load: what was acknowledged is kept, and nothing is given twice."""

import os
import random
import threading
import time

import certs
import evidence
import native
from plane import ControlPlane

ROUNDS = int(os.environ.get("ENLIST_KILL_ROUNDS", "10"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
THREADS, TOKENS = 6, 60


class Attempt:
    """One token with the key pair and idempotency key it is redeemed with."""

    def __init__(self, number: int, minted: dict, key):
        self.token, self.token_id = minted["token"], minted["token_id"]
        self.csr, self.idempotency = certs.csr(key), f"kill-{number}"
        self.answer = None


def load(plane, attempts: list[Attempt], stop: threading.Event) -> list[threading.Thread]:
    """Threads that redeem one attempt after the other until told to stop."""
    queue, lock = list(attempts), threading.Lock()

    def work() -> None:
        with native.door(plane) as connection:
            while not stop.is_set():
                with lock:
                    if not queue:
                        return
                    attempt = queue.pop()
                try:
                    attempt.answer = connection.enroll(attempt.token, attempt.csr, attempt.idempotency, patience=10)
                except native.Refused as refusal:
                    assert refusal.code is None or stop.is_set(), refusal

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    return threads


def check_the_acknowledged(plane, attempts: list[Attempt]) -> None:
    """Every acknowledged enrollment is listed with its serial, its certificate is on record, its token is spent."""
    nodes = {node["node_id"]: node for node in plane.nodes()}
    with native.door(plane) as connection:
        for attempt in attempts:
            if attempt.answer:
                assert nodes[attempt.answer.node_id]["cert_serial"] == attempt.answer.cert_serial
                shown = plane.node(attempt.answer.node_id)["certificates"]
                leaf = certs.certificate(attempt.answer.certificate)
                assert "sha256:" + certs.fingerprint(leaf) in [c["fingerprint"] for c in shown]
                assert connection.refused(attempt.token, attempt.csr).code == "token_used"


def finish(plane, attempts: list[Attempt]) -> None:
    """Repeats everything with its idempotency key: the acknowledged gets the same, the rest gets through once."""
    with native.door(plane) as connection:
        for attempt in attempts:
            answer = connection.enroll(attempt.token, attempt.csr, attempt.idempotency)
            assert attempt.answer is None or answer.certificate == attempt.answer.certificate
            attempt.answer = answer
            assert connection.refused(attempt.token, attempt.csr).code == "token_used"


def test_sigkill_under_load_loses_and_doubles_nothing(programs):
    """N rounds of SIGKILL in the middle of enrollments. The seed is printed and ENLIST_SEED replays it."""
    print(f"seed {SEED}")
    chance, key = random.Random(SEED), certs.ec_key()
    everything: list[Attempt] = []
    plane = ControlPlane().found().start()
    try:
        plane.policy("failures.per_minute", "0")
        acknowledged = 0
        for number in range(ROUNDS):
            attempts = [Attempt(number * TOKENS + i, plane.mint(), key) for i in range(TOKENS)]
            stop = threading.Event()
            threads = load(plane, attempts, stop)
            time.sleep(chance.uniform(0.0, 0.25))  # the moment of the fault, not a wait for anything
            plane.kill()
            stop.set()
            for thread in threads:
                thread.join()
            acknowledged += sum(attempt.answer is not None for attempt in attempts)
            plane.start()
            check_the_acknowledged(plane, attempts)
            finish(plane, attempts)
            everything += attempts
            verified = plane.cli("audit", "verify").json()
            assert verified["ok"], (number, verified)
        used = {t["token_id"]: t["used_by"] for t in plane.items("/v1/tokens?all=true&limit=1000")}
        by_node = [used[attempt.token_id] for attempt in everything]
        assert len(set(by_node)) == len(everything)
        assert {node["node_id"] for node in plane.nodes()} == set(by_node)
        assert [used[attempt.token_id] for attempt in everything] == [a.answer.node_id for a in everything]
        print(f"{acknowledged} of {len(everything)} were acknowledged before a kill")
    finally:
        plane.close()


def test_a_kill_in_the_middle_of_founding_can_be_started_over(programs):
    """`server init` killed at a random moment leaves nothing that a second init cannot deal with or name."""
    import signal
    import subprocess

    from machine import ENLIST, clean_env

    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(5):
        plane = ControlPlane()
        process = subprocess.Popen(
            [
                str(ENLIST),
                "server",
                "init",
                "--dir",
                str(plane.dir),
                "--domain",
                "test.example",
                "--kek",
                plane.kek,
                "--listen",
                "127.0.0.1:0",
                "--root-key-out",
                str(plane.base / "root.key"),
            ],
            env=clean_env(),
            stdout=subprocess.DEVNULL,
            stderr=evidence.log("init").open("wb"),
        )
        time.sleep(chance.uniform(0.0, 0.1))  # the moment of the fault
        process.send_signal(signal.SIGKILL)
        process.wait()
        whole = (plane.dir / "VERSION").exists()
        done = plane.init_command()
        if whole:
            assert done.code != 0
            plane.start()
            plane.close()
        elif done.code == 0:
            plane.founded = done.json()
            evidence.private_key("root", plane.founded["root_key_pem"].encode())
            plane.start()
            plane.close()
        else:
            assert done.code == 1 and done.error()["hint"], done
            assert plane.run_to_end().code in (1, 2)
