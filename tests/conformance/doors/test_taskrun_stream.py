"""The TaskRun door's stream: who may hold it, what is answered, what ends it. TASK-12, TASK-13, TASK-14, D07, D21."""

import datetime

import certs
import grpc
import native
import pytest
import workers
from machine import until
from plane import ControlPlane

Status = grpc.StatusCode


@pytest.fixture(scope="module")
def plane(programs):
    """A control plane for TaskRun."""
    with ControlPlane(init=workers.TASKRUN) as running:
        running.policy("failures.per_minute", "0")
        yield running


@pytest.fixture
def worker(plane):
    return workers.enroll(plane)


def refused(error) -> tuple:
    return error.status, error.code


def test_hello_and_heartbeats_are_acknowledged_one_by_one(plane, worker):
    """Proves TASK-14: the stream is the worker's own; each message gets one ServerAck."""
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id, hostname="host", version="t/1", labels={"zone": "a"})
        assert run.ack() == ("hello", worker.id)
        run.heartbeat(worker.id, timestamp_ms=1_700_000_000_123, active_runs=1, metrics={"load": "1"})
        assert run.ack() == ("heartbeat", "1700000000123")
        run.heartbeat(worker.id)
        assert run.ack() == ("heartbeat", worker.id)
        run.hello(worker.id)
        assert run.ack() == ("hello", worker.id)
        run.heartbeat(worker.id)
        assert run.ack() == ("heartbeat", worker.id)
        assert run.down.empty()


def test_the_headers_come_before_anything_is_said(plane, worker):
    """A client that waits for the answer's headers before it speaks is not kept waiting."""
    with workers.Run(plane, worker.files) as run:
        assert {name for name, _ in run.call.initial_metadata()} >= {"x-request-id"}
        run.hello(worker.id)
        assert run.ack() == ("hello", worker.id)


def test_hello_confirms_and_counts_as_a_sign_of_life(plane, worker):
    """Proves TASK-13, D17 and D21: the first word with the certificate makes the worker active and seen."""
    assert plane.node(worker.id)["state"] == "enrolled"
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        node = plane.node(worker.id)
        assert (node["state"], node["connected"]) == ("active", True)
        seen = node["last_seen"]

        def later():
            run.heartbeat(worker.id)
            run.ack()
            return plane.node(worker.id)["last_seen"] > seen

        until(later, "a heartbeat is seen")
    until(lambda: not plane.node(worker.id)["connected"], "the stream has ended")


def test_a_worker_that_falls_silent_is_inactive_and_comes_back(programs):
    """D21: a worker that held a stream and says nothing for the grace period is inactive, until it speaks again."""
    with ControlPlane(init=workers.TASKRUN) as own:
        own.policy("liveness.grace", "2s")
        worker = workers.enroll(own)
        with workers.Run(own, worker.files) as run:
            run.hello(worker.id)
            run.ack()
            until(lambda: own.node(worker.id)["state"] == "inactive", "silence is noticed")
        with workers.Run(own, worker.files) as run:
            run.hello(worker.id)
            run.ack()
            assert own.node(worker.id)["state"] == "active"


def test_a_heartbeat_before_hello_is_refused(plane, worker):
    """The interface's order: FAILED_PRECONDITION."""
    with workers.Run(plane, worker.files) as run:
        error = run.heartbeat(worker.id).wait_end()
    assert refused(error) == (Status.FAILED_PRECONDITION, "hello_expected")
    assert error.request_id and error.hint


@pytest.mark.parametrize("claimed", ["other", "", "worker:"])
def test_nobody_speaks_for_another_worker(plane, worker, claimed):
    """Proves TASK-14, TASK-21: a hello or heartbeat with another id than the certificate's is PERMISSION_DENIED."""
    other = workers.enroll(plane).id if claimed == "other" else claimed + ("" if not claimed else worker.id)
    with workers.Run(plane, worker.files) as run:
        assert refused(run.hello(other).wait_end()) == (Status.PERMISSION_DENIED, "not_your_node")
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        assert refused(run.heartbeat(other).wait_end()) == (Status.PERMISSION_DENIED, "not_your_node")
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        assert refused(run.hello(other).wait_end()) == (Status.PERMISSION_DENIED, "not_your_node")
    with workers.Run(plane, worker.files) as run:
        run.send(workers.pb.RunClientMessage(hello=workers.pb.WorkerHello()))
        assert refused(run.wait_end()) == (Status.PERMISSION_DENIED, "not_your_node")


def test_a_stream_needs_a_workers_certificate(plane):
    """Proves TASK-13, TASK-20: without one UNAUTHENTICATED; with an operator's, or one whose CN contradicts, PERMISSION_DENIED."""
    with workers.Run(plane) as run:
        assert refused(run.hello("w").wait_end()) == (Status.UNAUTHENTICATED, "unauthenticated")
    made = plane.base / "op"
    plane.cli("operator", "add", "otto", "--role", "platform-admin", "--out", made)
    with workers.Run(plane, (made / "cert.pem", made / "key.pem")) as run:
        assert refused(run.hello("w").wait_end()) == (Status.PERMISSION_DENIED, "forbidden")
    plane.policy("profile.odd.cn", "worker:not-{node}")
    odd = workers.enroll(plane, profile="odd")
    with workers.Run(plane, odd.files) as run:
        assert refused(run.hello(odd.id).wait_end()) == (Status.PERMISSION_DENIED, "not_your_node")


