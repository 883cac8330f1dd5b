"""Operators renew their own certificates, and nobody else's."""

import os

import pytest

import certs
import clocks
import evidence
import native
from machine import ENLIST, run, scratch, secret
from operators import make_key


class Alice:
    """An operator with a certificate, at a machine of her own."""

    def __init__(self, plane, role: str = "operator", *options):
        self.plane, self.name = plane, f"alice-{os.urandom(4).hex()}"
        self.out = scratch("op") / "o"
        plane.cli("operator", "add", self.name, "--role", role, "--out", self.out, *options)
        evidence.private_key("operator", (self.out / "key.pem").read_bytes())

    @property
    def files(self) -> tuple:
        return self.out / "cert.pem", self.out / "key.pem"

    @property
    def leaf(self):
        return certs.certificates(self.files[0].read_bytes())[0]

    @property
    def reach(self) -> tuple:
        cert, key = self.files
        return ("--server", self.plane.url, "--cert", cert, "--key", key, "--ca", self.out / "ca.pem")

    def copy(self) -> tuple:
        """What a thief or a second machine has."""
        place = scratch("copy")
        for file in self.files:
            secret(place / file.name, file.read_text())
        return place / "cert.pem", place / "key.pem"

    def ask(self, body: dict, certificate=None, **more):
        return self.plane.https("POST", "/v1/operators/renew", body, certificate=certificate or self.files, **more)

    def run(self, *arguments, code: int = 0, env=None):
        done = run(ENLIST, *arguments, *self.reach, "--json", env=env)
        assert done.code == code, done
        return done

    def lines(self, event: str) -> list[dict]:
        return [line for line in self.plane.audit(event) if line["operator"] == self.name]


@pytest.fixture
def alice(plane):
    return Alice(plane)


def works(plane, files) -> int:
    return plane.https("GET", "/v1/nodes", certificate=files).status


def test_a_certificate_is_renewed_in_place(plane, alice):
    """A new key and serial, the same identity and rights; the old certificate is refused at once; audited."""
    old, was, old_key = alice.copy(), alice.leaf, alice.files[1].read_bytes()
    done = alice.run("operator", "renew").json()
    evidence.private_key("operator", alice.files[1].read_bytes())
    now = alice.leaf
    assert done["name"] == alice.name and done["role"] == "operator" and done["in_use"] is True
    assert done["cert_serial"] == certs.serial(now) != certs.serial(was)
    assert alice.files[1].read_bytes() != old_key and now.subject == was.subject
    uris = [c.extensions.get_extension_for_class(certs.x509.SubjectAlternativeName).value for c in (was, now)]
    assert uris[0] == uris[1]
    assert now.not_valid_after_utc >= was.not_valid_after_utc
    assert (os.stat(alice.files[1]).st_mode & 0o777, sorted(os.listdir(alice.out))) == (
        0o600,
        ["ca.pem", "cert.pem", "context.toml", "key.pem"],
    )
    assert works(plane, alice.files) == 200
    assert native.alert(plane, old) is not None, "the old one is refused in the handshake"
    (renewed,) = alice.lines("operator.renewed")
    assert renewed["cert_serial"] == done["cert_serial"] and renewed["with_serial"] == certs.serial(was)
    assert renewed["not_after"] == done["not_after"] and renewed["actor"] == f"user:{alice.name}"
    (replaced,) = alice.lines("operator.certificate_replaced")
    assert (replaced["cert_serial"], replaced["replaced_by"]) == (certs.serial(was), done["cert_serial"])
    listed = {item["name"]: item for item in plane.cli("operator", "list").lines()}[alice.name]
    assert listed["cert_serial"] == done["cert_serial"] and listed["role"] == "operator"
    alice.run("operator", "renew")
    assert works(plane, alice.files) == 200, "and again"


def test_it_works_with_a_context_and_behind_links(plane, alice):
    """The files that the context names are replaced, the real ones where it names links."""
    place = scratch("links")
    for file in alice.files:
        (place / file.name).symlink_to(file)
    home = {"XDG_CONFIG_HOME": str(place)}
    files = ("--server", plane.url, "--cert", place / "cert.pem", "--key", place / "key.pem", "--ca-pin", plane.pin)
    assert run(ENLIST, "context", "add", "prod", *files, env=home).code == 0
    was = certs.serial(alice.leaf)
    done = run(ENLIST, "operator", "renew", env=home)
    assert done.code == 0 and "no longer accepted" in done.out, done
    assert certs.serial(alice.leaf) != was and (place / "cert.pem").is_symlink() and (place / "key.pem").is_symlink()
    assert run(ENLIST, "node", "list", env=home).code == 0


