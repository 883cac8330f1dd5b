"""What `enlist_commit_seconds` counts."""

import re

import certs
import lost
import native
from machine import until

TIMES = 12


def commits(plane) -> int:
    text = plane.api("GET", "/metrics").body.decode()
    return int(re.search(r"^enlist_commit_seconds_count (\d+)$", text, re.M).group(1))


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

    def recoverable() -> bool:
        """Whether the last one to speak has been silent for long enough."""
        return lost.refused(plane, held[-1][1].token, "no request").code != "recovery_not_needed"

    until(recoverable, "the nodes count as lost")
    with native.door(plane) as door:
        before = commits(plane)
        for _, grant in held:
            door.recover(grant.token, certs.good_csr())
        assert commits(plane) - before >= TIMES
