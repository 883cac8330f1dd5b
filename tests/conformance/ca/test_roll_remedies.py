"""What rolls, revocations and moves of keys say at a terminal and to scripts: what was done, what was not, and what to do. D12, D13."""

import certs
import native
import pytest
from machine import ENLIST, run, scratch, until
from plane import ControlPlane
from rolls import issuers, keeper, prepare, prepare_root, roots, signed, signed_root, states, status
from terminal import shown


@pytest.fixture
def plane(programs):
    with ControlPlane() as made:
        made.policy("failures.per_minute", "0")
        yield made


def refused(plane, *command, code: int = 3) -> dict:
    done = plane.cli("ca", *command, ok=False)
    assert done.code == code, done
    return done.error()


def people(plane, *command) -> str:
    """The text, as one line."""
    return " ".join(run(ENLIST, *command, "--dir", plane.dir).out.split())


def test_issuers_retire_together_or_not_at_all(plane):
    """One that is in use holds the other back; the refusal says so, and how to retire one alone."""
    node = native.enroll(plane)
    node.confirm()
    for usage in ("node", "server"):
        prepare(plane, usage)
        plane.cli("ca", "roll", "activate", "--force", "--yes")
    until(lambda: all(i["other_leaves"] == 0 for i in issuers(plane, "server") if i["state"] == "retiring"), "it has moved")
    error = refused(plane, "roll", "retire")
    assert error["code"] == "issuer_in_use" and "nothing was retired" in error["message"] and node.id in error["message"], error
    assert "`enlist ca roll retire ISSUER`" in error["hint"], error
    assert states(plane, "server") == states(plane) == ["active", "retiring"]
    (server,) = [i["id"] for i in issuers(plane, "server") if i["state"] == "retiring"]
    plane.cli("ca", "roll", "retire", server)
    assert (states(plane), states(plane, "server")) == (["active", "retiring"], ["active", "retired"])
    plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "gone"})
    plane.cli("ca", "roll", "retire")
    assert states(plane) == ["active", "retired"]


def test_a_refusal_to_retire_is_about_all_issuers_and_names_the_command_that_was_run(plane):
    """One only waits for the end of a superseded certificate, the other for a node: that node is named, whichever comes first."""
    first = native.enroll(plane)
    first.confirm()
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    second = native.enroll(plane)
    second.confirm()
    (oldest,) = [i["id"] for i in issuers(plane) if i["state"] == "retiring"]
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    first.renewed().confirm()
    error = refused(plane, "roll", "retire", "--yes")
    assert error["code"] == "issuer_in_use" and second.id in error["message"] and oldest in error["message"], error
    assert "let those renew" in error["hint"] and "nothing is left to do" not in error["hint"], error
    alone = refused(plane, "roll", "retire", oldest)
    assert "all their holders have renewed" in alone["message"] and second.id not in alone["message"], alone
    assert "nothing is left to do but wait" in alone["hint"] and f"`enlist ca roll retire {oldest}`" in alone["hint"], alone
    plane.api("POST", f"/v1/nodes/{second.id}/revoke", {"reason": "gone"})
    waits = refused(plane, "roll", "retire")
    assert "let those renew" not in waits["hint"] and "after that time" in waits["hint"], waits


def test_a_node_that_holds_an_activation_up_is_named(plane):
    """`not_adopted` says on whom it waits."""
    node = native.enroll(plane)
    node.confirm()
    prepare(plane)
    error = refused(plane, "roll", "activate")
    assert error["code"] == "not_adopted" and node.id in error["message"], error


def test_the_certificate_of_the_last_roll_is_not_taken_for_the_next(plane):
    """While another CSR is pending it is refused; without one it changes nothing, and that is said."""
    last = prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    assert "nothing was changed" in people(plane, "ca", "roll", "prepare", "--cert", last)
    plane.cli("ca", "roll", "prepare", "--csr-out", scratch("csr") / "next.csr")
    error = refused(plane, "roll", "prepare", "--cert", last)
    assert error["code"] == "bad_request" and "nothing was changed" in error["message"], error
    stranger = scratch("csr") / "stranger.pem"
    stranger.write_bytes(plane.bundle)
    assert "together" not in refused(plane, "roll", "prepare", "--cert", stranger)["message"], "there is one CSR"
    assert "sign-intermediate" in error["hint"] and status(plane)["stage"] == "requested", error


