"""`enlist-agent enroll`: trust before the token leaves, files that are whole, and what is left for the daemon."""

import os
import socket
import tomllib

import pytest

import certs
import evidence
from agents import enroll, enroll_command, listed, serial_on_disk, serialization_key, status
from machine import AGENT, run, secret


def test_an_agent_enrolls_and_confirms(plane, place):
    """One command: enrolled, stored, confirmed; the node is `active`."""
    done = enroll(plane, place / "a", token=plane.token())
    assert done.code == 0, done
    assert listed(plane, place / "a")["state"] == "active"


@pytest.mark.parametrize("source", ["flag", "stdin", "file", "environment", "config_file"])
def test_a_token_may_come_from_many_places(plane, place, source):
    """Flag, standard input, file, environment, or a file named in agent.toml."""
    token, options, env, stdin = plane.token(), [], {}, None
    if source == "flag":
        evidence.on_command_line.add(token)
        options = ["--token", token]
    elif source == "stdin":
        stdin = token
    elif source == "file":
        secret(place / "token", token + "\n")
        options = ["--token-file", place / "token"]
    elif source == "environment":
        env = {"ENLIST_AGENT_TOKEN": token}
    else:
        secret(place / "token", token + "\n")
        (place / "a").mkdir(mode=0o700)
        (place / "a" / "agent.toml").write_text(f'token_file = "{place}/token"\n')
    done = enroll(plane, place / "a", *options, token=stdin, env=env)
    assert done.code == 0, done
    assert listed(plane, place / "a")["state"] == "active"


@pytest.mark.parametrize("source", ["flag", "config_file"])
def test_a_token_file_that_others_may_read_is_refused(plane, place, source):
    """Nothing is sent: the token stays good, and works once the file is closed."""
    minted = plane.mint()
    evidence.token(minted["token"])
    token = secret(place / "token", minted["token"] + "\n")
    token.chmod(0o644)
    options = ["--token-file", token] if source == "flag" else []
    if source == "config_file":
        (place / "a").mkdir(mode=0o700)
        (place / "a" / "agent.toml").write_text(f'token_file = "{token}"\n')
    done = enroll(plane, place / "a", *options)
    assert done.code == 1 and "key_exposed" in done.err and str(token) in done.err and "chmod 600" in done.err, done
    assert plane.token_state(minted["token_id"]) == "unused"
    token.chmod(0o600)
    assert enroll(plane, place / "a", *options).code == 0
    assert plane.token_state(minted["token_id"]) == "used"


def test_the_flag_beats_the_environment_beats_the_file(plane, place):
    """Flag, then environment, then file: only the first one named is spent."""
    flag, variable, file = (plane.mint() for _ in range(3))
    secret(place / "token", file["token"])
    env = {"ENLIST_AGENT_TOKEN": variable["token"], "ENLIST_AGENT_TOKEN_FILE": str(place / "token")}
    assert enroll(plane, place / "a", token=flag["token"], env=env).code == 0
    assert [plane.token_state(minted["token_id"]) for minted in (flag, variable, file)] == ["used", "unused", "unused"]
    assert enroll(plane, place / "b", env=env).code == 0
    assert [plane.token_state(minted["token_id"]) for minted in (flag, variable, file)] == ["used", "used", "unused"]


def test_refusals_keep_their_code(plane, place):
    """Exit 3 and the code as on the wire; 4 when nobody is there."""
    minted = plane.mint()
    plane.api("DELETE", f"/v1/tokens/{minted['token_id']}")
    done = enroll(plane, place / "a", token=minted["token"])
    assert (done.code, done.error()["code"]) == (3, "token_revoked"), done
    assert minted["token"] not in done.err + done.out
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"https://127.0.0.1:{closed.getsockname()[1]}"
    done = enroll(plane, place / "a", "--timeout", "3s", token=plane.token(), server=address)
    assert done.code == 4, done


def test_an_enrolled_host_leaves_the_token_unspent(plane, place):
    """Exit 0, `already enrolled`, nothing changed."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    before = serial_on_disk(place / "a")
    minted = plane.mint()
    done = run(*enroll_command(plane, place / "a", "--token", "-"), stdin=minted["token"].encode())
    assert done.code == 0, done
    assert "already enrolled" in (done.out + done.err)
    assert plane.token_state(minted["token_id"]) == "unused" and serial_on_disk(place / "a") == before


def test_replace_enrolls_anew(plane, place):
    """`--replace` gives a new identity; the old generation is not the current one any more."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    before = serial_on_disk(place / "a")
    done = enroll(plane, place / "a", "--replace", token=plane.token())
    assert done.code == 0, done
    assert serial_on_disk(place / "a") != before
    assert listed(plane, place / "a")["state"] == "active"


