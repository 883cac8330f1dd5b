"""Node issuer and server issuer are two: what each may sign, what clients are given, and what a stolen one is worth. D12, D13.

Proves PROBE-27, TASK-02.
"""

import datetime

import certs
import hosts
import native
import pacts
import probectl
import pytest
import tls_clients
import workers
from certs import x509
from daemons import Daemon
from impostors import Authority, Crossing, Impostor, built, common_name
from machine import AGENT, run, scratch, until
from plane import ControlPlane
from rogue import Thief
from rolls import issuers, prepare, states

CLIENT, SERVER = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH


@pytest.fixture(scope="module")
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture(scope="module")
def plane(programs, crossing):
    plane = ControlPlane(init=("--advertise", crossing.url)).found().start()
    pacts.allow_hardware(plane)
    crossing.lead(plane.port)
    yield plane
    plane.close()


def uses(certificate) -> list:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return []


def known(plane) -> dict:
    """The two issuers as certificates: from a native enrollment, and from what the listener presents."""
    node = certs.certificate(native.enroll(plane).answer.chain)
    _, server, *_ = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    return {"node": node, "server": server}


def given(plane) -> dict:
    """Every door's leaf with its chain, and what it says of trust."""
    host = hosts.ask(plane, hosts.request(hosts.mint(plane)["token"], certs.csr(certs.ec_key()))).json()
    told = probectl.ask_enroll(plane, probectl.token(plane), certs.csr(certs.ec_key())).json()
    worker = workers.ask_enroll(plane, workers.token(plane), workers.csr(certs.ec_key())).json()
    operator = pacts.admin(plane)
    machine = pacts.machine(plane, operator, f"m{pacts.mac().replace(':', '')}")
    operator.close()
    return {
        "plfm": (host["mtls_cert"], host["mtls_ca_chain"]),
        "probectl": (told["cert_pem"], told["ca_bundle"]),
        "taskrun": (worker["worker_cert"], worker["ca_cert"]),
        "pact": (machine.answer.signed_cert.decode(), machine.answer.ca_chain.decode()),
    }


def test_each_issuer_has_one_use_and_signs_for_nobody_else(plane):
    """Proves TASK-02."""
    found = known(plane)
    assert uses(found["node"]) == [CLIENT] and uses(found["server"]) == [SERVER]
    shown = {issuer["use"]: issuer for issuer in plane.cli("ca", "show").json()["issuers"]}
    assert set(shown) == {"node", "server"}
    for usage, issuer in found.items():
        assert shown[usage]["fingerprint"].removeprefix("sha256:") == certs.fingerprint(issuer).lower().replace(":", "")
        assert (shown[usage]["kind"], shown[usage]["state"]) == ("sealed", "active")
        constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
        assert constraints.ca and constraints.path_length == 0
    leaf, *_ = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    assert (leaf.issuer, uses(leaf)) == (found["server"].subject, [SERVER])
    node = certs.certificate(native.enroll(plane).answer.certificate)
    assert (node.issuer, uses(node)) == (found["node"].subject, [CLIENT])
    place = scratch("op") / "alice"
    plane.cli("operator", "add", "alice", "--role", "viewer", "--out", place)
    operator = certs.certificates((place / "cert.pem").read_bytes())[0]
    assert (operator.issuer, uses(operator)) == (found["node"].subject, [CLIENT])
    exported = certs.certificates(plane.cli("ca", "export").json()["pem"])
    assert found["node"] in exported and found["server"] in exported
    metrics = plane.api("GET", "/metrics").body.decode()
    for usage in found:
        assert f'enlist_issuer_not_after_seconds{{use="{usage}",kind="sealed",state="active"}}' in metrics


