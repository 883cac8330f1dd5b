"""Every certificate of a domain, as openssl and pkilint see it."""

import json
import sys

import pytest

import certs
import evidence
import native
from certs import x509
from machine import missing, missing_pkilint, scratch, tool
from plane import ControlPlane

HOUR, DAY, YEAR = 3600, 86400, 365 * 86400
SKEW = 60
"""A leaf begins a minute before it was signed, for clocks that are late."""
CLASSES = {"root": 10 * YEAR, "intermediate": YEAR, "server": YEAR}


@pytest.fixture(scope="module")
def plane():
    running = ControlPlane(init=("--name", "cp.example", "--name", "10.1.2.3"))
    with running:
        yield running


@pytest.fixture(scope="module")
def node(plane):
    return native.enroll(plane)


@pytest.fixture(scope="module")
def chain(plane, node):
    """Every certificate by its place in the hierarchy."""
    issuers = certs.certificates(node.answer.chain)
    (root,) = certs.certificates(node.answer.bundle)
    server = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())[0]
    assert len(issuers) == 1
    return {
        "root": root,
        "intermediate": issuers[0],
        "server": server,
        "leaf": certs.certificate(node.answer.certificate),
    }


def extension(cert, kind):
    return cert.extensions.get_extension_for_class(kind)


def exported(plane, *options) -> bytes:
    from machine import ENLIST, run

    done = run(ENLIST, "ca", "export", "--dir", plane.dir, *options)
    assert done.code == 0, done
    return done.out.encode()


def test_openssl_verifies_a_node_against_the_export(plane, node):
    """`openssl verify -CAfile <ca export>` takes a node's leaf for a client, and never for a server."""
    leaf = node.answer.certificate.encode()
    anchors = exported(plane)
    assert certs.verifies(leaf, anchors, "-x509_strict", "-purpose", "sslclient")
    assert not certs.verifies(leaf, anchors, "-purpose", "sslserver")


def test_openssl_verifies_a_node_with_the_chain_it_was_given(node):
    """Root from the bundle, intermediate from the chain: nothing else is needed."""
    place = scratch()
    (place / "chain.pem").write_text(node.answer.chain)
    leaf, root = node.answer.certificate.encode(), node.answer.bundle.encode()
    assert certs.verifies(leaf, root, "-untrusted", place / "chain.pem")
    assert not certs.verifies(leaf, root)


def test_openssl_verifies_the_server_by_the_bundle_alone(plane):
    """What a host must trust is DIR/ca/bundle.pem, and it is what `ca export --server` gives."""
    assert certs.certificates(exported(plane, "--server")) == certs.certificates(plane.bundle)
    done = tool(
        "openssl",
        "s_client",
        "-connect",
        f"127.0.0.1:{plane.port}",
        "-CAfile",
        plane.dir / "ca" / "bundle.pem",
        "-verify_return_error",
        "-verify_ip",
        "127.0.0.1",
        "-showcerts",
    )
    assert "Verify return code: 0 (ok)" in done.out, done
    assert "TLSv1.3" in done.out
    presented = certs.certificates(done.out[done.out.index("-----BEGIN") :])
    assert len(presented) == 3, "leaf, intermediate and root are presented"
    assert certs.fingerprint(presented[2]) == plane.pin.removeprefix("sha256:")
    server = (plane.dir / "ca" / "server.pem").read_bytes()
    assert certs.certificates(server)[0] == presented[0]
    assert certs.verifies(server, exported(plane), "-purpose", "sslserver")
    assert not certs.verifies(server, exported(plane), "-purpose", "sslclient")


def test_openssl_verifies_an_operator(plane):
    """An operator's certificate is a client's, named by its SPIFFE id, and comes with the chain it needs."""
    out = scratch() / "op"
    plane.cli("operator", "add", "carol", "--role", "viewer", "--out", out)
    leaf = (out / "cert.pem").read_bytes()
    assert certs.verifies(leaf, exported(plane), "-x509_strict", "-purpose", "sslclient")
    assert certs.uris(certs.certificates(leaf)[0]) == ["spiffe://test.example/operator/carol"]
    assert certs.certificates((out / "ca.pem").read_bytes()) == certs.certificates(plane.bundle)
    assert (out / "key.pem").stat().st_mode & 0o777 == 0o600
    assert len(certs.certificates(leaf)) == 2


def test_the_root_signs_intermediates_only(plane, chain):
    """P-256, ten years, path length 1, named by the pin that init printed."""
    root = chain["root"]
    basic = extension(root, x509.BasicConstraints)
    assert basic.critical and basic.value.ca and basic.value.path_length == 1
    usage = extension(root, x509.KeyUsage)
    assert usage.critical and usage.value.key_cert_sign and not usage.value.digital_signature
    assert root.public_key().curve.name == "secp256r1"
    assert root.subject == root.issuer
    assert plane.founded["ca_pin"] == plane.founded["root_fingerprint"] == "sha256:" + certs.fingerprint(root)


def test_the_intermediate_signs_leaves_only(chain):
    """Path length 0, one year. Proves PROBE-10."""
    middle = chain["intermediate"]
    basic = extension(middle, x509.BasicConstraints)
    assert basic.critical and basic.value.ca and basic.value.path_length == 0
    assert extension(middle, x509.KeyUsage).value.key_cert_sign
    assert middle.issuer == chain["root"].subject
    middle.verify_directly_issued_by(chain["root"])


