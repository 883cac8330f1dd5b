"""A real step-ca signs for nodes, asked by the control plane alone. Proves GPU-01 and PROBE-28 with step-ca, openssl, strace and
clients that share no code with the server.
"""

import concurrent.futures
import json
import os
import re
import threading

import pytest

import certs
import hosts
import lost
import native
import pacts
import probectl
import step_cas
import workers
from clocks import Clock
from clusters import Cluster
from daemons import Daemon
from machine import need, scratch, secret, until
from relay import Relay
from step_cas import reasons, shown, until_ready, until_unavailable


@pytest.fixture(scope="module")
def step_ca():
    with step_cas.running() as running:
        yield running


@pytest.fixture(scope="module")
def plane(step_ca, programs):
    with step_cas.control_plane(step_ca) as running:
        until_ready(running)
        yield running


def verified(step_ca, node) -> None:
    """openssl follows the chain of a node's certificate to step-ca's root."""
    chain = node.files[0].read_bytes()
    assert certs.verifies_by_chain(chain, step_ca.root.read_bytes(), "-purpose", "sslclient"), chain


def on_record(plane) -> set[str]:
    """Every serial that the trail says was granted to a node."""
    granted = ("host.enrolled", "certificate.renewed", "recovery.issued")
    return {line["cert_serial"] for event in granted for line in plane.audit(event)}


def revoked(plane) -> set[str]:
    """Every serial that step-ca has revoked for this domain."""
    return {serial for line in plane.audit("revocation.delivered") for serial in line["cert_serials"]}


