"""A data directory as an older version leaves it, packed for the versions after it to start on.

`ENLIST_BIN_DIR=DIR python old_directory.py FILE.tar.gz` makes one with the programs in DIR: everything that changes the
registry is done at least once, and then the process is killed, so that the whole log is applied again at the next start.
Made once for each version that changes what is stored; what was made stays as it is.
"""

import json
import os
import sqlite3
import sys
import tarfile
import time
import zlib
from pathlib import Path

KEK = {"ENLIST_KEK": "5e" * 32}
#: What is packed beside the directory: the nodes, and the head of the trail, as they were at the end.
FACTS = "facts.json"


def lived() -> "ControlPlane":
    """A control plane with a history."""
    import hosts
    from daemons import Daemon
    from machine import until
    from plane import ControlPlane

    plane = ControlPlane("old.example", kek="env:ENLIST_KEK", env=KEK).found().start()
    for key, value in [
        ("profile.quick.lifetime", "60s"),
        ("profile.quick.renew_before", "55s"),
        ("liveness.grace", "2s"),
        ("renew.drain", "1s"),
        ("token.default_ttl", "10s"),
    ]:
        plane.policy(key, value)
    plane.cli("tenant", "create", "blue")
    for name, role in [("ann", "platform-admin"), ("bob", "viewer")]:
        plane.cli("operator", "add", name, "--role", role, "--out", plane.base / name)
    plane.cli("operator", "remove", "bob")
    key = plane.cli("operator", "key", "create", "cron", "--role", "operator", "--expires", "1h").json()
    plane.cli("operator", "key", "revoke", key["key_id"])
    unused = [plane.mint(expires="1h") for _ in range(2)]
    plane.cli("token", "revoke", unused[0]["token_id"])
    renewing = Daemon(plane, plane.token(profile="quick", node="renewing")).start().wait_connected()
    first = renewing.serial()
    until(lambda: renewing.serial() != first, "it has renewed")
    for act in (["drain", "--within", "1h"], ["undrain"], ["quarantine"], ["release"], ["rotate"]):
        plane.cli("node", act[0], "renewing", *act[1:])
    for node in ("revoked", "gone", "again", "kept"):
        enroll(plane, node)
    plane.cli("node", "revoke", "revoked", "--reason", "stolen")
    plane.cli("node", "decommission", "gone")
    plane.cli("node", "revoke", "again")
    plane.cli("node", "reinstate", "again")
    enroll(plane, "again")
    hosts.active(plane)
    hosts.active(plane)
    plane.cli("token", "create", "--tenant", "blue", "--expires", "10s")
    renewing.stop()
    until(lambda: plane.node("renewing")["state"] == "inactive", "silence was noticed")
    until(lambda: plane.audit("enrollment_token.expired"), "a token has expired")
    return plane


def enroll(plane, node: str) -> None:
    import agents
    from machine import scratch

    done = agents.enroll(plane, scratch("old"), token=plane.token(node=node, expires="1h"))
    assert done.code == 0, done


def pack(plane, file: Path) -> None:
    facts = {
        "nodes": {node["node_id"]: [node["state"], node["generation"], node["cert_serial"]] for node in plane.nodes()},
        "policy": plane.api("GET", "/v1/policy").json(),
    }
    plane.kill()
    (plane.base / FACTS).write_text(json.dumps(facts, indent=1))
    with tarfile.open(file, "w:gz") as archive:
        archive.add(plane.base / FACTS, FACTS)
        for path in sorted(plane.dir.rglob("*")):
            if path.is_file():
                archive.add(path, Path("d") / path.relative_to(plane.dir))


#: Where the log has the command that initialized the domain.
FOUNDING = 2


