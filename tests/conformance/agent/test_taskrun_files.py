"""003's files and what they mean: which CA a worker trusts, and who may read what. Control plane and worker."""

import os
import shutil
import subprocess

import pytest

import certs
import evidence
from agents import enroll_command
from daemons import Daemon, lasting_port
from faults import Patient
from linked import mode
from machine import ENLIST, run, scratch, until
from mounts import Etc, need_root
from plane import ControlPlane

WORKER = """
[tls]
ca_cert = "certs/ca.crt"
worker_cert = "certs/worker.crt"
worker_key = "certs/worker.key"
bootstrap_token = "${TASKRUN_BOOTSTRAP_TOKEN}"
"""
CONTROL_PLANE = """
[tls]
ca_cert = "certs/ca.crt"
ca_key = "certs/ca.key"
server_cert = "certs/server.crt"
server_key = "certs/server.key"
require_client_cert = true
worker_cert_validity_days = 7
[enrollment]
bootstrap_token_validity_hours = 1
"""


def worker_home(ca: bytes):
    """A worker's directory as the document lays it out."""
    home = scratch("worker")
    (home / "certs").mkdir()
    (home / "certs/ca.crt").write_bytes(ca)
    (home / "certs/ca.crt").chmod(0o644)
    (home / "worker.toml").write_text(WORKER)
    return home


@pytest.fixture
def workers():
    """Makes workers that trust what their file names, and ends them."""
    made: list[Daemon] = []

    def make(plane, home, prefix: tuple = (), token: str | None = None) -> Patient:
        worker = Patient(plane, prefix=prefix)
        worker.arguments = ("--from-taskrun", home / "worker.toml")
        del worker.environment["ENLIST_AGENT_CA_PIN"]
        worker.environment["TASKRUN_BOOTSTRAP_TOKEN"] = token or plane.token(door="taskrun")
        made.append(worker)
        return worker.start()

    yield make
    for worker in made:
        worker.stop()
        worker.note_secrets()


def trusting(*bundles: bytes) -> Etc:
    """A machine whose own store holds these CAs, where Debian keeps it."""
    etc = Etc()
    store = etc.path / "ssl" / "certs"
    store.mkdir(parents=True)
    (store / "ca-certificates.crt").write_bytes(b"".join(bundles))
    return etc


def test_the_system_store_is_not_asked(plane, place, workers):
    """Proves TASK-01, TASK-21: this machine trusts the control plane's CA, the worker is pinned to another: refused.

    The same machine, told to trust its own store, enrolls: so the store does hold that CA, and is what was not asked.
    """
    from impostors import Authority

    machine, other = trusting(plane.bundle), Authority()
    other_file = place / "other.pem"
    other_file.write_bytes(other.pem)
    minted = plane.mint(door="taskrun")
    worker = workers(plane, worker_home(other.pem), machine.prefix, minted["token"])
    until(lambda: "server_tls_untrusted" in worker.whole_log(), "the worker says whom it does not trust")
    pins = (("--ca-file", other_file), ("--ca-pin", "sha256:" + "ab" * 32))
    for trust in pins:
        command = enroll_command(plane, place / "a", "--json", "--token", "-", "--timeout", "60s", trust=trust)
        done = run(*machine.prefix, *command, stdin=minted["token"].encode())
        assert (done.code, done.error()["code"]) == (4, "server_tls_untrusted"), done
    assert plane.token_state(minted["token_id"]) == "unused", "nobody was sent the token"
    command = enroll_command(plane, place / "b", "--json", "--token", "-", trust=("--system-roots",))
    done = run(*machine.prefix, *command, stdin=minted["token"].encode())
    assert done.code == 0, done
    evidence.private_key("agent", (place / "b/identity/current/key.pem").read_bytes())
    again = enroll_command(plane, place / "c", "--json", "--token", "-", "--timeout", "60s", trust=("--system-roots",))
    done = run(*trusting(other.pem).prefix, *again, stdin=plane.token().encode())
    assert (done.code, done.error()["code"]) == (4, "server_tls_untrusted"), "a store without that CA is another matter"


def test_an_enrolled_worker_knows_its_ca_alone(workers, programs):
    """Proves TASK-01, TASK-21: another control plane takes the address, and the machine's store vouches for it. Refused."""
    port = lasting_port()
    listen = ("--listen", f"127.0.0.1:{port}")
    own, other = ControlPlane().found(), ControlPlane().found()
    try:
        own.start(*listen)
        worker = workers(own, worker_home(own.bundle), trusting(own.bundle, other.bundle).prefix)
        until(worker.connected, "the worker is let in")
        node = worker.node_id()
        own.stop()
        other.start(*listen)
        until(lambda: "server_tls_untrusted" in worker.whole_log(), "it says whom it does not trust")
        worker.told("server_tls_untrusted")
        assert other.nodes() == [] and worker.status()["channel"] == "down"
        other.stop()
        own.start(*listen)
        until(worker.connected, "and its own it knows again", 150)
        assert worker.node_id() == node
    finally:
        own.close()
        other.close()