def test_another_directory_leaves_the_old_files_and_the_old_certificate_until_the_new_one_is_used(plane, alice):
    """`--out DIR`: the switch is the operator's to make."""
    new = scratch("new") / "n"
    before = [file.read_bytes() for file in alice.files]
    done = alice.run("operator", "renew", "--out", new).json()
    assert done["in_use"] is False and [file.read_bytes() for file in alice.files] == before
    assert sorted(os.listdir(new)) == ["ca.pem", "cert.pem", "context.toml", "key.pem"]
    assert works(plane, alice.files) == 200 and alice.lines("operator.certificate_replaced") == []
    assert works(plane, (new / "cert.pem", new / "key.pem")) == 200
    assert native.alert(plane, alice.files) is not None
    assert alice.run("operator", "renew", "--out", new, code=2).error()["code"] == "file_exists"
    assert alice.run("operator", "renew", "--out", new / "again", code=3)
    assert not (new / "again").exists(), "nothing is left behind"


def test_a_lost_answer_locks_nobody_out(plane, alice):
    """Asked again, also with the same key, what was never used is denied; the one in use stays good."""
    key = certs.ec_key()
    first = alice.ask({"csr": certs.csr(key)})
    assert first.status == 200, first
    again = alice.ask({"csr": certs.csr(key)})
    assert again.status == 200 and again.json()["cert_serial"] != first.json()["cert_serial"]
    assert works(plane, alice.files) == 200
    lost = scratch("lost")
    (lost / "key.pem").write_bytes(certs.key_pem(key))
    (lost / "cert.pem").write_text(first.json()["certificate"] + first.json()["chain"])
    assert native.alert(plane, (lost / "cert.pem", lost / "key.pem")) is not None, "denied unused"
    assert alice.lines("operator.renewed")[-1]["denied_serials"] == [first.json()["cert_serial"]]
    (lost / "cert.pem").write_text(again.json()["certificate"] + again.json()["chain"])
    assert works(plane, (lost / "cert.pem", lost / "key.pem")) == 200


def test_a_kill_between_the_two_files_leaves_a_pair_that_works(plane, alice):
    """The new key, the old certificate, and beside it the one that fits."""
    old, new = alice.files[0].read_text(), scratch("new") / "n"
    alice.run("operator", "renew", "--out", new)
    secret(alice.files[1], (new / "key.pem").read_text())
    (alice.out / "cert.pem.new").write_text((new / "cert.pem").read_text())
    assert alice.files[0].read_text() == old
    alice.run("node", "list")
    alice.run("operator", "renew")
    assert not (alice.out / "cert.pem.new").exists()
    assert works(plane, alice.files) == 200


def test_who_asks_is_what_the_certificate_says(plane, alice):
    """A body that names another operator is refused; what the request says of itself is ignored."""
    other = Alice(plane, "platform-admin")
    csr = certs.csr(certs.ec_key(), other.name)
    for extra in ({"name": other.name}, {"role": "platform-admin"}, {"tenant": None}):
        answer = alice.ask({"csr": csr, **extra})
        assert (answer.status, answer.code) == (400, "bad_request"), answer
    renewed = alice.ask({"csr": csr}, headers={"X-Tenant": "default"}).json()
    assert (renewed["name"], renewed["role"]) == (alice.name, "operator")
    leaf = certs.certificate(renewed["certificate"])
    names = leaf.extensions.get_extension_for_class(certs.x509.SubjectAlternativeName).value
    assert [uri for uri in names.get_values_for_type(certs.x509.UniformResourceIdentifier)] == [
        f"spiffe://test.example/operator/{alice.name}"
    ]
    assert other.lines("operator.renewed") == []


def test_rights_stay_as_they_were(plane, tenants):
    """A viewer of one tenant renews, and sees no more than before."""
    viewer = Alice(plane, "viewer", "--tenant", "red")
    before = {node["node_id"] for node in viewer.run("node", "list").lines()}
    done = viewer.run("operator", "renew").json()
    assert (done["role"], done["tenant"]) == ("viewer", "red")
    assert {node["node_id"] for node in viewer.run("node", "list").lines()} == before
    assert viewer.run("token", "create", code=3)


def test_who_has_no_such_certificate_cannot_renew(plane, alice):
    """A node, an API key, the operator socket, nobody, and an operator that was removed."""
    node = native.enroll(plane)
    node.confirm()
    csr = {"csr": certs.csr(certs.ec_key())}
    answer = plane.https("POST", "/v1/operators/renew", csr, certificate=node.files)
    assert (answer.status, answer.code) == (403, "forbidden"), answer
    key = make_key(plane, "platform-admin")["key"]
    bearer = {"Authorization": f"Bearer {key}"}
    answer = plane.https("POST", "/v1/operators/renew", csr, headers=bearer)
    assert (answer.status, answer.code) == (403, "forbidden") and "API key" in answer.json()["error"]["message"]
    answer = plane.api("POST", "/v1/operators/renew", csr)
    assert (answer.status, answer.code) == (403, "forbidden"), answer
    assert plane.https("POST", "/v1/operators/renew", csr).status == 401
    plane.cli("operator", "remove", alice.name)
    removed = alice.run("operator", "renew", code=3)
    assert removed.error()["code"] in ("unauthenticated", "identity_revoked_or_fenced"), removed
    assert alice.lines("operator.renewed") == []
    assert sorted(os.listdir(alice.out)) == ["ca.pem", "cert.pem", "context.toml", "key.pem"], "nothing is left behind"


