"""Certificates of nodes from a CA that exists in memory only: what it is, who trusts it, how it comes and goes.

Proves PACT-02, D12, D13.
"""

import datetime
import ssl

import certs
import ephemeral
import hosts
import native
import pacts
import probectl
import pytest
import workers
from certs import ec, x509
from daemons import Daemon
from ephemeral import anchor, current, issuers
from impostors import Crossing, Impostor, built, common_name
from jumping import Jumping
from machine import AGENT, ENLIST, run, scratch, until

REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"
RESTARTS = 20
CLIENT, SERVER = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH


@pytest.fixture(scope="module")
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture(scope="module")
def memory_plane(programs, crossing):
    """Known to its hosts by the crossing's address alone."""
    with ephemeral.control_plane(init=("--advertise", crossing.url)) as plane:
        pacts.allow_hardware(plane)
        plane.policy("liveness.interval", "1s")
        crossing.lead(plane.port)
        yield plane


def extension(certificate, kind):
    return certificate.extensions.get_extension_for_class(kind).value


def issued_by(leaf, ca) -> bool:
    try:
        leaf.verify_directly_issued_by(ca)
    except Exception:
        return False
    return True


def test_the_issuer_is_a_ca_for_client_certificates_only(memory_plane):
    """Proves PACT-02: self-signed, P-256, path length 0, client-auth its only extended key usage, 14 days, a name of its own."""
    ca, shown = anchor(memory_plane), current(memory_plane)
    assert issued_by(ca, ca) and ca.subject == ca.issuer
    assert isinstance(ca.public_key().curve, ec.SECP256R1)
    constraints = extension(ca, x509.BasicConstraints)
    assert constraints.ca and constraints.path_length == 0
    assert list(extension(ca, x509.ExtendedKeyUsage)) == [CLIENT]
    usage = extension(ca, x509.KeyUsage)
    assert usage.key_cert_sign and not (usage.crl_sign or usage.digital_signature)
    assert certs.seconds(ca) == datetime.timedelta(days=14).total_seconds()
    assert shown["state"] == "active" and shown["replica"] == "1" and shown["crl"] is False
    (line,) = [line for line in memory_plane.audit("ca.published") if line["issuer"] == shown["id"]]
    assert line["actor"] == "replica:1" and line["replica_id"] == "1"
    assert line["issuer_fingerprint"] == f"SHA256:{certs.fingerprint(ca)}"
    assert line["not_after"] == shown["not_after"]
    (founded,) = memory_plane.audit("domain.founded")
    assert founded["node_issuer"] == "ephemeral"


def test_it_verifies_nodes_and_never_the_control_plane(memory_plane):
    """`ca export` has it, `ca export --server`, the bundle on disk and what the server presents have not."""
    ca = anchor(memory_plane)
    assert ca not in ephemeral.exported(memory_plane, "--server")
    assert ca not in certs.certificates(memory_plane.bundle)
    assert ca not in certs.certificates((memory_plane.dir / "ca" / "server.pem").read_bytes())
    sealed = {issuer["use"]: issuer for issuer in issuers(memory_plane, "sealed")}
    assert set(sealed) == {"node", "server"} and all(issuer["state"] == "active" for issuer in sealed.values())
    assert sealed["node"]["crl"] is True and sealed["node"]["leaves"] == 0


def test_operators_are_certified_by_the_sealed_issuer(memory_plane):
    out = scratch("op") / "alice"
    memory_plane.cli("operator", "add", "alice", "--role", "viewer", "--out", out)
    leaf = certs.certificates((out / "cert.pem").read_bytes())[0]
    assert not issued_by(leaf, anchor(memory_plane))
    files = out / "cert.pem", out / "key.pem"
    assert memory_plane.https("GET", "/v1/ca", certificate=files).status == 200