def test_a_stream_needs_the_common_name_of_a_worker(plane):
    """D07: a native node, whatever its template, and an agent of probectl are no workers; being refused is contact all the same (D17)."""
    plane.policy("profile.none.cn", "{node}-{node}-{node}")  # too long: left out
    for profile in ("default", "plfm", "probectl", "none"):
        node = native.enroll(plane, plane.token(profile=profile))
        with workers.Run(plane, node.files) as run:
            assert refused(run.hello(node.id).wait_end()) == (Status.PERMISSION_DENIED, "not_your_node"), profile
        assert plane.node(node.id)["state"] == "active", profile
    worker = native.enroll(plane, plane.token(profile="taskrun"))
    with workers.Run(plane, worker.files) as run:
        assert run.hello(worker.id).ack() == ("hello", worker.id)


def test_other_payloads_are_passed_over(plane, worker):
    """What the control plane does not know is ignored, before and after hello, and not acknowledged."""
    unknown = b"\x1a\x05hello" + b"\x52\x03abc"
    with workers.Run(plane, worker.files) as run:
        run.send(unknown)
        run.send(b"")
        run.hello(worker.id)
        run.send(unknown)
        run.heartbeat(worker.id)
        assert run.ack() == ("hello", worker.id)
        assert run.ack() == ("heartbeat", worker.id)
        assert run.down.empty()


def test_garbage_and_giants_end_the_stream(plane, worker):
    """Every byte of a worker is bounded: what is no message, and what is larger than 64 KiB, is refused."""
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        run.send(b"\xff\xff\xff\xff")
        assert refused(run.wait_end()) == (Status.INVALID_ARGUMENT, "bad_request")
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        run.heartbeat(worker.id, metrics={"x": "y" * 70_000})
        assert refused(run.wait_end()) == (Status.RESOURCE_EXHAUSTED, "too_large")
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id, version="v" * 500, hostname="\x1b[31m")
        assert run.ack() == ("hello", worker.id), "words that do not fit are left out"


def test_a_flood_ends_the_stream(plane, worker):
    """More messages than a worker has reason to send, or answers that nobody reads, end the stream."""
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        for _ in range(3000):
            run.heartbeat(worker.id)
        error = run.wait_end()
        assert error is None or error.status == Status.RESOURCE_EXHAUSTED
    assert plane.https("GET", "/healthz").status == 200


def test_silence_before_hello_ends_the_stream(plane, worker):
    """No WorkerHello within 10 seconds: DEADLINE_EXCEEDED."""
    with workers.Run(plane, worker.files) as run:
        assert refused(run.wait_end()) == (Status.DEADLINE_EXCEEDED, "timeout")


def test_a_worker_has_four_places_shared_with_the_native_stream(plane, worker):
    """The fifth stream of a node is RESOURCE_EXHAUSTED, whichever door it comes by."""
    runs = [workers.Run(plane, worker.files).hello(worker.id) for _ in range(3)]
    assert [run.ack() for run in runs] == [("hello", worker.id)] * 3
    with native.door(plane, worker.files) as door:
        live = door.live(worker.id)
        live.next("welcome")
        with workers.Run(plane, worker.files) as fifth:
            error = fifth.hello(worker.id).wait_end()
        assert refused(error) == (Status.RESOURCE_EXHAUSTED, "too_many_streams")
        runs.pop().close()

        def again():
            with workers.Run(plane, worker.files) as run:
                run.hello(worker.id)
                try:
                    return run.ack()
                except AssertionError:
                    return None

        until(again, "a place is free again")
        live.close()
    for run in runs:
        run.close()


def test_revocation_ends_the_stream_and_refuses_the_next(plane, worker):
    """Proves TASK-12: active connections are terminated; the next handshake is refused."""
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        assert plane.api("POST", f"/v1/workers/{worker.id}/revoke").status == 200
        error = run.wait_end()
        assert error is not None
        assert error.status in (Status.UNAVAILABLE, Status.PERMISSION_DENIED, Status.INTERNAL, Status.CANCELLED), error
        assert error.code in (None, "worker_revoked")
    assert native.alert(plane, worker.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    with workers.Run(plane, worker.files) as run:
        assert run.hello(worker.id).wait_end().status == Status.UNAVAILABLE


def test_a_stream_ends_with_its_certificate(plane):
    """Proves TASK-13, D34: no connection outlives the certificate that opened it."""
    plane.policy("profile.brief.lifetime", "60s")
    plane.policy("profile.brief.cn", "worker:{node}")
    worker = workers.enroll(plane, profile="brief")
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()

        def spoken():
            if run.ended.is_set():
                return True
            run.heartbeat(worker.id)
            return run.ended.wait(1)

        until(spoken, "the stream ends", 150)
        assert datetime.datetime.now(datetime.UTC) >= worker.cert.not_valid_after_utc - datetime.timedelta(seconds=1)
    assert native.alert(plane, worker.files) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"


def test_a_renewed_worker_moves_its_stream_over(plane, worker):
    """Proves TASK-11: old and new certificate hold streams side by side while the worker swaps."""
    with workers.Run(plane, worker.files) as old:
        old.hello(worker.id)
        old.ack()
        renewed = worker.renewed()
        with workers.Run(plane, renewed.files) as new:
            new.hello(worker.id)
            assert new.ack() == ("hello", worker.id)
            old.heartbeat(worker.id)
            assert old.ack() == ("heartbeat", worker.id)
    assert certs.serial(renewed.cert) == plane.node(worker.id)["cert_serial"]


def test_the_stream_survives_what_does_not_concern_it(plane, worker):
    """A change of the node (draining) wakes the stream and does not end it."""
    with workers.Run(plane, worker.files) as run:
        run.hello(worker.id)
        run.ack()
        assert plane.api("POST", f"/v1/nodes/{worker.id}/drain").status == 200
        run.heartbeat(worker.id)
        assert run.ack() == ("heartbeat", worker.id)
