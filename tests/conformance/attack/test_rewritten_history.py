"""Whoever can write the data directory while it is stopped cannot rewrite what happened."""

import contextlib
import json
import os
import re

import native
import pytest
import tampering
from machine import scratch, until
from plane import ControlPlane

REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"


@pytest.fixture
def attacked():
    """A control plane with a revoked host, killed, so that its whole log is there."""
    plane = ControlPlane().found().start()
    plane.host = native.enroll(plane)
    plane.host.confirm()
    plane.api("POST", f"/v1/nodes/{plane.host.id}/revoke", {"reason": "stolen"})
    assert native.alert(plane, plane.host.files) == REVOKED
    plane.kill()
    yield plane
    plane.close()


def refused(plane, *words, code="store_unusable", arguments=()):
    """It is not started, and says why. Were it started, the revoked certificate would be seen to work."""
    plane.launch(*arguments)
    until(lambda: plane.process.poll() is not None or "ready https://" in plane.out.read_text(), "it has started or ended")
    if plane.process.poll() is None:
        if "ready https://" in plane.out.read_text():
            plane.start_seen = plane.url = plane.out.read_text().split()[1]
            alert = native.alert(plane, plane.host.files)
            verified = plane.cli("audit", "verify", ok=False).json()
            raise AssertionError(f"it started; revoked certificate: {alert}; audit verify: {verified}")
    said = plane.log()
    assert plane.process.returncode == 1, said
    for word in (code, *words):
        assert word in said, (word, said)


@pytest.mark.parametrize("older", [False, True], ids=["codes kept", "checksums right"])
def test_a_revocation_cannot_be_taken_out_of_the_log(attacked, older):
    """I3, I8: the revocation and all checkpoints are removed, the trail is made again."""
    assert tampering.forget(attacked.dir, b"\xa6revoke", b"record_checkpoint", older=older) >= 1
    refused(attacked, "log.db")


def test_a_directory_cannot_be_made_to_look_older_than_it_is(attacked):
    """Without the marker of authentication, and with a log in the older form, the sealed keys do not open."""
    tampering.forget(attacked.dir, b"\xa6revoke", b"record_checkpoint", older=True)
    (attacked.dir / "VERSION").write_text("1\n")
    refused(attacked, "VERSION")
    tampering.make_older(attacked.dir)
    refused(attacked, "made to look older")


@pytest.mark.parametrize("name, said", [("checkpoint", "not a regular file"), ("VERSION", "not a regular file"), ("keys/log.key.sealed", "log key")])
@pytest.mark.parametrize("special", ["pipe", "device"])
def test_a_pipe_or_a_device_in_the_directory_is_refused_at_once(attacked, name, said, special):
    """A start that opens it blindly waits for ever and hears no SIGTERM, or reads until the memory is full."""
    path = attacked.dir / name
    path.unlink()
    if special == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    refused(attacked, said, code="")


def test_a_store_put_back_from_an_older_copy_is_refused(attacked):
    """Log, trail and snapshots of before the revocation beside what the last checkpoint says."""
    plane = attacked.start()
    plane.stop()
    old = tampering.copy(plane.dir, scratch("old") / "d")
    plane.start()
    plane.host = native.enroll(plane)
    plane.host.confirm()
    plane.api("POST", f"/v1/nodes/{plane.host.id}/revoke", {"reason": "stolen"})
    plane.stop()
    for name in ("log.db", "audit.db", "snapshots"):
        path = plane.dir / name
        if path.is_dir():
            tampering.put_back(old / name, path)
        else:
            path.write_bytes((old / name).read_bytes())
    refused(plane, "checkpoint")


@pytest.fixture
def anchored():
    plane = ControlPlane().found()
    plane.anchor = plane.base / "anchor.json"
    plane.start("--anchor", plane.anchor)
    yield plane
    plane.close()


def revoked_since(plane) -> tuple:
    """A copy of before a revocation, and the host that is revoked since. The directory is stopped."""
    plane.host = native.enroll(plane)
    plane.host.confirm()
    token = plane.mint()
    plane.stop()
    old = tampering.copy(plane.dir, scratch("old") / "d")
    plane.start("--anchor", plane.anchor)
    plane.api("POST", f"/v1/nodes/{plane.host.id}/revoke", {"reason": "stolen"})
    plane.stop()
    return old, token


