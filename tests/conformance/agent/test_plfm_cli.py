"""The command lines of 000, word for word, through the linked names."""

import base64
import re
import stat

import pytest

import certs
import evidence
import hosts
from daemons import Daemon
from linked import NAMES, mode, on_command_line
from machine import ENLIST, run, secret, until
from operators import make_key

TOKEN = re.compile(r"enroll_[A-Za-z0-9_-]{43}")


def host_env(plane, place, **more) -> dict:
    return {
        "ENLIST_AGENT_SERVER": plane.url,
        "ENLIST_AGENT_CA_FILE": str(plane.dir / "ca" / "bundle.pem"),
        "ENLIST_AGENT_DIR": str(place / "a"),
        **more,
    }


def created(names, plane, *arguments) -> str:
    """A token's value as `plfm hosts enroll-token create` prints it."""
    done = names("plfm", "hosts", "enroll-token", "create", *arguments, plane=plane)
    return evidence.token(TOKEN.search(done.out).group())


def enrolled(names, plane, place) -> str:
    """The id of a host that `plfm-agent enroll` let in."""
    env = host_env(plane, place, PLFM_ENROLLMENT_TOKEN=created(names, plane))
    host = names("plfm-agent", "enroll", "--json", env=env).json()["node_id"]
    evidence.private_key("agent", (place / "a/certs/agent.key").read_bytes())
    return host


def test_links_are_made_once_and_over_nothing(names, place):
    """Six names; a second time changes nothing; a foreign file is refused, and nothing is half done."""
    assert {link["name"] for link in names.report["links"]} == set(NAMES)
    said = run(ENLIST, "compat", "link", "--dir", names.bin)
    assert said.code == 0 and said.out.count("(unchanged)") == len(NAMES), said
    assert all((names.bin / name).is_symlink() and link["made"] for name, link in zip(NAMES, names.report["links"]))
    again = run(ENLIST, "compat", "link", "--dir", names.bin, "--json")
    assert again.code == 0 and not any(link["made"] for link in again.json()["links"]), again
    (place / "taskrun").write_text("mine")
    done = run(ENLIST, "compat", "link", "--dir", place, "--json")
    assert (done.code, done.error()["code"]) == (1, "file_exists"), done
    assert (place / "taskrun").read_text() == "mine" and not (place / "plfm").exists()
    assert run(ENLIST, "compat", "link").code == 2


def test_a_token_is_created_in_the_documents_words(names, plane):
    """Proves PLFM-07, PLFM-02, PLFM-05."""
    done = names("plfm", "hosts", "enroll-token", "create", "--expires", "1h", plane=plane)
    wanted = (
        r"Enrollment token created\.\n"
        r"Token: (enroll_[A-Za-z0-9_-]{43})\n"
        r"Expires: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n"
        r"\n"
        r"Use this token within 1 hour to enroll a new host\.\n"
        r"This token can only be used once\.\n"
    )
    found = re.fullmatch(wanted, done.out)
    assert found, done
    evidence.token(found.group(1))
    for arguments, words in [((), "1 hour"), (("--expires", "30m"), "30 minutes"), (("--expires", "24h"), "24 hours")]:
        done = names("plfm", "hosts", "enroll-token", "create", *arguments, plane=plane)
        evidence.token(TOKEN.search(done.out).group())
        assert f"within {words} to" in done.out, done
    done = names("plfm", "hosts", "enroll-token", "create", "--expires", "25h", "--json", plane=plane, ok=False)
    assert (done.code, done.error()["code"]) == (3, "token_ttl_too_long"), done


def test_a_token_has_the_documents_profile_and_is_on_record(names, plane):
    """Proves PLFM-07, PLFM-09: whoever called is in the audit trail."""
    minted = names("plfm", "hosts", "enroll-token", "create", "--json", plane=plane).json()
    evidence.token(minted["token"])
    assert minted["profile"] == "plfm"
    (line,) = [line for line in plane.audit("enrollment_token.created") if line["token_id"] == minted["token_id"]]
    assert line["created_by"].startswith("local:")


