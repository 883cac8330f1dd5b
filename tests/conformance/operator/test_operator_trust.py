"""What an operator's command line verifies the control plane by: it follows the root's rolls and lists as hosts do. D13.

The control plane is the real one, and so is `ca sign-crl`; whoever stole an issuer is played by Python's own TLS.
"""

import json
import os
import ssl

import pytest

import certs
from impostors import Authority
from listener import Listener, shut
from machine import ENLIST, run, scratch, secret, tool, until
from operators import make_key
from plane import ControlPlane
from rogue import Thief
from rolls import prepare_root, roots
from root_lists import below_new_root, denied, listed, numbers, without_roots
from terminal import shown

UNTRUSTED = "server_tls_untrusted"
SAID = "on the revocation list of the root"
TRUST = "/v1/ca/trust"


class FakePlane(Listener):
    """An operator API in wrong hands: it presents a thief's certificate, offers what it is told to, and keeps every request."""

    def __init__(self, thief: Thief, offer: dict | None = None, renewal=None):
        super().__init__()
        self.heard: list[tuple[str, str, str]] = []
        self.offer, self.renewal = offer, renewal
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        key, chain = thief.server()
        place = scratch("fake")
        self.context.load_cert_chain(*map(str, certs.identity(place, certs.serialization.load_pem_private_key(key, None), chain.decode())))
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.load_verify_locations(cadata=thief.chain.decode())
        self.context.set_alpn_protocols(["http/1.1"])
        self.listen()

    def serve(self, client) -> None:
        client.settimeout(30)
        try:
            client = self.context.wrap_socket(client, server_side=True)
            request = b""
            while b"\r\n\r\n" not in request and (data := client.recv(65536)):
                request += data
            head, _, body = request.partition(b"\r\n\r\n")
            first, *fields = head.decode().split("\r\n")
            lengths = [int(field.split(":")[1]) for field in fields if field.lower().startswith("content-length:")]
            while lengths and len(body) < lengths[0] and (data := client.recv(65536)):
                body += data
            if first:
                self.heard.append((first.split()[0], first.split()[1], head.decode().lower()))
                answer = json.dumps(self._answer(first.split()[1], body)).encode()
                kind = b"Content-Type: application/json\r\nConnection: close\r\n"
                client.sendall(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (kind, len(answer), answer))
        except (OSError, ssl.SSLError):
            pass
        shut(client)

    def _answer(self, path: str, body: bytes) -> dict:
        if path == TRUST:
            return self.offer or {}
        if path == "/v1/operators/renew" and self.renewal:
            return self.renewal(json.loads(body)["csr"])
        return {"items": [], "next": None}

    @property
    def credentials(self) -> list:
        """Requests that came with an API key."""
        return [request for request in self.heard if "authorization:" in request[2]]


class Operator:
    """An operator with a certificate and an API key, at a machine of its own."""

    def __init__(self, plane):
        self.plane, self.out = plane, scratch("op") / "o"
        name = f"op-{os.urandom(4).hex()}"
        plane.cli("operator", "add", name, "--role", "operator", "--out", self.out)
        self.api_key = secret(scratch("key") / "api.key", make_key(plane, "viewer")["key"])
        self.spiffe = f"spiffe://{plane.domain}/operator/{name}"

    @property
    def ca(self):
        return self.out / "ca.pem"

    @property
    def lists(self):
        return self.out / "ca-crls.pem"

    def trusted(self) -> list[str]:
        return fingerprints(self.ca.read_bytes())

    def run(self, *arguments, code: int = 0, url: str | None = None, key: bool = False, ca=None):
        own = ("--api-key-file", self.api_key) if key else ("--cert", self.out / "cert.pem", "--key", self.out / "key.pem")
        reach = ("--server", url or self.plane.url, "--ca", ca or self.ca)
        done = run(ENLIST, *arguments, *reach, *own, "--json")
        assert done.code == code, done
        return done

    def files(self) -> dict:
        return {path.name: path.read_bytes() for path in self.out.iterdir()}


