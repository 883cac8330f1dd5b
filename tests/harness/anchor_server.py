"""A server that keeps an anchor: GET answers with what was PUT last, and the ways in which it fails."""

import http.server
import ssl
import threading

from daemons import lasting_port


class AnchorServer:
    """`kept` is what was put there last; `status`, if set, is the answer to everything; `answer`, if set, that to GET."""

    def __init__(self, context: ssl.SSLContext | None = None):
        self.context, self.port = context, lasting_port()
        self.kept: bytes | None = None
        self.status: int | None = None
        self.answer: bytes | None = None
        self.asked: list[tuple] = []
        self.server = None
        self.start()

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}/anchors/one"

    def start(self) -> None:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 30

            def do_GET(self):
                owner.asked.append(("GET", self.path, dict(self.headers)))
                body = owner.answer if owner.answer is not None else owner.kept
                self.reply(owner.status or (404 if body is None else 200), body or b"")

            def do_PUT(self):
                owner.asked.append(("PUT", self.path, dict(self.headers)))
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if owner.status is None:
                    owner.kept = body
                self.reply(owner.status or 204, b"")

            def reply(self, status: int, body: bytes):
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", owner.url + "/other")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

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
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