def test_every_door_gives_the_server_issuer_and_the_node_issuer_only_where_its_document_demands_it(plane):
    found, roots = known(plane), certs.certificates(plane.bundle)
    for door, (leaf, trust) in given(plane).items():
        anchors = certs.certificates(trust)
        assert roots[0] in anchors and found["server"] in anchors, door
        assert (found["node"] in anchors) == (door == "probectl"), door
        own, *chain = certs.certificates(leaf)
        assert chain == [found["node"]], door
        untrusted = scratch("chain") / "chain.pem"
        untrusted.write_bytes(b"".join(certs.pem(one) for one in chain))
        assert certs.verifies(certs.pem(own), trust.encode(), "-untrusted", str(untrusted), "-purpose", "sslclient"), door
        assert certs.verifies((plane.dir / "ca" / "server.pem").read_bytes(), trust.encode()), door
        for name, client in tls_clients.CLIENTS.items():
            assert client(plane.port, trust.encode()), (door, name)


class StolenNodeIssuer(Thief):
    """An issuer for clients in wrong hands: the root has signed it as it signs node issuers."""

    def __init__(self, plane, leaf_uses: tuple = (SERVER,)):
        super().__init__(plane)
        root, self.leaf_uses = Authority(plane), leaf_uses
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = built(common_name("Node CA"), root.certificate.subject, self.key)
        builder = builder.add_extension(x509.BasicConstraints(True, 0), True).add_extension(usage, True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([CLIENT]), False)
        self.certificate = builder.sign(root.key, certs.SHA256)

    def files(self, _name: str = "") -> tuple:
        """A server's certificate for loopback that it signed, with its chain up to the root."""
        key = certs.ec_key()
        builder = built(common_name("server"), self.certificate.subject, key)
        builder = builder.add_extension(certs.names(certs.certificate(self.server()[1])), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(self.leaf_uses)), False)
        leaf = certs.pem(builder.sign(self.key, certs.SHA256))
        return certs.identity(scratch("forged"), key, (leaf + self.chain).decode())


@pytest.mark.parametrize("leaf_uses", [(SERVER,), (CLIENT, SERVER)], ids=["server", "both"])
def test_a_stolen_node_issuer_cannot_play_the_control_plane(plane, crossing, leaf_uses):
    """Proves PROBE-27. Refused by a new host and an enrolled one, and by OpenSSL, curl and Go with every door's bundle; with probectl's, whose
    document puts the node issuer into it, the stolen one stands there in its place."""
    stolen = StolenNodeIssuer(plane, leaf_uses)
    impostor = Impostor("portal-h2", stolen)
    url = f"https://127.0.0.1:{impostor.port}"
    command = (AGENT, "enroll", "--dir", scratch("ag") / "a", "--server", url, "--ca-pin", plane.pin, "--token", "-")
    assert run(*command, stdin=plane.token().encode()).code != 0
    agent = Daemon(plane, plane.token(), ENLIST_AGENT_SERVER=crossing.url).start()
    try:
        agent.wait_connected()
        seen = len(impostor.refusals)
        crossing.lead(impostor.port)
        until(lambda: len(impostor.refusals) > seen, "the host has refused it")
        crossing.lead(plane.port)
        agent.wait_connected()
    finally:
        crossing.lead(plane.port)
        agent.stop()
    assert impostor.handshakes == 0 and impostor.heard == b""
    node = certs.pem(known(plane)["node"])
    for door, (_, trust) in given(plane).items():
        bundle = trust.encode().replace(node, certs.pem(stolen.certificate))
        assert (certs.pem(stolen.certificate) in bundle) == (door == "probectl"), door
        for name, client in tls_clients.CLIENTS.items():
            assert not client(impostor.port, bundle), (door, name)
    impostor.close()


