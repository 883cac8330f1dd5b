"""What a host meets where its control plane should be: each fault has its own word, and an end."""

import pytest

import certs
from daemons import lasting_port
from faults import Names, Patient, alerts, asked, kinds
from impostors import Authority, Crossing, Impostor
from machine import until
from plane import ControlPlane

UNREACHABLE, UNTRUSTED, DRIFT = "endpoint_unreachable", "server_tls_untrusted", "endpoint_profile_drift"
BLOCKED = "recovery_enrollment_blocked"


@pytest.fixture(scope="module")
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture(scope="module")
def plane(crossing, minute):
    """Known to its hosts by the crossing's address alone. The minute of test_faults_expiry.py begins to pass."""
    with ControlPlane(init=("--advertise", crossing.url)) as running:
        running.policy("failures.per_minute", "0")
        running.policy("liveness.interval", "1s")
        crossing.lead(running.port)
        yield running


@pytest.fixture
def patients(plane, crossing):
    made: list[Patient] = []

    def make(**named) -> Patient:
        named.setdefault("ENLIST_AGENT_SERVER", crossing.url)
        made.append(Patient(plane, plane.token(), **named))
        made[-1].start().wait_connected()
        made[-1].wait_token()
        return made[-1]

    yield make
    crossing.lead(plane.port)
    for patient in made:
        patient.stop()
        patient.note_secrets()


def test_nobody_answers(plane, crossing, patients):
    """Connection refused is told as such, and over by itself. Proves GPU-08, GPU-14."""
    patient = patients()
    before = asked(plane, patient.node_id())
    crossing.refuse()
    patient.told(UNREACHABLE)
    assert UNREACHABLE in patient.diagnosed()
    crossing.lead(plane.port)
    patient.well()
    assert asked(plane, patient.node_id()) == before


@pytest.mark.parametrize(
    ("says", "whose", "name", "word"),
    [
        ("silent", None, "127.0.0.1", UNREACHABLE),
        ("garbage", None, "127.0.0.1", DRIFT),
        ("unavailable", "the domain", "127.0.0.1", UNREACHABLE),
        ("portal", "the domain", "127.0.0.1", DRIFT),
        ("portal-h2", "the domain", "127.0.0.1", DRIFT),
        ("garbage", "the domain", "127.0.0.1", DRIFT),
        ("portal", "the domain", "other.example", DRIFT),
    ],
    ids=["slow", "no TLS", "503", "portal", "portal over HTTP/2", "garbage", "wrong name"],
)
def test_something_else_answers(plane, crossing, patients, says, whose, name, word):
    """A fault of the way there is no fault of the host's credentials: nothing is asked for because of it.

    Proves GPU-06, GPU-08, GPU-14.
    """
    patient = patients()
    node, token = patient.node_id(), patient.wait_token()
    before, serial = asked(plane, node), patient.serial()
    with Impostor(says, Authority(plane) if whose else None, name) as impostor:
        crossing.lead(impostor.port)
        until(lambda: impostor.connections >= 1, "it has tried")
        patient.told(word)
        assert word in patient.diagnosed()
        assert not crossing.in_clear()
        assert token.encode() not in impostor.heard
        if name != "127.0.0.1":
            assert impostor.heard == b"" and impostor.handshakes == 0, "it spoke to another name"
    crossing.lead(plane.port)
    patient.well()
    assert asked(plane, node) == before and patient.serial() == serial


def test_somebody_elses_ca(plane, crossing, patients):
    """A server without our CA hears not one byte, at the runtime's address or at the one for recovery.

    Proves GPU-05, GPU-14, GPU-27, GPU-28.
    """
    patient = patients()
    node = patient.node_id()
    with Impostor("portal", Authority()) as impostor:
        crossing.lead(impostor.port)
        patient.told(BLOCKED)
        assert UNTRUSTED in patient.whole_log()
        assert UNTRUSTED in {record["class"] for record in patient.diagnostics()}
        assert UNTRUSTED in patient.diagnosed()
        until(lambda: impostor.connections >= 3, "it tries again")
        assert impostor.heard == b"" and impostor.handshakes == 0
        until(lambda: impostor.refusals, "the host ends the handshake itself")
        assert all("ALERT" in reason for reason in impostor.refusals), impostor.refusals
        assert not crossing.in_clear()
    crossing.lead(plane.port)
    patient.well()
    # If it asks the recovery endpoint first, it hears that it is well.
    assert kinds(plane, node, "recovery.requested", "recovery.issued", "certificate.renewed") == []


def test_a_stranger_in_the_way_of_an_enrollment(plane, crossing, place):
    """Nor is anybody else trusted at first contact. Proves GPU-05."""
    from agents import enroll

    minted = plane.mint()
    with Impostor("portal", Authority()) as impostor:
        done = enroll(plane, place / "a", token=minted["token"], server=impostor.url)
        assert done.code == 4 and done.error()["code"] == UNTRUSTED, done
        assert impostor.heard == b""
    assert plane.token_state(minted["token_id"]) == "unused"


NAME = "control.enlist.test"


