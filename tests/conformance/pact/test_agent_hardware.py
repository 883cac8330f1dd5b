"""Hosts that are let in by their hardware, with the built agent on a fake sysfs root and no token anywhere."""

import os
import time

import pytest

import evidence
import sysfs
from machine import AGENT, run, until
from sysfs import Machine, Sysfs

BLOCKED = "recovery_enrollment_blocked"


@pytest.fixture(scope="module", autouse=True)
def allowed(plane):
    sysfs.allow(plane)


@pytest.fixture
def machine(plane):
    """Machines that end with their test."""
    made = []

    def make(*arguments, **named) -> Machine:
        made.append(Machine(plane, *arguments, **named))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()
        daemon.note_secrets()


def enrolled(plane, node_id: str) -> int:
    return sum(line.get("node_id") == node_id for line in plane.audit("host.enrolled"))


def enroll(host: Machine):
    return run(AGENT, "enroll", "--dir", host.dir, "--json", env=host.environment)


def test_a_host_takes_no_identity_of_another_tenant(plane, machine):
    """Whoever registers a machine first decides what it runs: a host that was told its tenant refuses another, and stores nothing."""
    assert plane.api("POST", "/v1/tenants", {"name": "captor"}).status == 201
    host = machine(Sysfs(sysfs.mac()))
    host.register("captured", "--tenant", "captor")
    refused = run(AGENT, "enroll", "--dir", host.dir, "--tenant", "default", "--json", env=host.environment)
    assert refused.code == 1 and "tenant_mismatch" in refused.out + refused.err, refused
    assert not list(host.dir.rglob("*.pem")) and not list((host.dir / "pending").glob("*"))
    wrong = run(AGENT, "enroll", "--dir", host.dir, "--tenant", "No Tenant", "--json", env=host.environment)
    assert wrong.code == 2, wrong
    # Where nobody else has it, the same words let it in.
    plane.cli("node", "decommission", "captured")
    host.register("own")
    assert run(AGENT, "enroll", "--dir", host.dir, "--tenant", "default", "--json", env=host.environment).code == 0


def test_a_machine_boots_with_nothing_but_its_hardware(plane, place, machine):
    """PACT-10, PACT-11, PACT-12, PACT-15, PACT-26, PACT-36, PACT-38: certificate, live stream and configuration within seconds, without a token."""
    plane.cli("vcluster", "create", "boot-ml")
    sysfs.configure(plane, place, "boot-ml", {"enforcement_mode": "enforce", "boot": 1})
    host = machine(Sysfs(sysfs.mac(), sysfs.mac(), board_serial="SN-boot", product_uuid="4C4C4544-0036-3510-8052-B4C04F564432"))
    uuid = "4c4c4544-0036-3510-8052-b4c04f564432"
    host.register("boot-1", "--bmc-serial", "SN-boot", "--system-uuid", uuid, "--vcluster", "boot-ml")
    began = time.monotonic()
    host.start().wait_connected()
    until(lambda: host.current_config() == {"enforcement_mode": "enforce", "boot": 1}, "the configuration is there")
    took = time.monotonic() - began
    status = host.status()
    assert (status["node_id"], status["vcluster"], status["ready"]) == ("boot-1", "boot-ml", True), status
    assert status["config"] == {"enforcement_mode": "enforce", "boot": 1}
    shown = plane.node("boot-1")
    assert shown["state"] == "active" and shown["cert_serial"] == host.serial()
    assert host.keys_match() and enrolled(plane, "boot-1") == 1
    assert not list(host.dir.rglob("*token*")) or "enroll_" not in host.log()
    evidence.log("boot").write_text(f"certificate, stream and configuration after {took:.2f} s\n")
    assert took < 60


def test_the_control_plane_is_verified_before_anything_is_said(plane, machine):
    """PACT-15: with the CA of another domain nothing is sent, and nobody hears of the machine."""
    host = machine(ENLIST_AGENT_CA_PIN="sha256:" + "0" * 64)
    host.register("trust-1")
    done = run(AGENT, "enroll", "--dir", host.dir, "--timeout", "60s", "--json", env=host.environment)
    assert done.code == 4 and done.error()["code"] == "server_tls_untrusted", done
    assert plane.node("trust-1")["state"] == "registered" and not enrolled(plane, "trust-1")


def test_an_unknown_machine_waits_until_it_is_registered(plane, machine):
    """PACT-05, PACT-08: no certificate for what is not registered; the host says so, asks again, and gets in once it is."""
    host = machine()
    refused = enroll(host)
    assert (refused.code, refused.error()["code"]) == (3, "node_not_enrolled"), refused
    host.start()
    until(lambda: BLOCKED in host.reasons(), "status shows the class")
    log = host.log()
    assert "node_not_enrolled" in log and BLOCKED in log and "enlist node register" in log, log
    assert any(BLOCKED in path.read_text() for path in host.dir.glob("diagnostics/*"))
    assert not host.current.exists()
    host.register("late-1")
    host.wait_connected()
    assert host.node_id() == "late-1" and plane.node("late-1")["state"] == "active"


def test_a_machine_that_matches_by_half_is_unknown(plane, machine):
    """D28: a registered serial must match as well as a MAC."""
    host = machine(Sysfs(board_serial="SN-half-b"))
    host.register("half-1", "--bmc-serial", "SN-half-a")
    assert enroll(host).error()["code"] == "node_not_enrolled"
    (host.sysfs.dmi / "board_serial").write_text("SN-half-a\n")
    assert enroll(host).json()["node_id"] == "half-1"


