"""Recovery: a node that has lost the use of its certificate comes back with a token, and nobody else does.

GPU-03, GPU-04, GPU-15, GPU-17, GPU-18, GPU-20, GPU-22, GPU-30, D20, D27, D36.
"""

import re
import time

import certs
import clocks
import lost
import native
import pytest
from machine import until
from plane import ControlPlane


@pytest.fixture(scope="module")
def quick(programs):
    """A control plane that takes a second of silence for being lost."""
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        running.policy("liveness.grace", "1s")
        yield running


def when_lost(plane, node, attempt):
    """Tries until the node has been silent for the grace period."""

    def tried():
        try:
            return attempt()
        except native.Refused as refusal:
            assert refusal.code == "recovery_not_needed", refusal
            return None

    return until(tried, f"{node.id} has been silent for long enough")


def lines(plane, node, *types) -> list[dict]:
    return [line for line in plane.audit() if line["event_type"] in types and line.get("node_id") == node.id]


# Handing out.


def test_a_token_is_given_over_the_nodes_own_certificate_and_only_to_who_wants_it(plane):
    """GPU-18, D20, D27: on Confirm, Renew and Live; with the profile that says where to turn to."""
    node = native.enroll(plane)
    assert not any("recovery" in field.name for field in node.answer.DESCRIPTOR.fields)
    assert not any("recovery" in field.name for field in native.pb.RecoverResponse.DESCRIPTOR.fields)
    assert not node.confirm().HasField("recovery")
    grant = lost.noted(node.confirm(recovery_wanted=True).recovery)
    assert re.fullmatch(r"recovery_[A-Za-z0-9_-]{43}", grant.token)
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", grant.token_id)
    assert (grant.profile.id, grant.profile.url, grant.profile.ca) == ("default", plane.url, plane.bundle.decode())
    (line,) = lines(plane, node, "recovery_token.rotated")
    assert (line["recovery_token_id"], line["expires_at"]) == (grant.token_id, grant.expires_at)
    renewed = node.renewed(recovery_kept=grant.token_id, recovery_wanted=True)
    second = lost.noted(renewed.answer.recovery)
    assert second.token and second.token != grant.token and second.token_id != grant.token_id
    assert not node.renewed().answer.HasField("recovery")


def test_a_token_that_is_kept_is_not_replaced_before_its_time(plane):
    """D20."""
    node, grant = lost.provided(plane)
    again = node.confirm(recovery_kept=grant.token_id, recovery_wanted=True)
    assert (again.recovery.token, again.recovery.profile.id) == ("", "default")
    with node.door() as door:
        stream = door.live(node.id, recovery_kept=grant.token_id, recovery_wanted=True)
        told = stream.next("recovery")
        assert (told.token, told.profile.url) == ("", plane.url)
        stream.close()
    assert len(lines(plane, node, "recovery_token.rotated")) == 1
    assert len(lines(plane, node, "recovery_token.kept")) == 1


def test_a_live_stream_gives_one_to_a_host_that_has_none_and_hears_that_it_is_kept(plane):
    """GPU-20, D20: kept by its id, heard in bulk."""
    node = native.enroll(plane)
    with node.door() as door:
        stream = door.live(node.id, recovery_wanted=True)
        grant = lost.noted(stream.next("recovery"))
        assert grant.token.startswith("recovery_")
        stream.send(recovery_kept=native.pb.RecoveryKept(token_id="not an id"))
        stream.next("ack")
        assert not lines(plane, node, "recovery_token.kept")
        stream.send(recovery_kept=native.pb.RecoveryKept(token_id=grant.token_id))
        (line,) = until(lambda: lines(plane, node, "recovery_token.kept"), "it is on record as kept")
        assert line["recovery_token_id"] == grant.token_id
        stream.close()


def test_a_host_whose_token_is_spoilt_asks_for_another_on_its_stream(plane):
    """GPU-20: an empty id says that nothing is on disk any more."""
    node, grant = lost.provided(plane)
    with node.door() as door:
        stream = door.live(node.id, recovery_kept=grant.token_id, recovery_wanted=True)
        assert not stream.next("recovery").token
        stream.send(recovery_kept=native.pb.RecoveryKept())

        def given():
            # As seldom as a host may speak.
            time.sleep(0.5)
            stream.heartbeat()
            return len(lines(plane, node, "recovery_token.rotated")) == 2

        until(given, "another was minted")
        second = lost.noted(stream.next("recovery"))
        assert second.token and second.token_id != grant.token_id
        stream.close()


