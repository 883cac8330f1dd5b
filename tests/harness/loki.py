"""A stand-in for Loki: the push API, and the ways in which it fails."""

import bisect
import collections
import http.server
import json
import socket
import ssl
import threading

from daemons import lasting_port

PUSH = "/loki/api/v1/push"


class Loki:
    """Takes pushes as Loki does: labels, nanoseconds, duplicates dropped, order within a stream.

    `behave` decides what becomes of a push: it gets its lines and gives back None to take it, or (status, headers, body), or one
    of the words `hang`, `garbage`, `close`, `continue` (informational heads without end; `ended` counts those that the other
    side has ended). What was taken in any life is in `arrived`, in order; `streams` is lost at a restart.
    """

    def __init__(self, context: ssl.SSLContext | None = None):
        self.context = context
        self.behave = lambda _lines: None
        self.arrived: list[str] = []
        self.ever: set[tuple] = set()
        self.newest: dict[tuple, int] = {}
        self.faults: list[str] = []
        self.requests: list[dict] = []
        self.attempts = 0
        self.ended = 0
        self.released = threading.Event()
        self.lock = threading.Lock()
        # It stops and comes back, and whoever forwards asks there meanwhile.
        self.port = lasting_port()
        self.server = None
        self.start()

    def start(self) -> "Loki":
        """Empty, at the address that it had before."""
        self.streams = collections.defaultdict(list)
        self.held: set[tuple] = set()
        loki = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self):
                loki.serve(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        if self.context:
            self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def serve(self, request: http.server.BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        with self.lock:
            self.attempts += 1
            self.requests.append({"path": request.path, "headers": dict(request.headers), "bytes": len(body)})
            try:
                entries = self.parse(request, body)
            except (ValueError, KeyError, TypeError, AssertionError) as error:
                self.faults.append(f"not what Loki takes: {error!r}: {body[:200]!r}")
                return self.answer(request, 400, body=str(error))
            chosen = self.behave([line for _, _, line in entries])
        if chosen == "hang":
            self.released.wait(30)
            return None
        if chosen == "garbage":
            request.wfile.write(b"\x00\x01 what would you like to hear?\r\n\r\n")
            request.close_connection = True
            return None
        if chosen == "continue":
            return self.stream_heads(request)
        if chosen == "close":
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True
            return None
        if chosen is not None:
            return self.answer(request, *chosen)
        with self.lock:
            self.take(entries)
        return self.answer(request, 204)

    def stream_heads(self, request) -> None:
        """`100 Continue` for as long as somebody reads."""
        request.close_connection = True
        heads = b"HTTP/1.1 100 Continue\r\n\r\n" * 4096
        try:
            while not self.released.is_set():
                request.connection.sendall(heads)
        except TimeoutError:
            return
        except OSError:
            with self.lock:
                self.ended += 1

    def parse(self, request, body: bytes) -> list[tuple]:
        """The lines of a push in the order of the trail, or a complaint."""
        assert request.path == PUSH, request.path
        assert request.headers["Content-Type"] == "application/json"
        push = json.loads(body)
        assert set(push) == {"streams"} and push["streams"]
        entries = []
        for stream in push["streams"]:
            assert set(stream) == {"stream", "values"} and stream["values"]
            labels = stream["stream"]
            assert set(labels) == {"job", "domain", "event_type"} and labels["job"] == "enlist"
            for time, line in stream["values"]:
                assert isinstance(time, str) and isinstance(line, str) and len(time) == 19
                assert json.loads(line)["event_type"] == labels["event_type"]
                entries.append((tuple(sorted(labels.items())), int(time), line))
        numbers = sorted(json.loads(line)["seq"] for _, _, line in entries)
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "consecutive lines"
        return sorted(entries, key=lambda entry: json.loads(entry[2])["seq"])

    def take(self, entries: list[tuple]) -> None:
        """Duplicates are dropped. What is sent again after it was lost here is sorted in, as Loki does within an hour; what is
        new must be newer than everything in its stream, in this life and before."""
        for labels, time, line in entries:
            self.arrived.append(line)
            entry = (labels, time, line)
            if entry not in self.ever:
                if self.newest.get(labels, 0) >= time:
                    self.faults.append(f"out of order in {labels}: {line}")
                self.newest[labels] = max(time, self.newest.get(labels, 0))
                self.ever.add(entry)
            if entry not in self.held:
                self.held.add(entry)
                bisect.insort(self.streams[labels], (time, line))

    def answer(self, request, status: int, headers: dict | None = None, body: str = "") -> None:
        request.send_response(status)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        if status != 204:
            request.send_header("Content-Length", str(len(body.encode())))
        request.end_headers()
        if status != 204:
            request.wfile.write(body.encode())

    def first_arrivals(self) -> list[str]:
        """Every line that has arrived, in the order in which it did first."""
        with self.lock:
            return list(dict.fromkeys(self.arrived))

    def repeated(self) -> int:
        with self.lock:
            return len(self.arrived) - len(set(self.arrived))

    def __enter__(self) -> "Loki":
        return self

    def __exit__(self, *_) -> None:
        self.released.set()
        self.stop()


def seq(line: str) -> int:
    return json.loads(line)["seq"]
