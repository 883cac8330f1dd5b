"""Live streams of many nodes, all read by one thread: HTTP/2 frames on TLS sockets, without the threads that grpcio has for each stream."""

import selectors
import socket
import ssl
import struct
import threading
import time

import native
from machine import PATIENCE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK = END_STREAM = 1
END_HEADERS = 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def field(name: str, value: str) -> bytes:
    """Of a header, literally and without an index (RFC 7541, 6.2.2); both shorter than 127 bytes."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def request(authority: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": "/enlist.agent.v1.Agent/Live",
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return frame(HEADERS, END_HEADERS, 1, b"".join(field(*pair) for pair in fields.items()))


class LightStream:
    """One of them. It is greeted once the control plane has sent a message, and ended at whatever ends it."""

    settings = b""
    """Of HTTP/2, as they are sent."""

    def __init__(self, reader: "Reader", plane, files: tuple, node: str):
        context = plane.context(files)
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", plane.port), PATIENCE)
        self.tls = context.wrap_socket(raw, server_hostname="127.0.0.1")
        hello = native.pb.Hello(node_id=node, instance_id="one-start", bundle_version=1, agent_version="t/1")
        said = native.pb.LiveUp(hello=hello).SerializeToString()
        message = frame(DATA, 0, 1, struct.pack(">BI", 0, len(said)) + said)
        self.tls.sendall(PREFACE + frame(SETTINGS, 0, 0, self.settings) + request(f"127.0.0.1:{plane.port}") + message)
        self.greeted, self.ended, self.ended_at = threading.Event(), threading.Event(), 0.0
        self.buffer = self.data = b""
        reader.add(self)

    def read(self) -> None:
        """What has come."""
        try:
            while True:
                data = self.tls.recv(65536)
                if not data:
                    return self.end()
                self.buffer += data
                self.take()
                if not self.tls.pending():
                    return
        except (ssl.SSLWantReadError, BlockingIOError):
            return
        except OSError:
            self.end()

    def take(self) -> None:
        while len(self.buffer) >= 9:
            length, kind, flags = int.from_bytes(self.buffer[:3], "big"), self.buffer[3], self.buffer[4]
            if len(self.buffer) < 9 + length:
                return
            payload, self.buffer = self.buffer[9 : 9 + length], self.buffer[9 + length :]
            if kind in (SETTINGS, PING) and not flags & ACK:
                self.tls.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            elif kind == DATA and payload:
                self.data += payload
                self.greeted.set()
            elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
                self.end()

    def messages(self) -> list:
        """Those that have come whole."""
        found, rest = [], self.data
        while len(rest) >= 5 and len(rest) >= 5 + (length := int.from_bytes(rest[1:5], "big")):
            found.append(native.pb.LiveDown.FromString(rest[5 : 5 + length]))
            rest = rest[5 + length :]
        return found

    def end(self) -> None:
        if not self.ended.is_set():
            self.ended_at = time.monotonic()
            self.ended.set()

    def close(self) -> None:
        self.tls.close()


class Reader(threading.Thread):
    """Reads all streams until it is closed."""

    def __init__(self):
        super().__init__(daemon=True)
        self.selector, self.over = selectors.DefaultSelector(), threading.Event()
        self.streams: list[LightStream] = []
        self.start()

    def add(self, stream: LightStream) -> None:
        stream.tls.setblocking(False)
        self.streams.append(stream)
        self.selector.register(stream.tls, selectors.EVENT_READ, stream)

    def run(self) -> None:
        while not self.over.is_set():
            for key, _ in self.selector.select(0.2):
                stream = key.data
                stream.read()
                if stream.ended.is_set():
                    self.selector.unregister(stream.tls)

    def close(self) -> None:
        self.over.set()
        self.join()
        for stream in self.streams:
            stream.close()
        self.selector.close()