def test_two_are_valid_at_most_and_the_older_dies_when_the_newer_is_kept(quick):
    """D20."""
    node, first = lost.provided(quick)
    node = node.renewed(recovery_kept=first.token_id, recovery_wanted=True)
    second = lost.noted(node.answer.recovery)
    # The answer was lost, so to say: what is on disk is the first, and the second dies with the third.
    node = node.renewed(recovery_kept=first.token_id, recovery_wanted=True)
    third = lost.noted(node.answer.recovery)
    assert lost.refused(quick, second.token).code == "token_superseded"
    node.confirm(recovery_kept=third.token_id)
    assert lost.refused(quick, first.token).code == "token_superseded"
    when_lost(quick, node, lambda: lost.recovered(quick, third.token))


def test_either_of_two_works_and_ends_both(quick):
    """D20: single use."""
    node, first = lost.provided(quick)
    node = node.renewed(recovery_kept=first.token_id, recovery_wanted=True)
    second = lost.noted(node.answer.recovery)
    when_lost(quick, node, lambda: lost.recovered(quick, first.token))
    assert lost.refused(quick, second.token).code == "token_superseded"
    assert lost.refused(quick, first.token).code == "token_used"


def test_a_superseded_certificate_is_given_no_token_and_ends_none(quick):
    """D20, D32: whoever holds a key that was rotated away gets nothing with it that would last longer than the key."""
    old, first = lost.provided(quick)
    new = old.renewed(recovery_kept=first.token_id, recovery_wanted=True)
    second = lost.noted(new.answer.recovery)
    new.confirm(recovery_kept=second.token_id)
    assert not old.confirm(recovery_wanted=True).recovery.token
    with old.door() as door:
        stream = door.live(old.id, recovery_wanted=True)
        stream.next("welcome")
        stream.send(recovery_kept=native.pb.RecoveryKept(token_id=first.token_id))
        stream.next("ack")
        stream.close()
    assert len(lines(quick, old, "recovery_token.rotated")) == 2
    when_lost(quick, new, lambda: lost.recovered(quick, second.token))


def test_a_node_in_quarantine_is_given_none(plane):
    """D36."""
    node = native.enroll(plane)
    node.confirm()
    assert plane.api("POST", f"/v1/nodes/{node.id}/quarantine", {}).status == 200
    assert not node.confirm(recovery_wanted=True).HasField("recovery")
    assert not node.renewed(recovery_wanted=True).answer.HasField("recovery")
    with node.door() as door:
        stream = door.live(node.id, recovery_wanted=True)
        stream.next("welcome")
        stream.heartbeat()
        stream.next("ack")
        assert not lines(plane, node, "recovery_token.rotated")
        assert plane.api("POST", f"/v1/nodes/{node.id}/release", {}).status == 200
        assert lost.noted(stream.next("recovery")).token
        stream.close()


def test_one_that_could_not_keep_its_identity_is_given_none(plane):
    """D20."""
    node = native.enroll(plane)
    failed = node.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="disk full", recovery_wanted=True)
    assert not failed.HasField("recovery") and not lines(plane, node, "recovery_token.rotated")


# Recovering.


def test_an_expired_node_comes_back_without_its_certificate():
    """GPU-04, GPU-15, GPU-22: what it had is denied, and one id leads through the trail."""
    with ControlPlane(env=clocks.shifted(-25)) as plane:
        node, grant = lost.provided(plane)
        plane.stop()
        clocks.sweep(plane.process.pid)
        plane.env = {}
        plane.start()
        until(lambda: plane.node(node.id)["health"]["reason"] == "cert_expired", "its end is noticed")
        assert native.alert(plane, node.files) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"
        follows = (("x-correlation-id", "trouble-7"),)
        back = lost.recovered(plane, grant.token, node_id=node.id, agent_version="t/2", metadata=follows)
        assert back.id == node.id and back.serial != node.serial
        leaf = certs.certificate(back.answer.certificate)
        assert certs.uris(leaf) == [back.answer.spiffe_id] and back.answer.domain == "test.example"
        assert certs.verifies(certs.pem(leaf), (back.answer.chain + back.answer.bundle).encode())
        assert plane.node(node.id)["state"] == "enrolled"
        with back.door() as door:
            assert door.confirm(metadata=follows).state == "active"
        told = lines(
            plane, node, "recovery.requested", "recovery.issued", "host.confirmed", "host.active", "recovery.resolved"
        )
        assert [line["event_type"] for line in told[-5:]] == [
            "recovery.requested",
            "recovery.issued",
            "host.confirmed",
            "host.active",
            "recovery.resolved",
        ]
        assert {line["correlation_id"] for line in told[-5:]} == {"trouble-7"}
        assert told[-4]["denied_serials"] == [node.serial] and told[-4]["cert_serial"] == back.serial
        assert native.alert(plane, node.files) is not None
        # Used is used, whatever comes.
        plane.kill()
        plane.start()
        assert lost.refused(plane, grant.token).code == "token_used"
        assert back.confirm(recovery_wanted=True).recovery.token


