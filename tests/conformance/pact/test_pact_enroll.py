"""Enroll: who gets a certificate by its hardware, and every way not to. PACT-03 to PACT-08, PACT-11 to PACT-14, PACT-27, PACT-34."""

import concurrent.futures
import datetime

import certs
import pacts
import pytest
from machine import scratch, tool, until
from pacts import Status, hardware
from plane import ControlPlane


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        pacts.allow_hardware(running)
        yield running


@pytest.fixture(scope="module")
def operator(plane):
    with pacts.admin(plane) as door:
        yield door


@pytest.fixture
def stranger(plane):
    with pacts.Door(plane) as door:
        yield door


def told(refusal) -> tuple:
    return refusal.status, refusal.code, refusal.message.split(":")[0]


def test_a_registered_machine_gets_a_certificate_and_is_active(plane, operator, stranger):
    """Proves PACT-04, PACT-06, PACT-11, PACT-12, PACT-38: without any credential but its hardware, in one call."""
    identity = hardware(bmc_serial="BMC-0001")
    registered = operator.register("enroll-1", identity)
    assert (registered.node_id, registered.enrollment_state) == ("enroll-1", "Registered")
    key = certs.ec_key()
    answer = stranger.enroll(identity, pacts.csr(key))
    leaf, *chain = certs.certificates(answer.signed_cert)
    assert (answer.node_id, answer.domain_id, answer.vcluster_id) == ("enroll-1", plane.domain, "")
    assert certs.public_der(leaf.public_key()) == certs.public_der(key)
    assert answer.cert_serial == certs.serial(leaf)
    expires = datetime.datetime.fromisoformat(answer.cert_expires_at)
    assert expires == leaf.not_valid_after_utc
    node = plane.node("enroll-1")
    assert (node["state"], node["cert_serial"]) == ("active", answer.cert_serial)
    trust = scratch("trust") / "ca.pem"
    trust.write_bytes(answer.ca_chain)
    assert certs.verifies_by_chain(answer.signed_cert, answer.ca_chain)
    assert chain[0] not in certs.certificates(answer.ca_chain), "what signs nodes is no anchor for servers"
    assert tool("openssl", "verify", "-CAfile", trust, plane.dir / "ca" / "server.pem").code == 0
    assert chain, "the intermediates follow the leaf"


def test_the_certificate_has_the_name_and_the_life_of_the_document(plane, operator):
    """Proves PACT-20 and PACT-27: three days, `pact-service-agent/NODE@DOMAIN`, and no vCluster in it, although the node is in one."""
    identity = hardware()
    operator.register("named-1", identity)
    vcluster = pacts.create_vcluster(plane, "named-vcluster")
    operator.call("AssignNode", pacts.pb.AssignNodeRequest(node_id="named-1", vcluster_id=vcluster))
    machine = pacts.boot(plane, identity)
    assert machine.answer.vcluster_id == vcluster
    leaf = certs.certificates(machine.answer.signed_cert)[0]
    common_name = leaf.subject.get_attributes_for_oid(certs.x509.NameOID.COMMON_NAME)[0].value
    assert common_name == f"pact-service-agent/named-1@{plane.domain}"
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    assert datetime.timedelta(days=3) <= life <= datetime.timedelta(days=3, minutes=5)
    assert vcluster.encode() not in certs.der(leaf)


def test_any_registered_address_will_do_and_what_is_registered_must_match(plane, operator, stranger):
    """Proves PACT-12, D28: one of the MACs, in any spelling, and everything else that is registered."""
    first, second = pacts.mac(), pacts.mac()
    operator.register("many-1", hardware(f"{first};{second}", "S-1", system_uuid="4c4c4544-0036-3510-8052-b4c04f564432"))
    uuid = {"system_uuid": "4C4C4544-0036-3510-8052-B4C04F564432"}
    for half in (
        hardware(second),
        hardware(second, "S-2", **uuid),
        hardware(second, "S-1"),
        hardware(pacts.mac(), "S-1", **uuid),
        hardware(second, "S-1", system_uuid="4c4c4544-0036-3510-8052-b4c04f564433"),
    ):
        assert told(stranger.enroll_refused(half)) == (Status.NOT_FOUND, "node_not_enrolled", "NODE_NOT_ENROLLED")
    spelled = second.upper().replace(":", "-")
    assert stranger.enroll(hardware(f"{spelled};{pacts.mac()}", "S-1", **uuid)).node_id == "many-1"