def test_pending_tokens_are_listed_and_revoked(names, plane, place):
    """Proves PLFM-08."""

    def listed(*arguments) -> dict:
        lines = names("plfm", "hosts", "enroll-token", "list", "--json", *arguments, plane=plane).lines()
        return {line["token_id"]: line for line in lines}

    minted = names("plfm", "hosts", "enroll-token", "create", "--json", plane=plane).json()
    evidence.token(minted["token"])
    assert listed()[minted["token_id"]]["used"] is False
    done = names("plfm", "hosts", "enroll-token", "revoke", minted["token_id"], plane=plane)
    assert minted["token_id"] in done.out
    assert minted["token_id"] not in listed()
    assert listed("--all")[minted["token_id"]]["state"] == "revoked"
    host = enrolled(names, plane, place)
    (used,) = [line for line in listed("--all").values() if line["used_by_host_id"] == host]
    assert used["used"] is True
    refused = names("plfm", "hosts", "enroll-token", "revoke", used["token_id"], "--json", plane=plane, ok=False)
    assert (refused.code, refused.error()["code"]) == (3, "token_used"), refused
    wrong = names("plfm", "hosts", "enroll-token", "revoke", minted["token"], plane=plane, ok=False)
    evidence.on_command_line.add(minted["token"])
    assert wrong.code == 2 and minted["token"] not in wrong.err


def test_a_host_is_enrolled_with_a_token_on_the_command_line(names, plane, place):
    """Proves PLFM-10, PLFM-11, PLFM-12, PLFM-19, PLFM-32."""
    assert not (place / "a").exists()
    token = on_command_line(created(names, plane))
    env = host_env(plane, place)
    done = names("plfm-agent", "enroll", "--token", token, "--underlay", "127.0.0.1", "--json", env=env)
    host, there = done.json()["node_id"], place / "a"
    assert plane.node(host)["state"] == "active" and plane.node(host)["profile"] == "plfm"
    assert mode(there) == 0o700
    for name, bits in [("agent.key", 0o600), ("agent.crt", 0o644), ("ca.crt", 0o644)]:
        path = there / "certs" / name
        assert path.is_symlink() and mode(path) == bits
        assert path.resolve().is_relative_to((there / "identity").resolve())
    evidence.private_key("agent", (there / "certs/agent.key").read_bytes())
    key = there / "wireguard" / "private.key"
    assert stat.S_ISREG(key.lstat().st_mode) and mode(key) == 0o600 and mode(key.parent) == 0o700
    secret = base64.b64decode(key.read_text())
    evidence.key("wireguard", secret)
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    shown = plane.node(host)
    assert shown["overlay"]["wireguard_public_key"] == base64.b64encode(public).decode()
    assert shown["overlay"]["underlay_endpoint"] == "127.0.0.1:51820"
    assert 'underlay = ["127.0.0.1"]' in (there / "agent.toml").read_text().splitlines()
    assert shown["hardware"]["cpu_cores"] >= 1 and shown["hardware"]["memory_bytes"] > 1 << 20
    (line,) = [line for line in plane.audit("host.enrolled") if line["host_id"] == host]
    import hashlib

    assert line["wireguard_pubkey_fingerprint"] == "SHA256:" + hashlib.sha256(public).hexdigest()


def test_a_host_that_names_no_underlay_tells_the_address_it_comes_from(names, plane, place):
    """Proves PLFM-12: its peers get an endpoint all the same, and nothing is written that was only found."""
    host = enrolled(names, plane, place)
    assert plane.node(host)["overlay"]["underlay_endpoint"] == "127.0.0.1:51820"
    assert "underlay" not in (place / "a" / "agent.toml").read_text()
    other = hosts.enroll(plane)
    peers = other.answer["overlay_config"]["peers"]
    key = plane.node(host)["overlay"]["wireguard_public_key"]
    assert [peer["endpoint"] for peer in peers if peer["public_key"] == key] == ["127.0.0.1:51820"]


def test_the_files_serve_other_programs(names, plane, place):
    """Proves PLFM-19: what lies in certs/ verifies, and opens the control plane to curl."""
    enrolled(names, plane, place)
    there = place / "a" / "certs"
    assert certs.verifies_by_chain((there / "agent.crt").read_bytes(), (there / "ca.crt").read_bytes())
    from machine import tool

    files = ("--cacert", there / "ca.crt", "--cert", there / "agent.crt", "--key", there / "agent.key")
    assert tool("curl", "-sS", "--fail", *files, f"{plane.url}/readyz").code == 0


@pytest.mark.parametrize("source", ["environment", "file"])
def test_a_token_comes_from_the_documents_places(names, plane, place, source):
    """Proves PLFM-11."""
    token, env = created(names, plane), host_env(plane, place)
    if source == "environment":
        env["PLFM_ENROLLMENT_TOKEN"] = token
    else:
        (place / "a").mkdir(mode=0o700)
        secret(place / "a" / "enrollment-token", token + "\n")
    assert names("plfm-agent", "enroll", env=env).code == 0
    evidence.private_key("agent", (place / "a/certs/agent.key").read_bytes())


