"""Saved contexts: where the operator's tool goes when nobody says, and what it refuses."""

import json
import os
import pathlib
import stat

import pytest

from machine import ENLIST, run, secret
from operators import make_key
from plane import ControlPlane


@pytest.fixture
def home(place):
    """A user with an empty configuration."""
    (place / "config").mkdir()
    return {"XDG_CONFIG_HOME": str(place / "config"), "HOME": str(place)}


@pytest.fixture
def alice(plane, place):
    """An operator's files, as `operator add --out` writes them."""
    out = place / "alice"
    name = f"alice-{os.urandom(4).hex()}"
    plane.cli("operator", "add", name, "--role", "viewer", "--out", out)
    return out


def enlist(*arguments, env, code=0):
    done = run(ENLIST, *arguments, "--json", env=env)
    assert done.code == code, done
    return done


def contexts_file(home):
    return os.path.join(home["XDG_CONFIG_HOME"], "enlist", "contexts.toml")


def reach(plane, out) -> tuple:
    return ("--server", plane.url, "--cert", out / "cert.pem", "--key", out / "key.pem", "--ca", out / "ca.pem")


def test_adding_an_operator_writes_a_context_and_never_the_callers_configuration(plane, place, home):
    """`operator add --out DIR` writes `DIR/context.toml`; `context add --file` takes it in; then no flag is needed."""
    out = place / "bob"
    done = plane.cli("operator", "add", f"bob-{os.urandom(4).hex()}", "--role", "viewer", "--out", out, env=home)
    assert done.json()["server_url"] == plane.url
    text = (out / "context.toml").read_text()
    for line in (f'server = "{plane.url}"', 'ca = "ca.pem"', 'cert = "cert.pem"', 'key = "key.pem"'):
        assert line in text, text
    assert not os.path.exists(contexts_file(home))
    added = enlist("context", "add", "prod", "--file", out / "context.toml", env=home).json()
    assert added["current"] is True and added["cert"] == str(out / "cert.pem") and added["server"] == plane.url
    assert run(ENLIST, "node", "list", env=home).code == 0
    spoken = run(ENLIST, "operator", "add", "x", "--role", "viewer", "--out", place / "x", "--dir", plane.dir)
    assert spoken.code == 0 and f"--file {place}/x/context.toml" in spoken.out, spoken
    plane.cli("operator", "remove", "x")


def test_what_is_saved_is_closed_and_holds_no_secret(plane, place, home, alice):
    """0600 in 0700; paths, absolute, and never what they hold."""
    key = secret(place / "ci.key", make_key(plane, "viewer")["key"])
    run_in = {**home}
    done = run(ENLIST, "context", "add", "ci", "--server", plane.url, "--ca-pin", plane.pin, "--api-key-file", "ci.key",
               "--json", env=run_in, cwd=place)
    assert done.code == 0, done
    assert done.json()["api_key_file"] == str(key)
    enlist("context", "add", "alice", *reach(plane, alice), env=home)
    path = contexts_file(home)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    text = open(path).read()
    assert key.read_text() not in text and "PRIVATE" not in text
    assert os.listdir(os.path.dirname(path)) == ["contexts.toml"], "nothing is left behind"
    assert enlist("node", "list", "--context", "ci", env=home).code == 0


def test_flags_then_variables_then_the_current_context_then_the_usual_place(plane, place, home, alice):
    """Each is a control plane of its own, told by what it answers."""
    with ControlPlane(domain="second.example") as second:

        def domain(*arguments, env=None) -> str:
            return enlist("ca", "show", *arguments, env={**home, **(env or {})}).json()["root"]["fingerprint"]

        first_root, second_root = (
            p.cli("ca", "show").json()["root"]["fingerprint"] for p in (plane, second)
        )
        assert first_root != second_root
        enlist("context", "add", "first", *reach(plane, alice), env=home)
        enlist("context", "add", "second", "--dir", second.dir, env=home)
        assert domain() == first_root, "the first one saved is the current one"
        assert domain("--dir", second.dir) == second_root
        assert domain(env={"ENLIST_DIR": str(second.dir)}) == second_root
        assert domain(env={"ENLIST_SOCKET": str(second.dir / "operator.sock")}) == second_root
        assert domain("--context", "second") == second_root
        assert domain(env={"ENLIST_CONTEXT": "second"}) == second_root
        assert domain("--context", "first", env={"ENLIST_DIR": str(second.dir)}) == first_root
        assert domain("--dir", second.dir, env={"ENLIST_CONTEXT": "first"}) == second_root
        enlist("context", "use", "second", env=home)
        assert domain() == second_root
        both = {**home, "ENLIST_CONTEXT": "first", "ENLIST_DIR": str(second.dir)}
        assert enlist("ca", "show", env=both, code=2).error()["code"] == "usage"
        assert enlist("ca", "show", "--context", "first", "--dir", second.dir, env=home, code=2)
        enlist("context", "remove", "second", env=home)
        # Nothing is there, or no control plane runs there.
        assert "/var/lib/enlist" in enlist("ca", "show", env=home, code=4).error()["message"]