def fingerprints(pem: bytes) -> list[str]:
    return [certs.fingerprint(one) for one in certs.certificates(pem)]


def pins(found: list[str]) -> list[str]:
    """As `ca show` and `--ca-pin` write them."""
    return [f"sha256:{one}" for one in found]


def offered(bundle: bytes, crls: bytes = b"") -> dict:
    return {"bundle": bundle.decode(), "root_crls": crls.decode()}


@pytest.fixture
def own_plane(programs):
    """One whose root rolls, or denies issuers: for a test of its own."""
    with ControlPlane() as made:
        yield made


@pytest.mark.parametrize("digest", [certs.hashes.SHA256(), certs.hashes.SHA512()], ids=lambda digest: digest.name)
def test_a_stolen_issuer_gets_no_api_key_once_the_root_denies_it(own_plane, digest):
    """Believed first, so that the refusal is the list's; after a renewal, by no command: nothing is sent there any more. Whatever the
    root signed the issuer with."""
    plane = own_plane
    operator, thief = Operator(plane), Thief(plane, digest=digest)
    with FakePlane(thief, offered(plane.bundle)) as fake:
        operator.run("node", "list", url=fake.url, key=True)
        assert len(fake.credentials) == 1, "nothing tells it from the control plane"
        plane.cli("ca", "import-crl", "--file", denied(plane, thief.certificate))
        done = operator.run("operator", "renew").json()
        trust = done["trust"]
        assert done["in_use"] and trust["crls_changed"] and trust["crls"] == str(operator.lists.resolve()), done
        assert trust["roots_added"] == trust["roots_removed"] == []
        assert trust["crl_numbers"] == dict(zip(trust["roots"], numbers(operator.lists.read_bytes()))), trust
        assert operator.lists.stat().st_mode == operator.ca.stat().st_mode
        check = tool("openssl", "crl", "-in", operator.lists, "-noout", "-CAfile", operator.ca)
        assert "verify OK" in check.err + check.out, check

        fake.heard.clear()
        for arguments, key in (
            (("node", "list"), True),
            (("node", "list"), False),
            (("operator", "renew"), False),
            (("operator", "renew", "--out", scratch("out") / "n"), False),
            (("ca", "update-trust"), True),
        ):
            error = operator.run(*arguments, code=4, url=fake.url, key=key).error()
            assert error["code"] == UNTRUSTED and SAID in error["message"] and error["hint"], error
        assert fake.heard == [], "nothing was sent there"
        operator.run("node", "list", key=True)

        # Whoever is added or renewed now has the list from the beginning.
        copy, new = scratch("out") / "n", Operator(plane)
        operator.run("operator", "renew", "--out", copy)
        for lists in (copy / "ca-crls.pem", new.lists):
            assert lists.read_bytes() == operator.lists.read_bytes()
        new.run("node", "list", code=4, url=fake.url, key=True)
        assert fake.heard == []
    assert operator.run("operator", "renew", "--out", copy, code=2).error()["code"] == "file_exists"


def test_an_api_key_alone_is_enough_to_follow_and_is_not_sent_for_it(own_plane):
    """`ca update-trust`: no credential leaves before the lists are here."""
    plane = own_plane
    operator, thief = Operator(plane), Thief(plane)
    with FakePlane(thief, offered(plane.bundle)) as fake:
        done = operator.run("ca", "update-trust", url=fake.url, key=True).json()
        assert not done["crls_changed"] and done["crls"] is None and done["roots"] == pins(operator.trusted()), done
        assert [request[:2] for request in fake.heard] == [("GET", TRUST)] and fake.credentials == []
        plane.cli("ca", "import-crl", "--file", denied(plane, thief.certificate))
        assert operator.run("ca", "update-trust", key=True).json()["crls_changed"]
        assert not operator.run("ca", "update-trust", key=True).json()["crls_changed"], "and nothing changes again"
        fake.heard.clear()
        operator.run("node", "list", code=4, url=fake.url, key=True)
        assert fake.heard == []
    for reach in (("--dir", plane.dir), ("--server", plane.url, "--ca-pin", plane.pin, "--api-key-file", operator.api_key)):
        done = run(ENLIST, "ca", "update-trust", *reach, "--json")
        assert done.code == 2 and done.error()["hint"], done


