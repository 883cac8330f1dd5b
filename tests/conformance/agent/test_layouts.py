"""The identity where a document wants it: names, modes, one rename, links that come back, and the aliases."""

import os
import threading

import pytest

import certs
import evidence
from agents import enroll, listed
from daemons import Daemon
from linked import mode
from machine import AGENT, run, until

LAYOUTS = {
    "plfm": {"certs/agent.key": 0o600, "certs/agent.crt": 0o644, "certs/ca.crt": 0o644},
    "probectl": {"key.pem": 0o600, "cert.pem": 0o600, "ca.pem": 0o600},
    "taskrun": {"certs/worker.key": 0o600, "certs/worker.crt": 0o644, "certs/ca.crt": 0o644},
}


def checked(key, cert, ca, chain=None) -> str:
    """That three files are one identity; its serial. `chain` holds the intermediates where `cert` is the leaf alone."""
    leaf = certs.certificates(cert.read_bytes())[0]
    secret = key.read_bytes()
    assert certs.public_der(certs.serialization.load_pem_private_key(secret, None)) == certs.public_der(leaf)
    if ca:
        assert certs.verifies_by_chain(cert.read_bytes() + (chain.read_bytes() if chain else b""), ca.read_bytes())
    evidence.private_key("agent", secret)
    return certs.serial(leaf)


@pytest.fixture
def running(plane):
    made = []

    def make(**environment) -> Daemon:
        made.append(Daemon(plane, plane.token(), **environment))
        return made[-1].start().wait_connected()

    yield make
    for daemon in made:
        daemon.stop()
        daemon.note_secrets()


def rotated(plane, daemon) -> None:
    before = daemon.serial()
    assert plane.api("POST", f"/v1/nodes/{daemon.node_id()}/rotate", {}).status == 200
    until(lambda: daemon.serial() != before, "it is renewed")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_and_modes_are_the_documents(plane, place, layout):
    """Proves PLFM-19, PROBE-21, TASK-15."""
    done = enroll(plane, place / "a", token=plane.token(), env={"ENLIST_AGENT_LAYOUT": layout})
    assert done.code == 0, done
    files = [place / "a" / name for name in LAYOUTS[layout]]
    assert [mode(path) for path in files] == list(LAYOUTS[layout].values())
    assert mode(place / "a") == 0o700
    assert all(os.readlink(path).startswith(("identity/current/", "../identity/current/")) for path in files)
    assert checked(*files) == listed(plane, place / "a")["cert_serial"]
    assert f'layout = "{layout}"' in (place / "a/agent.toml").read_text()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_rename_switches_all(plane, running, layout):
    """Proves PROBE-20, TASK-11: whoever reads through `current` finds parts of one identity, at any moment."""
    daemon = running(ENLIST_AGENT_LAYOUT=layout)
    key, cert, ca = (daemon.dir / name for name in LAYOUTS[layout])
    links = [os.readlink(path) for path in (key, cert, ca)]
    seen, stop = set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            generation = (daemon.dir / "identity/current").resolve()
            parts = [generation / os.path.basename(link) for link in links]
            seen.add(checked(parts[0], parts[1], None))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(3):
            rotated(plane, daemon)
    finally:
        stop.set()
        reader.join()
    assert [os.readlink(path) for path in (key, cert, ca)] == links
    assert checked(key, cert, ca) == daemon.serial() and len(seen) >= 2


def test_links_come_back_and_are_chosen_later(plane, running):
    """What is missing is restored when the daemon starts; a layout may be chosen for an identity that is there."""
    daemon = running()
    assert not (daemon.dir / "certs").exists()
    assert daemon.stop() == 0
    settings = daemon.dir / "agent.toml"
    settings.write_text('layout = "plfm"\n' + settings.read_text())
    daemon.start().wait_connected()
    files = [daemon.dir / name for name in LAYOUTS["plfm"]]
    assert checked(*files) == daemon.serial()
    assert daemon.stop() == 0
    files[1].unlink()
    daemon.start().wait_connected()
    assert checked(*files) == daemon.serial()
    rotated(plane, daemon)
    until(lambda: checked(*files) == daemon.serial(), "the links lead to the new identity")