def test_hardware_alone_is_no_credential_unless_policy_says_so(plane, machine):
    """D05: off until the operator turns it on."""
    host = machine().register("policy-1")
    plane.policy("attestors", "join-token,recovery-token")
    try:
        refused = enroll(host)
        assert (refused.code, refused.error()["code"]) == (3, "attestor_not_allowed"), refused
    finally:
        sysfs.allow(plane)
    assert enroll(host).json()["node_id"] == "policy-1"


def test_a_placeholder_is_no_identity_and_is_named(plane, machine):
    """PACT-10, D28: the next serial that is real counts; log and doctor name what was left out."""
    tree = Sysfs(
        board_serial="To Be Filled By O.E.M.",
        chassis_serial="Default string",
        product_serial="SN-real",
        product_uuid="00000000-0000-0000-0000-000000000000",
    )
    tree.card("eth8", "ff:ff:ff:ff:ff:ff")
    tree.card("eth9", "01:00:5e:00:00:01")
    host = machine(tree).register("placeholder-1", "--bmc-serial", "SN-real")
    host.start().wait_connected()
    log = host.log()
    for name in ("board_serial", "chassis_serial", "product_uuid", "eth8", "eth9"):
        assert name in log, log
    assert "To Be Filled By O.E.M." in log
    done = run(AGENT, "doctor", "--dir", host.dir, "--json", env=host.environment)
    check = next(check for check in done.json()["checks"] if check["name"] == "hardware")
    assert check["ok"] and "board_serial" in check["warning"] and "SN-real" in check["evidence"], check


def test_a_sysfs_that_lies_neither_blocks_nor_ends_the_agent(plane, machine):
    """PACT-10: a pipe, a device, a loop, a directory, a huge file and noise in place of values are left out, the rest counts."""
    tree = Sysfs()
    os.mkfifo(tree.dmi / "board_serial")
    (tree.dmi / "chassis_serial").symlink_to("/dev/zero")
    (tree.dmi / "product_serial").symlink_to("product_serial")
    (tree.dmi / "product_uuid").mkdir()
    (tree.card("eth5", "x") / "address").write_bytes(b"\xff\xfe\x00")
    (tree.card("eth6", "x") / "address").write_bytes(b"0" * (8 << 20))
    pipe = tree.card("eth7", "x") / "address"
    pipe.unlink()
    os.mkfifo(pipe)
    (tree.root / "class" / "net" / "eth8").symlink_to("eth8")
    host = machine(tree).register("lies-1")
    done = enroll(host)
    assert done.json()["node_id"] == "lies-1", done
    host.start().wait_connected()


def test_a_machine_without_a_card_says_where_it_looked(plane, machine):
    """PACT-10: nothing is sent; the daemon looks again."""
    tree = Sysfs(board_serial="SN-alone")
    device = tree.root / "class" / "net" / "eth0" / "device"
    link = device.readlink()
    device.unlink()
    host = machine(tree).register("bare-1")
    done = enroll(host)
    assert (done.code, done.error()["code"]) == (1, "hardware_missing"), done
    assert "class/net/*/address" in done.error()["message"]
    host.start()
    until(lambda: "hardware_missing" in host.log(), "the log says so")
    device.symlink_to(link)
    host.wait_connected()


def test_killed_and_started_again_it_goes_on_without_enrolling(plane, machine):
    """PACT-07, PACT-23: a restart uses the certificate that is there."""
    host = machine().register("restart-1")
    host.start().wait_connected()
    serial = host.serial()
    for _ in range(2):
        host.kill()
        host.start().wait_connected()
    assert host.serial() == serial and enrolled(plane, "restart-1") == 1
    assert plane.node("restart-1")["state"] == "active"


def test_a_lost_identity_waits_until_the_node_is_inactive(plane_of_its_own, place):
    """PACT-06, PACT-07, PACT-39, D16: already_active and an alert while the node counts as there; inactive, then in, and the lost certificate is denied."""
    plane = plane_of_its_own
    sysfs.allow(plane)
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", "10s")
    first = Machine(plane).register("lost-1")
    second = Machine(plane, first.sysfs)
    try:
        first.start().wait_connected()
        lost = first.serial()
        first.kill()
        second.start()
        until(lambda: BLOCKED in second.reasons(), "it is refused")
        log = second.log()
        assert "already_active" in log and "remedy" in log, log
        (alert,) = [alert for alert in plane.cli("alert", "list").lines() if alert["kind"] == "already_active"]
        assert alert["node_id"] == "lost-1" and "attempt_from" in alert["detail"], alert
        second.wait_connected()
        shown = plane.node("lost-1")
        assert shown["state"] == "active" and shown["cert_serial"] == second.serial() != lost
        states = {item["serial"]: item["status"] for item in shown["certificates"]}
        assert states[lost] in ("denied", "revoked"), states
        assert any(line["node_id"] == "lost-1" for line in plane.audit("host.inactive"))
        assert enrolled(plane, "lost-1") == 2
    finally:
        for daemon in (first, second):
            daemon.stop()
            daemon.note_secrets()


def test_a_revoked_machine_stays_out(plane, machine):
    """PACT-08, PACT-30, PACT-31: node_revoked is identity_revoked_or_fenced; a new registration re-admits."""
    host = machine().register("revoked-1")
    host.start().wait_connected()
    plane.cli("node", "revoke", "revoked-1")
    until(lambda: "identity_revoked_or_fenced" in host.reasons(), "the running host says so")
    host.stop()
    host.environment["ENLIST_AGENT_EXIT_ON_REVOKED"] = "true"
    host.start()
    assert host.process.wait(60) == 3
    fresh = machine(host.sysfs, ENLIST_AGENT_EXIT_ON_REVOKED="true").start()
    assert fresh.process.wait(60) == 3 and "node_revoked" in fresh.log()
    host.register("revoked-1")
    host.start().wait_connected()
    assert plane.node("revoked-1")["state"] == "active"