def test_operators_follow_the_root_through_its_roll(own_plane):
    """In place, into a new directory, and with an API key alone after having missed everything; the old root is out of each file, and
    the command line works when nobody is led from the old root any more. Proves D13."""
    plane = own_plane
    plane.policy("recovery.ttl", "30s")
    operator, away = Operator(plane), Operator(plane)
    (old,) = operator.trusted()
    missed = scratch("missed") / "ca.pem"
    missed.write_bytes(operator.ca.read_bytes())
    left = scratch("left") / "ca.pem"
    left.write_bytes(operator.ca.read_bytes())
    answer, key = prepare_root(plane)
    new = fingerprints(answer.read_bytes())[0]
    done = operator.run("operator", "renew").json()["trust"]
    assert operator.trusted() == [old, new] and done["roots_added"] == pins([new]), done
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    operator.run("node", "list")
    for each in (operator, away):
        each.run("operator", "renew")
    assert away.trusted() == [old, new], "in one step from the old root"
    until(lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0, "nothing hangs on the old root")
    assert roots(plane) == ["retired", "active"]
    plane.founded["root_key_pem"] = key.read_text()
    operator.run("node", "list")
    done = operator.run("operator", "renew").json()["trust"]
    assert operator.trusted() == [new] and done["roots_removed"] == pins([old]), done
    directory = scratch("new") / "n"
    done = away.run("operator", "renew", "--out", directory).json()["trust"]
    assert fingerprints((directory / "ca.pem").read_bytes()) == [new] and away.trusted() == [old, new], done
    assert done["ca"] == str(directory / "ca.pem") and done["roots_removed"] == pins([old])
    done = operator.run("ca", "update-trust", key=True, ca=missed).json()
    assert (done["roots_added"], done["roots_removed"]) == (pins([new]), pins([old])), done
    assert fingerprints(missed.read_bytes()) == [new]

    def led() -> bool:
        plane.restart()
        return run(ENLIST, "node", "list", "--server", plane.url, "--ca", left, "--api-key-file", operator.api_key).code == 4

    until(led, "nobody is led from the old root any more", 90.0)
    operator.run("node", "list")
    operator.run("node", "list", key=True, ca=missed)
    operator.run("operator", "renew")


@pytest.mark.parametrize("stored", ["with roots", "without"])
def test_what_an_abandoned_root_has_denied_stays_denied(own_plane, stored):
    """Its cross-certificate still leads there from the root in the CA file. Also where an older version stored the list without its
    root: it is read, and kept with the root from then on."""
    plane = own_plane
    operator, (old,) = Operator(plane), fingerprints(plane.bundle)
    answer, key = prepare_root(plane)
    thief, crl = below_new_root(plane, answer, key)
    file = scratch("crl") / "new.crl"
    file.write_bytes(crl)
    with FakePlane(thief, offered(plane.bundle)) as fake:
        operator.run("node", "list", url=fake.url, key=True)
        assert len(fake.credentials) == 1, "nothing tells it from the control plane"
        plane.cli("ca", "import-crl", "--file", file)
        assert operator.run("ca", "update-trust").json()["crls_changed"] and len(operator.trusted()) == 2
        if stored == "without":
            operator.lists.write_bytes(without_roots(operator.lists.read_bytes()))
        plane.cli("ca", "roll", "abandon", "--yes")
        done = operator.run("ca", "update-trust").json()
        assert operator.trusted() == [old] and not done["crls_changed"], done
        assert numbers(operator.lists.read_bytes()) == list(done["crl_numbers"].values()) == [7], done
        fake.heard.clear()
        for arguments in (("node", "list"), ("ca", "update-trust")):
            error = operator.run(*arguments, code=4, url=fake.url, key=True).error()
            assert error["code"] == UNTRUSTED and SAID in error["message"], error
        copy = scratch("out") / "n"
        operator.run("operator", "renew", "--out", copy)
        operator.run("node", "list", code=4, url=fake.url, key=True, ca=copy / "ca.pem")
        assert fake.heard == [], "nothing was sent there"
    operator.run("node", "list", key=True)