def test_a_foreign_file_is_never_overwritten(plane, place, running):
    """Enrolling is refused before the token is spent; a daemon says so and goes on."""
    (place / "a").mkdir(mode=0o700)
    (place / "a/cert.pem").write_text("precious")
    (place / "a/key.pem").symlink_to("/etc/hostname")
    minted = plane.mint()
    done = enroll(plane, place / "a", token=minted["token"], env={"ENLIST_AGENT_LAYOUT": "probectl"})
    assert (done.code, done.error()["code"]) == (1, "file_in_the_way"), done
    assert "cert.pem" in done.error()["message"] and "key.pem" in done.error()["message"]
    assert plane.token_state(minted["token_id"]) == "unused"
    assert (place / "a/cert.pem").read_text() == "precious" and os.readlink(place / "a/key.pem") == "/etc/hostname"
    daemon = running(ENLIST_AGENT_LAYOUT="probectl")
    daemon.stop()
    (daemon.dir / "cert.pem").unlink()
    (daemon.dir / "cert.pem").write_text("precious")
    daemon.start().wait_connected()
    until(lambda: "file_in_the_way" in daemon.log(), "the daemon says what is in its way")
    rotated(plane, daemon)
    assert (daemon.dir / "cert.pem").read_text() == "precious"


def test_files_may_be_anywhere(plane, place):
    """`[files]`: each is a link to the identity in use."""
    (place / "a").mkdir(mode=0o700)
    (place / "a/agent.toml").write_text(f'[files]\ncert = "{place}/x/c.pem"\nkey = "{place}/x/k.pem"\nca = "ca.crt"\n')
    done = enroll(plane, place / "a", token=plane.token())
    assert done.code == 0, done
    chain = place / "a/identity/current/chain.pem"
    assert checked(place / "x/k.pem", place / "x/c.pem", place / "a/ca.crt", chain)
    assert os.readlink(place / "x/c.pem") == str(place / "a/identity/current/cert.pem")
    assert mode(place / "x/k.pem") == 0o600


def test_an_operators_own_ca_file_stays(plane, place):
    """What was put there for first contact is not taken for something in the way."""
    (place / "a/certs").mkdir(parents=True, mode=0o700)
    (place / "a").chmod(0o700)
    (place / "a/certs/ca.crt").write_bytes(plane.bundle)
    trust = ("--ca-file", place / "a/certs/ca.crt", "--layout", "plfm")
    done = enroll(plane, place / "a", token=plane.token(), trust=trust)
    assert done.code == 0, done
    assert (place / "a/certs/ca.crt").read_bytes() == plane.bundle and not (place / "a/certs/ca.crt").is_symlink()
    assert checked(place / "a/certs/agent.key", place / "a/certs/agent.crt", None)


def test_the_variables_of_004_mean_the_same(plane, place):
    """Server, CA, token and places from GPUAAS_*; our own names win."""
    env = {
        "GPUAAS_API_URL": plane.url,
        "GPUAAS_CA_BUNDLE_PATH": str(plane.dir / "ca/bundle.pem"),
        "GPUAAS_ENROLLMENT_TOKEN": plane.token(),
        "GPUAAS_CERT_PATH": str(place / "gpu/cert.pem"),
        "GPUAAS_KEY_PATH": str(place / "gpu/key.pem"),
        "GPUAAS_DIAGNOSTIC_PATH": str(place / "diagnostics"),
        "GPUAAS_RECOVERY_API_URL": plane.url,
        "GPUAAS_RECOVERY_CA_BUNDLE_PATH": str(plane.dir / "ca/bundle.pem"),
        "ENLIST_AGENT_LAYOUT": "gpuaas",
    }
    done = run(AGENT, "enroll", "--dir", place / "a", "--json", env=env)
    assert done.code == 0, done
    assert checked(place / "gpu/key.pem", place / "gpu/cert.pem", None) == listed(plane, place / "a")["cert_serial"]
    minted = plane.mint()
    own = {"ENLIST_AGENT_SERVER": "https://127.0.0.1:1", "ENLIST_AGENT_CA_PIN": plane.pin}
    env |= {"GPUAAS_ENROLLMENT_TOKEN": minted["token"], **own}
    done = run(AGENT, "enroll", "--dir", place / "b", "--timeout", "2s", "--json", env=env)
    assert done.code != 0 and plane.token_state(minted["token_id"]) == "unused", done


def test_wrong_words_are_told(plane, place):
    """A layout or an address that is none: 2, before anything is done."""
    done = enroll(plane, place / "a", token=plane.token(), env={"ENLIST_AGENT_LAYOUT": "other"})
    assert done.code == 2 and "ENLIST_AGENT_LAYOUT" in done.err
    done = enroll(plane, place / "a", "--underlay", "nowhere", token=plane.token())
    assert done.code == 2 and "underlay" in done.err
    done = enroll(plane, place / "a", "--layout", "other", token=plane.token())
    assert done.code == 2 and not (place / "a").exists()
