"""TCP servers of the tests, on loopback."""

import socket
import threading


class Listener:
    """Accepts connections until it is closed, and hands each to `serve` on a thread of its own."""

    def __init__(self, port: int = 0):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.connections = 0

    def listen(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"https://{self.address}"

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Proxy(Listener):
    """Passes connections on to a port of this machine, and can close all that are open."""

    def __init__(self, target: int, port: int = 0):
        super().__init__(port)
        self.target = target
        self.open: list[socket.socket] = []
        self.cuts = 0
        self.lock = threading.Lock()

    def serve(self, client: socket.socket) -> None:
        cuts = self.cuts
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            shut(client)
            return
        with self.lock:
            is_cut = self.cuts != cuts
            self.open += [] if is_cut else [client, server]
        if is_cut:
            # It was not among those that are open yet.
            shut(client)
            shut(server)
            return
        self.forward(client, server)

    def forward(self, client: socket.socket, server: socket.socket) -> None:
        """Passes bytes both ways."""
        raise NotImplementedError

    def cut(self) -> None:
        """Closes every connection."""
        with self.lock:
            doomed, self.open = self.open, []
            self.cuts += 1
        for connection in doomed:
            shut(connection)

    def close(self) -> None:
        super().close()
        self.cut()


def shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()
