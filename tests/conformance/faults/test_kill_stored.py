"""SIGKILL at every step of what changes all of a data directory at once: taking an older one in, and another key.

Some of the steps in CI, drawn with a seed that is printed; all of them in `just soak`.
"""

import contextlib
import json
import os
import random
import shutil
import tarfile

import evidence
import native
import steps
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from machine import ROOT, scratch, until
from old_directory import FACTS, KEK
from plane import ControlPlane

COUNT = int(os.environ.get("ENLIST_KILL_STEPS", "8"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
ARCHIVE = ROOT / "tests" / "fixtures" / "directory-1.tar.gz"


def drawn(found: list) -> list:
    print(f"ENLIST_SEED={SEED} ENLIST_KILL_STEPS={COUNT}, {len(found)} steps")
    return found if len(found) <= COUNT else sorted(random.Random(SEED).sample(found, COUNT), key=found.index)


def unpack(plane) -> None:
    shutil.rmtree(plane.dir, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(plane.base, filter="data")
    for path in (plane.dir, *plane.dir.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def sealed_before(directory, issuers: list[str]) -> list[str]:
    """Files with something in them that a version before authentication sealed."""
    cipher, found = AESGCM(bytes.fromhex(KEK["ENLIST_KEK"])), []
    purposes = [b"enlist seal v1/" + name.encode() for name in ("audit", "server", *(f"issuer/{id}" for id in issuers))]
    for path in (path for path in directory.rglob("*") if path.is_file()):
        data, start = path.read_bytes(), -1
        while (start := data.find(b"\x01", start + 1)) >= 0:
            for length in (138, 150, 67):
                for purpose in purposes:
                    with contextlib.suppress(InvalidTag, ValueError):
                        cipher.decrypt(data[start + 1 : start + 13], data[start + 13 : start + 29 + length], purpose)
                        found.append(path.name)
    return found


def test_killed_while_an_older_directory_is_taken_in(programs):
    """The next start ends with everything there, and leaves nothing that the older version has sealed. Proves I8."""
    plane = ControlPlane("old.example", kek="env:ENLIST_KEK", env=KEK)
    evidence.key("kek", bytes.fromhex(KEK["ENLIST_KEK"]))
    accept = ("--accept-clock",)
    unpack(plane)
    facts = json.loads((plane.base / FACTS).read_text())
    log = plane.base / "strace"
    steps.launch(plane, "-o", log, "-e", f"trace={steps.CALLS}", arguments=accept)
    until(plane.ready_line, "it has taken the directory in")
    issuers = [issuer["id"] for issuer in plane.api("GET", "/v1/ca").json()["issuers"]]
    steps.end(plane)
    found = steps.seen(log, plane.dir)
    assert {"rename", "fsync"} <= {call for call, _, _ in found} and len(found) > 30, found
    unpack(plane)
    assert sealed_before(plane.dir, issuers), "they are found where they are"
    kills = 0
    for step in drawn(found):
        unpack(plane)
        steps.launch(plane, *steps.options_of(step), arguments=accept)
        until(lambda: plane.process.poll() is not None or b"ready" in plane.out.read_bytes(), "it was killed or is ready")
        kills += plane.process.poll() is not None
        steps.end(plane)
        plane.start(*accept)
        try:
            nodes = {node["node_id"]: [node["generation"], node["cert_serial"]] for node in plane.nodes()}
            assert nodes == {node: rest for node, (_, *rest) in facts["nodes"].items()}, step
            assert plane.cli("audit", "verify").json()["ok"], step
            assert not (plane.dir / "upgrade").exists() and (plane.dir / "VERSION").read_text() == "2\n", step
            plane.restart(*accept)
            assert not sealed_before(plane.dir, issuers), step
        finally:
            plane.kill()
    print(f"\n{kills} kills")
    assert kills >= min(COUNT, len(found)) // 2, kills
    plane.close()


def rewrapping(plane, options: tuple, next_kek, listen: tuple) -> bool:
    """Whether a control plane came through a change of its key-encryption key."""
    steps.launch(plane, *options, arguments=listen)
    until(lambda: plane.process.poll() is not None or plane.ready_line(), "it is ready, or was killed")
    if plane.process.poll() is None:
        plane.cli("ca", "rewrap", "--kek", f"file:{next_kek}", ok=False)
    survived = plane.process.poll() is None
    if not survived or b"ready" not in plane.out.read_bytes():
        until(lambda: plane.process.poll() is not None, "strace has ended")
    steps.end(plane)
    return survived


def test_killed_while_the_key_encryption_key_is_changed(programs):
    """Whichever of the two keys is the right one then, the next start opens the log and every key with it, and no note of
    the change is left. Proves I8."""
    plane = ControlPlane().found().start()
    host, gone = native.enroll(plane), native.enroll(plane)
    host.confirm(), gone.confirm()
    plane.api("POST", f"/v1/nodes/{gone.id}/revoke", {"reason": "stolen"})
    plane.stop()
    kept = scratch("kept") / "d"
    shutil.copytree(plane.dir, kept)

    def again() -> None:
        shutil.rmtree(plane.dir)
        shutil.copytree(kept, plane.dir)

    log = plane.base / "strace"
    assert rewrapping(plane, ("-o", log, "-e", f"trace={steps.CALLS}"), plane.base / "next", ())
    found = [step for step in steps.seen(log, plane.dir) if "/keys" in step[1] or "enlist." in step[1]]
    assert len({path for _, path, _ in found}) >= 5, found
    kills = 0
    for number, step in enumerate(drawn(found)):
        # Which thread comes by how often is not the same each time.
        for _ in range(3):
            again()
            if not rewrapping(plane, steps.options_of(step), plane.base / f"next-{number}", ()):
                kills += 1
                break
        for _ in range(2):
            plane.start()
            try:
                assert native.alert(plane, host.files) is None, step
                assert native.alert(plane, gone.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED", step
                assert plane.cli("audit", "verify").json()["ok"], step
                assert not list((plane.dir / "keys").glob("*.next")), step
                native.enroll(plane).confirm()
            finally:
                plane.kill()
    print(f"\n{kills} kills")
    assert kills >= min(COUNT, len(found)) // 2, kills
    plane.close()
