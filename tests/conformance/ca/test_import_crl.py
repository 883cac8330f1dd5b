"""`ca import-crl`: which lists of a root the control plane takes, which it refuses, and which it asks about first. D13.

The lists are made by another program than ours.
"""

import certs
import pytest
from impostors import Authority
from machine import ENLIST, run, scratch, until
from plane import ControlPlane
from rogue import Thief
from rolls import issuers, prepare, prepare_root, status
from root_lists import listed

HALF = 2**63


@pytest.fixture
def plane(programs):
    with ControlPlane() as made:
        yield made


def imported(plane, pem: bytes, *flags, ok: bool = False):
    file = scratch("crl") / "denied.pem"
    file.write_bytes(pem)
    return plane.cli("ca", "import-crl", "--file", file, *flags, ok=ok)


def refusal(plane, pem: bytes, *flags) -> tuple:
    """Exit code and code of a refusal, which leaves everything as it was."""
    before = plane.cli("ca", "show").json()
    done = imported(plane, pem, *flags)
    assert plane.cli("ca", "show").json() == before, done
    error = done.error()
    assert error["message"] and error["hint"], error
    return done.code, error["code"], error["message"]


def numbers(plane) -> list[int]:
    return [one["number"] for one in plane.cli("ca", "show").json()["lists"]]


def certificate(plane, issuer: dict):
    return certs.certificate(plane.cli("ca", "export", "--issuer", issuer["id"]).json()["pem"])


def test_a_list_that_denies_a_root_or_a_cross_certificate_is_refused(plane):
    """Every host that learned it would trust nobody. Also of a root that is still to come, and nobody is asked to confirm it."""
    root = Authority(plane)
    code, word, message = refusal(plane, listed(root, 5, root.certificate), "--yes")
    assert (code, word) == (3, "list_invalid") and "root" in message
    answer, _ = prepare_root(plane)
    new, cross, *_ = certs.certificates(answer.read_bytes())
    assert cross.issuer == new.issuer and cross.serial_number != new.serial_number
    for one in (new, cross):
        for serials in ([one], [Thief(plane).certificate, one]):
            code, word, message = refusal(plane, listed(root, 5, *serials), "--yes")
            assert (code, word) == (3, "list_invalid") and "root" in message
    denies = listed(root, 5, cross)
    assert "`enlist ca roll abandon`" in imported(plane, denies).error()["hint"]
    assert numbers(plane) == [0, 0], "the first lists of both roots, which deny nobody"
    plane.cli("ca", "roll", "abandon", "--yes")
    assert imported(plane, denies).code == 0
    shown = " ".join(run(ENLIST, "ca", "show", "--dir", plane.dir).out.split())
    assert "cross-certificate of an abandoned root" in shown and "no issuer of this domain" not in shown, shown


def test_a_list_that_comes_too_early_is_told_all_that_is_wrong_with_it(plane):
    """It denies the cross-certificate of a prepared root, and names not all of the list on record: whoever abandons is not refused twice."""
    root, first, second = Authority(plane), Thief(plane).certificate, Thief(plane).certificate
    assert imported(plane, listed(root, 5, first, second)).code == 0
    answer, _ = prepare_root(plane)
    cross = certs.certificates(answer.read_bytes())[1]
    error = imported(plane, listed(root, 6, cross)).error()
    assert error["code"] == "list_invalid" and "cross-certificate" in error["message"], error
    assert certs.serial(first) in error["message"] and certs.serial(second) in error["message"], error
    assert "`enlist ca roll abandon`" in error["hint"] and "--previous" in error["hint"], error
    assert "older" in imported(plane, listed(root, 4, first, second, cross)).error()["message"]
    plane.cli("ca", "roll", "abandon", "--yes")
    late = imported(plane, listed(root, 6, cross)).error()
    assert "`enlist ca crl --roots`" in late["hint"] and "--previous" in late["hint"], late


def test_an_import_says_what_is_left_to_do_and_nothing_more(plane):
    """Operators are mentioned; `ca revoke` is, until the issuer is revoked; the same list again changes nothing."""
    root, file = Authority(plane), scratch("crl") / "denied.pem"
    (old,) = issuers(plane, "server")
    prepare(plane, "server")
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    left = lambda: [one["other_leaves"] for one in issuers(plane, "server") if one["state"] == "retiring"]  # noqa: E731
    until(lambda: left() == [0], "the control plane has moved to the new issuer")

    def told(*flags) -> str:
        return " ".join(run(ENLIST, "ca", "import-crl", "--file", file, *flags, "--dir", plane.dir).out.split())

    file.write_bytes(listed(root, 5, certificate(plane, old)))
    first = told()
    assert "`enlist operator renew`" in first and "`enlist ca update-trust`" in first, first
    assert f"`enlist ca revoke {old['id']}`" in first, first
    again = told()
    assert "nothing was changed" in again and "hosts are told now" not in again and "ca revoke" not in again, again
    assert plane.cli("ca", "import-crl", "--file", file).json()["changed"] is False
    plane.cli("ca", "revoke", old["id"])
    file.write_bytes(listed(root, 6, certificate(plane, old), Thief(plane).certificate))
    second = told()
    assert "hosts are told now" in second and "ca revoke" not in second, second
    file.write_bytes(listed(root, 7, Thief(plane).certificate, *listed_on(plane)))
    assert plane.cli("ca", "import-crl", "--file", file).json()["changed"] is True


def listed_on(plane) -> list[int]:
    """The serials on the list that the control plane gives out."""
    crl = certs.x509.load_pem_x509_crl(plane.cli("ca", "crl", "--roots").json()["pem"].encode())
    return [entry.serial_number for entry in crl]