def test_the_hash_of_an_endorsement_key_is_one_more_identifier(plane, operator, stranger):
    """PACT-17, the hash alone: where it is registered, it must be said and be the same. It is no attestation."""
    address, known = pacts.mac(), "ab" * 32
    operator.register("tpm-1", hardware(address, tpm_ek_hash=known))
    for half in (hardware(address), hardware(address, tpm_ek_hash="cd" * 32)):
        assert told(stranger.enroll_refused(half)) == (Status.NOT_FOUND, "node_not_enrolled", "NODE_NOT_ENROLLED")
    assert stranger.enroll(hardware(address, tpm_ek_hash=known)).node_id == "tpm-1"


def test_who_is_not_registered_gets_nothing(plane, stranger):
    """Proves PACT-05 and PACT-08: NODE_NOT_ENROLLED, with our own code, hint and request id in the trailers."""
    refusal = stranger.enroll_refused(hardware())
    assert told(refusal) == (Status.NOT_FOUND, "node_not_enrolled", "NODE_NOT_ENROLLED")
    assert refusal.hint and refusal.request_id


def test_an_active_machine_is_not_enrolled_again(plane, operator, stranger):
    """Proves PACT-07: ALREADY_ACTIVE, whoever asks."""
    identity = hardware()
    operator.register("twice-1", identity)
    stranger.enroll(identity)
    assert told(stranger.enroll_refused(identity)) == (Status.ALREADY_EXISTS, "already_active", "ALREADY_ACTIVE")


def test_a_revoked_machine_needs_a_new_registration(plane, operator, stranger):
    """Proves PACT-08 and PACT-31: NODE_REVOKED until an operator registers the node anew."""
    identity = hardware()
    operator.register("ended-1", identity)
    old = stranger.enroll(identity)
    operator.call("DecommissionNode", pacts.pb.DecommissionNodeRequest(node_id="ended-1"))
    assert told(stranger.enroll_refused(identity)) == (Status.PERMISSION_DENIED, "node_revoked", "NODE_REVOKED")
    assert operator.register("ended-1", identity).enrollment_state == "Registered"
    new = stranger.enroll(identity)
    assert new.node_id == "ended-1" and new.cert_serial != old.cert_serial


def test_hardware_of_two_nodes_at_once_is_a_conflict(plane, operator, stranger):
    """D28: HARDWARE_IDENTITY_CONFLICT and an alert."""
    one, other = pacts.mac(), pacts.mac()
    operator.register("two-1", hardware(one))
    operator.register("two-2", hardware(other))
    refusal = stranger.enroll_refused(hardware(f"{one};{other}"))
    expected = (Status.FAILED_PRECONDITION, "hardware_identity_conflict", "HARDWARE_IDENTITY_CONFLICT")
    assert told(refusal) == expected
    kinds = {(alert["kind"], alert["node_id"]) for alert in plane.items("/v1/alerts?limit=1000")}
    assert ("hardware_identity_conflict", "two-1") in kinds
    assert [plane.node(id)["state"] for id in ("two-1", "two-2")] == ["registered"] * 2


@pytest.mark.parametrize(
    "address",
    ["", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "02:00:00:00:00", "02:00:00:00:00:0g", "nonsense"],
)
def test_what_is_no_address_is_refused_as_such(stranger, operator, address):
    """All-zero, broadcast, multicast and malformed MACs are INVALID_ARGUMENT, in Enroll and in RegisterNode."""
    identity = pacts.pb.HardwareIdentity(mac_address=address)
    expected = (Status.INVALID_ARGUMENT, "mac_invalid", "mac_invalid")
    assert told(stranger.enroll_refused(identity)) == expected
    request = pacts.pb.RegisterNodeRequest(node_id="bad-mac", hardware_identity=identity)
    assert told(operator.refused("RegisterNode", request)) == expected


def test_a_request_without_hardware_is_no_request(stranger):
    refusal = stranger.refused("Enroll", pacts.pb.EnrollRequest(csr=pacts.csr()))
    assert (refusal.status, refusal.code) == (Status.INVALID_ARGUMENT, "bad_request")


