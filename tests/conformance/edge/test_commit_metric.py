"""What `enlist_commit_seconds` counts."""

import datetime
import re

import certs
import lost
import native
from machine import until

TIMES = 12


def commits(plane) -> int:
    text = plane.api("GET", "/metrics").body.decode()
    return int(re.search(r"^enlist_commit_seconds_count (\d+)$", text, re.M).group(1))


def silent(plane, node: str) -> float:
    """For how many seconds the control plane has not heard of a node, by its own clock."""
    answer = plane.api("GET", f"/v1/nodes/{node}")
    seen = datetime.datetime.fromisoformat(answer.json()["last_seen"])
    return int(answer.headers["X-Server-Time"]) / 1000 - seen.timestamp()


def test_commits_of_enrollments_renewals_and_recoveries_are_timed(plane_of_its_own):
    """Each is one proposal at least, and is in the histogram once its answer is out."""
    plane = plane_of_its_own
    plane.policy("liveness.grace", "1s")
    tokens = [plane.token() for _ in range(TIMES)]
    with native.door(plane) as door:
        before = commits(plane)
        for token in tokens:
            door.enroll(token, certs.good_csr())
        assert commits(plane) - before >= TIMES
    held = [lost.provided(plane) for _ in range(TIMES)]
    doors = [node.door() for node, _ in held]
    before = commits(plane)
    for door in doors:
        door.renew(certs.good_csr())
    assert commits(plane) - before >= TIMES
    for door in doors:
        door.close()

    # Asking would be refused, and a refusal is a commit too: the clock of the control plane tells.
    until(lambda: all(silent(plane, node.id) > 2 for node, _ in held), "the nodes count as lost")
    with native.door(plane) as door:
        before = commits(plane)
        for _, grant in held:
            door.recover(grant.token, certs.good_csr())
        assert commits(plane) - before >= TIMES
