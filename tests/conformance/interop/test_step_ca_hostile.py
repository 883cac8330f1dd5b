"""A step-ca that is not to be trusted, or is not there: what it answers is compared with what it was asked for, and whoever asks is told
which of three things is wrong. Nothing that it signs gets past the control plane.
"""

import concurrent.futures
import datetime
import threading
import time

import pytest

import certs
import native
import step_cas
from certs import x509
from false_step_ca import FalseStepCa, ca, silent
from machine import until
from plane import ControlPlane
from step_cas import until_ready, until_unavailable


@pytest.fixture
def false():
    standing_in = FalseStepCa()
    yield standing_in
    standing_in.close()


@pytest.fixture
def plane(false, programs):
    running = ControlPlane(init=false.init()).found()
    try:
        running.start()
        running.policy("failures.per_minute", "0")
        until_ready(running)
        yield running
    finally:
        running.close()


def refused(plane, minted=None) -> native.Refused:
    minted = minted or plane.mint()
    with native.door(plane) as door:
        refusal = door.refused(minted["token"], certs.good_csr())
    assert plane.token_state(minted["token_id"]) == "unused"
    return refusal


def later(order, **by) -> None:
    order["end"] += datetime.timedelta(**by)


def test_a_stand_in_that_does_as_it_is_told_is_good_enough(plane, false):
    """So that what follows fails for the reason that it names."""
    node = native.enroll(plane)
    node.confirm()
    assert certs.verifies_by_chain(node.files[0].read_bytes(), false.root.read_bytes())
    node.renewed().confirm()
    (claims, *_) = false.orders
    assert claims["enlist"]["spiffe_id"].startswith("spiffe://test.example/tenant/default/agent/")
    assert claims["exp"] - claims["iat"] == 300 and claims["aud"] == f"{false.url}/1.0/sign"


WRONG = {
    "another key": lambda order, false: order.update(public=certs.ec_key().public_key()),
    "another node": lambda order, false: order.update(uris=[order["uris"][0] + "x"]),
    "another trust domain": lambda order, false: order.update(uris=["spiffe://other.example/tenant/default/agent/x"]),
    "an operator": lambda order, false: order.update(uris=["spiffe://test.example/operator/root"]),
    "no name": lambda order, false: order.update(uris=[]),
    "a name more": lambda order, false: order.update(names=[x509.DNSName("control-plane.example")]),
    "another common name": lambda order, false: order.update(cn="root"),
    "a longer life": lambda order, false: later(order, days=1),
    "a shorter life": lambda order, false: later(order, seconds=-2),
    "no use": lambda order, false: order.update(use=None),
    "a server's use": lambda order, false: order.update(use=x509.ExtendedKeyUsageOID.SERVER_AUTH),
    "another root": lambda order, false: other_root(order),
    "no chain": lambda order, false: order.update(chain=[]),
    "not yet valid": lambda order, false: order.update(start=order["end"] - datetime.timedelta(seconds=30)),
}


def other_root(order) -> None:
    root = ca("False Root")
    issuing = ca("False Intermediate", root, 0)
    order.update(issuer=issuing, chain=[issuing[0], root[0]])


@pytest.mark.parametrize("what", WRONG)
def test_what_was_not_asked_for_goes_to_nobody(plane, false, what):
    """502 `issuer_misbehaved`, not to be tried again, an alert, the token unspent, and what was signed is to be revoked."""
    false.behave = lambda order: WRONG[what](order, false)
    refusal = refused(plane)
    if what == "not yet valid":
        # Its own choice, but not so far from the time of the entry.
        assert refusal.code in ("issuer_misbehaved", "try_again"), refusal
    else:
        assert (refusal.code, refusal.status.name) == ("issuer_misbehaved", "INTERNAL"), refusal
        (alert,) = [one for one in plane.items("/v1/alerts") if one["kind"] == "issuer_misbehaved"]
        assert alert["node_id"] is None and alert["detail"], alert
        assert plane.api("GET", "/readyz").status == 503
        if what not in ("another root", "no chain"):
            serial = certs.serial(false.last)
            until(lambda: serial in false.revoked, "what it signed is to be revoked")
    assert plane.nodes() == [] and plane.audit("host.enrolled") == []
    false.behave = lambda order: None
    native.enroll(plane)
    until_ready(plane)


