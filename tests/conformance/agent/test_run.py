"""Running: ready, clock, stop."""

import glob
import time

import pytest

import evidence
from daemons import lasting_port
from machine import missing
from plane import STOP_LIMIT
from starts import refused


def test_standard_output_is_one_line(stopped):
    """`ready https://ADDR:PORT` and nothing else; the port is the one that was chosen."""
    stopped.start()
    assert stopped.https("GET", "/readyz").status == 200
    stopped.stop()
    assert stopped.out.read_text() == f"ready {stopped.url}\n"
    assert stopped.url.startswith("https://127.0.0.1:") and stopped.port > 0


def faketime(offset: str) -> dict:
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not found:
        missing("libfaketime")
    return {"LD_PRELOAD": found[0], "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.mark.parametrize("offset", ["-10m", "-400d", "+31d"])
def test_a_wrong_clock_is_refused(stopped, offset):
    """5 min behind the last entry or 30 d ahead of it needs --accept-clock."""
    refused(stopped, env=faketime(offset), words=("clock", "--accept-clock"))


@pytest.mark.parametrize("offset", ["-2m", "+20d"])
def test_a_clock_that_may_be_right_is_taken(stopped, offset):
    """Within the limits it starts without a word."""
    stopped.start(env=faketime(offset))
    stopped.stop()


def test_a_clock_that_the_operator_vouches_for_is_taken(stopped):
    """`--accept-clock`, and time on record still never runs backwards."""
    stopped.start("--accept-clock", env=faketime("-10m"))
    stopped.mint()
    lines = stopped.audit()
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert stopped.cli("audit", "verify").json()["ok"]
    stopped.stop()


def test_sigterm_ends_it_in_time_with_open_connections(stopped):
    """0 within 10 s, although somebody holds connections, a watch and half a request."""
    import socket

    stopped.start()
    idle = socket.create_connection(("127.0.0.1", stopped.port))
    held = stopped.context().wrap_socket(
        socket.create_connection(("127.0.0.1", stopped.port)), server_hostname="127.0.0.1"
    )
    held.sendall(b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    watch = socket.socket(socket.AF_UNIX)
    watch.connect(str(stopped.dir / "operator.sock"))
    watch.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert watch.recv(100).startswith(b"HTTP/1.1 200")
    began = time.monotonic()
    stopped.stop()
    assert time.monotonic() - began <= STOP_LIMIT + 4
    assert not (stopped.dir / "operator.sock").exists()
    for connection in (idle, held, watch):
        connection.close()


def test_a_stale_socket_does_not_stand_in_the_way(stopped):
    """After SIGKILL the next start takes the socket over."""
    stopped.start()
    stopped.kill()
    assert (stopped.dir / "operator.sock").exists()
    stopped.start()
    assert stopped.cli("node", "list").code == 0


def test_it_tells_the_supervisor_when_it_is_ready(stopped):
    """sd_notify: READY=1 on NOTIFY_SOCKET when it serves."""
    import socket

    path = stopped.base / "n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(path))
        notify.settimeout(60)
        stopped.start(env={"NOTIFY_SOCKET": str(path)})
        said = b""
        while b"READY=1" not in said:
            said += notify.recv(4096) + b"\n"


def test_metrics_are_served_where_asked(stopped):
    """`--metrics ADDR:PORT`, in a form that a scraper reads; off unless given."""
    import re
    import urllib.request

    port = lasting_port()
    stopped.start("--metrics", f"127.0.0.1:{port}")
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    evidence.log("metrics").write_text(text)
    sample = re.compile(r'[a-zA-Z_:][\w:]*(\{([a-z_]\w*="[^"]*",?)*\})? [-+0-9.eE]+(inf|nan)?( \d+)?')
    for line in text.splitlines():
        assert not line or line.startswith("#") or sample.fullmatch(line), line
    assert "enlist_" in text