def fields(plane) -> dict:
    """Every door's leaf, what it says of trust, and whether the leaf is good for the control plane."""
    token = hosts.mint(plane)["token"]
    host = hosts.ask(plane, hosts.request(token, certs.csr(keys := certs.ec_key()))).json()
    agent = probectl.Agent(plane, probectl.ask_enroll(plane, probectl.token(plane), certs.csr(k := certs.ec_key())), k)
    worker_key = certs.ec_key()
    worker = workers.ask_enroll(plane, workers.token(plane), workers.csr(worker_key)).json()
    operator = pacts.admin(plane)
    machine = pacts.machine(plane, operator, f"m{pacts.mac().replace(':', '')}")
    operator.close()
    return {
        "plfm": (host["mtls_cert"], host["mtls_ca_chain"], keys),
        "probectl": (agent.cert, agent.told["ca_bundle"], agent.key),
        "taskrun": (worker["worker_cert"], worker["ca_cert"], worker_key),
        "pact": (machine.answer.signed_cert.decode(), machine.answer.ca_chain.decode(), machine.key),
    }


def test_each_door_hands_out_the_leaf_alone_and_only_pact_its_issuer(memory_plane):
    """Interfaces, "PEM fields"; the leaf is good on every door, and each renews."""
    ca, roots = anchor(memory_plane), certs.certificates(memory_plane.bundle)
    for door, (leaf, trust, key) in fields(memory_plane).items():
        (only,) = certs.certificates(leaf)
        assert issued_by(only, ca), door
        assert list(extension(only, x509.ExtendedKeyUsage)) == [CLIENT], door
        given = certs.certificates(trust)
        assert given == ([ca, *roots] if door == "pact" else roots), door
        assert certs.verifies(leaf.encode(), trust.encode()) == (door == "pact"), door
        files = certs.identity(scratch("id"), key, leaf)
        assert native.alert(memory_plane, files) is None, door
    node = native.enroll(memory_plane)
    assert certs.certificates(node.answer.bundle) == roots
    assert certs.certificates(node.answer.chain) == [ca]


def test_every_door_renews_under_it(memory_plane):
    ca = anchor(memory_plane)
    host_key = certs.ec_key()
    worker = workers.enroll(memory_plane).renewed()
    assert issued_by(worker.cert, ca) and worker.files
    agent_key, next_key = certs.ec_key(), certs.ec_key()
    agent = probectl.Agent(
        memory_plane, probectl.ask_enroll(memory_plane, probectl.token(memory_plane), certs.csr(agent_key)), agent_key
    )
    request = certs.csr(next_key)
    answer = probectl.ask_rotate(memory_plane, agent.cert, request, probectl.proof(agent.key, request))
    rotated = probectl.Agent(memory_plane, answer, next_key)
    assert issued_by(rotated.leaf, ca) and certs.certificates(rotated.told["ca_bundle"]) == certs.certificates(memory_plane.bundle)
    with pacts.admin(memory_plane) as operator:
        machine = pacts.machine(memory_plane, operator, "renews").used()
    answer = machine.renew(certs.ec_key())
    assert certs.certificates(answer.ca_chain)[0] == ca
    node = native.enroll(memory_plane)
    node.confirm()
    assert issued_by(certs.certificate(node.renewed(host_key).answer.certificate), ca)


def test_an_agent_keeps_the_leaf_and_does_not_trust_its_issuer(memory_plane):
    """On disk: bundle.pem is what it trusts, chain.pem holds no intermediate, the node knows its issuer."""
    agent = Daemon(memory_plane, memory_plane.token()).start()
    try:
        agent.wait_connected()
        current_dir = agent.dir / "identity" / "current"
        leaf = certs.certificate((current_dir / "cert.pem").read_bytes())
        assert issued_by(leaf, anchor(memory_plane))
        assert certs.certificates((current_dir / "bundle.pem").read_bytes()) == certs.certificates(memory_plane.bundle)
        assert b"BEGIN" not in (current_dir / "chain.pem").read_bytes()
        node = uris_node(leaf)
        assert [c["issuer"] for c in memory_plane.node(node)["certificates"]] == [current(memory_plane)["id"]]
    finally:
        agent.stop()


