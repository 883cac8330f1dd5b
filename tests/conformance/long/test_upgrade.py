"""A directory that an older version left starts under this one, and says the same."""

import json
import tarfile

import certs
import evidence
import native
import pytest
from certs import x509
from daemons import Daemon
from impostors import Authority
from machine import ROOT, scratch, tool, until
from old_directory import FACTS, KEK, under_own_root
from plane import ControlPlane
from rolls import signed, status

ARCHIVES = sorted((ROOT / "tests" / "fixtures").glob("directory-*.tar.gz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def old(request):
    """The archive's directory, and what was true of it when it was packed."""
    plane = ControlPlane("old.example", kek="env:ENLIST_KEK", env=KEK)
    with tarfile.open(request.param) as archive:
        archive.extractall(plane.base, filter="data")
    for path in (plane.dir, *plane.dir.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    evidence.key("kek", bytes.fromhex(KEK["ENLIST_KEK"]))
    yield plane, json.loads((plane.base / FACTS).read_text())
    plane.close()


@pytest.fixture
def founded(old):
    """The same on its first day, under a root whose key we have."""
    plane, _ = old
    under_own_root(plane)
    evidence.private_key("root", plane.founded["root_key_pem"].encode())
    plane.start("--accept-clock")
    plane.policy("renew.drain", "2s")
    return plane


def told(plane) -> dict:
    return {node["node_id"]: [node["state"], node["generation"], node["cert_serial"]] for node in plane.nodes()}


def test_there_is_an_old_directory_to_start_on():
    assert ARCHIVES


def test_an_old_directory_starts_and_nothing_in_it_has_changed(old):
    """The process was killed, so every entry is applied again by today's rules: they must lead to the same lines."""
    plane, facts = old
    plane.start("--accept-clock")
    nodes = told(plane)
    for node, (state, generation, serial) in facts["nodes"].items():
        # Its hosts are not there any more, which is all that may be noticed since.
        assert nodes[node] == [state, generation, serial] or nodes[node] == ["inactive", generation, serial]
    policy = plane.api("GET", "/v1/policy").json()["items"]
    assert all(item in policy for item in facts["policy"]["items"])
    assert plane.cli("audit", "verify").json()["ok"]


def test_an_old_directory_is_used_and_starts_again(old):
    plane, facts = old
    plane.start("--accept-clock")
    minted = plane.mint(node="revoked-anew")
    plane.kill()
    plane.start("--accept-clock")
    assert plane.token_state(minted["token_id"]) == "unused"
    assert plane.cli("audit", "verify").json()["ok"]
    assert set(told(plane)) == set(facts["nodes"])


USES = pytest.mark.parametrize("options", [(), ("--use", "server")], ids=["as-it-comes", "server"])


def issuers(plane) -> list:
    return sorted((one["use"], one["state"]) for one in plane.cli("ca", "show").json()["issuers"])


def requested(plane, *options):
    """The file with the requests for the next issuers."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", *options, "--csr-out", csr)
    return csr


def purposes(request) -> list:
    return list(request.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def requests(csr) -> list:
    blocks = csr.read_text().split("-----BEGIN")[1:]
    return [x509.load_pem_x509_csr(f"-----BEGIN{block}".encode()) for block in blocks]


def brought(plane, *certificates):
    """What the control plane says to these certificates as the answer to its requests."""
    file = scratch("answer") / "answer.pem"
    file.write_bytes(b"".join(map(certs.pem, certificates)))
    return plane.cli("ca", "roll", "prepare", "--cert", file, ok=False)


def presented(plane) -> list:
    """The chain of the listener, good by the domain's root as openssl sees it."""
    where = ("-connect", f"127.0.0.1:{plane.port}", "-CAfile", plane.dir / "ca" / "bundle.pem", "-verify_return_error")
    shown = tool("openssl", "s_client", *where, "-verify_ip", "127.0.0.1", "-showcerts")
    assert "Verify return code: 0 (ok)" in shown.out, shown
    return certs.certificates(shown.out[: shown.out.index("Server certificate")])


@USES
def test_an_old_domain_keeps_its_one_issuer_and_asks_for_two(old, options):
    """Its first roll asks for both, whichever is named, and what another root says to it is refused. D12, D13."""
    plane, _ = old
    plane.start("--accept-clock")
    assert issuers(plane) == [("both", "active")]
    csr = requested(plane, *options)
    wanted = [[x509.ExtendedKeyUsageOID.CLIENT_AUTH], [x509.ExtendedKeyUsageOID.SERVER_AUTH]]
    assert [purposes(one) for one in requests(csr)] == wanted
    assert requested(plane).read_bytes() == requested(plane, "--use", "server").read_bytes() == csr.read_bytes()
    stranger = ControlPlane("old.example").found()
    theirs = certs.certificates(signed(stranger, csr).read_bytes())
    assert len(theirs) == 2
    for wrong in (theirs, theirs[:1], theirs[1:], [Authority(stranger).certificate]):
        refused = brought(plane, *wrong)
        assert (refused.code, refused.error()["code"]) == (3, "bad_request"), refused
    plane.kill()
    plane.start("--accept-clock")
    assert issuers(plane) == [("both", "active")] and status(plane)["stage"] == "requested"
    assert requested(plane).read_bytes() == csr.read_bytes()
    assert plane.cli("ca", "roll", "abandon").json()["stage"] == "none"
    assert issuers(plane) == [("both", "active")]
    assert plane.cli("audit", "verify").json()["ok"]


@USES
def test_an_old_domain_has_two_issuers_after_its_first_roll(founded, options):
    """Half an answer is refused; then there is one for nodes and one for the control plane, and what the old one issued is good
    until it is replaced.

    Proves TASK-18, D12, D13.
    """
    plane = founded
    node = native.enroll(plane)
    node.confirm()
    agent = Daemon(plane, plane.token()).start().wait_connected()
    try:
        serial = agent.serial()
        node_issuer, server_issuer = answered(plane, options)
        until(lambda: status(plane)["missing"] == [node.id], "the agent has what is new")
        refused = plane.cli("ca", "roll", "activate", ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "not_adopted"), refused
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        assert issuers(plane) == [("both", "retiring"), ("node", "active"), ("server", "active")]
        until(lambda: presented(plane)[1] == server_issuer, "the listener's chain is the server issuer's")
        presented(plane)[0].verify_directly_issued_by(server_issuer)

        # What the old one issued is good still.
        assert agent.serial() == serial and native.alert(plane, node.files) is None
        assert agent.stop() == 0
        agent.start().wait_connected()
        assert agent.serial() == serial
        refused = plane.cli("ca", "roll", "retire", ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "issuer_in_use"), refused
        assert node.id in refused.error()["message"] and agent.node_id() in refused.error()["message"]

        renewed = node.renewed()
        renewed.confirm()
        certs.certificate(renewed.answer.certificate).verify_directly_issued_by(node_issuer)
        plane.cli("node", "rotate", agent.node_id())
        until(lambda: agent.serial() != serial, "the agent has renewed")
        certs.certificate((agent.current / "cert.pem").read_bytes()).verify_directly_issued_by(node_issuer)
        until(lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0, "nothing hangs on the old issuer any more")
        assert issuers(plane) == [("both", "retired"), ("node", "active"), ("server", "active")]
        plane.kill()
        plane.start("--accept-clock")
        assert native.alert(plane, node.files) is not None and native.alert(plane, renewed.files) is None
        assert presented(plane)[1] == server_issuer
        assert len(requests(requested(plane, *options))) == 1, "from now on they are rolled one at a time"
        assert plane.cli("audit", "verify").json()["ok"]
    finally:
        agent.stop()
        agent.note_secrets()


def answered(plane, options: tuple) -> list:
    """The two issuers that the root's keeper has certified, after halves of the answer were refused."""
    assert issuers(plane) == [("both", "active")]
    node_issuer, server_issuer = certs.certificates(signed(plane, requested(plane, *options)).read_bytes())
    for half in ([node_issuer], [server_issuer], [node_issuer, node_issuer], [server_issuer, server_issuer]):
        refused = brought(plane, *half)
        assert (refused.code, refused.error()["code"]) == (3, "bad_request"), refused
        assert issuers(plane) == [("both", "active")]
    done = brought(plane, node_issuer, server_issuer)
    assert done.code == 0 and done.json()["stage"] == "prepared", done
    assert issuers(plane) == [("both", "active"), ("node", "prepared"), ("server", "prepared")]
    return [node_issuer, server_issuer]