@pytest.fixture(scope="module")
def named(programs):
    """A control plane that its hosts reach by a name which only their own mapping knows."""
    port = lasting_port()
    made = ControlPlane(init=("--name", NAME, "--advertise", f"https://{NAME}:{port}")).found()
    try:
        made.start("--listen", f"127.0.0.1:{port}")
        made.policy("failures.per_minute", "0")
        made.policy("liveness.interval", "1s")
        yield made
    finally:
        made.close()


def on_name(named, names: Names, **more) -> Patient:
    url = f"https://{NAME}:{named.port}"
    return Patient(named, named.token(), prefix=names.prefix, ENLIST_AGENT_SERVER=url, **more)


def test_a_name_that_is_gone_after_a_reboot_comes_back(named):
    """The daemon restores the mapping when it starts, and when it misses it; nothing else in the file is touched.

    Proves GPU-11, GPU-26, GPU-36.
    """
    names = Names()
    patient = on_name(named, names)
    patient.dir.mkdir(mode=0o700)
    (patient.dir / "agent.toml").write_text(f'[hosts]\n"{NAME}" = "127.0.0.1"\n')
    try:
        patient.start().wait_connected()
        assert NAME in names.hosts.read_text()
        patient.stop()
        names.write("10.1.2.3 printer.example  # mine")
        patient.start().wait_connected()
        text = names.hosts.read_text()
        assert NAME in text and text.startswith("127.0.0.1 localhost\n10.1.2.3 printer.example  # mine\n")
        assert patient.doctor()["ok"], patient.doctor()
    finally:
        patient.stop()
        patient.note_secrets()


def test_a_name_that_nobody_manages_is_told(named):
    """Without a mapping of ours a missing name is the network's fault, and its end is the end of it.

    Proves GPU-14, GPU-26.
    """
    names = Names(f"127.0.0.1 {NAME}")
    patient = on_name(named, names)
    try:
        patient.start().wait_connected()
        patient.wait_token()
        patient.stop()
        names.write()
        patient.start()
        patient.told(UNREACHABLE)
        assert UNREACHABLE in patient.diagnosed()
        names.write(f"127.0.0.1 {NAME}")
        patient.well()
    finally:
        patient.stop()
        patient.note_secrets()


def test_a_mapping_that_cannot_be_restored_is_told(named):
    """Somebody maps the name elsewhere, outside of what is ours: drift, told here and at the control plane.

    Proves GPU-06, GPU-14, GPU-26.
    """
    names = Names(f"127.0.0.1 {NAME}")
    patient = on_name(named, names)
    patient.dir.mkdir(mode=0o700)
    (patient.dir / "agent.toml").write_text(f'[hosts]\n"{NAME}" = "127.0.0.9"\n')
    try:
        patient.start().wait_connected()
        patient.told(DRIFT)
        assert names.hosts.read_text() == f"127.0.0.1 localhost\n127.0.0.1 {NAME}\n", "what is not ours stays"
        assert DRIFT in patient.diagnosed()
        assert patient.figure("endpoint_profile_drift_total") >= 1
        node = patient.node_id()
        until(lambda: alerts(named, node).get(DRIFT), "the control plane is told")
        until(lambda: (named.node(node)["health"] or {}).get("reason") == DRIFT, "and shows it")
    finally:
        patient.stop()
        patient.note_secrets()


@pytest.mark.parametrize("damage", ["half a certificate", "no key", "another's certificate", "no identity at all"])
def test_a_damaged_identity_is_recovered(plane, patients, place, damage):
    """What a power loss or a hand left is not used and not fatal: the token brings the same node back.

    Proves GPU-04, GPU-08, GPU-25.
    """
    patient = patients()
    node = patient.node_id()
    plane.policy("liveness.grace", "1s")
    patient.stop()
    current = patient.dir / "identity" / "current"
    if damage == "half a certificate":
        (current / "cert.pem").write_bytes((current / "cert.pem").read_bytes()[:300])
    elif damage == "no key":
        (current / "key.pem").write_bytes(b"")
    elif damage == "another's certificate":
        (current / "cert.pem").write_bytes(certs.pem(Authority().certificate))
    else:
        current.unlink()
        del patient.environment["ENLIST_AGENT_TOKEN"]
    until(lambda: plane.node(node)["state"] == "inactive", "it has been silent for long enough")
    patient.start()
    patient.well()
    assert patient.node_id() == node and patient.keys_match()
    assert kinds(plane, node, "recovery.issued") == ["recovery.issued"]
    until(lambda: kinds(plane, node, "recovery.resolved"), "the recovery is resolved")


def test_a_damaged_identity_without_a_token_is_told(plane, patients):
    """Nothing safe to go on with: it ends, says why, and touches nothing. Proves GPU-16."""
    patient = patients()
    patient.stop()
    patient.token_file().unlink()
    cert = patient.dir / "identity" / "current" / "cert.pem"
    cert.write_bytes(cert.read_bytes()[:300])
    done = patient.agent("run")
    assert done.code == 1 and done.error()["code"] == "identity_damaged" and done.error()["hint"], done
    checks = {check["name"]: check for check in patient.doctor()["checks"]}
    assert not checks["identity"]["ok"], checks