def uris_node(leaf) -> str:
    return certs.uris(leaf)[0].rsplit("/", 1)[1]


class StolenIssuer:
    """The key of the memory CA in wrong hands: it makes a server's certificate of it."""

    def __init__(self, plane):
        import memory

        self.certificate = anchor(plane)
        self.key = memory.private_key(plane.process.pid, self.certificate)
        assert self.key, "the key was not found in memory"

    def files(self, name: str = "127.0.0.1") -> tuple:
        import ipaddress

        key = certs.ec_key()
        builder = built(common_name("server"), self.certificate.subject, key)
        address = x509.IPAddress(ipaddress.ip_address(name))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([SERVER]), False)
        leaf = builder.sign(self.key, certs.SHA256)
        return certs.identity(scratch("stolen"), key, certs.pem(leaf).decode() + certs.pem(self.certificate).decode())


class NodesOwn:
    """A node's certificate, shown as a server's."""

    def __init__(self, plane):
        self.node = native.enroll(plane)

    def files(self, _name: str = "") -> tuple:
        return self.node.files


@pytest.mark.parametrize("thief", [NodesOwn, StolenIssuer])
def test_no_host_takes_what_the_memory_ca_signed_for_the_control_plane(memory_plane, crossing, thief):
    """A node's certificate, and one that the stolen key made for a server: refused by a new host and by an enrolled one,
    and by other clients with what any door gave them."""
    authority = thief(memory_plane)
    impostor = Impostor("portal-h2", authority)
    token = memory_plane.token()
    directory = scratch("ag") / "a"
    url = f"https://127.0.0.1:{impostor.port}"
    command = (AGENT, "enroll", "--dir", directory, "--server", url, "--ca-pin", memory_plane.pin, "--token", "-")
    done = run(*command, stdin=token.encode())
    assert done.code != 0, done
    agent = Daemon(memory_plane, memory_plane.token(), ENLIST_AGENT_SERVER=crossing.url).start()
    try:
        agent.wait_connected()
        seen = len(impostor.refusals)
        crossing.lead(impostor.port)
        until(lambda: len(impostor.refusals) > seen, "the host has refused it")
        crossing.lead(memory_plane.port)
        agent.wait_connected()
    finally:
        crossing.lead(memory_plane.port)
        agent.stop()
    assert impostor.handshakes == 0 and impostor.heard == b""
    impostor.close()
    with_issuer = anchor_pem(memory_plane) + memory_plane.bundle
    for trust in (memory_plane.bundle, with_issuer):
        assert not accepts(authority.files(), trust)


def anchor_pem(plane) -> bytes:
    return certs.pem(anchor(plane))