def test_a_certificate_that_comes_twice(plane, false):
    """The same certificate for two requests of one host: the second is not accepted."""
    key = certs.ec_key()
    native.enroll(plane, key=key)
    first = false.last
    false.behave = lambda order: order.update(certificate=first)
    with native.door(plane) as door:
        refusal = door.refused(plane.token(), certs.csr(key))
    assert refusal.code == "issuer_misbehaved", refusal
    assert len(plane.nodes()) == 1


@pytest.mark.parametrize(
    "answer",
    [
        (201, b"not json"),
        (201, b'{"crt":"no pem"}'),
        (201, b"{}"),
        (200, b'{"crt":"' + b"A" * 200_000 + b'"}'),
    ],
)
def test_rubbish(plane, false, answer):
    false.behave = lambda order: answer
    assert refused(plane).code == "issuer_misbehaved"


@pytest.mark.parametrize(("status", "code"), [(401, "issuer_refused"), (403, "issuer_refused"), (400, "issuer_refused"), (500, "issuer_unavailable"), (503, "issuer_unavailable")])
def test_its_status_decides(plane, false, status, code):
    false.behave = lambda order: (status, b'{"status":0,"message":"\\u001b[31mno"}')
    assert refused(plane).code == code
    # What it says goes to operators, without what would confuse a terminal; hosts learn nothing of it.
    if status != 400:
        shown = step_cas.shown(plane)["unavailable"] or ""
        assert "\x1b" not in shown


def test_serials_of_its_own_are_accepted(plane, false):
    """A template without our serial: step-ca draws its own, and that goes on record."""
    false.behave = lambda order: order.update(serial=x509.random_serial_number())
    node = native.enroll(plane)
    node.confirm()
    assert node.serial == certs.serial(false.last) == plane.node(node.id)["cert_serial"]


def test_a_silent_one_holds_up_nobody_else(plane, false):
    """Ten seconds, then 503; so many requests at a time, and the rest of the control plane answers meanwhile."""
    known = native.enroll(plane)
    known.confirm()
    false.behave = silent
    false.most = 0
    tokens = [plane.mint() for _ in range(24)]

    over = threading.Event()

    def attempt(minted) -> set:
        """Again and again, so that all turns stay taken while others are served."""
        codes = set()
        while not codes or not over.is_set():
            with native.door(plane) as door:
                codes.add(door.refused(minted["token"], certs.good_csr()).code)
        return codes

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        tries = [pool.submit(attempt, minted) for minted in tokens]
        until(lambda: false.at_once >= 16, "all turns are taken")
        # Heartbeats, operators, health checks.
        known.confirm()
        assert plane.api("GET", "/v1/nodes").status == 200
        assert not any(one.done() for one in tries)
        over.set()
        results = [one.result() for one in tries]
    assert set.union(*results) == {"issuer_unavailable"}, results
    assert false.most <= 17, "sixteen, and whoever looks whether it is back"
    assert all(plane.token_state(minted["token_id"]) == "unused" for minted in tokens)
    until_unavailable(plane)
    false.behave = lambda order: None
    until_ready(plane)
    native.enroll(plane, tokens[0]["token"])


def test_refusals_do_not_grow_the_trail_faster_than_they_are_tried(plane, false):
    """Each try is two lines: however many ask, about three are tried in a second."""
    false.behave = lambda order: (401, b"{}")
    tokens = [plane.token() for _ in range(32)]
    began, tried = time.monotonic(), 0

    def attempt(token):
        with native.door(plane) as door:
            return door.refused(token, certs.good_csr()).code

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        codes = set(pool.map(attempt, tokens))
    took = time.monotonic() - began
    assert codes <= {"issuer_refused", "issuer_unavailable"}, codes
    tried = len(plane.audit("issuance.begun"))
    assert tried <= 4 * took + 17, (tried, took)