@pytest.mark.parametrize("kind", ["own_root", "signed_root", "resigned", "resigned_beside"])
def test_a_ca_that_nothing_vouches_for_is_refused(plane, kind):
    """By a renewal in place and into a directory, and by the update; no certificate is asked for, and no file changes. GPU-05."""
    operator, thief = Operator(plane), Thief(plane)
    before = operator.files()
    with FakePlane(thief, offered(getattr(thief, kind)())) as fake:
        out = scratch("out") / "n"
        for arguments in (("operator", "renew"), ("operator", "renew", "--out", out), ("ca", "update-trust")):
            error = operator.run(*arguments, code=1, url=fake.url).error()
            assert error["code"] == "trust_refused" and "certificate" in error["message"] and error["hint"], error
        assert {request[1] for request in fake.heard} == {TRUST} and not out.exists()
    assert operator.files() == before
    operator.run("operator", "renew")


def test_what_a_renewal_answers_is_not_what_is_trusted(plane):
    """The CA beside a certificate is somebody's word alone: it goes into no file."""
    operator, thief = Operator(plane), Thief(plane)
    before = operator.trusted()

    def renewal(csr: str) -> dict:
        leaf = thief.node(csr, operator.spiffe)
        return {
            "name": "x", "role": "operator", "tenant": None, "certificate": certs.pem(leaf).decode(), "chain": thief.chain.decode(),
            "ca": thief.own_root().decode(), "cert_serial": certs.serial(leaf), "not_after": "2030-01-01T00:00:00Z",
        }

    out = scratch("out") / "n"
    with FakePlane(thief, offered(plane.bundle), renewal) as fake:
        operator.run("operator", "renew", "--out", out, url=fake.url)
        assert fingerprints((out / "ca.pem").read_bytes()) == before
        operator.run("operator", "renew", url=fake.url)
        assert operator.trusted() == before


def test_an_older_list_never_takes_the_place_of_a_newer_one(plane):
    """Nor another of the same number, a newer one that denies less, or one that none could follow; one of another root is none; and one
    that is not offered stays."""
    operator, thief, signer = Operator(plane), Thief(plane), Authority(plane)
    newest = listed(signer, 2**40, 7)
    with FakePlane(thief, offered(plane.bundle, newest)) as fake:
        operator.run("ca", "update-trust", url=fake.url)
        assert numbers(operator.lists.read_bytes()) == [2**40]
        kept = operator.files()
        less, last = listed(signer, 2**41, 8), listed(signer, 2**64 - 1, 7)
        for wrong in (listed(signer, 2**40 - 1, 7), listed(signer, 2**40, 8), newest + listed(signer, 9), less, last):
            fake.offer = offered(plane.bundle, wrong)
            for arguments in (("ca", "update-trust"), ("operator", "renew"), ("operator", "renew", "--out", scratch("out") / "n")):
                error = operator.run(*arguments, code=1, url=fake.url).error()
                assert error["code"] == "trust_refused" and "revocation list" in error["message"], error
        for none in (b"", listed(Authority(), 2**41, 7)):
            fake.offer = offered(plane.bundle, none)
            assert not operator.run("ca", "update-trust", url=fake.url).json()["crls_changed"]
        assert operator.files() == kept
        fake.offer = offered(plane.bundle, listed(signer, 2**40 + 1, 7))
        operator.run("ca", "update-trust", url=fake.url)
        assert numbers(operator.lists.read_bytes()) == [2**40 + 1]
    # The true control plane has no list, and takes none away.
    operator.run("operator", "renew")
    assert numbers(operator.lists.read_bytes()) == [2**40 + 1]
    good = operator.lists.read_bytes()
    # Another character of the signature than the one there, whatever that is.
    other = b"B" if good[-60:-59] == b"A" else b"A"
    spoilt = (b"-----BEGIN X509 CRL-----\nbm8=\n", b"garbage", b"", good.replace(b"X509 CRL", b"X509 CRK"), good[:-60] + other + good[-59:])
    for text in (*spoilt, None):
        operator.lists.unlink()
        if text is None:
            operator.lists.symlink_to("/nonexistent/lists")
        else:
            operator.lists.write_bytes(text)
        for command in (("node", "list"), ("ca", "update-trust"), ("operator", "renew")):
            error = operator.run(*command, code=2).error()
            path = operator.lists.parent.resolve() / operator.lists.name
            assert error["message"].startswith(str(path)) and "enlist ca update-trust" in error["hint"], error


