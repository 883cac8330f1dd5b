"""Client certificates that are made to be expensive, from somebody without any credential."""

import certs
import hostile
import native
from certs import x509
from cryptography.hazmat.primitives.asymmetric import ec

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
