"""step-ca has moved, or its provisioner or root is another: changed by command on a running control plane, on every replica."""

import certs
import evidence
import lost
import native
import pytest
from clusters import Cluster
from false_step_ca import FalseStepCa
from machine import scratch, secret, until
from step_cas import control_plane, reasons, until_ready, until_unavailable


@pytest.fixture
def two():
    made = FalseStepCa(), FalseStepCa()
    yield made
    for one in made:
        one.close()


def change(plane, *flags, ok: bool = True):
    return plane.cli("ca", "step-ca", "set", *flags, ok=ok)


def moved(first: FalseStepCa, second: FalseStepCa) -> None:
    """The second answers with the CA of the first, as one that has moved does."""
    second.root_ca, second.issuing, second.root = first.root_ca, first.issuing, first.root


def states(plane) -> list[tuple]:
    found = plane.api("GET", "/v1/ca").json()["issuers"]
    return sorted((one["state"], one["id"]) for one in found if one["kind"] == "step-ca")


def test_another_root_address_and_key_are_used_at_once(two, programs):
    """No restart: what the first signed stays good and is revoked at the first, what is new comes from the second. Audited, without the
    key; the old one may be named again."""
    first, second = two
    with control_plane(first) as plane:
        until_ready(plane)
        node, _ = lost.provided(plane)
        place = ("--step-ca-url", second.url, "--step-ca-root", second.root)
        plane.cli("ca", "step-ca", "set", *place, "--step-ca-provisioner", "other", "--step-ca-key", second.key)
        until_ready(plane)
        assert [state for state, _ in states(plane)] == ["active", "retiring"]
        orders = len(first.orders)
        renewed = node.renewed()
        renewed.confirm()
        assert certs.verifies_by_chain(renewed.files[0].read_bytes(), second.root.read_bytes(), "-purpose", "sslclient")
        native.enroll(plane).confirm()
        assert len(first.orders) == orders and second.orders[-1]["iss"] == "other", second.orders[-1]
        (line,) = plane.audit("ca.step_ca_changed")
        assert line["step_ca_url"] == second.url and line["step_ca_provisioner"] == "other" and line["before"], line
        plane.cli("node", "revoke", node.id, "--reason", "stolen")
        until(lambda: {serial for line in plane.audit("revocation.delivered") for serial in line["cert_serials"]} >= {node.serial}, "both are told")
        change(plane, "--step-ca-url", first.url, "--step-ca-root", first.root, "--step-ca-provisioner", "enlist", "--step-ca-key", first.key)
        until_ready(plane)
        native.enroll(plane)
        assert len(first.orders) > orders
        plane.restart()
        until_ready(plane)
        native.enroll(plane)
        assert plane.cli("audit", "verify").json()["ok"]


def test_what_is_left_out_stays_as_it_is(two, programs):
    """The address alone, with the sealed key and the root of before; a step-ca that does not answer is named, and mended by command."""
    first, second = two
    moved(first, second)
    with control_plane(first) as plane:
        until_ready(plane)
        shown = change(plane, "--step-ca-url", "https://127.0.0.1:1").json()
        (item,) = [one for one in shown["issuers"] if one["kind"] == "step-ca"]
        assert item["unavailable"], item
        until_unavailable(plane)
        change(plane, "--step-ca-url", first.url)
        until_ready(plane)
        native.enroll(plane)
        change(plane, "--step-ca-provisioner", "renamed")
        native.enroll(plane)
        assert first.orders[-1]["iss"] == "renamed"


def test_what_cannot_be_a_step_ca_is_refused(two, programs):
    """Nothing is changed by it; over TLS it is refused, because the key goes over no network."""
    first, second = two
    with control_plane(first) as plane:
        until_ready(plane)
        before = states(plane)
        place = scratch("bad")
        (place / "leaf.pem").write_bytes(certs.pem(second.issuing[0]))
        for flags in (
            ("--step-ca-url", "http://127.0.0.1:1"),
            ("--step-ca-url", "https://127.0.0.1:1/path"),
            ("--step-ca-root", place / "leaf.pem"),
            ("--step-ca-root", plane.dir / "enlist.toml"),
            ("--step-ca-key", secret(place / "key", "{}")),
            (),
        ):
            assert change(plane, *flags, ok=False).code != 0, flags
        assert states(plane) == before and not plane.audit("ca.step_ca_changed")
        key = plane.cli("operator", "key", "create", "k", "--role", "platform-admin", "--expires", "1h").json()["key"]
        evidence.token(key)
        answer = plane.https("POST", "/v1/ca/step-ca", {"url": second.url}, {"Authorization": f"Bearer {key}"})
        assert (answer.status, answer.code) == (403, "local_only"), answer
        native.enroll(plane)


def test_a_domain_without_a_step_ca_has_nothing_to_change(two, plane):
    first, _ = two
    place = ("--step-ca-url", first.url, "--step-ca-root", first.root)
    done = change(plane, *place, "--step-ca-provisioner", "p", "--step-ca-key", first.key, ok=False)
    assert done.code != 0 and "issuer_invalid" in done.out + done.err, done


def test_every_replica_asks_the_new_one(two, programs):
    first, second = two
    with Cluster(3, init=first.init()) as cluster:
        leader = cluster.replicas[0]
        for replica in cluster.replicas:
            until(lambda: reasons(replica) == [], "it is ready")
        change(leader, "--step-ca-url", second.url, "--step-ca-root", second.root, "--step-ca-key", second.key)
        orders = len(first.orders)
        for replica in cluster.replicas:
            until(lambda: "active" in [state for state, _ in states(replica)] and len(states(replica)) == 2, "it knows the new one")
            native.enroll(replica)
        assert len(first.orders) == orders and len(second.orders) >= 3