def test_a_failed_replace_keeps_what_was_there(plane, place):
    """A refused token does not cost the host the identity it has."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    before = serial_on_disk(place / "a")
    done = enroll(plane, place / "a", "--replace", token="enroll_" + "C" * 43)
    assert done.code == 3, done
    assert serial_on_disk(place / "a") == before
    assert status(place / "a")["node_id"] == listed(plane, place / "a")["node_id"]


def test_status_tells_who_the_host_is(plane, place):
    """`status --json` has the promised fields, true ones."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    shown = status(place / "a")
    node = listed(plane, place / "a")
    fields = (
        "node_id spiffe_id state cert_serial cert_not_after renew_at channel last_renewal last_recovery recovery_ready "
        "clock_offset_ms endpoint_profile disk overlay vcluster ready reasons"
    )
    assert set(fields.split()) <= shown.keys(), set(fields.split()) - shown.keys()
    for field in ("node_id", "spiffe_id", "cert_serial", "cert_not_after"):
        assert shown[field] == node[field]


def test_status_without_an_identity_says_so(place):
    """No identity is a state, not a crash."""
    done = run(AGENT, "status", "--dir", place / "a", "--json")
    assert done.code in (0, 1), done
    assert "panicked" not in done.err
    if done.code == 0:
        assert done.json()["node_id"] is None


def test_files_have_the_promised_names_and_modes(plane, place):
    """Directory 0700, key 0600, the rest 0644; `current` is a symlink; leaf and chain in their own files."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    directory = place / "a"
    mode = lambda path: path.stat().st_mode & 0o777
    assert mode(directory) == 0o700
    current = directory / "identity" / "current"
    assert current.is_symlink() and not os.path.isabs(os.readlink(current))
    assert mode(current / "key.pem") == 0o600
    assert [mode(current / name) for name in ("cert.pem", "chain.pem", "bundle.pem")] == [0o644] * 3
    leaf = certs.certificates((current / "cert.pem").read_bytes())
    chain = certs.certificates((current / "chain.pem").read_bytes())
    assert len(leaf) == 1 and len(chain) == 1
    assert certs.certificates((current / "bundle.pem").read_bytes()) == certs.certificates(plane.bundle)
    assert certs.verifies(
        (current / "cert.pem").read_bytes(), (current / "bundle.pem").read_bytes(), "-untrusted", current / "chain.pem"
    )
    key = serialization_key((current / "key.pem").read_bytes())
    assert certs.public_der(key) == certs.public_der(leaf[0].public_key())
    leftovers = [p for p in directory.rglob("*") if p.is_file() and evidence_token(p)]
    assert not leftovers, leftovers


def evidence_token(path) -> bool:
    text = path.read_bytes()
    return any(token.encode() in text for token in evidence.tokens)


def test_agent_toml_is_left_for_the_daemon(plane, place):
    """`server` and its trust are added, other keys and comments stay."""
    directory = place / "a"
    directory.mkdir(mode=0o700)
    (directory / "agent.toml").write_text('# mine\ncheck_interval = "30s"\n\n[hosts]\n"cp.example" = "10.0.0.1"\n')
    assert enroll(plane, directory, token=plane.token()).code == 0
    text = (directory / "agent.toml").read_text()
    config = tomllib.loads(text)
    assert plane.url in config["server"]
    assert config["check_interval"] == "30s" and config["hosts"] == {"cp.example": "10.0.0.1"}
    assert "# mine" in text
    assert config.get("ca_pin", "").endswith(plane.pin.removeprefix("sha256:")) or config.get("ca_file")
    assert not any(token in text for token in evidence.tokens)


def test_the_environment_configures_too(plane, place):
    """Every key also as ENLIST_AGENT_<KEY>; the directory by ENLIST_AGENT_DIR."""
    env = {
        "ENLIST_AGENT_DIR": str(place / "a"),
        "ENLIST_AGENT_SERVER": plane.url,
        "ENLIST_AGENT_CA_PIN": plane.pin,
        "ENLIST_AGENT_TOKEN": plane.token(),
    }
    done = run(AGENT, "enroll", "--json", env=env)
    assert done.code == 0, done
    assert listed(plane, place / "a")["state"] == "active"


def test_a_second_server_is_tried(plane, place):
    """A dead address first does not stop an enrollment."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"https://127.0.0.1:{closed.getsockname()[1]}"
    done = enroll(plane, place / "a", "--server", plane.url, token=plane.token(), server=dead)
    assert done.code == 0, done
