"""What is open to whom: public paths, the operator socket, ids, time and events."""

import json
import re
import subprocess

import pytest

import native
from machine import PATIENCE, tool
from operators import curl


def test_answers_carry_ids_and_time(plane):
    """X-Request-Id (the caller's own if well formed), X-Server-Time in milliseconds, Date."""
    _, headers, _ = curl(plane, "GET", "/healthz", "-H", "X-Request-Id: abc-123")
    assert headers["x-request-id"] == "abc-123"
    assert re.fullmatch(r"\d{13}", headers["x-server-time"]) and headers["date"]
    for bad in ("a b", "x" * 300):
        _, headers, _ = curl(plane, "GET", "/healthz", "-H", f"X-Request-Id: {bad}")
        assert headers["x-request-id"] not in (bad, "")
    status, headers, body = curl(plane, "GET", "/v1/nodes", "-H", "X-Request-Id: mine-1")
    assert status == 401 and headers["x-request-id"] == json.loads(body)["error"]["request_id"] == "mine-1"


def test_the_public_paths_are_public(plane):
    """Health, readiness and the description of the API need nothing; metrics do not leave the socket."""
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert curl(plane, "GET", path)[0] == 200
    document = json.loads(curl(plane, "GET", "/openapi.json")[2])
    assert document["openapi"].startswith("3.") and "/v1/tokens" in document["paths"]
    assert curl(plane, "GET", "/metrics")[0] in (401, 403, 404)
    assert plane.api("GET", "/metrics").status == 200
    assert json.loads(curl(plane, "GET", "/readyz")[2])["ready"] is True


def test_http2_serves_the_same_api(plane):
    """curl with HTTP/2 gets what HTTP/1.1 gets."""
    done = tool(
        "curl",
        "-sS",
        "--http2",
        "--cacert",
        plane.dir / "ca" / "bundle.pem",
        "-w",
        "%{http_version} %{http_code}",
        "-o",
        "/dev/null",
        f"{plane.url}/healthz",
    )
    assert done.out == "2 200"


def test_the_directory_is_closed_to_others(plane):
    """DIR 0750, keys 0700 with nothing readable in it, operator.sock 0660."""
    mode = lambda path: path.stat().st_mode & 0o777
    assert mode(plane.dir) == 0o750
    assert mode(plane.dir / "keys") == 0o700
    assert mode(plane.dir / "operator.sock") == 0o660
    assert all(mode(path) & 0o077 == 0 for path in (plane.dir / "keys").rglob("*") if path.is_file())
    assert mode(plane.dir / "ca" / "bundle.pem") & 0o444 == 0o444


def test_strangers_on_the_machine_are_refused_on_the_socket(plane):
    """Another user who could open the socket still is not an operator."""
    import os
    import stat

    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    script = (
        "import socket,sys\n"
        "s=socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[1])\n"
        "s.sendall(b'GET /v1/nodes HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "d=b''\n"
        "try:\n"
        "    while True:\n"
        "        c=s.recv(65536)\n"
        "        if not c: break\n"
        "        d+=c\n"
        "except ConnectionError: pass\n"
        "print(d.decode()[:300])\n"
    )
    socket_file = plane.dir / "operator.sock"
    doors = [plane.base, plane.dir]
    before = [stat.S_IMODE(path.stat().st_mode) for path in doors]
    for path, mode in zip(doors, before):
        path.chmod(mode | 0o005)
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
    try:
        done = subprocess.run(
            [python, "-c", script, str(socket_file)],
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        for path, mode in zip(doors, before):
            path.chmod(mode)
    assert " 200 " not in done.stdout.split("\n")[0], done.stdout
    assert '"items"' not in done.stdout


def test_events_are_told_as_they_happen(plane):
    """`/v1/events`: server-sent events, of the kind that /openapi.json describes."""
    import socket

    described = json.dumps(plane.https("GET", "/openapi.json").json()["paths"]["/v1/events"])
    with socket.socket(socket.AF_UNIX) as watch:
        watch.settimeout(PATIENCE)
        watch.connect(str(plane.dir / "operator.sock"))
        watch.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""

        def read(wanted: bytes) -> None:
            nonlocal received
            while wanted not in received:
                data = watch.recv(65536)
                assert data, "the stream ended"
                received += data

        read(b"\r\n\r\n")
        assert b"text/event-stream" in received
        node = native.enroll(plane)
        read(node.id.encode())
        read(b"}\n\n")
    events = [json.loads(line[5:]) for line in received.decode().split("\n") if line.startswith("data:")]
    assert any(event.get("node_id") == node.id for event in events), events
    if "audit line" in described:
        assert all({"seq", "event_type", "hash"} <= event.keys() for event in events), events[:1]
