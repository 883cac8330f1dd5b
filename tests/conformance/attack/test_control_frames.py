"""HTTP/2 frames that belong to no request: few are accepted from a stranger, and its connection ends."""

import contextlib

import pytest

import native
from frames import DATA, PING, PRIORITY, SETTINGS, WINDOW_UPDATE, Connection
from machine import until
from operators import make_key
from strangers import PREFACE, frame, get

UNKNOWN = 0xBB
MANY = 500
"""Frames of a round. What was accepted is told by the answer to a PING after them."""
KINDS = {
    "PING": frame(PING, 0, 0, b"12345678"),
    "PING, as an answer": frame(PING, 1, 0, b"12345678"),
    "SETTINGS": frame(SETTINGS, 0, 0),
    "PRIORITY": frame(PRIORITY, 0, 5, bytes(5)),
    "WINDOW_UPDATE": frame(WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x01"),
    "unknown": frame(UNKNOWN, 0, 0, bytes(100)),
    "unknown, large": frame(UNKNOWN, 0, 0, bytes(16000)),
}


def cpu(plane) -> int:
    """Ticks of the clock that the process has used."""
    with open(f"/proc/{plane.process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def rounds(connection: Connection, kind: bytes, most: int) -> int:
    """How many rounds of these frames the control plane accepts before it ends the connection."""
    for done in range(most):
        seen = connection.acknowledged
        if not connection.send(kind * MANY + frame(PING, 0, 0, b"the last")):
            return done

        def answered(seen=seen) -> bool:
            connection.look(1.0)
            return connection.ended or connection.acknowledged > seen

        until(answered, "the round is answered, or over", 60)
        if connection.ended:
            return done
    return most


@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_that_floods_control_frames_is_cut_off(plane, kind):
    """20,000 of them from each of three connections: none gets to the second round, with or without a request before."""
    before, accepted = cpu(plane), []
    for i in range(3):
        with contextlib.closing(Connection(plane, preface=PREFACE)) as connection:
            if i:
                assert connection.send(get(1, "/healthz"))
            accepted.append(rounds(connection, KINDS[kind], 40))
            assert connection.ended
    print(f"{accepted} rounds of {MANY} accepted, {cpu(plane) - before} ticks")
    assert max(accepted) <= 1


def test_empty_data_is_a_control_frame_too(plane):
    """A request whose body consists of frames without a byte."""
    with contextlib.closing(Connection(plane, preface=PREFACE)) as connection:
        head = b"\x83\x87\x44\x0a/v1/enroll\x41\x01x\x5f\x10application/json"
        assert connection.send(frame(1, 4, 1, head))
        assert rounds(connection, frame(DATA, 0, 1), 40) <= 1
        assert connection.ended


def test_one_that_asks_may_measure_and_give_back_as_it_asks(plane):
    """A client that sends PINGs and WINDOW_UPDATEs with each of a thousand requests is served to the end."""
    key = make_key(plane, "viewer")["key"]
    with contextlib.closing(Connection(plane, preface=PREFACE)) as connection:
        for n in range(1000):
            stream = 2 * n + 1
            more = frame(PING, 0, 0, b"12345678") + frame(WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x40") * 2
            assert connection.send(get(stream, "/v1/tokens", key) + more)

            def answered(stream=stream) -> bool:
                connection.look(1.0)
                return stream in connection.heads

            until(answered, "the request is answered", 60)
        assert not connection.ended and connection.acknowledged == 1000


def test_nobody_else_is_cut_off_by_a_flood(plane):
    """A node's standing calls go on while strangers are cut off one after the other."""
    node = native.enroll(plane)
    node.confirm()
    for _ in range(5):
        with contextlib.closing(Connection(plane, preface=PREFACE)) as connection:
            assert rounds(connection, KINDS["PING"], 40) <= 1
        node.confirm()
