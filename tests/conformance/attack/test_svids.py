"""Who has an SVID, or a CA of SPIRE that has ended: what it cannot do."""

import contextlib
import secrets
import time

import pytest
import svids
from plane import ControlPlane
from spires import accepts

import certs
import native
import pacts


@contextlib.contextmanager
def accepting(domain):
    plane = ControlPlane().found()
    accepts(plane, domain)
    try:
        plane.start()
        plane.policy("failures.per_minute", "0")
        yield plane
    finally:
        plane.close()


def register(plane, node: str) -> str:
    mac = "52:54:" + ":".join(f"{byte:02x}" for byte in secrets.token_bytes(4))
    plane.cli("node", "register", node, "--mac", mac)
    return mac


def test_a_connection_by_svid_ends_with_the_ca_that_vouches_for_it(programs):
    """The CA in the bundle, or one in between, may end before the SVID does."""
    lasting, ending = svids.ca(), svids.ca(seconds=25)
    below = svids.ca(above=lasting, seconds=25)
    domain = svids.Domain(lasting, ending)
    with accepting(domain) as plane:
        register(plane, "n1")
        shown = [
            svids.svid(ending, domain.id("n1")),
            svids.svid(below, domain.id("n1"), sent=(below,)),
        ]
        streams = [native.door(plane, files).live("n1") for files in shown]
        for stream in streams:
            stream.next("welcome")
        end = max(one[0].not_valid_after_utc for one in (ending, below))
        while svids.now() < end:
            time.sleep(0.5)
        for stream in streams:
            stream.wait_end()
        assert (svids.now() - end).total_seconds() < 15
        assert all(native.alert(plane, files) is not None for files in shown)


def test_an_svid_that_is_copied_takes_no_place_from_the_hosts_own_renewals(programs):
    """Renewals by SVID whose certificates nobody shows: sixteen, and the host renews all the same."""
    authority = svids.ca()
    domain = svids.Domain(authority)
    with accepting(domain) as plane:
        host = native.enroll(plane)
        host.confirm()
        copied = svids.svid(authority, domain.id(host.id))
        with native.door(plane, copied) as door:
            for number in range(64):
                try:
                    door.renew(certs.csr(certs.ec_key()))
                except native.Refused as refused:
                    assert refused.code == "too_many_certificates", refused
                    break
            else:
                pytest.fail("an SVID may fill the record of a node")
        assert number <= 16, number
        assert "somebody else may have it" in plane.err.read_text(errors="replace")
        host.renewed().confirm()


def test_hardware_takes_no_place_of_a_host_that_lives_by_its_svid(programs):
    """Whoever knows the addresses of a node without a certificate on record is refused while it is there, and operators hear of it. So
    they do when a token of theirs takes its place."""
    authority = svids.ca()
    domain = svids.Domain(authority)
    with accepting(domain) as plane:
        pacts.allow_hardware(plane)
        identity = pacts.hardware(register(plane, "n1"))
        stream = native.door(plane, svids.svid(authority, domain.id("n1"))).live("n1")
        stream.next("welcome")
        with pacts.Door(plane) as stranger:
            assert stranger.enroll_refused(identity).status == pacts.Status.ALREADY_EXISTS
        assert kinds(plane) == {"already_active"}
        assert plane.audit("host.enrolled") == []
        refused = plane.cli("token", "create", "--node", "n1", ok=False)
        assert refused.code == 3 and "node_connected" in refused.out + refused.err, refused
        native.enroll(plane, plane.token(node="n1", replace=True))
        assert kinds(plane) == {"already_active", "node_replaced"}


def kinds(plane) -> set[str]:
    return {alert["kind"] for alert in plane.items("/v1/alerts?limit=1000") if alert["node_id"] == "n1"}
