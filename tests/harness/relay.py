"""A TCP relay between a client and the control plane, which can lose answers."""

import socket
import threading

from listener import Proxy, shut

APPLICATION_DATA = 23
"""The TLS record type of everything encrypted: a client's first one ends its handshake."""


class Records:
    """Counts TLS records of a kind in a stream that arrives in pieces."""

    def __init__(self):
        self.buffer, self.encrypted = b"", 0

    def feed(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 5:
            end = 5 + int.from_bytes(self.buffer[3:5], "big")
            if len(self.buffer) < end:
                return
            self.encrypted += self.buffer[0] == APPLICATION_DATA
            self.buffer = self.buffer[end:]


class Relay(Proxy):
    """Passes bytes both ways. After `lose()` no answer comes through until `cut()` closes what is open.

    A connection that is still in its handshake gets to the end of it first, so that the client does send its
    request, and the server does work on it.
    """

    def __init__(self, port: int):
        super().__init__(port)
        self.losing = threading.Event()
        self.swallowed = 0
        self.listen()

    def lose(self) -> None:
        self.losing.set()

    def cut(self) -> None:
        """Closes every connection, and passes everything from then on."""
        self.losing.clear()
        super().cut()

    def forward(self, client: socket.socket, server: socket.socket) -> None:
        records = Records()
        threading.Thread(target=self._requests, args=(client, server, records), daemon=True).start()
        self._answers(server, client, records)

    def _requests(self, client: socket.socket, server: socket.socket, records: Records) -> None:
        try:
            while data := client.recv(65536):
                records.feed(data)
                server.sendall(data)
        except OSError:
            pass
        shut(server)

    def _answers(self, server: socket.socket, client: socket.socket, records: Records) -> None:
        try:
            while data := server.recv(65536):
                if self.losing.is_set() and records.encrypted:
                    self.swallowed += len(data)
                else:
                    client.sendall(data)
        except OSError:
            pass
        if not self.losing.is_set():
            shut(client)


class Blackhole(Proxy):
    """Passes bytes both ways until `swallow()`: then nothing arrives any more, and nobody is told that the connection is dead."""

    def __init__(self, port: int):
        super().__init__(port)
        self.swallowing = threading.Event()
        self.listen()

    def swallow(self) -> None:
        self.swallowing.set()

    def forward(self, client: socket.socket, server: socket.socket) -> None:
        threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
        self._pass(server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.swallowing.is_set():
                    target.sendall(data)
        except OSError:
            pass
        if not self.swallowing.is_set():
            shut(target)
