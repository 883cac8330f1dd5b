"""Enrollments while the HSM is killed and comes back. Proves TASK-02: the CA's key in an HSM, under load."""

import os
import random
import threading

import certs
import hsm
import native
from machine import until

SOAK = os.environ.get("ENLIST_SOAK") == "1"
ENROLLMENTS = int(os.environ.get("ENLIST_HSM_ENROLLMENTS", "1000" if SOAK else "100"))
KILLS = 5 if SOAK else 2
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
THREADS = 8


class Crowd:
    """Machines that enroll one after the other and ask again, as agents do, while they are told that it is worth it."""

    def __init__(self, plane):
        self.plane, self.key = plane, certs.ec_key()
        self.waiting = [(number, plane.token()) for number in range(ENROLLMENTS)]
        self.lock = threading.Lock()
        self.answers: dict[int, object] = {}
        self.refusals: list[str] = []
        self.faults: list[BaseException] = []
        self.threads = [threading.Thread(target=self.work) for _ in range(THREADS)]

    def work(self) -> None:
        try:
            with native.door(self.plane) as door:
                while True:
                    with self.lock:
                        if not self.waiting:
                            return
                        number, token = self.waiting.pop()
                    self.answers[number] = until(lambda: self.once(door, number, token), f"machine {number} is in")
        except BaseException as fault:
            self.faults.append(fault)

    def once(self, door, number: int, token: str):
        try:
            return door.enroll(token, certs.csr(self.key), f"hsm-{number}")
        except native.Refused as refusal:
            # Nothing else may be said of an HSM that is away, or the machine would give up.
            assert refusal.code == "issuer_unavailable", refusal
            self.refusals.append(refusal.code)
            return None


def test_every_machine_gets_in_although_the_hsm_is_killed_meanwhile():
    """No token is lost, none is used twice, every certificate verifies."""
    print(f"seed {SEED}, {ENROLLMENTS} enrollments")
    chance = random.Random(SEED)
    token = hsm.Token()
    remote = hsm.Remote(token).start()
    try:
        with hsm.control_plane(token, remote) as plane:
            crowd = Crowd(plane)
            for thread in crowd.threads:
                thread.start()
            for kill in range(KILLS):
                share = ENROLLMENTS * (kill + chance.random()) / (KILLS + 1)
                until(lambda share=share: len(crowd.answers) >= share or crowd.faults, "some are in")
                before = len(crowd.refusals)
                remote.kill()
                until(lambda before=before: len(crowd.refusals) > before or crowd.faults, "machines were refused")
                remote.start()
            for thread in crowd.threads:
                thread.join()
            assert not crowd.faults, crowd.faults
            hsm.until_ready(plane)
            nodes = {node["node_id"]: node["cert_serial"] for node in plane.nodes()}
            assert len(nodes) == len(crowd.answers) == ENROLLMENTS
            assert {answer.node_id: answer.cert_serial for answer in crowd.answers.values()} == nodes
            anchors = plane.cli("ca", "export").json()["pem"].encode()
            issuers = {certs.der(ca): ca for ca in certs.certificates(anchors)}
            for answer in crowd.answers.values():
                leaf = certs.certificate(answer.certificate)
                (issuer,) = [ca for ca in issuers.values() if ca.subject == leaf.issuer]
                leaf.verify_directly_issued_by(issuer)
            sample = crowd.answers[0].certificate.encode()
            assert certs.verifies(sample, anchors, "-purpose", "sslclient")
            print(f"{len(crowd.refusals)} refusals, {KILLS} kills")
    finally:
        remote.close()