def test_credentials_beside_a_context_take_the_place_of_its_own(plane, place, home, alice):
    """A flag always, a variable never: it may belong to another control plane."""
    enlist("context", "add", "alice", *reach(plane, alice), env=home)
    bad = secret(place / "bad.key", "ekey_" + "A" * 43)
    assert enlist("node", "list", env=home)
    assert enlist("node", "list", "--api-key-file", bad, env=home, code=3).error()["code"] == "unauthenticated"
    variable = {**home, "ENLIST_API_KEY_FILE": str(bad)}
    assert enlist("node", "list", env=variable)
    assert enlist("node", "list", "--context", "alice", env=variable)
    assert enlist("node", "list", "--server", plane.url, env=home, code=2), "nothing of a context goes to another server"


def test_a_context_from_somebody_else_names_nothing_of_this_user(plane, place, home):
    """Its author could otherwise have any secret of this user sent to a server of theirs."""
    own = secret(place / "own.key", "ekey_" + "A" * 43)
    foreign = place / "foreign"
    foreign.mkdir(mode=0o700)
    (foreign / "ca.pem").write_bytes(plane.bundle)
    (foreign / "linked.key").symlink_to(own)
    given = f'server = "{plane.url}"\nca = "ca.pem"\n'
    for line in (
        f'api_key_file = "{own}"',
        'api_key_file = "../own.key"',
        'api_key_file = "linked.key"',
        f'dir = "{plane.dir}"',
    ):
        file = foreign / "context.toml"
        file.write_text((given if "api_key" in line else "") + line + "\n")
        done = enlist("context", "add", "team", "--file", file, "--use", env=home, code=2)
        assert done.error()["code"] == "context_invalid", (line, done)
    secret(foreign / "beside.key", "ekey_" + "B" * 43)
    (foreign / "context.toml").write_text(given + 'api_key_file = "beside.key"\n')
    added = enlist("context", "add", "team", "--file", foreign / "context.toml", env=home).json()
    assert added["api_key_file"] == str(foreign / "beside.key")


def test_a_file_of_contexts_that_is_too_large_is_refused_and_kept(place, home):
    """Neither cut off nor written over."""
    enlist("context", "add", "one", "--dir", place, env=home)
    (file,) = pathlib.Path(home["XDG_CONFIG_HOME"]).glob("enlist/contexts.toml")
    text = file.read_text() + "# " + "x" * 70000 + "\n"
    file.write_text(text)
    for command in (("context", "list"), ("context", "add", "two", "--dir", place)):
        assert enlist(*command, env=home, code=2).error()["code"] == "contexts_damaged"
    assert file.read_text() == text


def test_list_show_use_and_remove(plane, place, home, alice):
    """Fields for programs, words for people; what is not there is told with what is."""
    assert enlist("context", "list", env=home).lines() == []
    shown = enlist("context", "show", env=home).json()
    assert (shown["name"], shown["chosen_by"]) == (None, "default")
    unknown = enlist("context", "use", "prod", env=home, code=2).error()
    assert unknown["code"] == "context_not_found" and "there are none" in unknown["hint"]
    enlist("context", "add", "near", "--dir", plane.dir, env=home)
    enlist("context", "add", "far", *reach(plane, alice), env=home)
    taken = enlist("context", "add", "far", "--dir", plane.dir, env=home, code=2).error()
    assert taken["code"] == "context_exists"
    for command in ("use", "remove", "show"):
        error = enlist("context", command, "nope", env=home, code=2).error()
        assert error["code"] == "context_not_found" and "far, near" in error["hint"], error
    listed = {item["name"]: item for item in enlist("context", "list", env=home).lines()}
    assert listed["near"]["current"] and not listed["far"]["current"]
    fields = {"name", "current", "server", "servers", "dir", "socket", "ca", "ca_pin", "cert", "key", "api_key_file"}
    assert fields == listed["far"].keys() == listed["near"].keys()
    enlist("context", "use", "far", env=home)
    shown = enlist("context", "show", env=home).json()
    assert (shown["name"], shown["chosen_by"], shown["problem"]) == ("far", "current", None)
    assert shown["cert_not_after"] is not None and fields <= shown.keys()
    shown = enlist("context", "show", env={**home, "ENLIST_CONTEXT": "near"}).json()
    assert (shown["name"], shown["chosen_by"]) == ("near", "ENLIST_CONTEXT")
    assert enlist("context", "show", env={**home, "ENLIST_DIR": "/x"}).json()["chosen_by"] == "ENLIST_DIR"
    people = run(ENLIST, "context", "list", env=home).out
    assert "CURRENT" in people and "far" in people and plane.url in people
    assert "chosen by" in run(ENLIST, "context", "show", env=home).out
    gone = enlist("context", "remove", "far", env=home).json()
    assert gone["removed"] and gone["was_current"]
    assert (alice / "cert.pem").exists(), "the files stay"
    replaced = enlist("context", "add", "near", *reach(plane, alice), "--replace", "--use", env=home).json()
    assert replaced["current"] and replaced["dir"] is None


