"""The command line of 003, and a worker that is run from its configuration file."""

import base64
import subprocess

import pytest

import certs
import evidence
from daemons import Daemon
from linked import mode
from machine import AGENT, run, tool, until

DOCUMENT = """
[tls]
# Pinned CA (only trust this)
ca_cert = "certs/ca.crt"

# Worker certificate (after enrollment)
worker_cert = "certs/worker.crt"
worker_key = "certs/worker.key"

# Enrollment
bootstrap_token = "${TASKRUN_BOOTSTRAP_TOKEN}"
"""


@pytest.fixture
def worker(plane, place):
    """A worker's directory as the document lays it out: the configuration, and the pinned CA."""
    (place / "certs").mkdir()
    (place / "certs/ca.crt").write_bytes(plane.bundle)
    (place / "worker.toml").write_text(DOCUMENT)
    return place


@pytest.fixture
def daemon(plane):
    """Makes a daemon that trusts nothing but what the worker's file names."""
    made = []

    def make(worker, **environment) -> Daemon:
        new = Daemon(plane, arguments=("--from-taskrun", worker / "worker.toml"), **environment)
        del new.environment["ENLIST_AGENT_CA_PIN"]
        made.append(new)
        return new.start()

    yield make
    for each in made:
        each.stop()
        each.note_secrets()


def generated(names, plane, *arguments) -> str:
    done = names("taskrun", "token", "generate", *arguments, plane=plane)
    return evidence.token(done.out.strip())


def test_a_token_is_all_that_is_printed(names, plane):
    """Proves TASK-05, TASK-06: 256 bits, base64, alone on standard output; the record has a hash and one hour."""
    done = names("taskrun", "token", "generate", plane=plane)
    token = evidence.token(done.out.removesuffix("\n"))
    assert len(token) == 44 and len(base64.b64decode(token, validate=True)) == 32
    assert "until" in done.err and token not in done.err
    document = names("taskrun", "token", "generate", "--expires", "10m", "--json", plane=plane).json()
    evidence.token(document["token"])
    assert document["profile"] == "taskrun" and len(document["token"]) == 44
    (line,) = [line for line in plane.audit("enrollment_token.created") if line["token_id"] == document["token_id"]]
    assert document["token"] not in str(line)


def test_usage_errors_end_with_two(names, plane):
    """And what the control plane refuses with 3."""
    for wrong in [(), ("token",), ("token", "make"), ("token", "generate", "--colour")]:
        assert names("taskrun", *wrong, plane=plane, ok=False).code == 2, wrong
    assert names("taskrun", "token", "generate", "--expires", "25h", plane=plane, ok=False).code == 3
    assert "generate" in names("taskrun", "token", "--help").out


def test_a_worker_is_run_from_its_file(names, plane, worker, daemon):
    """Proves TASK-01, TASK-15, TASK-17, TASK-10, TASK-11: enrolled, linked, renewed; all with the pinned CA alone."""
    running = daemon(worker, TASKRUN_BOOTSTRAP_TOKEN=generated(names, plane)).wait_connected()
    node = plane.node(running.node_id())
    assert node["profile"] == "taskrun"
    there = worker / "certs"
    assert mode(there / "worker.key") == 0o600 and mode(there / "worker.crt") == 0o644
    assert (there / "ca.crt").read_bytes() == plane.bundle and not (there / "ca.crt").is_symlink()

    def leaf():
        return certs.certificates((there / "worker.crt").read_bytes())[0]

    first = leaf()
    assert first.subject.rfc4514_string() == f"CN=worker:{running.node_id()}"
    assert certs.public_der(first) == certs.public_der(
        certs.serialization.load_pem_private_key((there / "worker.key").read_bytes(), None)
    )
    days = certs.seconds(first) / 86400
    assert 6.9 < days < 7.1
    from datetime import datetime

    point = datetime.fromisoformat(running.status()["renew_at"]) - first.not_valid_before_utc
    assert 3.4 < point.total_seconds() / 86400 < 3.6
    assert plane.api("POST", f"/v1/nodes/{running.node_id()}/rotate", {}).status == 200
    until(lambda: certs.serial(leaf()) != certs.serial(first), "the worker's certificate is renewed in place")
    files = ("--cacert", there / "ca.crt", "--cert", there / "worker.crt", "--key", there / "worker.key")
    assert tool("curl", "-sS", "--fail", *files, f"{plane.url}/readyz").code == 0