def accepts(files: tuple, trust: bytes) -> bool:
    """Whether a client that trusts this, of OpenSSL, takes such a server; the name is not what it fails for."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=trust.decode())
    server.load_cert_chain(*map(str, files))
    client.check_hostname = False
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = client.wrap_bio(inbound, outbound), server.wrap_bio(outbound, inbound, server_side=True)
    for _ in range(4):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                assert "certificate" in str(error).lower(), error
                return False
            if side is asking:
                return True
    raise AssertionError("no handshake")


def policy(plane) -> dict:
    return {item["key"]: item["value"] for item in plane.api("GET", "/v1/policy").json()["items"]}


def test_profiles_live_seven_days_at_most(memory_plane):
    """Longer presets are lowered when the domain is made, longer values are refused."""
    lifetimes = policy(memory_plane)
    assert lifetimes["profile.plfm.lifetime"] == "7d" and lifetimes["profile.pact.lifetime"] == "3d"
    done = memory_plane.cli("policy", "set", "profile.plfm.lifetime", "8d", ok=False)
    assert done.code != 0 and "policy_value_invalid" in done.err and "7d" in done.err, done
    host = hosts.ask(memory_plane, hosts.request(hosts.mint(memory_plane)["token"])).json()
    assert certs.seconds(certs.certificates(host["mtls_cert"])[0]) <= 7 * 86400 + 120


def test_revocation_lists_are_those_of_sealed_issuers(memory_plane):
    """`ca crl` works for the domain and says what has no list; asked for one by name, it is refused with the reason."""
    done = memory_plane.cli("ca", "crl")
    assert done.json()["pem"].count("BEGIN X509 CRL") == len(issuers(memory_plane, "sealed")) + 1, "and the root's"
    assert done.json()["without_list"] == [issuer["id"] for issuer in issuers(memory_plane)]
    plain = run(ENLIST, "ca", "crl", "--dir", memory_plane.dir)
    assert plain.code == 0 and "ephemeral" in plain.err, plain
    answer = memory_plane.api("GET", f"/v1/ca/crl?issuer={current(memory_plane)['id']}")
    assert (answer.status, answer.code) == (409, "no_revocation_list"), answer
    refused = memory_plane.cli("ca", "crl", "--issuer", current(memory_plane)["id"], ok=False)
    assert refused.code != 0 and "no_revocation_list" in refused.err, refused


def test_the_sealed_issuer_is_rolled_as_ever(memory_plane):
    """A roll concerns the sealed issuer; the one in memory neither stands in its way nor is retired by it."""
    before = current(memory_plane)
    place = scratch("roll")
    root = place / "root.pem"
    root.write_text(memory_plane.founded["root_key_pem"])
    root.chmod(0o600)
    memory_plane.cli("ca", "roll", "prepare", "--csr-out", place / "csr.pem")
    run(
        ENLIST, "ca", "sign-intermediate", "--root-key", root, "--root-cert", memory_plane.dir / "ca" / "bundle.pem",
        "--csr", place / "csr.pem", "--out", place / "cert.pem",
    )  # fmt: skip
    memory_plane.cli("ca", "roll", "prepare", "--cert", place / "cert.pem")
    memory_plane.cli("ca", "roll", "activate", "--force", "--yes")
    states = sorted(issuer["state"] for issuer in issuers(memory_plane, "sealed") if issuer["use"] == "node")
    assert states == ["active", "retiring"]
    assert current(memory_plane) == {**before, "leaves": current(memory_plane)["leaves"]}
    assert issued_by(certs.certificate(native.enroll(memory_plane).answer.certificate), anchor(memory_plane))


def test_a_revoked_issuer_is_replaced_and_what_it_signed_is_denied():
    """`ca revoke` of the one that signs: its leaves are refused as revoked, another is published at once."""
    with ephemeral.control_plane() as plane:
        old, node = current(plane), native.enroll(plane)
        node.confirm()
        asked = plane.cli("ca", "revoke", old["id"], ok=False)
        assert asked.code != 0 and "confirmation_needed" in asked.err, asked
        plane.cli("ca", "revoke", old["id"], "--yes")
        assert native.alert(plane, node.files) == REVOKED
        # Before the command was answered: nobody is refused for want of one.
        (new,) = [issuer for issuer in issuers(plane, "ephemeral") if issuer["state"] == "active"]
        assert new["id"] != old["id"] and plane.api("GET", "/readyz").status == 200
        assert native.alert(plane, native.enroll(plane).files) is None
        plane.restart()
        assert native.alert(plane, node.files) == REVOKED


def test_a_denied_leaf_of_an_earlier_start_stays_denied():
    with ephemeral.control_plane() as plane:
        good, revoked, later = (native.enroll(plane) for _ in range(3))
        for node in (good, revoked, later):
            node.confirm()
        plane.cli("node", "revoke", revoked.id, "--reason", "stolen")
        for _ in range(2):
            plane.restart()
            assert native.alert(plane, revoked.files) == REVOKED
            assert native.alert(plane, good.files) is None
        plane.cli("node", "revoke", later.id, "--reason", "stolen")
        assert native.alert(plane, later.files) == REVOKED
        plane.restart()
        assert native.alert(plane, later.files) == REVOKED


def test_many_restarts_leave_few_issuers():
    """Proves PACT-02: one that signed nothing is forgotten with the next start; one with leaves is kept for them."""
    with ephemeral.control_plane() as plane:
        node = native.enroll(plane)
        node.confirm()
        first, seen = current(plane), set()
        for start in range(RESTARTS):
            if start % 2:
                plane.kill()
                plane.start()
            else:
                plane.restart()
            seen.add(current(plane)["id"])
            assert len(issuers(plane)) == 2
            assert plane.api("GET", "/readyz").status == 200
        assert len(seen) == RESTARTS and first["id"] not in seen
        assert native.alert(plane, node.files) is None
        assert [issuer["id"] for issuer in issuers(plane) if issuer["state"] == "retiring"] == [first["id"]]
        assert len(plane.audit("ca.published")) == RESTARTS + 1
        assert plane.cli("audit", "verify").code == 0


def test_it_is_replaced_at_half_its_life_while_running():
    """Proves PACT-02: seven days on, in the same process: another is published, the one before stays an anchor, nobody is stranded."""
    plane = Jumping(init=(*ephemeral.INIT, "--profile", "taskrun")).found().start()
    try:
        old, node, pid = current(plane), native.enroll(plane), plane.process.pid
        node.confirm()
        # Half of its life is over seven days after its certificate begins, which is an hour before the start.
        for hours in (166, 168):
            plane.clock.set(f"+{hours}h")
            plane.cli("server", "clock", "accept", "--yes")
            plane.wait_well()
            if hours == 166:
                assert current(plane)["id"] == old["id"]
                node = node.renewed()
                node.confirm()
        until(lambda: current(plane)["id"] != old["id"], "another one signs")
        assert plane.process.pid == pid and plane.process.poll() is None
        states = {issuer["id"]: issuer["state"] for issuer in issuers(plane)}
        assert states[old["id"]] == "retiring"
        assert native.alert(plane, node.files) is None
        renewed = node.renewed()
        assert issued_by(certs.certificate(renewed.answer.certificate), anchor(plane))
        assert not [alert for alert in plane.items("/v1/alerts") if alert["kind"] == "issuer_expiring"]
    finally:
        plane.close()


def test_a_domain_of_another_kind_has_none(plane):
    """Nothing changes for domains that did not ask for it."""
    assert issuers(plane) == [] and plane.audit("ca.published") == []
    assert policy(plane)["profile.plfm.lifetime"] == "90d"


def test_an_imported_ca_cannot_be_ephemeral():
    done = run(
        ENLIST, "server", "init", "--dir", scratch("no") / "d", "--domain", "x", "--kek", f"file:{scratch('no')}/kek",
        "--issuer", "ephemeral", "--ca-cert", "/dev/null", "--ca-key", "/dev/null",
    )  # fmt: skip
    assert done.code == 2, done
    help_text = run(ENLIST, "server", "init", "--help").out
    assert "ephemeral" in help_text and "memory" in help_text


def test_nobody_but_the_replica_can_publish(memory_plane):
    """There is no request for it: what looks like one is not found, also for who may do everything else."""
    for path in ("/v1/ca/issuers", "/v1/ca/publish", "/v1/ca/issuers/publish"):
        answer = memory_plane.api("POST", path, {"certificate": anchor_pem(memory_plane).decode()})
        assert answer.status in (404, 405), answer
    before = len(memory_plane.audit("ca.published"))
    answer = memory_plane.api("POST", "/v1/ca/roll/prepare", {"certificate": anchor_pem(memory_plane).decode()})
    assert answer.status >= 400 or answer.json()["stage"] != "prepared", answer
    assert len(memory_plane.audit("ca.published")) == before
