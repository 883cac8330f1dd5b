"""An anchor at a URL: a directory that is older than it is refused, and a server that is not there stops nothing but a start."""

import json

import native
import pytest
import tampering
from anchor_server import AnchorServer
from machine import scratch, secret, until
from plane import ControlPlane
from recorder import Recorder
from test_rewritten_history import refused


@pytest.fixture
def server():
    made = AnchorServer()
    yield made
    made.stop()


@pytest.fixture
def anchored(server, programs):
    plane = ControlPlane().found()
    plane.flags = ("--anchor", server.url)
    plane.start(*plane.flags)
    yield plane
    plane.close()


def anchored_seq(server) -> int:
    return json.loads(server.kept)["seq"]


def alerts(plane) -> list[dict]:
    return [alert for alert in plane.items("/v1/alerts") if alert["kind"] == "audit_anchor_failing"]


def test_an_older_copy_is_refused_by_the_anchor_at_its_url(anchored, server):
    """As with a file: `directory_rolled_back`, `--accept-rollback` starts it, and the anchor that is gone is `anchor_unusable`."""
    plane = anchored
    plane.host = native.enroll(plane)
    plane.host.confirm()
    plane.stop()
    old = tampering.copy(plane.dir, scratch("old") / "d")
    plane.start(*plane.flags)
    before = anchored_seq(server)
    plane.api("POST", f"/v1/nodes/{plane.host.id}/revoke", {"reason": "stolen"})
    until(lambda: anchored_seq(server) > before, "the revocation's checkpoint is at the anchor")
    plane.stop()
    tampering.put_back(old, plane.dir)
    refused(plane, server.url.rsplit("/", 2)[0], "--accept-rollback", code="directory_rolled_back", arguments=plane.flags)
    refused(plane, "anchor", code="anchor_unusable")
    kept, server.kept = server.kept, None
    refused(plane, "missing", code="anchor_unusable", arguments=plane.flags)
    server.kept = kept
    plane.start(*plane.flags, "--accept-rollback")
    (line,) = plane.audit("directory.rollback_accepted")
    assert line["anchor_seq"] > line["directory_seq"] - 1
    plane.stop()
    plane.start(*plane.flags)


def test_a_start_without_an_answer_is_refused_in_bounded_time(anchored, server):
    """Nobody there, another status, a redirect, an answer without end: the check is never left out silently."""
    plane = anchored
    plane.stop()
    server.stop()
    for more in ((), ("--accept-rollback",)):
        refused(plane, "cannot be read", code="anchor_unusable", arguments=(*plane.flags, *more))
    server.start()
    for status in (302, 403, 500):
        server.status = status
        refused(plane, str(status), code="anchor_unusable", arguments=plane.flags)
    assert not any(path.endswith("/other") for _, path, _ in server.asked), "redirects are not followed"
    server.status = None
    for answer in (b"{}", b"x" * 100_000):
        server.answer = answer
        refused(plane, "cannot be used", code="anchor_unusable", arguments=plane.flags)
    server.answer = None
    plane.start(*plane.flags)
    assert not plane.audit("directory.rollback_accepted"), "no token was made void for nothing"


def test_a_server_that_takes_nothing_stops_no_commit_and_raises_an_alert(anchored, server):
    """Tried again until it takes the newest checkpoint; then the alert is cleared."""
    plane = anchored
    plane.host = native.enroll(plane)
    plane.host.confirm()
    server.status = 500
    plane.api("POST", f"/v1/nodes/{plane.host.id}/revoke", {"reason": "stolen"})
    until(lambda: alerts(plane), "the alert is raised", 120)
    (alert,) = alerts(plane)
    assert alert["node_id"] is None and "500" in alert["detail"], alert
    native.enroll(plane).confirm()
    before, server.status = anchored_seq(server), None
    until(lambda: anchored_seq(server) > before, "the newest checkpoint arrives", 120)
    until(lambda: not alerts(plane), "the alert is over", 120)
    text = plane.api("GET", "/metrics").body.decode()
    (count,) = [line.split()[1] for line in text.splitlines() if line.startswith("enlist_audit_anchor_failures_total ")]
    assert float(count) >= 3


def test_the_server_is_verified_and_is_given_the_token(programs):
    """`anchor_ca_file` and `anchor_bearer_file`; another CA is refused, and so are both beside a file."""
    with Recorder() as recorder:
        context = recorder.context
    context.set_alpn_protocols(["http/1.1"])
    server = AnchorServer(context)
    plane = ControlPlane().found()
    toml = plane.dir / "enlist.toml"
    written = toml.read_text()
    base = scratch("anchor")
    (base / "ca.pem").write_bytes(recorder.ca_file.read_bytes())
    token = secret(base / "token", "hush-hush-anchor")
    table = f'\n[audit]\nanchor = "{server.url}"\nanchor_ca_file = "{base / "ca.pem"}"\nanchor_bearer_file = "{token}"\n'
    try:
        toml.write_text(written + table)
        plane.start()
        plane.stop()
        assert {headers.get("authorization") for _, _, headers in server.asked} == {"Bearer hush-hush-anchor"}
        assert anchored_seq(server) > 0
        (base / "ca.pem").write_bytes(plane.bundle)
        refused(plane, "cannot be read", code="anchor_unusable")
        toml.write_text(written + table.replace(server.url, str(base / "file")))
        done = plane.run_to_end()
        assert done.code == 2 and "audit.anchor_ca_file" in done.err and "audit.anchor_bearer_file" in done.err, done
        toml.write_text(written + '\n[audit]\nanchor = "http://anchors.example/x"\n')
        done = plane.run_to_end()
        assert done.code == 2 and "audit.anchor" in done.err and "https://" in done.err, done
    finally:
        plane.close()
        server.stop()