def test_a_lost_answer_is_given_again_until_the_certificate_is_seen(quick):
    """GPU-15, D20: the same token and key, the same bytes; a kill between keeps it so."""
    node, grant = lost.provided(quick)
    key = certs.ec_key()
    first = when_lost(quick, node, lambda: lost.recovered(quick, grant.token, key))
    again = lost.recovered(quick, grant.token, key)
    assert again.answer == first.answer
    quick.kill()
    quick.start()
    again = lost.recovered(quick, grant.token, key)
    assert again.answer.certificate == first.answer.certificate
    assert lost.refused(quick, grant.token).code == "token_used"
    first.confirm()
    assert lost.refused(quick, grant.token, certs.csr(key)).code == "token_used"
    assert len(lines(quick, node, "recovery.issued")) == 1


def test_a_node_that_is_well_is_told_so_and_what_to_trust(plane):
    """D20: with an alert, with the bundle, and nothing is used up."""
    node, grant = lost.provided(plane)
    with native.door(plane) as door:
        refusal = door.recovery_refused(grant.token, certs.good_csr(), metadata=(("x-correlation-id", "odd-1"),))
    assert refusal.code == "recovery_not_needed"
    details = native.pb.NotNeeded.FromString(refusal.details)
    assert (details.bundle, details.bundle_version) == (plane.bundle.decode(), 1)
    assert [alert["kind"] for alert in plane.node(node.id)["alerts"]] == ["recovery_not_needed"]
    (line,) = lines(plane, node, "recovery.refused")
    assert (line["reason"], line["count"], line["correlation_id"]) == ("recovery_not_needed", 1, "odd-1")
    for _ in range(20):
        assert lost.refused(plane, grant.token).code == "recovery_not_needed"
    assert len([line for line in plane.audit("alert.raised") if line["node_id"] == node.id]) == 1
    assert len(lines(plane, node, "recovery.refused")) == 1
    plane.policy("liveness.grace", "1s")
    try:
        when_lost(plane, node, lambda: lost.recovered(plane, grant.token))
    finally:
        plane.policy("liveness.grace", "5m")


# Refusals.


def test_an_outage_of_the_control_plane_makes_nobody_lost():
    """D20, D33: silence counts from the moment since which a node could have been heard."""
    with ControlPlane() as plane:
        plane.policy("liveness.grace", "30s")
        node, grant = lost.provided(plane)
        plane.stop()
        plane.start(env=clocks.shifted(1 / 60))
        assert lost.refused(plane, grant.token).code == "recovery_not_needed"


def test_strangers_learn_nothing_and_change_nothing(plane):
    """GPU-17: unknown, malformed, oversized, another node's; nothing is used up."""
    node, grant = lost.provided(plane)
    other, _ = lost.provided(plane)
    unknown = "recovery_" + "A" * 43
    for token, code in [
        (unknown, "token_invalid"),
        (plane.token(), "token_invalid"),
        ("", "token_malformed"),
        ("a b", "token_malformed"),
        ("A" * 257, "token_malformed"),
    ]:
        assert lost.refused(plane, token).code == code, code
    assert lost.refused(plane, unknown, "no request").code == "token_invalid"
    assert lost.refused(plane, grant.token, "no request").code == "csr_invalid"
    assert lost.refused(plane, grant.token, node_id=other.id).code == "not_your_node"
    assert lost.refused(plane, grant.token, node_id="no/name").code == "bad_request"
    assert lost.refused(plane, grant.token, node_id="x" * 64).code == "bad_request"
    assert lost.refused(plane, grant.token, **{"class": "bored"}).code == "bad_request"
    assert lost.refused(plane, grant.token, agent_version="v" * 129).code == "bad_request"
    bundle = native.pb.BundleEvidence(expires_at="soon")
    assert lost.refused(plane, grant.token, bundle=bundle).code == "bad_request"
    assert lost.refused(plane, grant.token, "x" * 70_000).code == "too_large"
    (line,) = [line for line in lines(plane, node, "recovery.refused") if line["reason"] == "not_your_node"]
    assert line["samples"] == [other.id]
    nobody = [line for line in plane.audit("recovery.refused") if line["reason"] == "token_invalid"]
    assert nobody and all(line["node_id"] is None for line in nobody)
    # An enrollment takes no recovery token.
    with native.door(plane) as door:
        assert door.refused(grant.token, certs.good_csr()).code == "token_invalid"
    assert 'enlist_recoveries_total{result="token_invalid"}' in plane.api("GET", "/metrics").body.decode()