def bad_requests() -> dict[str, bytes]:
    good = pacts.csr()
    weak = certs.x509.load_pem_x509_csr(certs.openssl_csr("-newkey", "rsa:1024").encode())
    der = certs.serialization.Encoding.DER
    return {
        "empty": b"",
        "garbage": b"\x30\x03abc",
        "PEM": certs.csr(certs.ec_key()).encode(),
        "cut": good[:-1],
        "spoiled": good[:-1] + bytes([good[-1] ^ 1]),
        "weak": weak.public_bytes(der),
        "long": good + bytes(20_000),
    }


def test_a_bad_request_locks_nobody_out(plane, operator, stranger):
    """A CSR that is not DER, too large or weakly keyed is INVALID_ARGUMENT; the good one works afterwards."""
    identity = hardware()
    operator.register("patient-1", identity)
    for name, request in bad_requests().items():
        body = pacts.pb.EnrollRequest(hardware_identity=identity, csr=request)
        refusal = stranger.refused("Enroll", body)
        assert (refusal.status, refusal.code) == (Status.INVALID_ARGUMENT, "csr_invalid"), name
    assert plane.node("patient-1")["state"] == "registered"
    assert stranger.enroll(identity).node_id == "patient-1"


def test_the_registry_is_asked_before_the_request_is_read(stranger):
    """An unknown machine costs no check of a signature: its bad CSR is never mentioned."""
    body = pacts.pb.EnrollRequest(hardware_identity=hardware(), csr=b"garbage")
    assert stranger.refused("Enroll", body).code == "node_not_enrolled"


def test_too_much_is_refused_as_such(stranger):
    body = pacts.pb.EnrollRequest(hardware_identity=hardware(), csr=bytes(70_000))
    refusal = stranger.refused("Enroll", body)
    assert told(refusal) == (Status.RESOURCE_EXHAUSTED, "too_large", "too_large")


def test_one_of_many_at_once_gets_it(plane, operator):
    """Proves PACT-12: the race is decided before anything is signed; those who lose are told so."""
    identity = hardware()
    operator.register("race-1", identity)

    def attempt(_):
        with pacts.Door(plane) as door:
            try:
                return door.enroll(identity)
            except pacts.Refused as refusal:
                return refusal

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(attempt, range(12)))
    granted = [outcome for outcome in outcomes if not isinstance(outcome, pacts.Refused)]
    assert len(granted) == 1 and plane.node("race-1")["cert_serial"] == granted[0].cert_serial
    for lost in (outcome for outcome in outcomes if isinstance(outcome, pacts.Refused)):
        assert lost.code == "already_active"
        raced = lost.status == Status.FAILED_PRECONDITION and lost.message == "ALREADY_ACTIVE: race-1"
        assert raced or lost.status == Status.ALREADY_EXISTS, lost


def test_a_lost_answer_is_given_again(plane, operator, stranger):
    """D16: the same CSR key with the same idempotency key before any contact gets the same certificate."""
    identity, key = hardware(), certs.ec_key()
    operator.register("lost-1", identity)
    first = stranger.enroll(identity, pacts.csr(key), "again")
    again = stranger.enroll(identity, pacts.csr(key), "again")
    assert again.signed_cert == first.signed_cert
    assert told(stranger.enroll_refused(identity)) == (Status.ALREADY_EXISTS, "already_active", "ALREADY_ACTIVE")


def test_credentials_beside_it_are_not_looked_at(plane, operator):
    """A bad bearer and another node's certificate change nothing: Enroll is by hardware alone."""
    other = pacts.machine(plane, operator, "beside-1")
    identity = hardware()
    operator.register("beside-2", identity)
    with pacts.Door(plane, other.files, key="no-such-key") as door:
        assert door.enroll(identity).node_id == "beside-2"


def test_without_a_credential_everything_else_is_shut(plane, stranger, operator):
    """Proves PACT-13: Enroll is the only method of both services that needs none."""
    machine = pacts.machine(plane, operator, "shut-1")
    service = pacts.pb.DESCRIPTOR.services_by_name["EnrollmentService"]
    for method in service.methods:
        if method.name != "Enroll":
            request = getattr(pacts.pb, f"{method.name}Request")()
            refusal = stranger.refused(method.name, request)
            assert (refusal.status, refusal.code) == (Status.UNAUTHENTICATED, "unauthenticated"), method.name
    with pytest.raises(pacts.Refused) as refused:
        stranger.boot_config(machine.id)
    assert refused.value.status == Status.UNAUTHENTICATED
    with stranger.subscribe(machine.id) as updates:
        assert updates.wait_end().status == Status.UNAUTHENTICATED


