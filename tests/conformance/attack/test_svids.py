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


def register(plane, node: str) -> None:
    mac = "52:54:" + ":".join(f"{byte:02x}" for byte in secrets.token_bytes(4))
    plane.cli("node", "register", node, "--mac", mac)


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