def test_the_environment_beats_the_file_and_our_own_name_beats_theirs(names, plane, place):
    """Proves PLFM-11: flag, then environment, then file."""
    first, second, third = (plane.mint(door="plfm") for _ in range(3))
    (place / "a").mkdir(mode=0o700)
    secret(place / "a" / "enrollment-token", third["token"])
    tokens = {"ENLIST_AGENT_TOKEN": first["token"], "PLFM_ENROLLMENT_TOKEN": second["token"]}
    assert names("plfm-agent", "enroll", env=host_env(plane, place, **tokens)).code == 0
    states = [plane.token_state(minted["token_id"]) for minted in (first, second, third)]
    assert states == ["used", "unused", "unused"]


def test_without_a_token_or_a_control_plane_nothing_happens(names, plane, place):
    """Proves PLFM-10: usage errors end with 2 and leave no trace."""
    done = names("plfm-agent", "enroll", env=host_env(plane, place), ok=False)
    assert done.code == 2 and "token_missing" in done.err and not (place / "a").exists()
    assert "PLFM_ENROLLMENT_TOKEN" in done.err and "enrollment-token" in done.err, "the document's own names"
    done = names("plfm-agent", "run", env=host_env(plane, place), ok=False)
    assert done.code == 2 and "not_enrolled" in done.err and "PLFM_ENROLLMENT_TOKEN" in done.err
    done = names("plfm-agent", "enroll", "--tokn", "x", env=host_env(plane, place), ok=False)
    assert done.code == 2 and "plfm-agent --help" in done.err
    assert "/etc/plfm-agent" in names("plfm-agent", "enroll", "--help").out


def test_another_identity_gets_another_wireguard_key(names, plane, place):
    """A key belongs to one node: `--replace` makes a new one, a host without an identity keeps what it has."""
    first = enrolled(names, plane, place)
    key = place / "a/wireguard/private.key"
    before = key.read_bytes()
    env = host_env(plane, place, PLFM_ENROLLMENT_TOKEN=created(names, plane))
    second = names("plfm-agent", "enroll", "--replace", "--json", env=env).json()["node_id"]
    assert second != first and key.read_bytes() != before
    env = host_env(plane, place / "b", PLFM_ENROLLMENT_TOKEN=created(names, plane))
    own = place / "b/a/wireguard"
    own.mkdir(parents=True, mode=0o700)
    (own / "private.key").write_bytes(before)
    (own / "private.key").chmod(0o600)
    done = names("plfm-agent", "enroll", "--json", env=env, ok=False)
    assert (done.code, done.error()["code"]) == (3, "wireguard_key_in_use"), done
    assert (own / "private.key").read_bytes() == before


def test_hosts_are_listed_and_shown_in_the_documents_states(names, plane, place):
    """Proves PLFM-27, PLFM-26, PLFM-35."""

    def state(host: str) -> str:
        (line,) = [
            line for line in names("plfm", "hosts", "list", "--json", plane=plane).lines() if line["host_id"] == host
        ]
        shown = names("plfm", "hosts", "show", host, "--json", plane=plane).json()
        assert shown["host_id"] == host and shown["state"] == line["state"]
        return line["state"]

    host = enrolled(names, plane, place)
    assert state(host) == "active"
    assert host in names("plfm", "hosts", "list", plane=plane).out
    assert host in names("plfm", "hosts", "show", host, plane=plane).out
    plane.api("POST", f"/v1/nodes/{host}/quarantine", {})
    assert state(host) == "active"
    plane.api("POST", f"/v1/nodes/{host}/release", {})
    assert names("plfm", "hosts", "drain", host, plane=plane).out == f"Host {host} is draining.\n"
    assert state(host) == "draining"
    assert names("plfm", "hosts", "decommission", host, plane=plane).out == f"Host {host} is decommissioned.\n"
    assert state(host) == "decommissioned"
    done = names("plfm", "hosts", "show", "nobody", "--json", plane=plane, ok=False)
    assert (done.code, done.error()["code"]) == (3, "node_not_found"), done


def test_a_silent_host_is_active_in_the_documents_words(names, plane_of_its_own):
    """`inactive` is a word that 000 does not have."""
    plane = plane_of_its_own
    plane.policy("liveness.grace", "2s")
    plane.policy("liveness.interval", "1s")
    daemon = Daemon(plane, plane.token(door="plfm")).start().wait_connected()
    host = daemon.node_id()
    daemon.stop()
    daemon.note_secrets()
    until(lambda: plane.node(host)["state"] == "inactive", "silence is noticed")
    shown = names("plfm", "hosts", "show", host, "--json", plane=plane).json()
    assert shown["state"] == "active"