def test_a_whole_older_copy_is_refused_by_its_anchor(anchored):
    """Nothing inside of the directory can tell; `--accept-rollback` starts it, recorded, and no token of before is good."""
    plane = anchored
    old, token = revoked_since(plane)
    newer = tampering.copy(plane.dir, scratch("new") / "d")
    tampering.put_back(old, plane.dir)
    refused(plane, str(plane.anchor), "--accept-rollback", code="directory_rolled_back", arguments=("--anchor", plane.anchor))
    # Nor without the anchor that it has had.
    refused(plane, "anchor", code="anchor_unusable")
    plane.start("--anchor", plane.anchor, "--accept-rollback")
    (line,) = plane.audit("directory.rollback_accepted")
    assert line["anchor_seq"] > line["directory_seq"] - 1
    assert plane.token_state(token["token_id"]) == "revoked"
    plane.stop()
    plane.start("--anchor", plane.anchor)
    plane.stop()
    # The history that was given up is another one now.
    tampering.put_back(newer, plane.dir)
    refused(plane, code="directory_rolled_back", arguments=("--anchor", plane.anchor))


def test_an_anchor_that_is_lost_or_changed_is_refused_with_a_remedy(anchored):
    plane = anchored
    plane.host = native.enroll(plane)
    plane.stop()
    good = plane.anchor.read_text()
    given = ("--anchor", plane.anchor)
    changed = {**json.loads(good), "seq": 1}
    for text in ("", "{}", good[:-20], json.dumps(changed)):
        plane.anchor.write_text(text)
        refused(plane, str(plane.anchor), code="anchor_unusable", arguments=given)
    plane.anchor.unlink()
    refused(plane, "missing", code="anchor_unusable", arguments=given)
    plane.anchor.write_text(good)
    plane.start(*given)


def test_an_anchor_of_another_domain_is_refused(anchored):
    plane = anchored
    plane.host = native.enroll(plane)
    plane.stop()
    with ControlPlane() as other:
        other.stop()
        other.start("--anchor", other.base / "anchor.json")
        other.stop()
        plane.anchor.write_bytes((other.base / "anchor.json").read_bytes())
        refused(plane, "another domain", code="directory_rolled_back", arguments=("--anchor", plane.anchor))


def test_an_anchor_inside_of_the_data_directory_is_a_mistake(anchored):
    plane = anchored
    plane.stop()
    config = plane.dir / "enlist.toml"
    good = config.read_text()
    for value in (str(plane.dir / "anchor"), "http://elsewhere.example/anchor", "anchor"):
        config.write_text(good + f'\n[audit]\nanchor = "{value}"\n')
        for command in ("check", "run"):
            done = plane.cli("server", command, ok=False)
            assert done.code == 2 and "audit.anchor" in done.err + done.out, done
    config.write_text(good + f'\n[audit]\nanchor = "{plane.anchor}"\n')
    plane.start()
    before = plane.anchor.read_text()
    native.enroll(plane)
    plane.stop()
    assert plane.anchor.read_text() != before
    assert plane.anchor.stat().st_mode & 0o777 == 0o600


def test_an_anchor_that_cannot_be_written_stops_nothing(anchored):
    """While it runs the failure is logged and counted."""
    plane = anchored

    def is_blocked() -> bool:
        # The control plane may write it anew between the two.
        plane.anchor.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            plane.anchor.mkdir()
        return plane.anchor.is_dir()

    until(is_blocked, "a directory lies in the way")
    (plane.anchor / "x").write_text("")
    plane.host = native.enroll(plane)
    plane.host.confirm()
    plane.api("POST", f"/v1/nodes/{plane.host.id}/revoke", {"reason": "stolen"})
    failed = re.compile(rb"enlist_audit_anchor_failures_total [1-9]")
    until(lambda: failed.search(plane.api("GET", "/metrics").body), "the failure is counted")
    assert native.alert(plane, plane.host.files) == REVOKED
    plane.stop()