def under_own_root(plane) -> None:
    """The domain of an archive on its first day, in its old form, under a root whose key we have: those of archives are gone.

    The issuer keeps its key and gets a certificate of the new root. Everything keeps its length, so that the stored forms stay
    those of the old version to the byte.
    """
    import certs
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    with sqlite3.connect(plane.dir / "log.db") as log:
        (row,) = log.execute("SELECT row FROM entries WHERE idx = ?", (FOUNDING,)).fetchone()
        key = certs.ec_key()
        root = certs.x509.load_der_x509_certificate(field(row, b"root"))
        issuer = certs.x509.load_der_x509_certificate(field(row, b"certificate"))
        new_root = certified(root, key.public_key(), key)
        new_issuer = certified(issuer, issuer.public_key(), key)
        cipher, sealed = AESGCM(bytes.fromhex(KEK["ENLIST_KEK"])), field(row, b"sealed_key")
        secret = cipher.decrypt(sealed[1:13], sealed[13:], context(issuer))
        nonce = os.urandom(12)
        changes = [
            (sealed, sealed[:1] + nonce + cipher.encrypt(nonce, secret, context(new_issuer))),
            (certs.der(root), certs.der(new_root)),
            (certs.der(issuer), certs.der(new_issuer)),
            (issuer_id(issuer).encode(), issuer_id(new_issuer).encode()),
            (root.fingerprint(certs.SHA256), new_root.fingerprint(certs.SHA256)),
            (issuer.fingerprint(certs.SHA256), new_issuer.fingerprint(certs.SHA256)),
        ]
        payload = row[5:]
        for old, new in changes:
            assert payload.count(old) == 1 and len(old) == len(new)
            payload = payload.replace(old, new)
        log.execute("UPDATE entries SET row = ? WHERE idx = ?", (framed(payload), FOUNDING))
        log.execute("DELETE FROM entries WHERE idx > ?", (FOUNDING,))
        (committed,) = log.execute("SELECT row FROM meta WHERE key = 'committed'").fetchone()
        log.execute("UPDATE meta SET row = ? WHERE key = 'committed'", (framed(committed[5:-1] + bytes([FOUNDING])),))
        log.execute("UPDATE meta SET row = ? WHERE key = 'audit_seq'", (framed(bytes([0])),))
    log.close()
    for made_since in ("audit.db", "audit.db-shm", "audit.db-wal", "ca/server.pem", "keys/server.key.sealed"):
        (plane.dir / made_since).unlink(missing_ok=True)
    (plane.dir / "ca" / "bundle.pem").write_bytes(certs.pem(new_root))
    plane.founded = {"root_key_pem": certs.key_pem(key).decode(), "ca_pin": f"sha256:{certs.fingerprint(new_root)}"}


def certified(old, public_key, signer):
    """The same certificate for another key or of another signer, of the same length."""
    import certs
    from certs import x509

    while True:
        builder = x509.CertificateBuilder().subject_name(old.subject).issuer_name(old.issuer).public_key(public_key)
        builder = builder.serial_number(old.serial_number)
        builder = builder.not_valid_before(old.not_valid_before_utc).not_valid_after(old.not_valid_after_utc)
        for extension in old.extensions:
            value = extension.value
            if isinstance(value, x509.AuthorityKeyIdentifier):
                value = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
            elif isinstance(value, x509.SubjectKeyIdentifier) and public_key != old.public_key():
                value = x509.SubjectKeyIdentifier.from_public_key(public_key)
            builder = builder.add_extension(value, extension.critical)
        new = builder.sign(signer, certs.SHA256)
        # Signatures differ in length by a byte or two.
        if len(certs.der(new)) == len(certs.der(old)):
            return new


def issuer_id(certificate) -> str:
    import certs

    return certs.fingerprint(certificate)[:16]


def context(issuer) -> bytes:
    return f"enlist seal v1/issuer/{issuer_id(issuer)}".encode()


def framed(payload: bytes) -> bytes:
    """A row of the first stored form: version, checksum, MessagePack."""
    return b"\x01" + zlib.crc32(b"\x01" + payload).to_bytes(4, "little") + payload


def field(row: bytes, name: bytes) -> bytes:
    """The bytes of a field of MessagePack."""
    for kind, size in ((b"\xc4", 1), (b"\xc5", 2)):
        _, found, rest = row.partition(bytes([0xA0 + len(name)]) + name + kind)
        if found:
            return rest[size : size + int.from_bytes(rest[:size], "big")]
    raise AssertionError(f"no field {name}")


if __name__ == "__main__":
    began = time.monotonic()
    pack(lived(), Path(sys.argv[1]).resolve())
    print(f"made in {time.monotonic() - began:.0f} s")