def test_only_an_answer_that_holds_nothing_new_counts_as_taken_before(plane):
    """The same again is no error; with one certificate changed or from another answer it was not taken, and nobody says so."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--new-root", "--csr-out", csr)
    answer, _ = signed_root(plane, csr)
    other, _ = signed_root(plane, csr)
    taken, foreign = (certs.certificates(file.read_bytes()) for file in (answer, other))
    submit = ("ca", "roll", "prepare", "--new-root", "--cert")
    for _ in range(2):
        assert plane.cli(*submit, answer).json()["stage"] == "prepared"
    file = scratch("answer") / "answer.pem"
    for place in range(len(taken)):
        mixed = [*taken[:place], foreign[place], *taken[place + 1 :]]
        file.write_bytes(b"".join(certs.pem(one) for one in mixed))
        refused = plane.cli(*submit, file, ok=False)
        assert refused.code == 3 and refused.error()["code"] == "no_roll" and refused.error()["hint"], (place, refused)
    file.write_bytes(certs.pem(taken[-1]))
    assert plane.cli("ca", "roll", "prepare", "--cert", file).json()["stage"] == "prepared", "a part of it, all known"


def test_a_certificate_that_is_submitted_again_changes_nothing_and_is_told_so(plane):
    """While it is prepared too; and of one that is retired, that it is."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--csr-out", csr)
    certificate = signed(plane, csr)
    assert "submitted before" not in people(plane, "ca", "roll", "prepare", "--cert", certificate)
    assert "submitted before: nothing was changed" in people(plane, "ca", "roll", "prepare", "--cert", certificate)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    plane.cli("ca", "roll", "retire")
    error = refused(plane, "roll", "prepare", "--cert", certificate)
    assert error["code"] == "issuer_not_prepared" and "is retired, not prepared" in error["message"], error


def test_a_roll_that_begins_does_not_hide_what_is_retiring(plane):
    """In JSON and at a terminal, with the kind of the next keys; and the one before can be retired meanwhile."""
    (old,) = issuers(plane)
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    plane.cli("ca", "roll", "prepare", "--use", "server", "--csr-out", scratch("csr") / "next.csr")
    roll = status(plane)
    assert (roll["stage"], roll["uses"], roll["kinds"], roll["issuers"]) == ("requested", ["server"], ["sealed"], []), roll
    assert roll["retiring"] == [old["id"]], roll
    told = people(plane, "ca", "roll", "status")
    assert f"retiring {old['id']}" in told and "keys sealed under the key-encryption key" in told, told
    assert "sign-intermediate" in told and "ca roll retire" in told, told
    plane.cli("ca", "roll", "retire")
    assert status(plane)["retiring"] == [] and status(plane)["stage"] == "requested"
    assert "ca roll retire" not in people(plane, "ca", "roll", "status")


def test_a_roll_names_nodes_before_the_control_plane(plane):
    """Whatever the ids of the issuers are; each use once."""
    for _ in range(3):
        prepare_root(plane)
        roll = status(plane)
        uses = {i["id"]: i["use"] for i in plane.cli("ca", "show").json()["issuers"]}
        assert roll["uses"] == [uses[issuer] for issuer in roll["issuers"]] == ["node", "server"], roll
        assert roll["issuer"] == roll["issuers"][0]
        plane.cli("ca", "roll", "abandon", "--yes")
    for _ in range(2):
        prepare(plane)
        plane.cli("ca", "roll", "activate", "--force", "--yes")
    assert status(plane)["uses"] == ["node"] and len(status(plane)["issuers"]) == 2


def test_the_bundle_file_has_changed_when_the_command_returns(plane):
    """Whoever copies DIR/ca/bundle.pem after `retire` copies no retired root."""
    file = plane.dir / "ca" / "bundle.pem"
    (old,) = certs.certificates(file.read_bytes())
    answer, _ = prepare_root(plane)
    new = certs.certificates(answer.read_bytes())[0]
    assert certs.certificates(file.read_bytes()) == [old, new]
    plane.cli("ca", "roll", "abandon", "--yes")
    assert certs.certificates(file.read_bytes()) == [old]
    answer, _ = prepare_root(plane)
    new = certs.certificates(answer.read_bytes())[0]
    plane.cli("ca", "roll", "activate", "--force", "--yes")

    def retired() -> bool:
        done = plane.cli("ca", "roll", "retire", ok=False).code == 0
        assert not done or certs.certificates(file.read_bytes()) == [new]
        return done

    until(retired, "nothing hangs on the old root")


