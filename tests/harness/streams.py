"""Standing connections: the operators' events, and a node's live stream."""

import http.client
import json
import queue
import socket
import threading

import native
from machine import PATIENCE, until
from plane import UnixConnection


class Events:
    """Follows /v1/events from now on: over the operator socket, or over TLS with an API key or a certificate."""

    def __init__(self, plane, key: str | None = None, certificate: tuple | None = None):
        if key or certificate:
            self.connection = http.client.HTTPSConnection(
                "127.0.0.1", plane.port, timeout=PATIENCE, context=plane.context(certificate)
            )
        else:
            self.connection = UnixConnection(str(plane.dir / "operator.sock"), PATIENCE)
        self.connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {key}"} if key else {})
        self.socket = self.connection.sock
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        assert self.response.readline() == b": following\n"
        self.seen: list[tuple[str, dict]] = []
        self.ended = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        name = None
        try:
            while line := self.response.readline():
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    self.seen.append((name, json.loads(value)))
        except (OSError, http.client.HTTPException):
            pass
        self.ended.set()

    def wait(self, name: str, what: str, wanted) -> dict:
        """The first event of this name for which `wanted` holds."""
        return until(lambda: next((d for n, d in self.seen if n == name and wanted(d)), None), what)

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server was faster
        self.reader.join()
        self.connection.close()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Live:
    """A node's live stream, as an agent would open it."""

    def __init__(self, node, instance: str = "first-start"):
        self.up: queue.SimpleQueue = queue.SimpleQueue()
        self.door = native.door(node.plane, node.files)
        hello = native.pb.Hello(node_id=node.id, instance_id=instance, agent_version="0.0-test")
        self.say(hello=hello)
        self.down = self.door.stub.Live(iter(self.up.get, None))
        assert next(self.down).welcome.heartbeat_ms > 0

    def say(self, **message) -> None:
        self.up.put(native.pb.LiveUp(**message))

    def close(self) -> None:
        self.up.put(None)
        self.down.cancel()
        self.door.close()

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_) -> None:
        self.close()
