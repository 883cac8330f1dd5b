"""The operator's tool: how it reaches the control plane, what it prints, how it ends."""

import pytest

import certs
import evidence
import native
from machine import AGENT, ENLIST, run, secret
from operators import make_key
from plane import ControlPlane


def test_exit_codes_mean_what_they_say(plane, place):
    """0 done, 2 usage, 3 refused by the control plane, 4 unreachable."""
    assert plane.cli("node", "list").code == 0
    assert plane.cli("node", "list", "--colour", ok=False).code == 2
    assert run(ENLIST, "frobnicate").code == 2
    for mistake in (("node", "list", "--state", "foo"), ("audit", "list", "--event", "foo"), ("explain", "foo")):
        assert plane.cli(*mistake, ok=False).code == 2, mistake
    done = plane.cli("node", "show", "nobody", ok=False)
    assert (done.code, done.error()["code"]) == (3, "node_not_found")
    assert plane.cli("token", "create", "--expires", "25h", ok=False).code == 3
    assert plane.cli("token", "create", "--expires", "soon", ok=False).code in (2, 3)
    assert plane.cli("token", "revoke", "nothing", ok=False).code == 3
    assert run(ENLIST, "node", "list", "--socket", place / "none.sock").code == 4
    nowhere = (
        "--server",
        "https://127.0.0.1:1",
        "--api-key-file",
        place / "key",
        "--ca",
        plane.dir / "ca" / "bundle.pem",
    )
    secret(place / "key", "x")
    assert run(ENLIST, "node", "list", *nowhere).code == 4


def test_a_code_is_explained_where_there_are_no_pages(place):
    """`enlist explain` has every page in the program; `version` of both programs says which they are."""
    for code, words in {"token_used": "HTTP 409", "agent_unavailable": "enlist-agent run", "cannot_listen": "the address is taken"}.items():
        done = run(ENLIST, "explain", code, cwd=place)
        assert done.code == 0 and words in done.out and "](" not in done.out, done
        assert run(ENLIST, "explain", code, "--json", cwd=place).json()[0]["code"] == code
    for program in (ENLIST, AGENT):
        version = run(program, "version", "--json").json()
        assert f"{version['program']} {version['version']}" == run(program, "--version").out.strip()
        assert run(program, "version").out.strip() == run(program, "--version").out.strip()


def test_errors_are_three_things(plane):
    """Code, what happened, one line of remedy, on standard error; with --json as a document there."""
    done = run(ENLIST, "node", "show", "nobody", "--dir", plane.dir)
    assert done.code == 3 and done.out == ""
    assert "node_not_found" in done.err and "enlist node list" in done.err
    error = plane.cli("node", "show", "nobody", ok=False).error()
    assert {"code", "message", "hint"} <= error.keys()


NODE = (
    "node_id tenant state draining quarantined vcluster profile spiffe_id cert_serial cert_not_after last_seen "
    "enrolled_at generation health"
)
FIELDS = {
    ("token", "create"): "token_id token tenant node profile expires_at ca_pin server_url join_command",
    ("token", "list", "--all"): "token_id tenant node profile state created_by created_at expires_at used_at used_by",
    ("node", "list"): NODE,
    ("audit", "list"): "seq at event_type actor source request_id correlation_id prev_hash hash",
    ("audit", "verify"): "ok first_seq last_seq head checkpoint",
    ("ca", "show"): "root issuers bundle_version adoption",
    ("operator", "key", "create", "f", "--role", "viewer"): "key_id key name role tenant expires_at",
    ("tenant", "list"): "",
    ("policy", "show"): "",
    ("operator", "list"): "",
    ("operator", "key", "list"): "",
}


@pytest.mark.parametrize("command", FIELDS, ids=" ".join)
def test_outputs_have_the_promised_fields(plane, tenants, command):
    """`--json`: one document, or one line per item for lists."""
    plane.cli("operator", "add", f"p{abs(hash(command)) % 10**9}", "--role", "viewer")
    done = plane.cli(*command)
    items = done.lines()
    assert items
    for item in items:
        for secret in ("token", "key"):
            if isinstance(item.get(secret), str) and command[-1] != "show":
                evidence.token(item[secret])
        assert set(FIELDS[command].split()) <= item.keys(), item


def test_every_document_goes_deeper_where_promised(plane, tenants):
    """`node show`, `ca show` and a health that is null when all is well."""
    node = tenants["red"][0]
    shown = plane.cli("node", "show", node.id).json()
    assert {"reason", "since", "evidence"} <= shown["health"].keys() and shown["health"]["reason"] is None
    assert {"hardware", "overlay", "certificates"} <= shown.keys()
    ca = plane.cli("ca", "show").json()
    assert {"fingerprint", "not_after"} <= ca["root"].keys()
    assert {"id", "kind", "state", "subject", "fingerprint", "not_after", "leaves"} <= ca["issuers"][0].keys()
    assert {"current", "total"} <= ca["adoption"].keys()
    assert ca["issuers"][0]["leaves"] == len(plane.nodes())
    for word in ("node", "nodes", "host", "hosts"):
        assert plane.cli(word, "show", node.id).json()["node_id"] == node.id


