"""What an enrollment costs through step-ca, beside our own issuer in the same run: CPU of the control plane and of step-ca.

    ENLIST_BIN_DIR=target/release target/venv/bin/python tests/harness/step_ca_cost.py [ENROLLMENTS]

Two control planes, sixteen clients, a new TLS connection per enrollment; rounds alternate, so that other work on the machine disturbs
both alike.
"""

import concurrent.futures
import statistics
import sys

import certs
import native
import step_cas
from hostile import cpu
from plane import ControlPlane

CLIENTS, ROUNDS = 16, 3


def enroll_all(plane, count: int) -> None:
    tokens = [plane.token() for _ in range(count)]
    requests = [certs.good_csr() for _ in range(count)]

    def enroll(number: int) -> None:
        with native.door(plane) as door:
            door.enroll(tokens[number], requests[number])

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(enroll, range(count)))


def measured(plane, count: int, *others: int) -> list[float]:
    """Microseconds of CPU for each enrollment: of the control plane, then of the others. Minting is measured first and left out."""
    began = cpu(plane.process.pid)
    for _ in range(count):
        plane.token()
    minting = cpu(plane.process.pid) - began
    before = [cpu(pid) for pid in (plane.process.pid, *others)]
    enroll_all(plane, count)
    after = [cpu(pid) for pid in (plane.process.pid, *others)]
    spent = [end - begin for begin, end in zip(before, after)]
    spent[0] -= minting
    return [1e6 * one / count for one in spent]


def main(count: int) -> None:
    with step_cas.running() as step_ca, step_cas.control_plane(step_ca) as behind, ControlPlane() as own:
        step_cas.until_ready(behind)
        rows: dict[str, list[list[float]]] = {"own issuer": [], "step-ca": []}
        for plane in (own, behind):
            plane.policy("failures.per_minute", "0")
            enroll_all(plane, 32)
        for _ in range(ROUNDS):
            rows["own issuer"].append(measured(own, count))
            rows["step-ca"].append(measured(behind, count, step_ca.process.pid))
        print("| issuer | control plane, each | step-ca, each |")
        print("|---|---|---|")
        for name, rounds in rows.items():
            middle = [f"{statistics.median(column):,.0f} µs" for column in zip(*rounds)]
            print(f"| {name} | {middle[0]} | {middle[1] if len(middle) > 1 else '–'} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