@pytest.mark.parametrize("umask", ["000", "077"])
def test_a_workers_files_are_as_the_document_says(plane, workers, umask):
    """Proves TASK-15: worker.key 0600, worker.crt 0644, ca.crt 0644, whatever the umask; also after a renewal."""
    home = worker_home(plane.bundle)
    worker = workers(plane, home, ("sh", "-c", 'umask "$0" && exec "$@"', umask))
    until(worker.connected, "the worker is let in")
    there, serial = home / "certs", worker.serial()

    def modes() -> dict:
        assert {path.stat().st_uid for path in there.iterdir()} == {os.geteuid()}
        return {path.name: oct(mode(path)) for path in there.iterdir()}

    wanted = {"worker.key": "0o600", "worker.crt": "0o644", "ca.crt": "0o644"}
    assert modes() == wanted
    plane.cli("node", "rotate", worker.node_id())
    until(lambda: worker.serial() != serial, "it is renewed")
    assert modes() == wanted
    assert (there / "ca.crt").read_bytes() == plane.bundle


@pytest.mark.parametrize("umask", ["000", "077"])
def test_a_control_planes_files_are_as_the_document_says(umask):
    """Proves TASK-15: ca.key 0600 of root, ca.crt 0644. The server's key is sealed: 0600, and in the clear nowhere."""
    need_root()
    home = scratch("control")
    (home / "control-plane.toml").write_text(CONTROL_PLANE)
    plane = ControlPlane()
    arguments = ("--domain", plane.domain, "--kek", plane.kek, "--listen", "127.0.0.1:0", "--json")
    command = (ENLIST, "server", "init", "--dir", plane.dir, *arguments, "--from-taskrun", home / "control-plane.toml")
    done = run("sh", "-c", 'umask "$0" && exec "$@"', umask, *command)
    assert done.code == 0, done
    there = home / "certs"
    evidence.private_key("root", (there / "ca.key").read_bytes())
    found = {path.name: (oct(mode(path)), path.stat().st_uid) for path in there.iterdir()}
    assert found == {"ca.key": ("0o600", 0), "ca.crt": ("0o644", 0)}
    previous = os.umask(int(umask, 8))
    try:
        plane.start()
    finally:
        os.umask(previous)
    try:
        assert mode(plane.dir / "ca/server.pem") == 0o644 and mode(plane.dir / "keys/server.key.sealed") == 0o600
        assert mode(plane.dir / "keys") == 0o700 and mode(plane.kek_file) == 0o600
    finally:
        plane.close()


@pytest.fixture(scope="module")
def by_hand(programs):
    """The document's folder with files that openssl made: CA and server certificate."""
    home = scratch("hand")
    there = home / "certs"
    there.mkdir()
    cert, key = certs.openssl_ca(there, "/CN=TaskRun Development CA")
    cert.rename(there / "ca.crt")
    from machine import tool

    tool("openssl", "ecparam", "-genkey", "-name", "prime256v1", "-out", there / "server.key")
    request, names = there / "server.csr", home / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1")
    tool("openssl", "req", "-new", "-key", there / "server.key", "-out", request, "-subj", "/CN=taskrun-control-plane")
    signing = ("-CA", there / "ca.crt", "-CAkey", key, "-CAcreateserial", "-extfile", names)
    tool("openssl", "x509", "-req", "-days", "365", "-in", request, *signing, "-out", there / "server.crt")
    for name in ("ca", "server"):
        text = (there / f"{name}.key").read_bytes()
        evidence.private_key(name, text[text.index(b"-----BEGIN EC PRIVATE KEY") :])
    for name, bits in (("ca.key", 0o600), ("ca.crt", 0o644), ("server.key", 0o600), ("server.crt", 0o644)):
        (there / name).chmod(bits)
    (home / "control-plane.toml").write_text(CONTROL_PLANE)
    return home


def test_the_four_files_stay_as_they_are(by_hand):
    """Proves TASK-15: the document's paths and modes, before and after; the listener shows that very server.crt."""
    home = scratch("four") / "h"
    shutil.copytree(by_hand, home)

    def picture() -> dict:
        names = ("ca.key", "ca.crt", "server.key", "server.crt")
        return {name: (oct(mode(home / "certs" / name)), (home / "certs" / name).read_bytes()) for name in names}

    before = picture()
    plane = ControlPlane(init=("--from-taskrun", home / "control-plane.toml"))
    with plane:
        assert plane.founded["warnings"] == []
        shown = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}"], input=b"", capture_output=True, timeout=60
        ).stdout
        leaf = certs.certificate(shown[shown.index(b"-----BEGIN") :])
        assert certs.fingerprint(leaf) == certs.fingerprint(certs.certificate(before["server.crt"][1]))
    assert picture() == before
    assert [before[name][0] for name in before] == ["0o600", "0o644", "0o600", "0o644"]


@pytest.mark.parametrize("open_to", [0o640, 0o604, 0o644])
def test_keys_that_others_may_read_are_noticed(by_hand, open_to):
    """Proves TASK-15: an open ca.key is refused, an open server.key is warned about, each with the command that closes it."""
    home = scratch("open") / "h"
    shutil.copytree(by_hand, home)
    (home / "certs/ca.key").chmod(open_to)
    plane = ControlPlane(init=("--from-taskrun", home / "control-plane.toml"))
    done = plane.init_command()
    assert (done.code, done.error()["code"]) == (1, "key_exposed") and "chmod 600" in done.error()["hint"], done
    (home / "certs/ca.key").chmod(0o600)
    (home / "certs/server.key").chmod(open_to)
    done = plane.init_command()
    assert done.code == 0 and "chmod 600" in " ".join(done.json()["warnings"]), done
