"""Bootstrap identities: what hosts that share one may do, and what not."""

import hashlib
import json

import native
import pacts
import pytest

import certs
import evidence


@pytest.fixture(scope="module")
def shared(plane):
    place = plane.base / "image"
    issued = plane.cli("ca", "bootstrap", "image-1", "--out", place).json()
    evidence.private_key("bootstrap", (place / "key.pem").read_bytes())
    return place, issued


def pair(place) -> tuple:
    return place / "cert.pem", place / "key.pem"


def read(plane, place, vcluster: str = ""):
    with native.door(plane, pair(place)) as door:
        try:
            return door.stub.BootConfig(native.pb.BootConfigRequest(vcluster=vcluster), timeout=20)
        except native.grpc.RpcError as error:
            raise native.Refused(error) from None


def refusal(call) -> str:
    with pytest.raises(native.Refused) as caught:
        call()
    return caught.value.code


def test_it_is_on_record_and_listed(plane, shared):
    place, issued = shared
    leaf = certs.certificate((place / "cert.pem").read_bytes())
    assert certs.uris(leaf) == ["spiffe://test.example/bootstrap/image-1"] == [issued["spiffe_id"]]
    assert 89 * 86400 < certs.seconds(leaf) < 91 * 86400
    assert (place / "key.pem").stat().st_mode & 0o777 == 0o600
    listed = next(item for item in plane.items("/v1/ca/bootstrap") if item["name"] == "image-1")
    assert (listed["state"], listed["cert_serials"]) == ("valid", [certs.serial(leaf)])
    assert (listed["valid"], listed["revoked"]) == (1, 0)
    assert [line["bootstrap"] for line in plane.audit("bootstrap.issued")] == ["image-1"]


def test_it_reads_what_policy_allows(plane, shared):
    """Domain defaults at first; base configuration of vClusters and nothing at all if policy says so."""
    place, _ = shared
    plane.cli("vcluster", "create", "ml")
    document = plane.base / "ml.json"
    document.write_text('{"ranks": 8}')
    plane.cli("vcluster", "set-config", "ml", "--file", document)
    assert json.loads(read(plane, place).base) is not None
    assert refusal(lambda: read(plane, place, "ml")) == "bootstrap_read_not_allowed"
    plane.policy("bootstrap.read", "vclusters")
    config = read(plane, place, "ml")
    assert json.loads(config.base) == {"ranks": 8} and not config.node
    assert refusal(lambda: read(plane, place, "other")) == "vcluster_not_found"
    plane.policy("bootstrap.read", "none")
    assert refusal(lambda: read(plane, place)) == "bootstrap_read_not_allowed"
    plane.policy("bootstrap.read", "defaults")


def test_pacts_stream_gives_it_what_policy_allows(plane, shared):
    """StreamBootConfig: the domain's defaults, a vCluster's base document, or nothing, as `bootstrap.read` says; whatever node it names,
    never that node's delta. Proves PACT-37, PACT-38."""
    place, _ = shared
    pacts.allow_hardware(plane)
    pacts.create_vcluster(plane, "pact-vc")
    pacts.set_config(plane, "pact-vc", document={"ranks": 4, "pad": "x" * 40_000})
    with pacts.admin(plane) as operator:
        machine = pacts.machine(plane, operator, "pact-1")
        operator.call("AssignNode", pacts.pb.AssignNodeRequest(node_id=machine.id, vcluster_id="pact-vc"))
    pacts.set_config(plane, "--node", machine.id, document={"only for": machine.id})
    try:
        with pacts.Door(plane, pair(place)) as door, machine.door() as own:
            assert "NodeDelta" in kinds(own.boot_config(machine.id)), "the node itself has one"
            named = ("", machine.id, "nobody")
            for node in named:
                chunks = door.boot_config(node)
                assert kinds(chunks) == ["OverlayChunk", "ConfigComplete"] and chunks[0].vcluster_id == ""
                assert json.loads(document(chunks))["enforcement_mode"] == "observe"
                assert chunks[-1].node_version == 0
                assert boot_refusal(door, node, "pact-vc") == "bootstrap_read_not_allowed"
            plane.policy("bootstrap.read", "vclusters")
            for node in named:
                chunks = door.boot_config(node, "pact-vc")
                assert {chunk.vcluster_id for chunk in chunks[:-1]} == {"pact-vc"} and len(chunks) > 2
                assert set(kinds(chunks)) == {"OverlayChunk", "ConfigComplete"}
                assert json.loads(document(chunks))["ranks"] == 4
                assert chunks[0].checksum == hashlib.sha256(document(chunks)).hexdigest()
                known = chunks[-1].base_version
                assert kinds(door.boot_config(node, "pact-vc", last_known_version=known)) == ["ConfigComplete"]
                assert boot_refusal(door, node, "another") == "vcluster_not_found"
            plane.policy("bootstrap.read", "none")
            for node in named:
                assert boot_refusal(door, node) == boot_refusal(door, node, "pact-vc") == "bootstrap_read_not_allowed"
            # A node's own reading is not the bootstrap identity's.
            assert "NodeDelta" in kinds(own.boot_config(machine.id))
    finally:
        plane.policy("bootstrap.read", "defaults")
        plane.policy("attestors", "join-token,recovery-token")


