"""Client certificates that are made to be expensive, from somebody without any credential."""

import certs
import hostile
import native
import pytest
import svids
from certs import serialization, x509
from cryptography.hazmat.primitives.asymmetric import ec
from machine import until
from plane import ControlPlane
from spires import accepts

ROUNDS = 10
MOST = 0.1
"""CPU seconds that the server may spend on one hostile handshake: a plain one takes some milliseconds without
optimisation, on a machine that does other things as well; paths through 72 CAs took more than one second."""


def issuer_of(plane) -> x509.Name:
    """The issuing CA's name, as every server certificate shows it."""
    return certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())[1].subject


def shapes(plane) -> dict:
    known, web = issuer_of(plane), hostile.web()
    named = lambda **more: hostile.leaf(known, **more)  # noqa: E731
    return {
        "72 CAs that issue each other": hostile.files(*hostile.leaf(web[0].subject), web),
        "72 CAs, some under a known name": hostile.files(*hostile.leaf(web[0].subject), hostile.web(72, known)),
        "7 CAs that issue each other": hostile.files(*hostile.leaf(web[0].subject), web[:7]),
        "a known issuer's name": hostile.files(*named()),
        "400 URIs": hostile.files(*named(extensions=(hostile.many_names(400),))),
        "3,000 URIs": hostile.files(*named(extensions=(hostile.many_names(3000),))),
        "600 extensions": hostile.files(*named(extensions=hostile.many_extensions(600))),
        "an RSA key of 8192 bits": hostile.files(*named(key=hostile.giant_rsa())),
        "a signature of RSA-8192": hostile.files(*named(signer=hostile.giant_rsa())),
        "a P-521 key": hostile.files(*named(key=certs.ec_key(ec.SECP521R1()))),
    }


def test_no_certificate_of_a_stranger_costs_more_than_a_plain_one(plane):
    """Whatever is sent with a leaf is not used, and a leaf costs a signature check at most: every shape is refused at a
    price of the order of a plain handshake."""
    costs = {}
    for shape, identity in shapes(plane).items():
        rounds = 3 if "72" in shape else ROUNDS
        costs[shape], said = hostile.Shaken(plane.port, identity).cost(plane.process.pid, rounds)
        assert None not in said, f"{shape} was taken"
    dear = {shape: f"{cost * 1000:.0f} ms" for shape, cost in costs.items() if cost > MOST}
    assert not dear, dear


def test_a_client_may_send_its_chain_and_no_more_than_a_chain(plane):
    """A good leaf is taken alone, with its chain, and with other certificates, whatever they are; not with nine."""
    node = native.enroll(plane)
    leaf = certs.certificate(node.answer.certificate)
    for sent, expected in ((0, None), (7, None), (8, "SSLV3_ALERT_BAD_CERTIFICATE")):
        identity = hostile.files(leaf, node.key, hostile.web()[:sent])
        assert hostile.Shaken(plane.port, identity).once() == expected, sent
    assert native.alert(plane, node.files) is None


ANCHORS = 14
"""A bundle may have sixteen."""
MANY = 150
"""Handshakes, so that the CPU is measured to a few tenths of a millisecond for each."""


@pytest.fixture(scope="module")
def beside(programs):
    """A control plane that accepts a SPIRE trust domain with many CAs of one name, as SPIRE names them."""
    domain = svids.Domain(*(svids.ca(key_ids=False) for _ in range(ANCHORS)))
    plane = ControlPlane().found()
    accepts(plane, domain)
    plane.start()
    plane.policy("failures.per_minute", "0")
    yield plane, domain
    plane.close()


def test_no_svid_of_a_stranger_costs_more_than_two_signatures(beside):
    """CAs of the same name in the bundle and beside the SVID: paths between them are not tried out."""
    plane, domain = beside
    assert [one["kind"] for one in plane.api("GET", "/v1/ca").json()["issuers"]].count("spire") == ANCHORS
    strange = [svids.ca(key_ids=False) for _ in range(7)]
    path = [svids.ca()]
    path += [svids.ca(above=path[0]) for _ in range(2)]
    shapes = {
        "SVID alone": svids.svid(strange[0], domain.id("n1"), key_ids=False),
        "SVID with 7 CAs": svids.svid(strange[0], domain.id("n1"), sent=tuple(strange), key_ids=False),
        "SVID with a path of its own": svids.svid(path[1], domain.id("n1"), sent=tuple(path)),
    }
    plain = hostile.Shaken(plane.port, svids.svid(strange[0], "spiffe://nobody.example/enlist/n1"))
    base, _ = plain.cost(plane.process.pid, MANY)
    for shape, identity in shapes.items():
        cost, said = hostile.Shaken(plane.port, identity).cost(plane.process.pid, MANY)
        assert set(said) == {"TLSV1_ALERT_UNKNOWN_CA"}, (shape, set(said))
        # Fourteen checks for each of four certificates take ten milliseconds and more.
        assert cost < base + 0.004, f"{shape}: {cost * 1000:.1f} ms, and {base * 1000:.1f} ms for a plain one"


def test_an_svid_is_taken_by_the_one_path_that_its_certificates_name(beside):
    """Signed by a CA of the bundle or by intermediates below it, in any order; not with one missing or one that is no CA."""
    plane, domain = beside
    top = svids.ca()
    middle = svids.ca(above=top)
    low = svids.ca(above=middle)
    strange = [svids.ca() for _ in range(2)]
    before = domain.bundle.read_bytes()
    domain.bundle.write_bytes(before + certs.pem(top[0]))
    try:
        good = svids.svid(low, domain.id("n1"), sent=(low, middle))
        until(lambda: native.alert(plane, good) is None, "the bundle is read again")
        taken = {
            "directly": svids.svid(top, domain.id("n1")),
            "in another order": svids.svid(low, domain.id("n1"), sent=(middle, low)),
            "with a stranger's": svids.svid(low, domain.id("n1"), sent=(strange[0], low, middle)),
        }
        refused = {
            "one is missing": svids.svid(low, domain.id("n1"), sent=(low,)),
            "none is sent": svids.svid(low, domain.id("n1")),
            "a stranger's": svids.svid(strange[0], domain.id("n1"), sent=(strange[0], middle)),
            "too deep": svids.svid(low, domain.id("n1"), sent=(*strange, svids.ca(), low, middle)),
        }
        assert {name: native.alert(plane, files) for name, files in taken.items()} == dict.fromkeys(taken)
        assert {native.alert(plane, files) for files in refused.values()} == {"TLSV1_ALERT_UNKNOWN_CA"}
        leaf = svids.svid(top, domain.id("n2"))
        key = serialization.load_pem_private_key(leaf[1].read_bytes(), None)
        as_ca = certs.certificates(leaf[0].read_bytes())[0], key
        assert native.alert(plane, svids.svid(as_ca, domain.id("n1"), sent=(as_ca,))) is not None
    finally:
        domain.bundle.write_bytes(before)


def test_a_name_that_many_cas_share_still_leads_to_one_with_key_identifiers(beside):
    """SPIRE states them; without them two of the CAs of a name are tried."""
    plane, domain = beside
    fresh = svids.ca()
    before = domain.bundle.read_bytes()
    domain.bundle.write_bytes(before + certs.pem(fresh[0]))
    try:
        shown = svids.svid(fresh, domain.id("n1"))
        until(lambda: native.alert(plane, shown) is None, "the SVID is accepted")
    finally:
        domain.bundle.write_bytes(before)
