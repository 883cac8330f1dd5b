"""Nothing is signed for whoever has no valid credential: counted where the key is, by a stand-in for step-ca. Every API is
tried. PROBE-24, D01."""

import certs
import hosts
import native
import pacts
import probectl
import pytest
import step_cas
import workers
from false_step_ca import FalseStepCa
from machine import until
from plane import ControlPlane


@pytest.fixture(scope="module")
def signer(programs):
    """A control plane, and how many signatures its issuer has been asked for."""
    false = FalseStepCa()
    try:
        with ControlPlane(init=false.init()) as plane:
            plane.policy("failures.per_minute", "0")
            pacts.allow_hardware(plane)
            step_cas.until_ready(plane)
            yield plane, lambda: len(false.orders)
    finally:
        false.close()


@pytest.fixture(scope="module")
def invalid(signer) -> dict:
    """A token of every kind that is good for nothing."""
    plane, _ = signer
    short, used, revoked = plane.mint(expires="10s"), plane.token(), plane.mint()
    native.enroll(plane, used)
    assert plane.api("DELETE", f"/v1/tokens/{revoked['token_id']}").status == 204
    until(lambda: plane.token_state(short["token_id"]) == "expired", "the token has expired")
    return {
        "unknown": "pjt_" + "0" * 64,
        "malformed": "no token at all",
        "expired": short["token"],
        "used": used,
        "revoked": revoked["token"],
    }


def ask_everywhere(plane, token: str) -> None:
    """Every API is asked for a certificate with this token and a good request, and refuses."""
    request = certs.good_csr()
    answers = {
        "probectl": probectl.ask_enroll(plane, token, request),
        "plfm": hosts.ask(plane, hosts.request(token, request)),
        "taskrun": workers.ask_enroll(plane, token, request),
    }
    assert all(400 <= answer.status < 500 for answer in answers.values()), answers
    with native.door(plane) as door:
        door.refused(token, request)
        door.recovery_refused(token, request)


@pytest.mark.parametrize("kind", ["unknown", "malformed", "expired", "used", "revoked"])
def test_nothing_is_signed_before_a_valid_token(signer, invalid, kind):
    """Proves PROBE-24: no signature for an invalid token, whichever API it comes by; the next valid one causes exactly one."""
    plane, count = signer
    before = count()
    ask_everywhere(plane, invalid[kind])
    assert count() == before
    probectl.enroll(plane)
    assert count() == before + 1


def test_nothing_is_signed_for_unknown_hardware(signer):
    """Proves PACT-05: not for a machine that is not registered; one that is causes exactly one signature."""
    plane, count = signer
    with pacts.admin(plane) as operator, pacts.Door(plane) as stranger:
        before = count()
        assert stranger.enroll_refused(pacts.hardware()).code == "node_not_enrolled"
        assert count() == before
        machine = pacts.machine(plane, operator, "known-1")
        assert count() == before + 1
        assert stranger.enroll_refused(pacts.hardware(machine.plane.node("known-1")["macs"][0])).code == "already_active"
        assert count() == before + 1


def test_nothing_is_signed_for_a_rotation_that_proves_nothing(signer):
    """Proves PROBE-24: a rotation by a key that is not the certificate's; the true one causes exactly one signature."""
    plane, count = signer
    agent = probectl.enroll(plane)
    before = count()
    assert agent.ask_rotate(certs.good_csr(), signer=certs.ec_key()).status == 401
    assert count() == before
    agent.rotated()
    assert count() == before + 1