@pytest.mark.parametrize("read", ["none", "defaults", "vclusters"])
def test_pacts_subscription_is_refused_to_it(plane, shared, read):
    """SubscribeConfigUpdates is for nodes, whatever policy lets a bootstrap identity read."""
    place, _ = shared
    plane.policy("bootstrap.read", read)
    try:
        with pacts.Door(plane, pair(place)) as door:
            for node, vcluster in (("", ""), ("pact-1", ""), ("pact-1", "pact-vc"), ("nobody", "")):
                with door.subscribe(node, vcluster) as updates:
                    refused = updates.wait_end()
                    assert refused and refused.status == native.grpc.StatusCode.PERMISSION_DENIED, refused
                    assert refused.code == "forbidden" and updates.down.get() is None, "and nothing came before"
    finally:
        plane.policy("bootstrap.read", "defaults")


def kinds(chunks) -> list[str]:
    return [chunk.DESCRIPTOR.name for chunk in chunks]


def document(chunks) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.DESCRIPTOR.name == "OverlayChunk")


def boot_refusal(door, node: str, vcluster: str = "") -> str:
    with pytest.raises(pacts.Refused) as caught:
        door.boot_config(node, vcluster)
    return caught.value.code


def test_it_enrolls_and_does_nothing_else(plane, shared):
    """No renewal, no live stream, no confirmation, no operator route; and nobody reads without it.

    Proves PACT-37.
    """
    place, _ = shared
    with native.door(plane, pair(place)) as door:
        assert door.renewal_refused(certs.good_csr()).status == native.grpc.StatusCode.PERMISSION_DENIED
        stream = door.live("n-1")
        assert stream.wait_end().status == native.grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(native.Refused):
            door.confirm()
        assert door.enroll(plane.token(), certs.good_csr()).node_id
    assert plane.https("GET", "/v1/nodes", certificate=pair(place)).status == 403
    with native.door(plane) as stranger, pytest.raises(native.grpc.RpcError):
        stranger.stub.BootConfig(native.pb.BootConfigRequest(), timeout=20)


def test_a_revoked_one_is_refused_in_the_handshake(plane):
    place = plane.base / "revoked"
    plane.cli("ca", "bootstrap", "image-2", "--expires", "1h", "--out", place)
    assert read(plane, place).base
    plane.cli("ca", "bootstrap", "image-2", "--revoke")
    assert native.alert(plane, pair(place)) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    listed = next(item for item in plane.items("/v1/ca/bootstrap") if item["name"] == "image-2")
    assert (listed["state"], listed["valid"], listed["revoked"]) == ("revoked", 0, 1)
    # Issued again, the name is good by the new certificate alone.
    again = plane.cli("ca", "bootstrap", "image-2", "--out", plane.base / "again").json()
    listed = next(item for item in plane.items("/v1/ca/bootstrap") if item["name"] == "image-2")
    assert (listed["state"], listed["valid"], listed["revoked"]) == ("valid", 1, 1)
    assert again["shortened"] is False
    assert plane.cli("ca", "bootstrap", "image-9", "--revoke", ok=False).code == 3


def test_more_hosts_than_one_certificate_may_have_connections(plane, shared):
    """A certificate of one holder has 64 connections; one that many hosts share is not bounded by that."""
    place, _ = shared
    doors = [native.door(plane, pair(place)) for _ in range(80)]
    try:
        first = doors[0].stub.BootConfig(native.pb.BootConfigRequest(), timeout=20)
        for door in doors:
            assert door.stub.BootConfig(native.pb.BootConfigRequest(), timeout=20).base == first.base
        assert doors[0].stub.BootConfig(native.pb.BootConfigRequest(), timeout=20).base == first.base
    finally:
        for door in doors:
            door.close()


def test_a_lifetime_has_bounds(plane):
    place = plane.base / "long"
    done = plane.cli("ca", "bootstrap", "image-3", "--expires", "400d", "--out", place, ok=False)
    assert done.code == 3 and "bootstrap_ttl_invalid" in done.err
    assert not (place / "key.pem").exists(), "a key without a certificate is not left behind"