def test_a_number_that_none_could_follow_is_refused(plane):
    """A list of the largest number of all would be the last one for ever."""
    root, thief = Authority(plane), Thief(plane).certificate
    for number in (HALF, 2**64 - 1, 2**64, 2**120):
        code, word, message = refusal(plane, listed(root, number, thief), "--yes")
        assert (code, word) == (3, "list_invalid") and "number" in message, message
    assert imported(plane, listed(root, 2**62, thief)).code == 0
    assert imported(plane, listed(root, 2**62 + 1, thief)).code == 0, "and the next"
    assert numbers(plane) == [2**62 + 1]


def test_the_next_list_is_newer_and_says_no_less(plane):
    """An older one, another of the same number, one that leaves an issuer out, another root's; the same again is no error."""
    root, thief, other = Authority(plane), Thief(plane).certificate, Thief(plane).certificate
    first = listed(root, 10, thief)
    assert imported(plane, first).code == 0 and imported(plane, first).code == 0
    assert len(plane.audit("ca.list_imported")) == 1
    assert refusal(plane, listed(root, 9, thief))[:2] == (3, "list_older")
    for wrong in (listed(root, 10, thief, other), listed(root, 11, other), listed(root, 11), listed(Authority(), 11, thief)):
        assert refusal(plane, wrong)[:2] == (3, "list_invalid")
    for wrong in (b"", b"garbage", certs.pem(thief)):
        assert refusal(plane, wrong)[:2] == (3, "list_invalid")
    assert imported(plane, listed(root, 11, thief, other)).code == 0
    assert numbers(plane) == [11]


@pytest.mark.parametrize("state", ["active", "prepared"])
def test_a_list_that_cuts_hosts_off_asks_first(plane, state):
    """It denies the issuer of the control plane's own certificate, or the one that is about to be: `confirmation_needed`, and only
    that issuer's id or `--yes` is an answer."""
    root = Authority(plane)
    if state == "prepared":
        prepare(plane, "server")
    (issuer,) = [one for one in issuers(plane, "server") if one["state"] == state]
    pem = listed(root, 5, certificate(plane, issuer))
    code, word, message = refusal(plane, pem)
    assert (code, word) == (3, "confirmation_needed") and issuer["id"] in message
    for wrong in (None, "", "yes", issuers(plane, "node")[0]["id"]):
        answer = plane.api("POST", "/v1/ca/lists", {"list": pem.decode(), "confirm": wrong})
        assert (answer.status, answer.code) == (409, "confirmation_needed"), answer
        assert answer.json()["error"]["affected"] == 0, answer
    assert numbers(plane) == [0]
    assert imported(plane, pem, "--yes").json()["lists"][0]["number"] == 5
    (line,) = plane.audit("ca.list_imported")
    assert line["issuers"] == [issuer["id"]] and line["number"] == 5, line


@pytest.mark.parametrize("state", ["active", "prepared"])
def test_a_list_that_denies_an_issuer_of_nodes_asks_too(plane, state):
    """It cannot be taken back. Of one that is retired nobody is asked."""
    root = Authority(plane)
    prepare(plane)
    if state == "active":
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        (old,) = [one for one in issuers(plane) if one["state"] == "retiring"]
        plane.cli("ca", "roll", "retire")
        assert imported(plane, listed(root, 4, certificate(plane, old))).code == 0
    (issuer,) = [one for one in issuers(plane) if one["state"] == state]
    serials = [certificate(plane, one) for one in issuers(plane) if one["state"] in (state, "retired")]
    pem = listed(root, 5, *serials)
    code, word, message = refusal(plane, pem)
    assert (code, word) == (3, "confirmation_needed") and issuer["id"] in message and "cannot be taken back" in message
    (server,) = issuers(plane, "server")
    answer = plane.api("POST", "/v1/ca/lists", {"list": pem.decode(), "confirm": server["id"]})
    assert (answer.status, answer.code) == (409, "confirmation_needed"), answer
    assert imported(plane, pem, "--yes").json()["lists"][0]["number"] == 5
    assert plane.audit("ca.list_imported")[-1]["number"] == 5
    assert status(plane)["denied"] == [issuer["id"]]
    assert status(plane)["denied_uses"] == (["node"] if state == "active" else [])


def test_after_a_list_that_denies_the_control_plane_the_next_command_is_named(plane):
    """By the import itself and by `ca roll status`, until another issuer is active; a prepared one that is denied is given up."""
    root, file = Authority(plane), scratch("crl") / "denied.pem"
    (issuer,) = issuers(plane, "server")
    file.write_bytes(listed(root, 5, certificate(plane, issuer)))
    told = run(ENLIST, "ca", "import-crl", "--file", file, "--yes", "--dir", plane.dir)
    command = "ca roll prepare --use server --csr-out FILE"
    for text in (told.out, people(plane)):
        text = " ".join(text.split())
        assert "refuse" in text and "the control plane until another issuer is active" in text and command in text, text
    assert (status(plane)["denied"], status(plane)["denied_uses"]) == ([issuer["id"]], ["server"])
    prepare(plane, "server")
    (next_one,) = [one for one in issuers(plane, "server") if one["state"] == "prepared"]
    assert "ca roll activate" in people(plane)
    both = listed(root, 6, certificate(plane, issuer), certificate(plane, next_one))
    assert imported(plane, both, "--yes").code == 0
    assert "ca roll abandon" in people(plane) and "ca roll activate" not in people(plane)
    plane.cli("ca", "roll", "abandon", "--yes")
    prepare(plane, "server")
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    assert (status(plane)["denied"], status(plane)["denied_uses"]) == ([], [])
    assert command not in people(plane)


def people(plane) -> str:
    """`ca roll status` as text, on one line."""
    return " ".join(run(ENLIST, "ca", "roll", "status", "--dir", plane.dir).out.split())
