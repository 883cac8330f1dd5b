"""Strangers from other networks of the loopback, and control planes with few descriptors for them to use up."""

import contextlib
import http.client
import select
import socket
import ssl
import threading
import time

import machine
import plane as planes
from machine import scratch
from plane import ControlPlane, ask

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
PROMISED = 5.0
"""While strangers flood, others are served within so many seconds."""


class SmallPlane(ControlPlane):
    """A control plane that may open so many files: what it can hold is used up with few connections."""

    def __init__(self, files: int = 1024, **named):
        super().__init__(**named)
        self.program = scratch("prog") / "enlist"
        self.program.write_text(f'#!/bin/sh\nulimit -n {files}\nexec {planes.ENLIST} "$@"\n')
        self.program.chmod(0o755)

    def launch(self, *arguments, env: dict | None = None) -> None:
        usual, planes.ENLIST = planes.ENLIST, self.program
        try:
            super().launch(*arguments, env=env)
        finally:
            planes.ENLIST = usual


def reach(plane, source: str = "127.0.0.1", alpn: str | None = None, tls: bool = True, timeout=machine.PATIENCE):
    """A connection from this address."""
    raw = socket.create_connection(("127.0.0.1", plane.port), timeout, source_address=(source, 0))
    if not tls:
        return raw
    context = plane.context()
    if alpn:
        context.set_alpn_protocols([alpn])
    try:
        return context.wrap_socket(raw, server_hostname="127.0.0.1")
    except BaseException:
        raw.close()
        raise


def request(plane, path: str, source: str, headers=None, certificate=None, method="GET", body=None, timeout=30.0):
    """One request on the TLS port from this address."""
    connection = http.client.HTTPSConnection(
        "127.0.0.1", plane.port, timeout=timeout, context=plane.context(certificate), source_address=(source, 0)
    )
    return ask(connection, method, path, body, headers)


def promise_is_kept(requests: dict, window: float = 11.0) -> dict[str, float]:
    """Asks all of these in turn for as long as an attack's connections last, and gives back the slowest of each.

    None may take longer than promised. Machines are busy, so that holds if it does in one of six windows; but all must
    be answered in 30 s.
    """
    seen = []
    for _ in range(6):
        slowest = dict.fromkeys(requests, 0.0)
        end = time.monotonic() + window
        while time.monotonic() < end:
            for name, what in requests.items():
                began = time.monotonic()
                what()
                slowest[name] = max(slowest[name], time.monotonic() - began)
        assert max(slowest.values()) < 30, slowest
        if max(slowest.values()) < PROMISED:
            return slowest
        seen.append(slowest)
    raise AssertionError(f"slower than {PROMISED} s in every window: {seen}")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def text(data: str) -> bytes:
    return bytes([len(data)]) + data.encode()


def post(stream: int, path: str, begin: bytes = b"{", key: str | None = None, length: int | None = None) -> bytes:
    """An HTTP/2 request whose body has begun and does not end; it may say how long the body will be."""
    block = b"\x83\x87\x44" + text(path) + b"\x41\x01x\x5f" + text("application/json")
    if length is not None:
        block += b"\x0f\x0d" + text(str(length))
    if key:
        block += b"\x10" + text("authorization") + text(f"Bearer {key}")
    return frame(1, 4, stream, block) + frame(0, 0, stream, begin)


def get(stream: int, path: str, key: str | None = None) -> bytes:
    """A whole HTTP/2 request."""
    block = b"\x82\x87\x44" + text(path) + b"\x41\x01x"
    if key:
        block += b"\x10" + text("authorization") + text(f"Bearer {key}")
    return frame(1, 5, stream, block)


def plain(port: int, path: str, source: str = "127.0.0.1", timeout: float = 30.0):
    """One request without TLS."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout, source_address=(source, 0))
    return ask(connection, "GET", path, None, None)


class Siege:
    """Connections that are made again whenever the control plane ends them, by some threads, until the siege is over.

    `make` makes one and gives it back; `poke` is called on each about once a second, and may send something.
    """

    def __init__(self, count: int, make, poke=None, workers: int = 8):
        self.make, self.poke = make, poke
        self.ended = 0
        self.over = threading.Event()
        self.full = threading.Semaphore(0)
        self.threads = [
            threading.Thread(target=self._hold, args=(i, count // workers), daemon=True) for i in range(workers)
        ]

    def _hold(self, worker: int, count: int) -> None:
        held: list = []
        made, filled = 0, False
        poked = time.monotonic()
        while not self.over.is_set():
            while len(held) < count and not self.over.is_set():
                try:
                    held.append(self.make(worker + made * len(self.threads)))
                    made += 1
                except OSError:
                    break
                if time.monotonic() - poked > 1:
                    break
            if not filled and made >= count:
                filled = True
                self.full.release()
            readable, _, _ = select.select([], [], [], 0) if not held else _ready(held)
            for connection in readable:
                if _ended(connection):
                    held.remove(connection)
                    connection.close()
                    self.ended += 1
            if self.poke and time.monotonic() - poked > 1:
                for connection in held:
                    with contextlib.suppress(OSError, ssl.SSLError):
                        self.poke(connection)
            if time.monotonic() - poked > 1:
                poked = time.monotonic()
            self.over.wait(0.05)
        for connection in held:
            connection.close()
        if not filled:
            self.full.release()

    def __enter__(self) -> "Siege":
        for thread in self.threads:
            thread.start()
        deadline = time.monotonic() + 20
        for _ in self.threads:
            # Where there is less room than that, it is as full as it can be.
            self.full.acquire(timeout=max(0, deadline - time.monotonic()))
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def _ready(held: list):
    poll = select.poll()
    found = {connection.fileno(): connection for connection in held if connection.fileno() >= 0}
    for number in found:
        poll.register(number, select.POLLIN | select.POLLHUP)
    return [found[number] for number, _ in poll.poll(0)], [], []


def _ended(connection) -> bool:
    connection.settimeout(0)
    try:
        return not connection.recv(65536)
    except (ssl.SSLWantReadError, BlockingIOError):
        return False
    except OSError:
        return True
    finally:
        with contextlib.suppress(OSError):
            connection.settimeout(5)
