"""What lies on the control plane's disk: opened with sqlite and with a cipher of our own, without the program's code."""

import contextlib
import shutil
import sqlite3

import pytest

import certs
import evidence
import probectl
from certs import x509
from machine import scratch
from plane import ControlPlane, kek_bytes
from starts import refused

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

YEAR = 365 * 86400


def values(directory) -> dict[str, bytes]:
    """Every value of every table, by sqlite alone."""
    found = {}
    for file in sorted(directory.glob("*.db")):
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
            for (table,) in store.execute("select name from sqlite_master where type = 'table'").fetchall():
                for row, cells in enumerate(store.execute(f'select * from "{table}"')):
                    for column, cell in enumerate(cells):
                        raw = cell if isinstance(cell, bytes) else str(cell).encode()
                        found[f"{file.name}/{table}/{row}/{column}"] = raw
    return found


def opened(kek: bytes, purpose: str, value: bytes) -> list[bytes]:
    """What of a value is sealed for this purpose: a version, a nonce, AES-256-GCM over a PKCS#8 key of P-256."""
    cipher, found = AESGCM(kek), []
    for start in range(len(value) - 29):
        if value[start] != 2:
            continue
        for length in (138, 150, 67):
            sealed = value[start + 13 : start + 13 + length + 16]
            with contextlib.suppress(InvalidTag):
                found.append(cipher.decrypt(value[start + 1 : start + 13], sealed, f"enlist seal v2/{purpose}".encode()))
    return found


@pytest.fixture(scope="module")
def stopped():
    """A control plane of the document with an agent in it, stopped: its store is whole and nobody writes to it."""
    plane = ControlPlane(domain="probectl").found().start()
    plane.agent = probectl.enroll(plane)
    plane.issuers = plane.api("GET", "/v1/ca").json()["issuers"]
    plane.stop()
    yield plane
    plane.close()


def test_the_intermediate_lives_a_year_and_signs_leaves_alone(stopped):
    """Proves PROBE-10: what it signs is no CA, whatever was asked for, and no verifier would take it for one."""
    server = certs.certificates((stopped.dir / "ca/server.pem").read_bytes())
    for cert, intermediate in (certs.certificates(stopped.agent.cert), server[:2]):
        assert abs(certs.seconds(intermediate) - YEAR) <= 86400
        limits = intermediate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert limits.critical and (limits.value.ca, limits.value.path_length) == (True, 0)
        assert cert.issuer == intermediate.subject
        assert cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
        assert not cert.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_who_asks_to_be_a_ca_is_none(plane_of_its_own):
    """Proves PROBE-10, PROBE-19: the extensions of a request are nobody's business but ours."""
    key = certs.ec_key()
    wanted = (
        x509.BasicConstraints(ca=True, path_length=None),
        x509.KeyUsage(False, False, False, False, False, True, True, False, False),
    )
    request = certs.csr(key, extensions=wanted)
    answer = probectl.ask_enroll(plane_of_its_own, probectl.token(plane_of_its_own), request)
    agent = probectl.Agent(plane_of_its_own, answer, key)
    assert agent.leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    # And if it signs all the same, nobody who knows the hierarchy believes it.
    victim = certs.ec_key()
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(agent.leaf.subject)
        .public_key(victim.public_key())
        .serial_number(7)
        .not_valid_before(agent.leaf.not_valid_before_utc)
        .not_valid_after(agent.leaf.not_valid_after_utc)
        .add_extension(certs.names(agent.leaf), critical=True)
        .sign(key, certs.SHA256)
    )
    import native

    chain = certs.pem(forged).decode() + agent.cert
    files = certs.identity(scratch("forged"), victim, chain)
    assert native.alert(plane_of_its_own, files) is not None


def test_the_key_is_sealed_and_nothing_else_is_there(stopped):
    """Proves PROBE-10, PROBE-26: with the key-encryption key the intermediate's key comes out of the store; without it
    there is ciphertext, in every value and every file, in whatever spelling one looks for the key."""
    kek = kek_bytes(stopped.kek_file.read_bytes())
    (issuer,) = [issuer for issuer in stopped.issuers if issuer["use"] == "node"]
    _, intermediate = certs.certificates(stopped.agent.cert)
    stored = values(stopped.dir)
    assert len(stored) > 10
    found = [key for value in stored.values() for key in opened(kek, f"issuer/{issuer['id']}", value)]
    assert found, "what is sealed is there, so that the rest of this test looks for the right thing"
    for raw in found:
        key = certs.serialization.load_der_private_key(raw, None)
        assert certs.public_der(key) == certs.public_der(intermediate)
    for wrong, purpose in ((bytes(32), f"issuer/{issuer['id']}"), (kek, "issuer/another"), (kek, "audit")):
        opening = [key for value in stored.values() for key in opened(wrong, purpose, value)]
        assert not set(opening) & set(found), purpose
    secret = key.private_numbers().private_value.to_bytes(32, "big")
    evidence.key("intermediate", secret)
    places = {**stored, **{str(path): path.read_bytes() for path in stopped.dir.rglob("*") if path.is_file()}}
    for what in (secret, kek):
        for spelling in evidence.spellings(what):
            assert not [place for place, data in places.items() if spelling in data]
    assert not [place for place, data in places.items() if b"PRIVATE KEY" in data]


def test_hashes_are_one_way(programs):
    """Proves PROBE-26: a token in the store is neither there nor computed back: what lies there enrolls nobody."""
    with ControlPlane(domain="probectl") as plane:
        minted = probectl.mint(plane)
        import hashlib

        secret = minted["token"]
        digest = hashlib.sha256(secret.encode())
        stored = values(plane.dir)
        assert [name for name, value in stored.items() if digest.digest() in value or digest.hexdigest().encode() in value]
        for spelling in (secret, secret.removeprefix("pjt_")):
            assert not [name for name, value in stored.items() if spelling.encode() in value]
        for guess in (digest.hexdigest(), f"pjt_{digest.hexdigest()}", f"sha256:{digest.hexdigest()}"):
            assert probectl.ask_enroll(plane, guess).status == 401
        assert probectl.ask_enroll(plane, secret).status == 200


def test_nobody_starts_it_without_the_key(stopped):
    """Proves PROBE-26: a stolen directory neither signs nor serves; and it changes nothing."""
    stolen = ControlPlane(domain="probectl")
    shutil.copytree(stopped.dir, stolen.dir)
    settings = stolen.dir / "enlist.toml"
    settings.write_text(settings.read_text().replace(str(stopped.kek_file), str(stolen.kek_file)))
    assert str(stolen.kek_file) in settings.read_text()
    refused(stolen, words=("key-encryption key",))
    stolen.kek_file.write_text("00" * 32)
    stolen.kek_file.chmod(0o600)
    refused(stolen, words=("key-encryption key",))
    # The very key is all that was missing.
    stolen.kek_file.write_bytes(stopped.kek_file.read_bytes())
    with contextlib.closing(stolen.start()):
        assert probectl.enroll(stolen).id