def test_refused_attempts_are_in_the_trail_with_the_address(plane_of_its_own):
    """Proves PACT-16: attempts are audited, coalesced, and say which machine it was."""
    plane = plane_of_its_own
    pacts.allow_hardware(plane)
    address = pacts.mac()
    with pacts.Door(plane) as door:
        for _ in range(3):
            door.enroll_refused(hardware(address))
    [first] = plane.audit("enrollment.refused")
    assert (first["reason"], first["count"], first["samples"]) == ("node_not_enrolled", 1, [f"mac:{address}"])
    plane.restart()
    lines = plane.audit("enrollment.refused")
    assert [line["count"] for line in lines] == [1, 2], "the rest of the minute is one line"


def test_hardware_is_off_until_it_is_turned_on(programs):
    """D05: ATTESTOR_NOT_ALLOWED by default, and from networks that are not listed."""
    with ControlPlane() as plane, pacts.admin(plane) as operator, pacts.Door(plane) as stranger:
        identity = hardware()
        operator.register("off-1", identity)
        expected = (Status.PERMISSION_DENIED, "attestor_not_allowed", "ATTESTOR_NOT_ALLOWED")
        assert told(stranger.enroll_refused(identity)) == expected
        pacts.allow_hardware(plane)
        plane.policy("hardware.source_cidrs", "192.0.2.0/24")
        assert told(stranger.enroll_refused(identity)) == expected
        plane.policy("hardware.source_cidrs", "")
        assert stranger.enroll(identity).node_id == "off-1"


def is_let_in(door, identity) -> bool:
    try:
        return bool(door.enroll(identity).node_id)
    except pacts.Refused as refusal:
        assert refusal.code == "rate_limited", refusal
        return False


def test_there_is_a_limit_to_the_minute_where_it_is_set(programs):
    """Proves PACT-14: `enroll.max_per_minute` is RATE_LIMITED until the minute is over; the failures of a network are limited too (D22)."""
    with ControlPlane() as plane, pacts.admin(plane) as operator, pacts.Door(plane) as stranger:
        pacts.allow_hardware(plane)
        plane.policy("enroll.max_per_minute", "2")
        identities = [hardware() for _ in range(3)]
        for number, identity in enumerate(identities):
            operator.register(f"limit-{number}", identity)
        for identity in identities[:2]:
            stranger.enroll(identity)
        expected = (Status.RESOURCE_EXHAUSTED, "rate_limited", "RATE_LIMITED")
        assert told(stranger.enroll_refused(identities[2])) == expected
        # The limit is one to the minute: the next minute has places again.
        another = hardware()
        operator.register("limit-3", another)
        until(lambda: is_let_in(stranger, another), "the next minute has begun", 120)
        plane.policy("enroll.max_per_minute", "0")
        plane.policy("failures.per_minute", "3")
        refusals = []
        for _ in range(5):
            with pacts.Door(plane) as door:
                refusals.append(told(door.enroll_refused(hardware())))
        assert refusals[-1] == expected and refusals[0][1] == "node_not_enrolled"
        with pacts.Door(plane) as door:
            assert door.enroll(identities[2]).node_id == "limit-2", "who is registered is never refused by it"


def test_no_private_key_is_asked_for_or_answered():
    """Proves PACT-03 by the shape of the contract: a request goes out, certificates come back."""
    fields = {field.name for message in (pacts.pb.EnrollRequest, pacts.pb.EnrollResponse) for field in message.DESCRIPTOR.fields}
    assert not [name for name in fields if "key" in name or "private" in name]


def test_a_door_that_is_not_served_is_not_there(programs):
    """D23: without pact among the served APIs there is no such service."""
    with ControlPlane(init=("--door", "plfm")) as plane, pacts.Door(plane) as door:
        with pytest.raises(pacts.Refused) as refused:
            door.enroll(hardware())
        assert refused.value.status == Status.UNIMPLEMENTED
