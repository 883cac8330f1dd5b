"""`enlist-agent doctor`: each cause is one fault with class, evidence and remedy, and nothing is changed."""

import http.server
import json
import os
import shutil
import threading

import pytest

import certs
import native
from agents import enroll
from clocks import shifted
from daemons import Daemon, lasting_port
from linked import mode
from machine import AGENT, run, until
from mounts import fill, small_disk, with_hosts
from plane import ControlPlane
from recorder import Recorder

NAMES = ["reachability", "resolution", "tls", "clock", "disk", "permissions", "expiry", "recovery"]
FIELDS = {"name", "ok", "class", "evidence", "remedy"}


@pytest.fixture
def host(plane, place):
    """An enrolled host that has what a recovery takes."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    give_recovery(place / "a", plane)
    return place / "a"


def give_recovery(directory, plane) -> None:
    place = directory / "recovery"
    place.mkdir(mode=0o700, exist_ok=True)
    if not (place / "token").exists():
        (place / "token").write_text("a-token-of-no-use\n")
        (place / "token").chmod(0o600)
    (place / "profile.json").write_text(json.dumps({"id": "p", "url": plane.url}))
    (place / "ca.pem").write_bytes(plane.bundle)


def doctor(directory, env=None) -> tuple[int, dict, dict]:
    done = run(AGENT, "doctor", "--dir", directory, "--json", env=env)
    assert done.code in (0, 1), done
    diagnosis = done.json()
    checks = {check["name"]: check for check in diagnosis["checks"]}
    assert list(checks)[: len(NAMES)] == NAMES and set(checks) <= {*NAMES, "identity", "config", "storage"}, checks
    for check in diagnosis["checks"]:
        assert set(check) - {"skipped", "warning"} == FIELDS and check["evidence"], check
        assert check["ok"] == (check["class"] is None) == (not check["remedy"]), check
        if "skipped" in check:
            assert check["ok"] and check["evidence"].startswith("not checked: "), check
            assert not checks[check["skipped"]]["ok"], f"{check} names a check that is not at fault"
        if "warning" in check:
            assert check["ok"] and check["warning"], check
    assert diagnosis["ok"] == all(check["ok"] for check in diagnosis["checks"])
    assert done.code == (0 if diagnosis["ok"] else 1)
    return done.code, diagnosis, checks


def faults(checks: dict) -> dict:
    return {name: check["class"] for name, check in checks.items() if not check["ok"]}


def skipped(checks: dict) -> dict:
    """Checks that were not made, and the check whose fault is the reason."""
    return {name: check["skipped"] for name, check in checks.items() if "skipped" in check}


def warnings(checks: dict) -> list:
    return [name for name, check in checks.items() if "warning" in check]


def listing(directory) -> dict:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode)
        for path in directory.rglob("*")
        if "diagnostics" not in path.parts
    }


def test_a_healthy_host_has_nothing_wrong(plane, host):
    """Proves GPU-24: every check answers, with evidence; nothing changes but diagnostics."""
    before = listing(host)
    code, diagnosis, checks = doctor(host)
    assert code == 0 and diagnosis["ok"], diagnosis
    assert listing(host) == before
    # Nobody has started the daemon: that is no fault of the host, and is said.
    assert not skipped(checks) and warnings(checks) == ["identity"], checks
    assert "start `enlist-agent run`" in checks["identity"]["warning"], checks
    assert "left" in checks["expiry"]["evidence"] and "free" in checks["disk"]["evidence"]
    told = run(AGENT, "doctor", "--dir", host)
    assert told.code == 0 and told.out.count("✓") == len(NAMES) and "✗" not in told.out, told
    assert told.out.splitlines()[-1] == "no faults found; 1 warning" and "\x1b" not in told.out, told


def test_a_control_plane_that_is_gone(plane_of_its_own, place):
    """Proves GPU-14: endpoint_unreachable, and neither trust nor the certificate is blamed."""
    plane = plane_of_its_own
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    plane.stop()
    code, _, checks = doctor(place / "a")
    assert code == 1 and faults(checks) == {"reachability": "endpoint_unreachable"}, checks
    assert skipped(checks) == dict.fromkeys(("tls", "clock", "recovery"), "reachability"), checks
    assert checks["tls"]["evidence"] == "not checked: control plane unreachable", checks
    told = run(AGENT, "doctor", "--dir", place / "a")
    assert told.code == 1 and told.out.count("✗") == 1 and "✗ reachability" in told.out, told
    assert told.out.count("remedy:") == 1, told
    assert told.out.splitlines()[-1] == "1 fault: endpoint_unreachable; 1 warning; 3 checks not made", told


def test_a_chain_that_is_not_trusted(plane, host):
    """Proves GPU-27: server_tls_untrusted, while the server is there."""
    with ControlPlane(domain="other.example") as other:
        (host / "identity/current/bundle.pem").write_bytes(other.bundle)
        (host / "recovery/ca.pem").write_bytes(other.bundle)
    _, _, checks = doctor(host)
    assert checks["reachability"]["ok"] and checks["resolution"]["ok"]
    expected = {"tls": "server_tls_untrusted", "recovery": "recovery_enrollment_blocked"}
    assert faults(checks) == expected, "GPU-28: the recovery CA is a second trust anchor, and a second cause"
    assert skipped(checks) == {"clock": "tls"}, checks


@pytest.mark.parametrize("hours", [1, -1, 30])
def test_a_wrong_clock(plane, host, hours):
    """Proves GPU-29: clock_skew, which wins over an end of the certificate that is none."""
    _, _, checks = doctor(host, env=shifted(hours))
    assert faults(checks) == {"clock": "clock_skew"}, checks
    assert set(skipped(checks).values()) <= {"clock"}, checks
    assert hours != 30 or skipped(checks)["expiry"] == "clock", checks


def test_a_certificate_that_has_ended(plane_of_its_own, place):
    """Proves GPU-25: cert_expired when the clock is right."""
    plane, listen = plane_of_its_own, ("--listen", f"127.0.0.1:{lasting_port()}")
    plane.restart(*listen)
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    plane.stop()
    later = shifted(40)
    plane.start(*listen, env=later)
    _, _, checks = doctor(place / "a", env=later)
    assert checks["expiry"]["class"] == "cert_expired", checks
    assert checks["clock"]["ok"] and checks["tls"]["ok"], checks


def test_something_else_answers(place):
    """Proves GPU-06: with a chain that is good but HTML, or another name, it is the profile that is wrong."""

    class Portal(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>please sign in</html>")

        def log_message(self, *_):
            pass

    with Recorder() as recorder:
        server = http.server.HTTPServer(("127.0.0.1", 0), Portal)
        server.socket = recorder.context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pin = {"ENLIST_AGENT_CA_PIN": certs.fingerprint(recorder.certificate)}
        there = f"https://127.0.0.1:{server.server_port}"
        _, _, checks = doctor(place / "a", env={**pin, "ENLIST_AGENT_SERVER": there})
        server.shutdown()
    assert checks["tls"]["class"] == "endpoint_profile_drift" and checks["reachability"]["ok"], checks
    assert set(faults(checks)) == {"tls", "identity"} and skipped(checks)["clock"] == "tls", checks


def test_another_name(plane, host):
    """Proves GPU-06: chain good, name another: endpoint_profile_drift."""
    file = host.parent / "hosts"
    file.write_text("127.0.0.1 localhost other.enlist.test\n")
    (host / "identity/current/meta.json").unlink()
    env = {"ENLIST_AGENT_SERVER": f"https://other.enlist.test:{plane.port}"}
    done = with_hosts(file, AGENT, "doctor", "--dir", host, "--json", env=env)
    checks = {check["name"]: check for check in done.json()["checks"]}
    assert faults(checks) == {"tls": "endpoint_profile_drift"} and skipped(checks) == {"clock": "tls"}, checks
    assert "another name" in checks["tls"]["evidence"]


def test_nothing_secret_is_sent(place):
    """Proves GPU-05, GPU-07: an impostor hears nothing at all."""
    with Recorder() as recorder:
        env = {"ENLIST_AGENT_SERVER": f"https://{recorder.address}", "ENLIST_AGENT_CA_PIN": "ab" * 32}
        directory = place / "a"
        directory.mkdir(mode=0o700)
        (directory / "recovery").mkdir(mode=0o700)
        (directory / "recovery/token").write_text("hush-hush\n")
        (directory / "recovery/token").chmod(0o600)
        env |= {"ENLIST_AGENT_RECOVERY_URL": f"https://{recorder.address}"}
        env |= {"ENLIST_AGENT_RECOVERY_CA_FILE": str(recorder.ca_file)}
        done = run(AGENT, "doctor", "--dir", directory, "--json", env=env)
        assert done.code == 1 and "hush" not in done.out + done.err
        assert b"hush" not in recorder.heard
        assert not recorder.heard or recorder.heard.startswith(b"GET /healthz "), recorder.heard


def test_a_lost_mapping(plane, host):
    """Proves GPU-26: a managed name that is not mapped is endpoint_profile_drift, and reconcile cures it."""
    file = host.parent / "hosts"
    file.write_text("127.0.0.1 localhost\n")
    with (host / "agent.toml").open("a") as config:
        config.write('[hosts]\n"cp.enlist.test" = "127.0.0.1"\n')
    done = with_hosts(file, AGENT, "doctor", "--dir", host, "--json")
    checks = {check["name"]: check for check in done.json()["checks"]}
    assert checks["resolution"]["class"] == "endpoint_profile_drift" and "reconcile" in checks["resolution"]["remedy"]
    assert with_hosts(file, AGENT, "reconcile", "--dir", host).code == 0
    done = with_hosts(file, AGENT, "doctor", "--dir", host, "--json")
    assert done.code == 0, done


def test_a_name_that_does_not_resolve(plane, host):
    """Proves GPU-14: endpoint_unreachable when nobody has mapped it."""
    env = {"ENLIST_AGENT_SERVER": "https://nowhere.invalid"}
    (host / "identity/current/meta.json").unlink()
    _, _, checks = doctor(host, env=env)
    assert faults(checks) == {"resolution": "endpoint_unreachable"}, checks
    assert skipped(checks) == dict.fromkeys(("reachability", "tls", "clock"), "resolution"), checks


def test_one_server_of_two_is_a_warning(plane, host):
    """What still works is not a fault, and is not passed over either."""
    env = {"ENLIST_AGENT_SERVER": f"https://127.0.0.1:1,{plane.url}"}
    code, _, checks = doctor(host, env=env)
    assert code == 0 and "127.0.0.1:1" in checks["reachability"]["warning"], checks
    told = run(AGENT, "doctor", "--dir", host, env=env)
    assert "! reachability" in told.out and "warning: " in told.out, told
    assert told.out.splitlines()[-1] == "no faults found; 2 warnings", told


def test_a_full_disk(plane):
    """Proves GPU-29, GPU-34: disk_full, and nothing is called unreachable."""
    with small_disk(4096) as disk:
        assert enroll(plane, disk / "a", token=plane.token()).code == 0
        give_recovery(disk / "a", plane)
        filler = fill(disk)
        _, _, checks = doctor(disk / "a")
        assert faults(checks) == {"disk": "disk_full"}, checks
        filler.unlink()
        assert doctor(disk / "a")[0] == 0


def test_open_secrets(plane, host):
    """Proves GPU-07: modes are told for key and token; doctor does not change them."""
    key = host / "identity/current/key.pem"
    key.chmod(0o644)
    _, _, checks = doctor(host)
    assert faults(checks) == {"permissions": "key_exposed"}, checks
    assert skipped(checks)["expiry"] == "permissions", checks
    assert mode(key) == 0o644
    key.chmod(0o600)
    (host / "recovery/token").chmod(0o640)
    _, _, checks = doctor(host)
    assert faults(checks) == {"permissions": "key_exposed"}, checks
    assert skipped(checks) == {"recovery": "permissions"}, checks


def test_no_way_back(plane, host):
    """Proves GPU-16: without a token recovery is blocked, and the remedy says what to do."""
    (host / "recovery/token").unlink()
    _, _, checks = doctor(host)
    assert faults(checks) == {"recovery": "recovery_enrollment_blocked"}, checks
    assert "repair-bundle" in checks["recovery"]["remedy"]


def test_a_token_that_was_spoilt(plane, host):
    """Proves GPU-16: what is not the token that was given is not counted upon, here and in `status`."""
    (host / "recovery/token").write_text("spoilt\n")
    _, _, checks = doctor(host)
    assert faults(checks) == {"recovery": "recovery_enrollment_blocked"}, checks
    assert run(AGENT, "status", "--json", "--dir", host).json()["recovery_ready"] is False


def test_plain_http_is_a_mistake(plane, host):
    """As `run` says it, and one cause is counted once."""
    code, _, checks = doctor(host, env={"ENLIST_AGENT_SERVER": "http://127.0.0.1:1"})
    assert code == 1 and faults(checks) == {"config": "plain_http_refused"}, checks


def test_a_place_for_diagnostics_that_is_none(plane, host):
    """A file is in the way: that is told, and not that there is no room."""
    (host.parent / "file").write_text("")
    for place in (host.parent / "file", host.parent / "file/below"):
        _, _, checks = doctor(host, env={"ENLIST_AGENT_DIAGNOSTIC_PATH": str(place)})
        assert faults(checks) == {"disk": "not_persisted"}, checks
        assert "is not a directory" in checks["disk"]["evidence"] and "room" not in checks["disk"]["remedy"], checks


def test_damage_and_mistakes_have_checks_of_their_own(plane, host):
    """A damaged identity, agent.toml with mistakes, nothing at all: each is told, and the rest is still looked at."""
    (host / "identity/current/cert.pem").write_text("half a certif")
    _, _, checks = doctor(host)
    assert faults(checks)["identity"] == "identity_damaged" and skipped(checks)["expiry"] == "identity", checks
    (host / "agent.toml").write_text("servr = 'x'\nballast_bytes = 'many'\n")
    _, _, checks = doctor(host)
    assert checks["config"]["class"] == "config_invalid" and "servr" in checks["config"]["evidence"], checks
    _, _, checks = doctor(host.parent / "nothing")
    assert faults(checks) == {"identity": "not_enrolled"} and not os.path.exists(host.parent / "nothing"), checks
    expected = ("reachability", "tls", "clock", "expiry", "recovery")
    assert skipped(checks) == dict.fromkeys(expected, "identity"), checks


def test_a_revoked_identity(plane, host):
    """Proves GPU-30: identity_revoked_or_fenced, once the agent has heard it."""
    from agents import serial_on_disk

    (host / "revoked").write_text(serial_on_disk(host) + "\n")
    _, _, checks = doctor(host)
    assert faults(checks) == {"identity": "identity_revoked_or_fenced"}, checks
    assert skipped(checks) == {"recovery": "identity"}, checks
    told = run(AGENT, "status", "--json", "--dir", host)
    assert {"revoked", "identity_revoked_or_fenced"} <= set(told.json()["reasons"]), told


def test_a_node_in_quarantine(plane):
    """The running daemon knows, and the doctor asks it."""
    daemon = Daemon(plane, plane.token()).start()
    try:
        daemon.wait_connected()
        plane.cli("node", "quarantine", daemon.node_id(), "--reason", "a look at it")
        until(lambda: "quarantined" in daemon.status()["reasons"], "the daemon has heard of it")
        _, _, checks = doctor(daemon.dir)
        assert faults(checks) == {"identity": "identity_revoked_or_fenced"}, checks
        assert "quarantine" in checks["identity"]["evidence"] and "release" in checks["identity"]["remedy"], checks
    finally:
        daemon.stop()
        daemon.note_secrets()


@pytest.mark.parametrize("act", ["quarantine", "revoke", "decommission"])
def test_what_was_decided_about_a_node_while_it_was_off(plane, host, act):
    """Proves GPU-14, GPU-30: identity_revoked_or_fenced, asked with the certificate itself; nothing changes by it."""
    node = run(AGENT, "status", "--json", "--dir", host).json()["node_id"]
    plane.cli("node", act, node, *(() if act == "decommission" else ("--reason", "a look at it")))
    before, said = listing(host), plane.node(node)["last_seen"]
    code, _, checks = doctor(host)
    assert code == 1 and faults(checks) == {"identity": "identity_revoked_or_fenced"}, checks
    assert skipped(checks) == {"recovery": "identity"}, checks
    assert ("release" in checks["identity"]["remedy"]) == (act == "quarantine"), checks
    assert listing(host) == before and plane.node(node)["last_seen"] == said


def test_a_certificate_that_was_replaced_while_the_host_was_off(plane, place):
    """A copy of the directory from before a new enrollment of the node: its certificate is denied, and the doctor says so."""
    directory = place / "a"
    assert enroll(plane, directory, token=plane.token()).code == 0
    give_recovery(directory, plane)
    node = run(AGENT, "status", "--json", "--dir", directory).json()["node_id"]
    shutil.copytree(directory, place / "old", symlinks=True)
    minted = plane.mint(node=node)
    assert enroll(plane, directory, "--replace", token=minted["token"]).code == 0
    assert doctor(directory)[0] == 0
    code, _, checks = doctor(place / "old")
    assert code == 1 and faults(checks) == {"identity": "identity_revoked_or_fenced"}, checks


def test_a_diagnosis_is_no_sign_of_life(plane):
    """A certificate that nobody has seen stays unseen, and its node unconfirmed, however often it is diagnosed."""
    node = native.enroll(plane)

    def trail() -> list:
        # Other hosts of this control plane may have their alerts meanwhile.
        return [line for line in plane.audit() if line.get("node_id") == node.id]

    before, found = trail(), plane.node(node.id)
    with node.door() as door:
        for _ in range(3):
            standing = door.stub.Check(native.pb.CheckRequest(), timeout=60)
            assert (standing.state, standing.quarantined) == ("enrolled", False)
    assert before and trail() == before and plane.node(node.id) == found


def test_one_dead_address_of_several_is_a_warning(plane, host):
    """One server that answers is enough; that another does not is said, and is no fault."""
    code, diagnosis, checks = doctor(host, env={"ENLIST_AGENT_SERVER": f"https://127.0.0.1:1,{plane.url}"})
    assert code == 0 and diagnosis["ok"], diagnosis
    assert "127.0.0.1:1" in checks["reachability"]["warning"], checks
    assert warnings(checks) == ["reachability", "identity"], checks


def test_a_daemon_that_runs_is_not_missed(plane):
    """The warning that nobody keeps the identity valid goes away with its cause, and comes back with it."""
    daemon = Daemon(plane, plane.token()).start()
    try:
        daemon.wait_connected()
        _, _, checks = doctor(daemon.dir)
        assert "identity" not in checks, checks
    finally:
        daemon.stop()
        daemon.note_secrets()
    _, _, checks = doctor(daemon.dir)
    assert checks["identity"]["ok"] and "not running" in checks["identity"]["warning"], checks


def test_storage_in_memory_is_for_the_daemon(plane, host, place):
    """`enroll` refuses it before anything is sent; of a host that kept its identity on disk before, the doctor names what lies there."""
    env = {"ENLIST_AGENT_STORAGE": "memory"}
    code, _, checks = doctor(host, env=env)
    assert code == 1 and faults(checks) == {"identity": "not_enrolled"}, checks
    assert str(host / "identity") in checks["storage"]["warning"], checks
    refused = enroll(plane, place / "b", token=plane.token(), env=env)
    assert (refused.code, refused.error()["code"]) == (2, "storage_memory"), refused
    assert "enlist-agent run" in refused.error()["hint"] and not (place / "b").exists()
