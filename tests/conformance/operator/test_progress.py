"""Long work says how far it is, at a terminal, and leaves nothing of that on the screen."""

import http.server
import json
import socketserver
import threading

import pytest

from machine import ENLIST, run
from terminal import Terminal, plain

VERIFIED = {"ok": True, "first_seq": 1, "last_seq": 7, "head": "00", "checkpoint": 7, "fault": None}


class Slow:
    """An operator socket whose answers go on until somebody has seen enough."""

    def __init__(self, place):
        self.path, self.enough = place / "slow.sock", threading.Event()
        enough = self.enough

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Connection", "close")
                if self.path.startswith("/v1/audit/export"):
                    self.send_header("Content-Type", "application/jsonl")
                    self.end_headers()
                    while not enough.wait(0.02):
                        self.wfile.write(b'{"seq":1}\n')
                        self.wfile.flush()
                else:
                    enough.wait()
                    self.send_header("Content-Type", "application/json")
                    self.end_headers()
                    self.wfile.write(json.dumps(VERIFIED).encode())

            def log_message(self, *_):
                pass

            def address_string(self):
                return "socket"

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(self.path), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> "Slow":
        return self

    def __exit__(self, *_) -> None:
        self.enough.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("columns", [80, 140])
def test_an_export_counts_its_lines(place, columns):
    """Here it ends without the signed footer, which is an error on a line of its own."""
    with Slow(place) as slow:
        command = (ENLIST, "audit", "export", "--out", place / "out", "--socket", slow.path)
        with Terminal(*command, columns=columns) as terminal:
            terminal.until("exporting: ")
            terminal.until(" lines")
            slow.enough.set()
            assert terminal.end() == 1
            assert not [line for line in drawn(terminal) if "exporting" in line], terminal.written
            assert any(line.startswith("error: truncated") for line in drawn(terminal)), terminal.written
            assert not terminal.too_wide()


def test_a_verification_says_how_long_it_has_taken(place):
    with Slow(place) as slow:
        with Terminal(ENLIST, "audit", "verify", "--socket", slow.path) as terminal:
            terminal.until("verifying: ")
            slow.enough.set()
            assert terminal.end() == 0
            assert not [line for line in drawn(terminal) if "verifying" in line], terminal.written


def test_without_a_terminal_nothing_is_drawn(place):
    """Pipes and `--json` get the result alone."""
    with Slow(place) as slow:
        threading.Timer(1.0, slow.enough.set).start()
        done = run(ENLIST, "audit", "verify", "--socket", slow.path)
        assert done.code == 0 and "verifying" not in done.err + done.out
        with Terminal(ENLIST, "audit", "verify", "--json", "--socket", slow.path) as terminal:
            assert terminal.end() == 0
            assert "verifying" not in terminal.written and json.loads(plain(terminal.written)) == VERIFIED


def drawn(terminal) -> list[str]:
    """The lines as they stand at the end: what was erased is gone."""
    kept = terminal.written.replace("\r\n", "\n").split("\n")
    return [plain(line.rsplit("\x1b[K", 1)[-1]).rsplit("\r", 1)[-1] for line in kept]
