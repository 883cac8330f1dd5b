"""HTTP/2 clients that speak it frame by frame, and need not take what they are sent."""

import select
import ssl

from strangers import frame, reach, text

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 2, 3, 4, 6, 8
ACK = END_STREAM = 1
NO_ROOM = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"\x00\x04" + bytes(4))
"""A preface of a client that has no room for any answer: it is sent heads, and no byte of a body."""


def call(stream: int, path: str, key: str, message: bytes = b"") -> bytes:
    """A whole unary gRPC call."""
    block = b"\x83\x87\x44" + text(path) + b"\x41\x01x\x5f" + text("application/grpc") + b"\x40" + text("te")
    block += text("trailers") + b"\x10" + text("authorization") + text(f"Bearer {key}")
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return frame(HEADERS, 4, stream, block) + frame(DATA, END_STREAM, stream, body)


class Connection:
    """A connection whose frames are counted as they come."""

    def __init__(self, plane, source: str = "127.0.0.1", preface: bytes = NO_ROOM):
        self.socket = reach(plane, source, "h2")
        self.socket.sendall(preface)
        self.socket.setblocking(False)
        self.unread = b""
        self.heads: dict[int, int] = {}
        """The flags of the last HEADERS on each stream."""
        self.taken: dict[int, int] = {}
        """Bytes of answers, by stream."""
        self.ended_streams: set[int] = set()
        """Streams that were reset, or came to their end."""
        self.acknowledged = 0
        """Answers to PINGs."""
        self.ended = False

    def send(self, data: bytes, patience: float = 60.0) -> bool:
        """False when the other end has closed it."""
        self.socket.settimeout(patience)
        try:
            self.socket.sendall(data)
        except OSError:
            self.ended = True
        finally:
            if not self.ended:
                self.socket.setblocking(False)
        return not self.ended

    def look(self, patience: float = 0.0) -> None:
        """Takes note of what has come."""
        if self.ended:
            return
        if patience and not self.socket.pending() and not select.select([self.socket], [], [], patience)[0]:
            return
        try:
            while data := self.socket.recv(65536):
                self.unread += data
            self.ended = True
        except (ssl.SSLWantReadError, BlockingIOError):
            pass
        except OSError:
            self.ended = True
        while len(self.unread) >= 9:
            length = int.from_bytes(self.unread[:3], "big")
            if len(self.unread) < 9 + length:
                break
            kind, flags = self.unread[3], self.unread[4]
            stream = int.from_bytes(self.unread[5:9], "big")
            if kind == HEADERS:
                self.heads[stream] = flags
            elif kind == DATA:
                self.taken[stream] = self.taken.get(stream, 0) + length
            if kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM):
                self.ended_streams.add(stream)
            self.acknowledged += kind == PING and flags == ACK
            self.unread = self.unread[9 + length :]

    def close(self) -> None:
        self.socket.close()