@pytest.mark.parametrize("kind", CLASSES)
def test_certificates_of_the_control_plane_live_as_long_as_promised(chain, kind):
    """Root 10 years, intermediate and server 1 year; a leap day and the clock's minute are allowed for."""
    life = certs.seconds(chain[kind])
    assert abs(life - CLASSES[kind]) <= 3 * DAY + SKEW, life / DAY


def test_a_leaf_is_for_clients_only(chain, node):
    """Client-auth and nothing else, no CA, 24 h from signing. Proves PROBE-11."""
    leaf = chain["leaf"]
    assert list(extension(leaf, x509.ExtendedKeyUsage).value) == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    usage = extension(leaf, x509.KeyUsage)
    assert usage.critical and usage.value.digital_signature and not usage.value.key_cert_sign
    assert not extension(leaf, x509.BasicConstraints).value.ca if has(leaf, x509.BasicConstraints) else True
    assert certs.seconds(leaf) == 24 * HOUR + SKEW
    assert certs.public_der(leaf.public_key()) == certs.public_der(node.key)
    assert certs.serial(leaf) == node.serial


def has(cert, kind) -> bool:
    try:
        extension(cert, kind)
    except x509.ExtensionNotFound:
        return False
    return True


def test_a_leaf_is_named_by_its_spiffe_id(plane, chain, node):
    """One URI: spiffe://<trust domain>/tenant/<t>/agent/<n>; the record says the same."""
    expected = f"spiffe://test.example/tenant/default/agent/{node.id}"
    assert certs.uris(chain["leaf"]) == [expected] == [node.answer.spiffe_id]
    assert len(list(certs.names(chain["leaf"]))) == 1
    assert plane.node(node.id)["spiffe_id"] == expected
    assert plane.founded["trust_domain"] == "test.example"


@pytest.mark.parametrize(
    ("profile", "life", "cn"),
    [
        ("default", 24 * HOUR, None),
        ("plfm", 90 * DAY, None),
        ("pact", 3 * DAY, "pact-service-agent/{node}@test.example"),
        ("probectl", 24 * HOUR, None),
        ("taskrun", 7 * DAY, "worker:{node}"),
        ("taskrun-prod", 24 * HOUR, "worker:{node}"),
    ],
)
def test_a_profile_sets_lifetime_and_common_name(plane, profile, life, cn):
    """`token create --profile P`: the presets of the five documents, in the signed certificate itself."""
    minted = plane.cli("token", "create", "--profile", profile).json()
    evidence.token(minted["token"])
    assert minted["profile"] == profile
    node = native.enroll(plane, minted["token"])
    leaf = certs.certificate(node.answer.certificate)
    assert certs.seconds(leaf) == life + SKEW
    assert node.answer.profile == profile
    named = [name.value for name in leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if cn:
        assert named == [cn.format(node=node.id)]


def test_a_common_name_that_has_no_room_is_left_out(plane):
    """A CN longer than 64 bytes is left out, and then the SAN is critical."""
    long_id = "n" * 63
    node = native.enroll(plane, plane.token(profile="pact", node=long_id))
    leaf = certs.certificate(node.answer.certificate)
    assert not leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert extension(leaf, x509.SubjectAlternativeName).critical == (len(list(leaf.subject)) == 0)
    assert certs.uris(leaf) == [f"spiffe://test.example/tenant/default/agent/{long_id}"]


def test_the_server_has_every_name_it_is_called_by(chain):
    """localhost, 127.0.0.1, ::1, the listen address and each --name; server-auth. Proves TASK-03."""
    names = certs.names(chain["server"])
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "cp.example"}
    assert {str(ip) for ip in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "::1", "10.1.2.3"}
    assert list(extension(chain["server"], x509.ExtendedKeyUsage).value) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]


def lint(cert) -> list:
    """What pkilint has against a certificate: (code, what it is about)."""
    pytest.importorskip("pkilint") if not missing_pkilint() else missing("pkilint")
    file = scratch("lint") / "cert.pem"
    file.write_bytes(certs.pem(cert))
    done = tool(
        sys.executable, "-m", "pkilint.bin.lint_pkix_cert", "lint", "-s", "ERROR", "-f", "JSON", file, check=False
    )
    report = json.loads(done.out)
    return [
        (finding["code"], finding.get("message") or "")
        for result in report["results"]
        for finding in result["finding_descriptions"]
    ]


@pytest.mark.parametrize("kind", ["root", "intermediate", "server", "leaf", "operator"])
def test_pkilint_finds_no_error(plane, chain, kind):
    """But the two that it reports for every SPIFFE URI and for `localhost`, which are allowed by exact value."""
    if kind == "operator":
        out = scratch() / "op"
        plane.cli("operator", "add", "lint", "--role", "viewer", "--out", out)
        cert = certs.certificates((out / "cert.pem").read_bytes())[0]
    else:
        cert = chain[kind]
    uris = certs.uris(cert) if has(cert, x509.SubjectAlternativeName) else []
    allowed = [("pkix.invalid_uri_syntax", uri) for uri in uris]
    if kind == "server":
        allowed.append(("pkix.invalid_domain_name_syntax", "localhost"))
    left = [
        (code, message)
        for code, message in lint(cert)
        if not any(code == known and value in message for known, value in allowed)
    ]
    assert left == []