def test_the_whole_life_of_a_node(plane, step_ca):
    """Enrolled, confirmed, renewed and revoked, all through step-ca, which renews nothing itself; a revocation reaches it. Proves
    GPU-01."""
    node, _ = lost.provided(plane)
    verified(step_ca, node)
    leaf = certs.certificates(node.files[0].read_bytes())[0]
    assert certs.uris(leaf) == [f"spiffe://test.example/tenant/default/agent/{node.id}"]
    assert certs.serial(leaf) == node.serial == plane.node(node.id)["cert_serial"]
    renewed = node.renewed()
    verified(step_ca, renewed)
    renewed.confirm()
    assert renewed.serial != node.serial
    # At step-ca itself, under a serial that the control plane would not know, it cannot.
    direct = ("--force", "--out", node.files[0].parent / "direct.crt", "--ca-url", step_ca.url, "--root", step_ca.root)
    refused = step_ca.step("ca", "renew", *direct, *renewed.files)
    assert refused.returncode != 0 and b"lacked necessary authorization" in refused.stderr, refused
    assert "renew is disabled" in step_ca.log(), step_ca.log()[-2000:]
    plane.cli("node", "revoke", node.id, "--reason", "stolen")
    assert native.alert(plane, renewed.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    until(lambda: renewed.serial in revoked(plane), "step-ca has taken the revocation")
    assert step_cas.metric(plane, "step_ca_undelivered_revocations") == 0


def test_recovery_goes_through_it(plane, step_ca):
    """A host without its identity gets a certificate that step-ca signed, and the ones before are revoked there. Proves GPU-04."""
    node, grant = lost.provided(plane)
    plane.policy("liveness.grace", "1s")
    try:
        # Silence is what a node is missed by that had a stream.
        with node.door() as door:
            stream = door.live(node.id)
            stream.next("welcome")
            stream.close()
        until(lambda: plane.node(node.id)["state"] == "inactive", "its silence is noticed")
        again = lost.recovered(plane, grant.token)
    finally:
        plane.policy("liveness.grace", "5m")
    verified(step_ca, again)
    again.confirm()
    until(lambda: node.serial in revoked(plane), "what it had before is revoked at step-ca")


def test_every_compatibility_api_is_signed_for_by_it(plane, step_ca):
    """The same enroll and renew requests as with our own issuer. What clients are given to trust is the domain's root alone, and
    step-ca's beside it only where pact's document has clients verify their own leaf by it. Proves PROBE-28.
    """
    root = certs.certificate(step_ca.root.read_bytes())
    own = certs.certificates(plane.bundle)

    def is_own(pem) -> bool:
        return [certs.fingerprint(one) for one in certs.certificates(pem)] == [certs.fingerprint(one) for one in own]

    worker = workers.enroll(plane)
    verified(step_ca, worker)
    verified(step_ca, worker.renewed())
    agent = probectl.enroll(plane)
    assert is_own(agent.told["ca_bundle"])
    agent.rotated()
    host = hosts.enroll(plane)
    assert is_own(host.answer["mtls_ca_chain"])
    verified(step_ca, host)
    pacts.allow_hardware(plane)
    try:
        with pacts.admin(plane) as operator:
            machine = pacts.machine(plane, operator, "pact-1")
        verified(step_ca, machine)
        chain = certs.certificates(machine.answer.ca_chain)
        assert certs.fingerprint(root) in [certs.fingerprint(one) for one in chain]
    finally:
        plane.policy("attestors", "join-token,recovery-token")
    assert certs.fingerprint(root) not in [certs.fingerprint(one) for one in certs.certificates(plane.bundle)]


def test_what_it_signed_for_others_is_nobodys_certificate(plane, step_ca):
    """Proves PACT-05: a certificate of the same CA that is not on record is accepted for nobody, whatever name it has."""
    place = scratch("foreign")
    token = step_ca.step(
        *("ca", "token", "x", "--issuer", step_cas.PROVISIONER, "--key", step_ca.key, "--password-file", step_ca.key_password),
        *("--ca-url", step_ca.url, "--root", step_ca.root),
    )
    assert token.returncode == 0, token
    # The template wants the claim of the control plane: nobody else can have one signed by this provisioner.
    done = step_ca.step(
        *("ca", "certificate", "x", place / "x.crt", place / "x.key", "--token", token.stdout.decode().strip()),
        *("--ca-url", step_ca.url, "--root", step_ca.root),
    )
    assert done.returncode != 0 and not (place / "x.crt").exists(), done


def test_an_agent_connects_to_the_control_plane_alone(plane, step_ca):
    """Every connect of an agent that enrolls, lives and renews, as strace sees it. Proves GPU-01, GPU-02."""
    need("strace")
    trace = scratch("strace") / "trace"
    agent = Daemon(plane, plane.token())
    agent.prefix = ("strace", "-f", "-qq", "-e", "trace=connect", "-o", str(trace))
    agent.start().wait_connected()
    verified(step_ca, agent_identity(agent))
    before = agent.serial()
    plane.cli("node", "rotate", agent.node_id())
    until(lambda: agent.serial() != before, "it is renewed")
    verified(step_ca, agent_identity(agent))
    issuers = (agent.current / "node-issuers.pem").read_bytes()
    assert step_ca.root.read_text().split()[2] in issuers.decode(), "what verifies nodes"
    assert step_ca.root.read_text().split()[2] not in (agent.current / "bundle.pem").read_text(), "never the control plane"
    for file in agent.dir.rglob("*"):
        assert not file.is_file() or str(step_ca.port).encode() not in file.read_bytes(), file
    (child,) = open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read().split()
    os.kill(int(child), 15)
    assert agent.process.wait(60) == 0
    found = set(re.findall(r"sin6?_port=htons\((\d+)\)", trace.read_text()))
    assert found == {str(plane.port)}, trace.read_text()


def agent_identity(agent):
    """The leaf and what stands behind it, as one file."""
    place = scratch("chain") / "chain.pem"
    place.write_bytes((agent.current / "cert.pem").read_bytes() + (agent.current / "chain.pem").read_bytes())
    return type("Identity", (), {"files": (place,)})


def test_killed_in_a_storm_and_brought_back():
    """200 hosts enroll at once while step-ca is killed and comes back: every host gets in with its own token, and whatever step-ca
    signed is on record or revoked."""
    with step_cas.running() as step_ca, step_cas.control_plane(step_ca) as plane:
        until_ready(plane)
        tokens = [plane.token() for _ in range(200)]
        done, signed = threading.Semaphore(0), []

        def enroll(token: str):
            key, again = certs.ec_key(), os.urandom(8).hex()

            def attempt():
                with native.door(plane) as door:
                    try:
                        return door.enroll(token, certs.csr(key), again)
                    except native.Refused as refused:
                        assert refused.code in ("issuer_unavailable", "outcome_unknown", "try_again", "overloaded"), refused
                        return None

            answer = until(attempt, "it is let in", 240)
            done.release()
            return answer

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            storm = [pool.submit(enroll, token) for token in tokens]
            for _ in range(60):
                done.acquire()
            signed += step_ca.signed_serials()
            step_ca.kill()
            until_unavailable(plane)
            step_ca.start()
            answers = [one.result() for one in storm]
        assert len({answer.node_id for answer in answers}) == 200
        assert len(plane.nodes()) == 200 and all(node["state"] == "enrolled" for node in plane.nodes())
        assert {answer.cert_serial for answer in answers} == on_record(plane)
        signed += step_ca.signed_serials()
        assert len(signed) >= 190, "the log of step-ca names what it signed"
        # What was signed and lost with the connection is revoked once its intent has lapsed.
        until(lambda: set(signed) <= on_record(plane) | revoked(plane), "no certificate is unknown", 120)
        until(lambda: step_cas.metric(plane, "step_ca_intents") == 0, "every intent has ended or lapsed", 120)


def test_killed_between_intent_and_result(step_ca):
    """The control plane is killed when step-ca has signed and the answer is on its way. Nothing was released, the token is good, and
    what was signed is revoked at step-ca after the intent has lapsed."""
    relay = Relay(step_ca.port)
    with step_cas.control_plane(step_ca, url=f"https://127.0.0.1:{relay.port}") as plane:
        until_ready(plane)
        minted = plane.mint()
        before = set(step_ca.signed_serials())
        relay.lose()
        with native.door(plane) as door:
            call = door.begin(minted["token"], certs.good_csr())
            until(lambda: set(step_ca.signed_serials()) - before, "step-ca has signed")
            (serial,) = set(step_ca.signed_serials()) - before
            plane.kill()
            assert call.exception() is not None
        relay.cut()
        plane.start()
        assert plane.nodes() == [] and plane.token_state(minted["token_id"]) == "unused"
        (begun,) = plane.audit("issuance.begun")
        assert begun["asked_serial"] == serial
        native.enroll(plane, minted["token"])
        until(lambda: serial in revoked(plane), "what was signed for nobody is revoked", 120)
        assert [line["asked_serials"] for line in plane.audit("issuance.lapsed")] == [[serial]]
        assert serial not in on_record(plane)
    relay.close()


def test_it_is_not_asked_at_init_and_not_needed_at_start():
    """`init` and `run` work without step-ca; the domain is unready until it is there, and then by itself."""
    step_ca = step_cas.StepCa()
    with step_cas.control_plane(step_ca) as plane:
        until_unavailable(plane)
        assert shown(plane)["state"] == "active" and "issuer_unavailable" in shown(plane)["unavailable"]
        minted = plane.mint()
        with native.door(plane) as door:
            assert door.refused(minted["token"], certs.good_csr()).code == "issuer_unavailable"
        assert plane.token_state(minted["token_id"]) == "unused" and plane.audit("issuance.begun") == []
        assert step_cas.metric(plane, "step_ca_up") == 0
        # What is not signed by step-ca goes on.
        operator = plane.cli("operator", "add", "alice", "--role", "viewer", "--out", scratch("op") / "o")
        assert operator.code == 0
        step_ca.start()
        try:
            until_ready(plane)
            assert shown(plane).get("unavailable") is None and step_cas.metric(plane, "step_ca_up") == 1
            native.enroll(plane, minted["token"])
        finally:
            step_ca.kill()
        # A revocation does not wait for step-ca, and reaches it when it is back.
        (node,) = plane.nodes()
        plane.cli("node", "revoke", node["node_id"], "--reason", "stolen")
        assert plane.node(node["node_id"])["state"] == "revoked"
        until(lambda: step_cas.metric(plane, "step_ca_undelivered_revocations") == 1, "it is owed")
        plane.restart()
        step_ca.start()
        try:
            until(lambda: node["cert_serial"] in revoked(plane), "it is passed on", 120)
        finally:
            step_ca.kill()


def test_wrong_words_are_refused_at_init(step_ca):
    """A password, key, root or URL that cannot be right leaves no directory behind."""
    wrong = step_cas.scratch_file("wrong", "not the password")
    wrong.chmod(0o600)
    intermediate = step_ca.base / "certs" / "intermediate_ca.crt"
    public = step_ca.base / "enlist.pub"
    for changed, words in (
        ({"password-file": wrong}, "password"),
        ({"password-file": None}, "encrypted"),
        ({"key": public}, "private"),
        ({"key": step_ca.root}, "JWK"),
        ({"root": intermediate}, "root"),
        ({"root": step_ca.key}, "root"),
        ({"url": "http://127.0.0.1:1"}, "https"),
        ({"url": "127.0.0.1"}, "https"),
    ):
        plane = step_cas.ControlPlane(init=step_ca.init(**changed))
        done = plane.init_command()
        assert done.code == 2 and words in done.error()["message"], (changed, done)
        assert not plane.dir.exists()


@pytest.mark.parametrize("what", ["provisioner", "key", "clock", "lifetime"])
def test_a_refusal_has_its_own_code(what):
    """Another provisioner's name, another key, a clock that is ten minutes off, a lifetime that it does not allow: 503
    `issuer_refused`, the token unspent, and `/readyz` and `ca show` say so."""
    limits = {"maxTLSCertDuration": "1h", "defaultTLSCertDuration": "1h"} if what == "lifetime" else {}
    with step_cas.running(**limits) as step_ca:
        changed = {}
        if what == "provisioner":
            changed["provisioner"] = "somebody"
        if what == "key":
            other = scratch("jwk") / "k"
            made = step_ca.step("crypto", "jwk", "create", f"{other}.pub", other, "--no-password", "--insecure")
            assert made.returncode == 0, made
            changed |= {"key": other, "password-file": None}
        plane = step_cas.ControlPlane(init=step_ca.init(**changed)).found()
        try:
            plane.start(env=Clock("+10m").env if what == "clock" else None)
            if what != "lifetime":
                until_unavailable(plane)
            minted = plane.mint()
            with native.door(plane) as door:
                refused = door.refused(minted["token"], certs.good_csr())
            assert refused.code == "issuer_refused", refused
            assert plane.token_state(minted["token_id"]) == "unused" and plane.nodes() == []
            assert reasons(plane) == ["issuer_unavailable"]
            assert shown(plane)["unavailable"].startswith("issuer_refused"), shown(plane)
            (ended,) = plane.audit("issuance.ended")
            assert ended["outcome"] == "not_signed"
        finally:
            plane.close()


def test_another_root_than_its_own(step_ca):
    """Whoever answers at the address without a certificate of the root that was given is not asked."""
    other = step_cas.StepCa()
    with step_cas.control_plane(step_ca, root=other.root) as plane:
        until_unavailable(plane)
        with native.door(plane) as door:
            assert door.refused(plane.token(), certs.good_csr()).code == "issuer_unavailable"
        assert "cannot be trusted" in shown(plane)["unavailable"], shown(plane)
        assert plane.audit("issuance.begun") == []


def test_any_replica_signs_through_it(step_ca):
    """Three replicas, of which two were never given the provisioner's key: each enrolls through step-ca, and a node of one renews at
    another."""
    with Cluster(3, init=step_ca.init()) as cluster:
        for replica in cluster.replicas:
            until_ready(replica)
        nodes = [native.enroll(replica, cluster.replicas[0].token()) for replica in cluster.replicas]
        for node, elsewhere in zip(nodes, cluster.replicas[1:] + cluster.replicas[:1]):
            verified(step_ca, node)
            moved = native.Node(elsewhere, node.answer, node.key)
            until(lambda moved=moved: native.alert(elsewhere, moved.files) is None, "it is known there")
            verified(step_ca, moved.renewed())


def test_the_key_is_sealed_and_its_files_can_go(step_ca):
    """Nothing in the data directory holds the provisioner's key, and a start needs neither its file nor its password."""
    key = secret(scratch("copied") / "k", step_ca.key.read_text())
    with step_cas.control_plane(step_ca, key=key) as plane:
        key.unlink()
        native.enroll(plane)
        plane.cli("ca", "rewrap", "--kek", f"file:{plane.base / 'next'}")
        plane.restart()
        until_ready(plane)
        native.enroll(plane)


def test_an_imported_ca_takes_over_from_step_ca(step_ca):
    """docs/step-ca.md, "The CA moves into Enlist": a host with a certificate of step-ca renews at the control plane, and is never
    enrolled again. What it gets has no DNS name."""
    place = scratch("moving")
    # A host as step-ca had it before: by a provisioner without our template.
    before = step_cas.StepCa().start()
    try:
        made = before.step(
            *("ca", "certificate", "host-1", place / "host.crt", place / "host.key"),
            *("--provisioner", "admin", "--provisioner-password-file", before.password),
            *("--ca-url", before.url, "--root", before.root, "--not-after", "2h"),
        )
        assert made.returncode == 0, made
        opened = before.step(
            *("crypto", "change-pass", before.base / "secrets" / "intermediate_ca_key", "--no-password", "--insecure"),
            *("--password-file", before.password, "--out", place / "intermediate.key"),
        )
        assert opened.returncode == 0, opened
    finally:
        before.kill()
    (place / "intermediate.key").chmod(0o600)
    chain = (before.base / "certs" / "intermediate_ca.crt").read_bytes() + before.root.read_bytes()
    (place / "chain.pem").write_bytes(chain)
    imported = ("--issuer", "imported", "--ca-cert", place / "chain.pem", "--ca-key", place / "intermediate.key")
    plane = step_cas.ControlPlane(init=imported).found()
    try:
        plane.start()
        plane.cli("node", "import", "--cert", place / "host.crt")
        settings = {"ca_cert": before.root, "worker_cert": place / "host.crt", "worker_key": place / "host.key"}
        lines = [f'{name} = "{path}"' for name, path in settings.items()]
        (place / "worker.toml").write_text("\n".join(["[tls]", *lines, ""]))
        daemon = Daemon(plane, arguments=("--from-taskrun", place / "worker.toml"))
        del daemon.environment["ENLIST_AGENT_CA_PIN"]
        try:
            daemon.start().wait_connected()
            assert daemon.node_id() == "host-1"
        finally:
            daemon.stop()
            daemon.note_secrets()
        leaf = certs.certificates((place / "host.crt").read_bytes())[0]
        assert certs.uris(leaf) == ["spiffe://test.example/tenant/default/agent/host-1"] and len(certs.names(leaf)) == 1
        assert leaf.subject.rfc4514_string() == "CN=worker:host-1" and (place / "host.crt").is_symlink()
        assert plane.audit("host.enrolled") == [] and len(plane.nodes()) == 1
    finally:
        plane.close()