def test_a_host_is_revoked_with_a_reason(names, plane, place):
    """Proves PLFM-24, PLFM-30."""
    host = enrolled(names, plane, place)
    done = names("plfm", "hosts", "revoke", host, "--reason", "compromised", plane=plane)
    assert done.out == f"Host {host} is disabled.\n"
    (line,) = [line for line in plane.audit("host.revoked") if line["host_id"] == host]
    assert line["reason"] == "compromised"
    again = names("plfm", "hosts", "revoke", host, "--json", plane=plane).json()
    assert again["state"] == "disabled"


def test_a_revoked_host_starts_over_with_a_new_token(names, plane, place):
    """Proves PLFM-22: the operator revokes, the agent enrolls anew."""
    host = enrolled(names, plane, place)
    names("plfm", "hosts", "revoke", host, plane=plane)
    env = host_env(plane, place, PLFM_ENROLLMENT_TOKEN=created(names, plane))
    second = names("plfm-agent", "enroll", "--replace", "--json", env=env).json()
    assert second["node_id"] != host and plane.node(second["node_id"])["state"] == "active"


def test_it_works_from_another_machine(names, plane, place):
    """Proves PLFM-09: with an API key over TLS; without one nobody gets a token."""
    key = place / "key"
    secret(key, make_key(plane, "operator", "--tenant", "default")["key"])
    ca = ("--server", plane.url, "--ca", plane.dir / "ca/bundle.pem")
    done = names("plfm", "hosts", "enroll-token", "create", *ca, "--api-key-file", key)
    evidence.token(TOKEN.search(done.out).group())
    key.write_text("ekey_" + "A" * 43)
    done = names("plfm", "hosts", "enroll-token", "create", *ca, "--api-key-file", key, ok=False)
    assert done.code == 3 and "unauthenticated" in done.err, done
    assert names("plfm", "hosts", "enroll-token", "create", *ca, ok=False).code == 2


def test_a_command_is_about_one_tenant(names, plane, tenants):
    """`--tenant` chooses it; without, `default` is meant. What lies in another is not there, and none the worse."""

    def refused(*arguments) -> tuple:
        done = names("plfm", "hosts", *arguments, "--json", plane=plane, ok=False)
        return done.code, done.error()["code"]

    def standing() -> tuple:
        shown = plane.node(node.id)
        return shown["state"], shown["draining"]

    (node, token), host_list = tenants["red"], ("plfm", "hosts", "list", "--json")
    before = standing()
    for other in ((), ("--tenant", "blue")):
        for verb in ("show", "drain", "decommission", "revoke"):
            assert refused(verb, node.id, *other) == (3, "node_not_found"), (verb, other)
        assert refused("enroll-token", "revoke", token["token_id"], *other) == (3, "token_not_found"), other
        assert node.id not in names(*host_list, *other, plane=plane).out
    for arguments in (("list",), ("show", node.id), ("enroll-token", "list"), ("enroll-token", "create")):
        assert refused(*arguments, "--tenant", "nope") == (3, "tenant_not_found"), arguments
    assert standing() == before
    assert plane.token_state(token["token_id"]) == "unused"
    assert names("plfm", "hosts", "show", node.id, "--tenant", "red", "--json", plane=plane).json()["tenant"] == "red"
    assert node.id in names(*host_list, "--tenant", "red", plane=plane).out
    names("plfm", "hosts", "enroll-token", "revoke", token["token_id"], "--tenant", "red", plane=plane)
    assert plane.token_state(token["token_id"]) == "revoked"


def test_an_operators_only_tenant_is_meant(names, plane, place, tenants):
    """An operator of one tenant need not name it."""
    key, (node, _) = place / "key", tenants["blue"]
    secret(key, make_key(plane, "operator", "--tenant", "blue")["key"])
    reach = ("--server", plane.url, "--ca", plane.dir / "ca/bundle.pem", "--api-key-file", key, "--json")
    assert names("plfm", "hosts", "show", node.id, *reach).json()["tenant"] == "blue"
    done = names("plfm", "hosts", "list", "--tenant", "red", *reach, ok=False)
    assert (done.code, done.error()["code"]) == (3, "tenant_not_found"), done


def test_usage_errors_end_with_two(names, plane):
    """And --help with 0."""
    for wrong in [("hosts", "frobnicate"), ("hosts", "show"), ("token", "create"), ("hosts", "list", "--colour")]:
        assert names("plfm", *wrong, plane=plane, ok=False).code == 2, wrong
    assert "enroll-token" in names("plfm", "hosts", "--help").out