def test_what_cannot_work_is_not_saved(plane, place, home, alice):
    """Missing files, half a credential, two places, open keys, names that are no words, unknown keys of a file."""
    url, files = ("--server", plane.url), ("--cert", alice / "cert.pem", "--key", alice / "key.pem")
    (place / "typo.toml").write_text(f'sever = "{plane.url}"\n')
    (place / "two.toml").write_text(f'server = "{plane.url}"\ndir = "/d"\n')
    for arguments in [
        ("prod",),
        ("prod", *url),
        ("prod", *url, "--ca", alice / "ca.pem"),
        ("prod", *url, "--ca", alice / "ca.pem", "--cert", alice / "cert.pem"),
        ("prod", *url, *files, "--ca", place / "none.pem"),
        ("prod", "--server", "http://plain", *files, "--ca", alice / "ca.pem"),
        ("prod", *url, *files, "--ca", alice / "ca.pem", "--dir", plane.dir),
        ("prod", "--dir", plane.dir, *files),
        ("prod", "--dir", place / "none"),
        ("prod", "--context", "other"),
        ("prod", "--file", place / "none.toml"),
        ("prod", "--file", place / "typo.toml"),
        ("prod", "--file", place / "two.toml"),
        ("prod", "--file", alice / "context.toml", "--dir", plane.dir),
        ("a/b", "--dir", plane.dir),
        ("-x", "--dir", plane.dir),
    ]:
        done = run(ENLIST, "context", "add", *arguments, env=home)
        assert done.code == 2, (arguments, done)
    (alice / "key.pem").chmod(0o644)
    assert enlist("context", "add", "prod", *reach(plane, alice), env=home, code=1).error()["code"] == "key_exposed"
    assert not os.path.exists(contexts_file(home))


def test_files_that_are_gone_are_told_with_the_contexts_name(plane, place, home, alice):
    """Also by `context show`, which works all the same."""
    enlist("context", "add", "alice", *reach(plane, alice), env=home)
    (alice / "cert.pem").rename(alice / "moved.pem")
    error = enlist("node", "list", env=home, code=2).error()
    assert "context alice" in error["message"] and "cert.pem" in error["message"], error
    shown = enlist("context", "show", env=home).json()
    assert "cert.pem" in shown["problem"]
    with open(contexts_file(home), "a") as file:
        file.write("nonsense\n")
    error = enlist("node", "list", env=home, code=2).error()
    assert error["code"] == "contexts_damaged" and contexts_file(home) in error["message"]
    assert enlist("node", "list", "--dir", plane.dir, env=home), "a damaged file is not in the way of whoever says where"
    os.chmod(contexts_file(home), 0o644)
    error = enlist("context", "list", env=home, code=2).error()
    assert error["code"] == "contexts_exposed" and "chmod 600" in error["hint"]


def test_many_at_once_lose_nothing(plane, home):
    """Two who save at the same time both succeed."""
    import concurrent.futures

    def add(number):
        return run(ENLIST, "context", "add", f"c{number}", "--dir", plane.dir, env=home).code

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(add, range(12))) == [0] * 12
    assert len(enlist("context", "list", env=home).lines()) == 12


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
@pytest.mark.parametrize("which", ["key", "api_key"])
def test_a_secret_that_others_may_read_is_refused(plane, place, alice, which, mode):
    """As repair bundles are: nothing is sent, and the remedy is said."""
    if which == "key":
        file, arguments = alice / "key.pem", reach(plane, alice)
    else:
        file = secret(place / "api.key", make_key(plane, "viewer")["key"])
        arguments = ("--server", plane.url, "--ca", alice / "ca.pem", "--api-key-file", file)
    assert run(ENLIST, "node", "list", *arguments).code == 0
    file.chmod(mode)
    done = run(ENLIST, "node", "list", "--json", *arguments)
    error = done.error()
    assert (done.code, error["code"]) == (1, "key_exposed") and f"chmod 600 {file}" in error["hint"], done
    file.chmod(0o400)
    assert run(ENLIST, "node", "list", *arguments).code == 0


def test_completions_know_contexts(home):
    """The family and its flags are in the scripts."""
    script = run(ENLIST, "completions", "bash", env=home).out
    assert "context" in script and "--context" in script
    assert json.dumps(run(ENLIST, "context", "--help", env=home).out).count("Save how to reach a control plane") == 1