def test_a_token_comes_with_the_line_that_uses_it(plane):
    """`join_command` names server, pin and token, and works as it stands."""
    minted = plane.cli("token", "create").json()
    evidence.token(minted["token"])
    assert minted["server_url"] == plane.url and minted["ca_pin"] == plane.pin
    assert plane.url in minted["join_command"] and plane.pin in minted["join_command"]
    assert "enlist-agent enroll" in minted["join_command"]


def test_lists_come_in_pages(plane, tenants):
    """`limit` and `cursor` walk the whole list once, without doubles."""
    native.enroll(plane)
    whole = [node["node_id"] for node in plane.nodes()]
    walked, cursor = [], ""
    while cursor is not None:
        page = plane.api("GET", f"/v1/nodes?limit=2{cursor and '&cursor=' + cursor}").json()
        assert len(page["items"]) <= 2
        walked += [node["node_id"] for node in page["items"]]
        cursor = page["next_cursor"]
    assert walked == whole and len(set(walked)) == len(walked)
    listed = plane.cli("node", "list").lines()
    assert {node["node_id"] for node in listed} == set(whole), "the tool shows every page"


def test_the_tool_reaches_it_over_tls(plane, place):
    """By certificate and by API key, from flags and from the environment; a wrong CA is exit 4, a bad key exit 3."""
    out = place / "op"
    plane.cli("operator", "add", "remote", "--role", "viewer", "--out", out)
    by_cert = ("--server", plane.url, "--cert", out / "cert.pem", "--key", out / "key.pem", "--ca", out / "ca.pem")
    assert run(ENLIST, "node", "list", "--json", *by_cert).code == 0
    key_file = place / "key"
    secret(key_file, make_key(plane, "viewer")["key"] + "\n")
    by_key = {"ENLIST_SERVER": plane.url, "ENLIST_CA": str(out / "ca.pem"), "ENLIST_API_KEY_FILE": str(key_file)}
    assert run(ENLIST, "node", "list", "--json", env=by_key).code == 0
    assert run(ENLIST, "token", "create", "--json", env=by_key).code == 3
    key_file.write_text("nonsense")
    assert run(ENLIST, "node", "list", "--json", env=by_key).code == 3
    with ControlPlane(domain="other.example") as other:
        wrong = {**by_key, "ENLIST_CA": str(other.dir / "ca" / "bundle.pem")}
        assert run(ENLIST, "node", "list", "--json", env=wrong).code == 4
    by_environment = {"ENLIST_DIR": str(plane.dir)}
    assert run(ENLIST, "node", "list", "--json", env=by_environment).code == 0
    by_socket = {"ENLIST_SOCKET": str(plane.dir / "operator.sock")}
    assert run(ENLIST, "node", "list", "--json", env=by_socket).code == 0


DEFAULTS = {
    "attestors": "join-token,recovery-token",
    "enroll.max_per_minute": "0",
    "token.default_ttl": "1h",
    "token.max_ttl": "1d",
}
"""As interfaces.md has them; a duration is shown in its largest whole unit."""


def test_policy_is_shown_and_set_with_care(plane):
    """Unknown keys and values are refused; `token.max_ttl` can only be lowered."""
    items = {item["key"]: item["value"] for item in plane.api("GET", "/v1/policy").json()["items"]}
    assert {key: items.get(key) for key in DEFAULTS} == DEFAULTS
    assert plane.cli("policy", "set", "no.such", "1", ok=False).code == 3
    raised = plane.cli("policy", "set", "token.max_ttl", "48h", ok=False)
    assert raised.code == 3 and "at most 1d" in raised.err and "lowered" in raised.err, raised
    assert plane.cli("policy", "set", "token.default_ttl", "soon", ok=False).code == 3
    plane.cli("policy", "set", "profile.brief.lifetime", "60s")
    minted = plane.mint(profile="brief")
    leaf = certs.certificate(native.enroll(plane, minted["token"]).answer.certificate)
    assert certs.seconds(leaf) == 120
    assert plane.cli("policy", "set", "profile.brief.lifetime", "59s", ok=False).code == 3
    assert plane.cli("policy", "set", "profile.brief.lifetime", "91d", ok=False).code == 3
    assert plane.audit("policy.changed")[-1]["new"] == "60s" or plane.audit("policy.changed")[-1]["new"] == "1m"