def test_an_enrolled_worker_needs_no_token(names, plane, worker, daemon):
    """Proves TASK-17: the variable may be gone; the links come back."""
    first = daemon(worker, TASKRUN_BOOTSTRAP_TOKEN=generated(names, plane)).wait_connected()
    assert first.stop() == 0
    (worker / "certs/worker.crt").unlink()
    first.environment.pop("TASKRUN_BOOTSTRAP_TOKEN")
    first.start().wait_connected()
    assert certs.serial(certs.certificates((worker / "certs/worker.crt").read_bytes())[0]) == first.serial()


def test_the_files_own_token_is_used(names, plane, worker, daemon):
    """Proves TASK-17: `bootstrap_token` is read from the file. By another name of its variable, since the agent also
    takes TASKRUN_BOOTSTRAP_TOKEN by itself."""
    (worker / "worker.toml").write_text(DOCUMENT.replace("TASKRUN_BOOTSTRAP_TOKEN", "TOKEN_OF_THIS_WORKER"))
    running = daemon(worker, TOKEN_OF_THIS_WORKER=generated(names, plane)).wait_connected()
    assert plane.node(running.node_id())["profile"] == "taskrun"


def refused(plane, place, *, toml: str | None = None, token: str = "") -> object:
    if toml is not None:
        (place / "worker.toml").write_text(toml)
    env = {"ENLIST_AGENT_SERVER": plane.url, "TASKRUN_BOOTSTRAP_TOKEN": token}
    return run(AGENT, "run", "--dir", place / "a", "--from-taskrun", place / "worker.toml", "--json", env=env)


def test_every_mistake_in_the_file_is_told_at_once(plane, worker):
    """Proves TASK-17: a misspelt key is refused, and nothing is begun."""
    done = refused(plane, worker, toml='colour = 1\n[tls]\nca_crt = "x"\nworker_cert = 7\n')
    assert done.code == 2 and done.error()["code"] == "config_invalid", done
    assert [mistake["at"] for mistake in done.error()["mistakes"]] == [
        "worker.toml colour",
        "worker.toml tls.ca_crt",
        "worker.toml tls.worker_cert",
    ]
    assert not (worker / "a").exists()
    error = refused(plane, worker, toml=DOCUMENT).error()
    assert error["code"] == "not_enrolled" and "TASKRUN_BOOTSTRAP_TOKEN" in error["hint"]


def test_only_the_pinned_ca_is_trusted(names, plane, worker):
    """Proves TASK-01: another CA in that file, and the token is not sent."""
    other = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", worker / "other.key", "-out", worker / "certs/ca.crt", "-subj", "/CN=other", "-days", "9")
    tool(*other, *files)
    minted = names("taskrun", "token", "generate", "--json", plane=plane).json()
    evidence.token(minted["token"])
    log = evidence.log("agent-err")
    environment = {
        "ENLIST_AGENT_SERVER": plane.url,
        "ENLIST_AGENT_CA_FILE": str(plane.dir / "ca/bundle.pem"),
        "TASKRUN_BOOTSTRAP_TOKEN": minted["token"],
    }
    from machine import clean_env

    with log.open("wb") as err:
        process = subprocess.Popen(
            [str(AGENT), "run", "--dir", str(worker / "a"), "--from-taskrun", str(worker / "worker.toml")],
            env=clean_env(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
    try:
        until(lambda: "server_tls_untrusted" in log.read_text(), "the worker says whom it does not trust")
    finally:
        process.kill()
        process.wait()
    assert plane.token_state(minted["token_id"]) == "unused"


def test_a_certificate_made_elsewhere_is_never_overwritten(names, plane, worker):
    """003's development certificate is not ours: it is named, it stays, and the token is unspent."""
    for name in ("worker.key", "worker.crt"):
        (worker / "certs" / name).write_text("made by openssl")
    minted = names("taskrun", "token", "generate", "--json", plane=plane).json()
    evidence.token(minted["token"])
    done = refused(plane, worker, token=minted["token"])
    assert (done.code, done.error()["code"]) == (1, "file_in_the_way"), done
    assert "worker.key" in done.error()["message"] and "worker.crt" in done.error()["message"]
    assert (worker / "certs/worker.key").read_text() == "made by openssl"
    assert plane.token_state(minted["token_id"]) == "unused"
