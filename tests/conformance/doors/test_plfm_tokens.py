"""Enrollment tokens on the plfm door, as operators make, list and revoke them."""

import base64
import datetime
import hashlib
import re

import pytest

import hosts

PATH = "/v1/hosts/enroll-tokens"
STORED = {
    "token_id",
    "token_hash",
    "cluster_id",
    "created_by",
    "created_at",
    "expires_at",
    "used",
    "used_at",
    "used_by_host_id",
}


def life(minted: dict) -> float:
    at = [datetime.datetime.fromisoformat(minted[field]) for field in ("created_at", "expires_at")]
    return (at[1] - at[0]).total_seconds()


def test_a_token_is_256_random_bits(plane):
    """Proves PLFM-03, PLFM-05: `enroll_` and 43 characters of base64url, 32 bytes, never the same."""
    values = {hosts.mint(plane)["token"] for _ in range(64)}
    assert len(values) == 64
    for value in values:
        assert re.fullmatch(r"enroll_[A-Za-z0-9_-]{43}", value)
        assert len(base64.urlsafe_b64decode(value.removeprefix("enroll_") + "=")) == 32
    bits = "".join(f"{byte:08b}" for value in values for byte in base64.urlsafe_b64decode(value[7:] + "="))
    assert 0.45 < bits.count("1") / len(bits) < 0.55


def test_a_token_lives_for_an_hour_and_a_day_at_most(plane):
    """Proves PLFM-02: default 1 h, maximum 24 h, longer is 400 `token_ttl_too_long`, under 10 s `token_ttl_too_short`."""
    assert life(hosts.mint(plane)) == 3600
    assert life(hosts.mint(plane, expires_in="24h")) == 86400
    assert life(hosts.mint(plane, expires_in="10s")) == 10
    for asked, code in (("86401s", "token_ttl_too_long"), ("25h", "token_ttl_too_long"), ("9s", "token_ttl_too_short")):
        answer = plane.api("POST", PATH, {"expires_in": asked})
        assert (answer.status, answer.code) == (400, code)
    for asked in ("", "1", "an hour", "-1h", 3600):
        answer = plane.api("POST", PATH, {"expires_in": asked})
        assert (answer.status, answer.code) == (400, "bad_request"), asked


def test_what_is_stored_is_the_documents_record_and_never_the_value(plane):
    """Proves PLFM-06, PLFM-09: the fields of the document; the hash is of the whole value."""
    minted = hosts.mint(plane)
    assert set(minted) == {"token_id", "token", "cluster_id", "created_by", "created_at", "expires_at"}
    listing = plane.api("GET", PATH + "?limit=1000")
    assert minted["token"].encode() not in listing.body
    listed = hosts.token(plane, minted["token_id"])
    assert STORED <= set(listed)
    assert listed["token_hash"] == "sha256:" + hashlib.sha256(minted["token"].encode()).hexdigest()
    assert {name: listed[name] for name in minted if name != "token"} == {
        name: value for name, value in minted.items() if name != "token"
    }
    assert (listed["used"], listed["used_at"], listed["used_by_host_id"]) == (False, None, None)
    assert listed["created_by"].startswith("local:")


def test_revoking_is_for_what_is_unused(plane):
    """Proves PLFM-08: 204, also the second time; 409 `token_used`; 404; gone from the list, and still there with `all`."""
    minted = hosts.mint(plane)
    for _ in range(2):
        assert plane.api("DELETE", f"{PATH}/{minted['token_id']}").status == 204
    assert not hosts.unused(plane, minted["token_id"])
    assert hosts.token(plane, minted["token_id"])["state"] == "revoked"
    assert len([line for line in plane.audit("enrollment_token.revoked") if line["token_id"] == minted["token_id"]]) == 1
    used = hosts.mint(plane)
    hosts.enroll(plane, used["token"])
    answer = plane.api("DELETE", f"{PATH}/{used['token_id']}")
    assert (answer.status, answer.code) == (409, "token_used")
    for unknown in ("01JNOBODY", minted["token"], "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        answer = plane.api("DELETE", f"{PATH}/{unknown}")
        assert (answer.status, answer.code) == (404, "token_not_found")


def test_tokens_come_in_pages(plane):
    """Proves PLFM-08: the list holds what is pending, a page at a time."""
    pending = {hosts.mint(plane)["token_id"] for _ in range(5)}
    found = []
    for page in plane.pages(f"{PATH}?limit=2"):
        assert len(page["tokens"]) <= 2
        found += [token["token_id"] for token in page["tokens"]]
    assert pending <= set(found) and len(found) == len(set(found))


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=x", "all=perhaps"])
def test_a_list_asked_for_badly_is_400(plane, query):
    """Bad input gets a clear error."""
    answer = plane.api("GET", f"{PATH}?{query}")
    assert (answer.status, answer.code) == (400, "bad_request")
