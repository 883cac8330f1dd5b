"""Who made an API key, and what becomes of it when that operator is removed."""

import evidence
from machine import ENLIST, run, scratch


def added(plane, name: str) -> tuple:
    """An operator with a certificate: what the tool is told to come as it."""
    out = scratch("op") / "o"
    plane.cli("operator", "add", name, "--role", "platform-admin", "--out", out)
    evidence.private_key("operator", (out / "key.pem").read_bytes())
    return "--cert", out / "cert.pem", "--key", out / "key.pem"


def by_key(made: dict) -> tuple:
    file = scratch("key") / "key"
    file.touch(mode=0o600)
    file.write_text(made["key"])
    return "--api-key-file", file


def create(plane, credential: tuple, name: str) -> dict:
    """A key, made over TLS with this credential; without one on the socket."""
    command = ("operator", "key", "create", name, "--role", "platform-admin", "--json")
    reach = ("--server", plane.url, "--ca", plane.dir / "ca" / "bundle.pem", *credential)
    made = (run(ENLIST, *reach, *command) if credential else plane.cli(*command[:-1])).json()
    evidence.token(made["key"])
    return made


def status(plane, made: dict) -> int:
    return plane.https("GET", "/v1/nodes", headers={"Authorization": f"Bearer {made['key']}"}).status


def test_the_keys_that_an_operator_made_go_with_it(plane):
    """Under its own name or another one, by itself, or with a key that it made, one that has been revoked among them. Without that,
    whoever is removed comes back with a key that it made before. Keys of others stay."""
    alice, bob = added(plane, "alice"), added(plane, "bob")
    first = create(plane, alice, "ci")
    second = create(plane, by_key(first), "deploy")
    third = create(plane, by_key(second), "backup")
    plane.cli("operator", "key", "revoke", second["key_id"])
    named = create(plane, (), "alice")
    stay = [create(plane, bob, "ci"), create(plane, (), "ci")]
    gone = [first, third, named]
    listed = {item["key_id"]: item for item in plane.cli("operator", "key", "list").lines()}
    assert listed[first["key_id"]]["created_by"] == "user:alice"
    assert listed[second["key_id"]]["created_by"] == f"key:{first['key_id']}"
    assert listed[stay[1]["key_id"]]["created_by"].startswith("local:")
    assert {status(plane, key) for key in (*gone, *stay)} == {200}

    removed = plane.cli("operator", "remove", "alice").json()
    assert (removed["name"], removed["removed"]) == ("alice", True)
    assert sorted(removed["keys_revoked"]) == sorted(key["key_id"] for key in gone)
    assert {status(plane, key) for key in gone} == {401}
    assert {status(plane, key) for key in stay} == {200}
    (line,) = [line for line in plane.audit("operator.removed") if line["operator"] == "alice"]
    revoked = [each["key_id"] for each in plane.audit("operator_key.revoked") if each["seq"] > line["seq"]]
    assert sorted(revoked) == sorted(removed["keys_revoked"])
    states = {item["key_id"]: item["state"] for item in plane.cli("operator", "key", "list").lines()}
    assert {states[key["key_id"]] for key in gone} == {"revoked"} and {states[key["key_id"]] for key in stay} == {"good"}


def test_the_answer_names_the_keys_also_for_people_and_over_http(plane):
    carol, dan = added(plane, "carol"), added(plane, "dan")
    key = create(plane, carol, "nightly")
    done = run(ENLIST, "--dir", plane.dir, "operator", "remove", "carol")
    assert done.code == 0 and "1 API key is revoked with it" in done.out and key["key_id"] in done.out, done
    key = create(plane, dan, "nightly")
    answer = plane.api("DELETE", "/v1/operators/dan")
    assert (answer.status, answer.json()["keys_revoked"]) == (200, [key["key_id"]]), answer
    added(plane, "erna")
    assert plane.cli("operator", "remove", "erna").json()["keys_revoked"] == []


def test_a_key_is_written_to_a_file_of_its_own(plane, place):
    """With --out it is printed nowhere, the file is its owner's alone, and no file is overwritten."""
    file = place / "ci.key"
    done = plane.cli("operator", "key", "create", "ci", "--role", "viewer", "--tenant", "default", "--out", file)
    assert done.json()["tenant"] == "default"
    key = file.read_text().strip()
    evidence.token(key)
    assert key not in done.out + done.err and "key" not in done.json() and file.stat().st_mode & 0o7777 == 0o600
    found = plane.https("GET", "/v1/nodes", headers={"Authorization": f"Bearer {key}"})
    assert found.status == 200, found
    before = len(plane.cli("operator", "key", "list").lines())
    again = plane.cli("operator", "key", "create", "ci", "--role", "viewer", "--out", file, ok=False)
    assert again.code != 0 and file.read_text().strip() == key, again
    refused = plane.cli("operator", "key", "create", "ci", "--role", "king", "--out", place / "other.key", ok=False)
    assert refused.code != 0 and not (place / "other.key").exists(), refused
    assert len(plane.cli("operator", "key", "list").lines()) == before