def test_an_operator_of_a_tenant_is_told_whose_certificates_are_counted(plane):
    """`ca show` counts those of its tenants only."""
    native.enroll(plane).confirm()
    plane.cli("tenant", "create", "acme")
    place = scratch("op")
    plane.cli("operator", "add", "bob", "--role", "viewer", "--tenant", "acme", "--out", place)
    flags = ("--server", plane.url, "--cert", place / "cert.pem", "--key", place / "key.pem", "--ca", place / "ca.pem")
    shown = run(ENLIST, "ca", "show", *flags)
    assert shown.code == 0 and "of your tenants only" in " ".join(shown.out.split()), shown
    told = run(ENLIST, "ca", "show", "--json", *flags).json()
    assert told["all_tenants"] is False and sum(i["leaves"] for i in told["issuers"]) == 0, told
    assert plane.cli("ca", "show").json()["all_tenants"] is True
    assert "of your tenants only" not in people(plane, "ca", "show")


def test_what_a_roll_does_not_use_is_refused(plane):
    """A flag is never accepted and ignored."""
    place = scratch("csr")
    both = refused(plane, "roll", "prepare", "--new-root", "--use", "server", "--csr-out", place / "x.csr", code=2)
    assert "--use" in both["message"] and "--new-root" in both["message"], both
    plane.cli("ca", "roll", "prepare", "--csr-out", place / "next.csr")
    certificate = signed(plane, place / "next.csr")
    for flags, word in ((("--use", "server"), "use"), (("--new-root",), "new_root")):
        error = refused(plane, "roll", "prepare", *flags, "--cert", certificate)
        assert error["code"] == "bad_request" and error["message"].startswith(f"{word}:"), error
        assert f"without {flags[0]}" in error["hint"], error
    with_kind = {"certificate": certificate.read_text(), "kind": "sealed"}
    assert plane.api("POST", "/v1/ca/roll/prepare", with_kind).code == "bad_request"
    assert status(plane)["stage"] == "requested"
    plane.cli("ca", "roll", "prepare", "--use", "node", "--cert", certificate)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    error = refused(plane, "roll", "retire", "--force")
    assert error["code"] == "bad_request" and error["message"].startswith("force:") and "without --force" in error["hint"], error
    assert states(plane) == ["active", "retiring"]


def test_a_wrong_file_is_told_from_the_right_one(plane):
    """Whatever is submitted in the place of the signed certificate, the remedy names the command that writes it."""
    place = scratch("csr")
    plane.cli("ca", "roll", "prepare", "--csr-out", place / "next.csr")
    (place / "root.pem").write_bytes(plane.bundle)
    for wrong in ("next.csr", "root.pem"):
        error = refused(plane, "roll", "prepare", "--cert", place / wrong)
        assert error["code"] == "bad_request" and "`enlist ca sign-intermediate`" in error["hint"], error


def test_an_active_root_roll_is_finished_and_not_abandoned(plane):
    """No remedy leads to a command that refuses."""
    native.enroll(plane).confirm()
    prepare_root(plane)
    question = refused(plane, "roll", "activate", "--force")
    assert question["code"] == "confirmation_needed" and "cross-certificate" in question["message"], question
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    busy = refused(plane, "roll", "prepare", "--new-root", "--csr-out", scratch("csr") / "x.csr")
    assert busy["code"] == "roll_in_progress" and "`enlist ca roll retire`" in busy["hint"], busy
    assert "`enlist ca roll abandon`" not in busy["hint"], busy
    late = refused(plane, "roll", "abandon")
    assert late["code"] == "no_roll" and "`enlist ca roll retire`" in late["hint"], late
    assert roots(plane) == ["retiring", "active"]


def test_abandoning_a_new_root_says_that_its_key_must_go(plane):
    """The cross-certificate cannot be taken back. Of issuers alone there is nothing to say."""
    prepare_root(plane)
    told = people(plane, "ca", "roll", "abandon", "--yes")
    assert "destroy the key of the new root" in told and "impersonate the control plane" in told, told
    assert "deny the cross-certificate" in told and "ca import-crl --file denied.pem" in told, told
    prepare(plane)
    assert "destroy" not in people(plane, "ca", "roll", "abandon", "--yes")
    none = refused(plane, "roll", "abandon")
    assert none["code"] == "no_roll" and "prepare" not in none["hint"], none
    # An earlier roll that is not over yet is another one.
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    prepare(plane, "server")
    plane.cli("ca", "roll", "abandon", "--yes")
    again = refused(plane, "roll", "abandon")
    assert again["code"] == "no_roll" and "is active" not in again["message"] and "`enlist ca roll retire`" in again["hint"], again
    other = scratch("other") / "other.pem"
    other.write_bytes(plane.bundle)
    for flags in ((), ("--new-root",)):
        late = refused(plane, "roll", "prepare", *flags, "--cert", other)
        assert late["code"] == "no_roll" and ("--new-root" in late["hint"]) == bool(flags), late