def test_a_revoked_or_decommissioned_node_does_not_recover(quick):
    """GPU-30."""
    for act in ("revoke", "decommission"):
        node, grant = lost.provided(quick)
        assert quick.api("POST", f"/v1/nodes/{node.id}/{act}", {}).status == 200
        assert lost.refused(quick, grant.token).code == "node_revoked"
        assert quick.api("POST", f"/v1/nodes/{node.id}/reinstate", {}).status == 200
        assert lost.refused(quick, grant.token).code == "token_revoked"


def test_a_node_in_quarantine_does_not_recover_by_itself(quick):
    """GPU-30, D36."""
    node, grant = lost.provided(quick)
    assert quick.api("POST", f"/v1/nodes/{node.id}/quarantine", {}).status == 200
    assert lost.refused(quick, grant.token).code == "node_quarantined"
    assert quick.api("POST", f"/v1/nodes/{node.id}/release", {}).status == 200
    when_lost(quick, node, lambda: lost.recovered(quick, grant.token))


def test_a_token_ends_with_its_time_and_with_a_new_enrollment(quick):
    """GPU-17, D20."""
    quick.policy("recovery.ttl", "1s")
    try:
        _, short = lost.provided(quick, kept=False)
        until(lambda: lost.refused(quick, short.token).code == "token_expired", "its time is over")
    finally:
        quick.policy("recovery.ttl", "90d")
    node, grant = lost.provided(quick)
    native.enroll(quick, quick.token(node=node.id))
    assert lost.refused(quick, grant.token).code == "token_revoked"


def test_policy_may_refuse_recovery_tokens(quick):
    """GPU-17, D05."""
    _, grant = lost.provided(quick)
    quick.policy("attestors", "join-token")
    try:
        assert lost.refused(quick, grant.token).code == "attestor_not_allowed"
    finally:
        quick.policy("attestors", "join-token,recovery-token")


def test_a_recovered_certificate_is_for_nothing_but_the_node(quick):
    """GPU-17: no more rights than any node's."""
    node, grant = lost.provided(quick)
    back = when_lost(quick, node, lambda: lost.recovered(quick, grant.token))
    for path in ("/v1/nodes", "/v1/tokens", "/v1/policy"):
        assert quick.https("GET", path, certificate=back.files).status == 403


def test_who_guesses_is_slowed_down_and_who_has_a_token_is_not():
    """GPU-17: as for enrollments; the trail has the sum."""
    with ControlPlane() as plane:
        plane.policy("liveness.grace", "1s")
        _, grant = lost.provided(plane)
        codes = [lost.refused(plane, "recovery_" + "A" * 43).code for _ in range(102)]
        assert set(codes[:100]) == {"token_invalid"} and codes[-1] == "rate_limited"
        told = [line for line in plane.audit("recovery.refused") if line["reason"] == "token_invalid"]
        assert len(told) == 1
        until(lambda: recovers(plane, grant.token), "it has been silent for long enough")


def recovers(plane, token: str) -> bool:
    try:
        return bool(lost.recovered(plane, token).serial)
    except native.Refused as refusal:
        assert refusal.code in ("recovery_not_needed", "rate_limited"), refusal
        return False


def test_a_profile_of_its_own_is_what_hosts_are_told():
    """D27."""
    plane = ControlPlane().found()
    try:
        file = plane.base / "recovery-ca.pem"
        file.write_bytes(b"# the site's own\n" + plane.bundle)
        configured = f'\n[recovery]\nid = "site-a"\nurl = "https://recovery.example:9443"\nca_file = "{file}"\n'
        toml = plane.dir / "enlist.toml"
        toml.write_text(toml.read_text() + configured)
        plane.start()
        _, grant = lost.provided(plane)
        told = (grant.profile.id, grant.profile.url, grant.profile.ca)
        assert told == ("site-a", "https://recovery.example:9443", plane.bundle.decode())
        plane.stop()
        toml.write_text(toml.read_text().replace(str(file), str(plane.base / "none.pem")))
        done = plane.run_to_end()
        assert done.code == 2 and "recovery.ca_file" in done.err
    finally:
        plane.close()