def test_a_removed_operator_loses_the_renewed_certificate_too(plane, alice):
    """Also one that was never used."""
    new = scratch("new") / "n"
    alice.run("operator", "renew", "--out", new)
    plane.cli("operator", "remove", alice.name)
    for files in (alice.files, (new / "cert.pem", new / "key.pem")):
        assert native.alert(plane, files) is not None


def test_the_key_must_be_new_and_the_request_well_formed(plane, alice):
    """409 for the key in use or a node's, 400 for garbage."""
    own = certs.serialization.load_pem_private_key(alice.files[1].read_bytes(), None)
    answer = alice.ask({"csr": certs.csr(own)})
    assert (answer.status, answer.code) == (409, "key_in_use"), answer
    key = certs.ec_key()
    native.enroll(plane, key=key)
    answer = alice.ask({"csr": certs.csr(key)})
    assert (answer.status, answer.code) == (409, "key_in_use"), answer
    for body in ({}, {"csr": ""}, {"csr": "nonsense"}, {"csr": certs.csr(certs.rsa_key(1024))}, {"csr": 7}):
        assert alice.ask(body).status == 400, body
    assert works(plane, alice.files) == 200


def test_an_operator_called_renew_can_still_be_removed(plane):
    """The path of the renewal is also the path of that operator."""
    plane.cli("operator", "add", "renew", "--role", "viewer")
    plane.cli("operator", "remove", "renew")
    assert "renew" not in [item["name"] for item in plane.cli("operator", "list").lines()]


def test_the_tool_says_what_to_do_where_there_is_nothing_to_renew(plane, alice, place):
    """On the socket and with an API key: exit 2, and which command it takes."""
    error = plane.cli("operator", "renew", ok=False)
    assert error.code == 2 and "operator add" in error.error()["hint"], error
    file = secret(place / "key", make_key(plane, "viewer")["key"])
    done = run(ENLIST, "operator", "renew", "--server", plane.url, "--ca", alice.out / "ca.pem", "--api-key-file", file)
    assert done.code == 2 and "operator key create" in done.err, done


def test_a_certificate_near_its_end_is_told_to_people_and_an_expired_one_cannot_be_used(plane, alice):
    """One line on standard error past two thirds of its life, none with --json; after the end, what to do."""
    days = (alice.leaf.not_valid_after_utc - alice.leaf.not_valid_before_utc).days

    def at(day: float, *arguments):
        return run(ENLIST, "node", "list", *alice.reach, *arguments, env=clocks.shifted(24 * day))

    for day, told in ((days * 0.6, False), (days * 0.7, True)):
        assert ("enlist operator renew" in at(day).err) is told, day
        assert "notice:" not in at(day, "--json").err
    done = at(days + 1)
    assert done.code == 3 and "cert_expired" in done.err and f"operator add {alice.name}" in done.err, done
    env = clocks.shifted(24 * (days + 1))
    done = run(ENLIST, "operator", "renew", *alice.reach, env=env)
    assert done.code == 3 and "cert_expired" in done.err, done


def test_a_renewed_certificate_outlives_a_restart(plane, alice):
    """What was renewed and what was denied is on record."""
    old = alice.copy()
    alice.run("operator", "renew")
    new = scratch("new") / "n"
    alice.run("operator", "renew", "--out", new)
    plane.restart()
    assert works(plane, alice.files) == 200 and native.alert(plane, old) is not None
    assert works(plane, (new / "cert.pem", new / "key.pem")) == 200
    assert native.alert(plane, alice.files) is not None
    assert plane.cli("audit", "verify").json()["ok"]


def test_a_renewal_says_which_unused_certificate_it_ends(plane, alice):
    """One that `--out` wrote and nobody used: the next renewal with the old certificate ends it, and says so."""
    new = scratch("new") / "n"
    first = alice.run("operator", "renew", "--out", new).json()
    assert "denied_serials" not in first
    done = run(ENLIST, "operator", "renew", "--out", scratch("again") / "n", *alice.reach)
    assert done.code == 0 and first["cert_serial"] in done.out and "no longer accepted" in done.out, done
    assert native.alert(plane, (new / "cert.pem", new / "key.pem")) is not None, "and it is so"
    unused = alice.lines("operator.renewed")[-1]["cert_serial"]
    assert alice.run("operator", "renew").json()["denied_serials"] == [unused]
    assert "denied_serials" not in alice.run("operator", "renew").json(), "what was used is replaced, as always"


def test_a_key_of_another_certificate_is_named(plane, alice):
    """Two files that do not belong together, or that changed places: said in words, before anybody is asked."""
    other = Alice(plane)
    (cert, key), (other_cert, other_key) = alice.files, other.files
    for own, word in (
        (("--cert", cert, "--key", other_key), str(cert)),
        (("--cert", other_cert, "--key", key), str(other_cert)),
        (("--cert", key, "--key", cert), str(cert)),
    ):
        done = run(ENLIST, "node", "list", "--server", plane.url, "--ca", alice.out / "ca.pem", *own, "--json")
        error = done.error()
        assert done.code == 2 and word in error["message"] and "--key" in error["hint"], done
        assert not any(raw in done.err for raw in ("KeyMismatch", "consistent", "key_exposed")), done
