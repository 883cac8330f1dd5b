"""The limit on failures, and what it never limits."""

import time

import pytest

import certs
import evidence
import native
from machine import until
from plane import ControlPlane


@pytest.fixture
def limited():
    """A control plane with the limit on failures that it has by default."""
    with ControlPlane() as running:
        yield running


def spend_failures(plane, count: int) -> list:
    with native.door(plane) as door:
        return [door.refused("enroll_" + "A" * 43, "x") for _ in range(count)]


def test_a_hundred_failures_a_minute_then_slow_down_but_valid_enrollments_go_on(limited):
    """429 with Retry-After for failures only: the limit never stands before the look-up."""
    token = limited.token()
    began = time.monotonic()
    refusals = spend_failures(limited, 300)
    codes = [refusal.code for refusal in refusals]
    refilled = (time.monotonic() - began) / 60 * 100
    assert codes[0] == "token_invalid" and "rate_limited" in codes
    assert 90 <= codes.count("token_invalid") <= 110 + refilled, codes
    while refusals[-1].code != "rate_limited":
        refusals += spend_failures(limited, 1)
    counted = sum(refusal.code in ("token_invalid", "rate_limited") for refusal in refusals)
    assert refusals[-1].status == native.grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(refusals[-1].trailers["retry-after"]) > 0
    answer = limited.https("GET", "/v1/nodes")
    assert (answer.status, answer.code) == (429, "rate_limited")
    assert int(answer.headers["Retry-After"]) > 0
    assert native.enroll(limited, token).id
    assert limited.https("GET", "/healthz").status == 200
    limited.restart()
    lines = [line for line in limited.audit("enrollment.refused") if line["reason"] == "token_invalid"]
    assert sum(line["count"] for line in lines) == counted, "a throttled refusal counts under its own reason"


@pytest.mark.parametrize("header", [{"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"}])
def test_a_made_up_credential_does_not_escape_the_limit(limited, header):
    """Who sends a bad API key is a stranger like any other."""
    statuses = [limited.https("GET", "/v1/nodes", headers=header).status]
    until(
        lambda: statuses.append(limited.https("GET", "/v1/nodes", headers=header).status) or statuses[-1] == 429,
        "it was told to slow down",
    )
    assert set(statuses[:90]) == {401}


def test_good_credentials_are_not_limited_by_failures_of_others(limited):
    """An operator with a key is served, and told 404 for what is not there, however many strangers fail."""
    key = limited.cli("operator", "key", "create", "steady", "--role", "viewer", "--expires", "1h").json()["key"]
    evidence.token(key)
    spend_failures(limited, 130)
    headers = {"Authorization": f"Bearer {key}"}
    assert limited.https("GET", "/v1/nodes", headers=headers).status == 200
    statuses = {limited.https("POST", "/v1/tokens", {}, headers).status for _ in range(5)}
    assert statuses == {403}


def test_a_flood_of_failures_does_not_grow_the_trail(limited):
    """Hundreds of refusals of a kind are a line or two."""
    limited.policy("failures.per_minute", "0")
    before = len(limited.audit())
    csr = certs.csr(certs.ec_key())
    with native.door(limited) as door:
        calls = [door.begin("enroll_" + "B" * 43, csr) for _ in range(500)]
        for call in calls:
            with pytest.raises(native.grpc.RpcError):
                call.result()
    grown = [line for line in limited.audit()[before:] if line["event_type"] == "enrollment.refused"]
    assert len(grown) <= 2