def test_serials_issuers_and_roots_can_be_matched(plane):
    """In JSON, in what is signed offline, and at a terminal of 80 columns with two roots and a list."""
    key, root = keeper(plane)
    (server,) = issuers(plane, "server")
    stolen = scratch("stolen") / "stolen.pem"
    stolen.write_text(plane.cli("ca", "export", "--issuer", server["id"]).json()["pem"])
    serial = certs.certificate(stolen.read_bytes()).serial_number
    assert int(server["serial"], 16) == serial
    prepare(plane, "server")
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    until(lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0, "nothing hangs on the old server issuer")
    out = stolen.parent / "denied.pem"
    flags = ("--root-key", key, "--root-cert", root, "--issuer", stolen, "--out", out)
    screen = shown(ENLIST, "ca", "sign-crl", *flags)
    assert not screen.too_wide() and server["id"] in screen.written and server["serial"] in screen.written, screen.written
    plane.cli("ca", "import-crl", "--file", out)
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--new-root", "--csr-out", csr)
    new = key.parent / "new.pem"
    flags = ("--root-key", key, "--root-cert", root, "--csr", csr, "--new-root-key-out", key.parent / "new.key", "--out", new)
    signing = shown(ENLIST, "ca", "sign-root", *flags)
    assert not [line for line in signing.too_wide() if str(key.parent) not in line], signing.written
    told = plane.cli("ca", "roll", "prepare", "--new-root", "--cert", new).json()
    assert all(issuer in signing.written for issuer in told["issuers"]), "as it is named afterwards"
    assert certs.serial(certs.certificates(new.read_bytes())[1]) in signing.written, "the cross-certificate's"
    ca = plane.cli("ca", "show").json()
    pins = [one["fingerprint"] for one in ca["roots"]]
    assert len(pins) == 2
    for columns in (80, 140):
        show = shown(ENLIST, "ca", "show", "--dir", plane.dir, columns=columns)
        assert not show.too_wide(), show.written
        lines = show.lines()
        for one in ca["issuers"]:
            (line,) = [line for line in lines if line.startswith(one["id"])]
            assert one["root"].removeprefix("sha256:")[:8] in line.split(), line
            assert columns == 80 or one["serial"] in line, line
        assert all(any(line.strip() == pin for line in lines) for pin in pins), show.written
        assert f"{server['id']} (serial {server['serial']})" in " ".join(show.written.split()), show.written


@pytest.mark.parametrize("command", ["sign-root", "sign-intermediate", "sign-crl"])
def test_the_usage_of_offline_commands_fits_a_terminal(command):
    screen = shown(ENLIST, "ca", command, "--help")
    assert not screen.too_wide(), screen.written
    assert not shown(ENLIST, "ca", command, code=2).too_wide()


def ready(plane) -> tuple[int, list]:
    answer = plane.api("GET", "/readyz")
    return answer.status, answer.json()["reasons"]


def test_a_domain_without_an_issuer_is_not_ready_and_says_what_to_do(plane):
    """And is ready again once another one is active."""
    assert ready(plane) == (200, [])
    assert status(plane)["without_issuer"] == []
    (node,) = issuers(plane)
    plane.cli("ca", "revoke", node["id"], "--reason", "stolen", "--yes")
    assert ready(plane) == (503, ["issuer_unavailable"])
    assert status(plane)["without_issuer"] == ["node"]
    told = people(plane, "ca", "roll", "status")
    assert "no issuer signs for node" in told and "ca roll prepare --use node --csr-out FILE" in told, told
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    assert ready(plane) == (200, []) and "no issuer signs" not in people(plane, "ca", "roll", "status")


def test_keys_that_are_there_already_are_not_moved(plane):
    """`ca migrate --to sealed` where all are sealed begins no roll and writes no file."""
    csr = scratch("csr") / "next.csr"
    for flags in ((), ("--use", "server")):
        told = people(plane, "ca", "migrate", "--to", "sealed", "--csr-out", csr, *flags)
        assert "already: nothing to do" in told, told
    assert status(plane)["stage"] == "none" and not csr.exists()


def test_the_trail_for_people_names_uses_roots_and_lists(plane):
    """`audit list` as text."""
    prepare_root(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    (prepared,) = [line for line in plane.audit("ca.prepared") if line["use"] == "server"]
    text = run(ENLIST, "audit", "list", "--event", "ca.prepared", "--dir", plane.dir).out
    assert f"issuer={prepared['issuer']}" in text and "use=server" in text and prepared["issuer_fingerprint"] in text, text
    (activated,) = plane.audit("ca.root_activated")
    text = run(ENLIST, "audit", "list", "--event", "ca.root_activated", "--dir", plane.dir).out
    assert f"root_fingerprint={activated['root_fingerprint']}" in text, text
