"""Connections to the control plane, byte by byte."""

import socket
import ssl

BODY = 30
"""How long the body of a request may take."""
SLACK = 20
"""A slow machine may take this much longer to keep its own time limits."""


def connect(plane, alpn: str | None = None, tls: bool = True) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", plane.port), timeout=BODY + SLACK)
    if not tls:
        return raw
    context = plane.context()
    if alpn:
        context.set_alpn_protocols([alpn])
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the server closes; a reset counts as closing, an open connection as a failure."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
            assert len(received) < 1 << 20
    except (ConnectionError, ssl.SSLError) as error:
        if isinstance(error, TimeoutError):
            raise
    return received


def alive(plane) -> bool:
    return plane.https("GET", "/healthz").status == 200


def exchange(plane, data: bytes, alpn: str | None = None, tls: bool = True) -> bytes:
    with connect(plane, alpn, tls) as connection:
        try:
            connection.sendall(data)
        except (ConnectionError, ssl.SSLError):
            pass
        return read_to_end(connection)