def test_a_pin_that_renews_into_a_directory_takes_what_the_pinned_ca_vouches_for(plane):
    """By the root's pin; a thief's offer is refused there too."""
    operator, thief = Operator(plane), Thief(plane)
    own = ("--cert", operator.out / "cert.pem", "--key", operator.out / "key.pem", "--ca-pin", plane.pin, "--json")
    with FakePlane(thief, offered(thief.own_root())) as fake:
        done = run(ENLIST, "operator", "renew", "--out", scratch("out") / "n", "--server", fake.url, *own)
        assert done.code == 1 and done.error()["code"] == "trust_refused", done
    out = scratch("out") / "n"
    done = run(ENLIST, "operator", "renew", "--out", out, "--server", plane.url, *own)
    assert done.code == 0 and fingerprints((out / "ca.pem").read_bytes()) == operator.trusted(), done


def test_a_ca_file_is_brought_up_to_date_without_a_credential(own_plane):
    """By `--server` and `--ca` alone: nothing is sent that says who asks, so nothing of it is needed. Other commands need one."""
    plane = own_plane
    ca = scratch("ca") / "ca.pem"
    ca.write_bytes(plane.bundle)
    reach = ("--server", plane.url, "--ca", ca, "--json")
    done = run(ENLIST, "ca", "update-trust", *reach)
    assert done.code == 0 and not done.json()["crls_changed"], done
    plane.cli("ca", "import-crl", "--file", denied(plane, Thief(plane).certificate))
    done = run(ENLIST, "ca", "update-trust", *reach)
    assert done.code == 0 and done.json()["crls_changed"] and (ca.parent / "ca-crls.pem").exists(), done
    prepare_root(plane)
    done = run(ENLIST, "ca", "update-trust", *reach)
    assert done.code == 0 and len(done.json()["roots_added"]) == 1 and len(fingerprints(ca.read_bytes())) == 2, done
    for command in (("node", "list"), ("operator", "renew"), ("ca", "show")):
        refused = run(ENLIST, *command, *reach)
        assert refused.code == 2 and "credential" in refused.error()["message"] and "--cert" in refused.error()["hint"], refused


def test_what_changes_at_an_operators_machine_fits_a_terminal(own_plane):
    """80 columns: no word is cut."""
    plane, home = own_plane, scratch("home")
    operator = Operator(plane)
    own = ("--server", plane.url, "--cert", operator.out / "cert.pem", "--key", operator.out / "key.pem", "--ca", operator.ca)
    env = {"XDG_CONFIG_HOME": str(home)}
    prepare_root(plane)
    for command in (
        ("operator", "renew", "--out", operator.out.parent / "a-directory-with-a-name-that-needs-room"),
        ("ca", "update-trust"),
        ("context", "add", "production"),
        ("context", "add", "spare"),
        ("operator", "renew"),
    ):
        screen = shown(ENLIST, *command, *own, env=env)
        assert not [line for line in screen.too_wide() if " " in line.strip()], screen.written
    screen = shown(ENLIST, "operator", "add", "somebody", "--role", "viewer", "--out", home / "somebody", "--dir", plane.dir)
    assert not screen.too_wide(), screen.written