class StolenServerIssuer(Thief):
    """The issuer of the control plane's certificates in wrong hands, which ends, or has ended, so long from now. What it signs says
    that it is good for a day."""

    def __init__(self, plane, ends: datetime.timedelta):
        super().__init__(plane)
        root, now = Authority(plane), datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(common_name("Server CA")).issuer_name(root.certificate.subject)
        builder = builder.public_key(self.key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=2)).not_valid_after(now + ends)
        builder = builder.add_extension(x509.BasicConstraints(True, 0), True)
        self.certificate = builder.add_extension(x509.ExtendedKeyUsage([SERVER]), False).sign(root.key, certs.SHA256)

    def files(self, _name: str = "") -> tuple:
        key, chain = self.server()
        place = scratch("forged")
        for name, content in (("key.pem", key), ("cert.pem", chain)):
            (place / name).write_bytes(content)
        return place / "cert.pem", place / "key.pem"


@pytest.mark.parametrize("ended", [False, True], ids=["before its end", "past its end"])
def test_a_stolen_server_issuer_is_worth_nothing_past_its_end(plane, ended):
    """Proves PROBE-27: the root is offline, so that a rogue control plane lasts as long as the issuer that it stole. A new host and
    OpenSSL, curl and Go believe it until then and no longer, whatever its own certificate says; the host sends it no token."""
    stolen = StolenServerIssuer(plane, datetime.timedelta(hours=-1 if ended else 1))
    with Impostor("portal", stolen) as page:
        for name, client in tls_clients.CLIENTS.items():
            assert client(page.port, plane.bundle) is not ended, name
    with Impostor("portal-h2", stolen) as impostor:
        url, token = f"https://127.0.0.1:{impostor.port}", plane.token().encode()
        command = (AGENT, "enroll", "--dir", scratch("ag") / "a", "--server", url, "--ca-pin", plane.pin, "--token", "-")
        done = run(*command, "--timeout", "10s", "--json", stdin=token)
        assert done.code != 0
        if ended:
            assert done.error()["code"] == "server_tls_untrusted" and token not in impostor.heard, done
        else:
            until(lambda: token in impostor.heard, "the impostor has the token")


def test_a_stolen_server_issuer_lets_no_node_in(plane):
    """A client certificate below an issuer for servers is refused at the handshake, and so is the server's own."""
    key, root = certs.ec_key(), Authority(plane)
    server = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())[1]
    thief = Thief(plane)
    builder = built(server.subject, root.certificate.subject, thief.key)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), True)
    thief.certificate = builder.add_extension(x509.ExtendedKeyUsage([SERVER]), False).sign(root.key, certs.SHA256)
    spiffe = f"spiffe://{plane.domain}/tenant/default/agent/nobody"
    forged = certs.pem(thief.node(certs.csr(key), spiffe)).decode()
    assert native.alert(plane, certs.identity(scratch("forged"), key, forged, thief.chain.decode())) is not None


def test_either_issuer_is_rolled_by_itself(programs):
    """Rolling one leaves the other alone; the control plane's own certificate and the audit key's follow the server issuer."""
    with ControlPlane() as plane:
        node = native.enroll(plane)
        node.confirm()
        before = (plane.dir / "ca" / "server.pem").read_bytes()
        node_before = [issuer["id"] for issuer in issuers(plane)]
        prepare(plane, "server")
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        assert (states(plane), states(plane, "server")) == (["active"], ["active", "retiring"])
        assert [issuer["id"] for issuer in issuers(plane)] == node_before
        path = plane.dir / "ca" / "server.pem"
        until(lambda: path.read_bytes() != before, "the control plane has a certificate of the new issuer")
        until(lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0, "nothing hangs on the old server issuer")
        moved = path.read_bytes()
        prepare(plane, "node")
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        assert (states(plane), states(plane, "server")) == (["active", "retiring"], ["active", "retired"])
        fresh = native.enroll(plane)
        assert fresh.answer.chain != node.answer.chain and path.read_bytes() == moved
        assert plane.cli("audit", "verify").json()["ok"]
        wrong = plane.cli("ca", "roll", "prepare", "--use", "both", "--csr-out", scratch("c") / "x", ok=False)
        assert wrong.code == 2
