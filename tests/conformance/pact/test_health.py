"""gRPC's own services: health for whoever asks, reflection where it was asked for. PACT-13."""

import grpc
import native
import pytest
from machine import PATIENCE
from operators import make_key
from plane import ControlPlane
from protos import OWN, compiled

health, health_grpc = compiled("grpc_health.proto", OWN)
reflection, _ = compiled("grpc_reflection.proto", OWN)
Serving = health.HealthCheckResponse.ServingStatus
REFLECTION = ("grpc.reflection.v1", "grpc.reflection.v1alpha")


def channel(plane):
    return grpc.secure_channel(
        f"127.0.0.1:{plane.port}", grpc.ssl_channel_credentials(plane.bundle), options=native.OPTIONS
    )


def reflect(plane, package: str, key: str | None = None, **asked):
    """One question, and its answer."""
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    with channel(plane) as open_channel:
        call = open_channel.stream_stream(
            f"/{package}.ServerReflection/ServerReflectionInfo",
            reflection.ServerReflectionRequest.SerializeToString,
            reflection.ServerReflectionResponse.FromString,
        )
        try:
            return next(call(iter([reflection.ServerReflectionRequest(**asked)]), metadata=metadata, timeout=PATIENCE))
        except grpc.RpcError as error:
            raise native.Refused(error) from None


def test_health_needs_no_credential(plane):
    """Health is one of the two things that may be called without a credential."""
    with channel(plane) as open_channel:
        stub = health_grpc.HealthStub(open_channel)
        for service in ("", "enlist.agent.v1.Agent", "grpc.health.v1.Health"):
            answer = stub.Check(health.HealthCheckRequest(service=service), timeout=PATIENCE)
            assert answer.status == Serving.SERVING, service
        with pytest.raises(grpc.RpcError) as refused:
            stub.Check(health.HealthCheckRequest(service="no.such.Service"), timeout=PATIENCE)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_watcher_is_told_at_once_and_when_it_ends(plane_of_its_own):
    """Watch says how it is now, and that it does not serve any more when it stops; it asks for no credential (PACT-13)."""
    with channel(plane_of_its_own) as open_channel:
        stub = health_grpc.HealthStub(open_channel)
        watch = stub.Watch(health.HealthCheckRequest(), timeout=PATIENCE)
        assert next(watch).status == Serving.SERVING
        unknown = stub.Watch(health.HealthCheckRequest(service="no.such.Service"), timeout=PATIENCE)
        assert next(unknown).status == Serving.SERVICE_UNKNOWN
        unknown.cancel()
        plane_of_its_own.stop()
        assert next(watch).status == Serving.NOT_SERVING


def test_reflection_is_off_unless_it_is_asked_for(plane):
    """Without --reflection there is no such service, whoever asks."""
    key = make_key(plane, "viewer")["key"]
    for package in REFLECTION:
        with pytest.raises(native.Refused) as refused:
            reflect(plane, package, key, list_services="*")
        assert refused.value.status == grpc.StatusCode.UNIMPLEMENTED


def test_reflection_lists_the_services_for_those_with_a_credential(programs):
    """With --reflection a credential opens it, under both names; without one it stays shut."""
    with ControlPlane() as plane:
        plane.restart("--reflection")
        key = make_key(plane, "viewer")["key"]
        for package in REFLECTION:
            with pytest.raises(native.Refused) as refused:
                reflect(plane, package, list_services="*")
            assert refused.value.status == grpc.StatusCode.UNAUTHENTICATED
            listed = reflect(plane, package, key, list_services="*").list_services_response.service
            assert {"enlist.agent.v1.Agent", "grpc.health.v1.Health"} <= {service.name for service in listed}
            symbol = "grpc.health.v1.HealthCheckRequest"
            files = reflect(plane, package, key, file_containing_symbol=symbol).file_descriptor_response
            assert b"HealthCheckRequest" in files.file_descriptor_proto[0]
            missing = reflect(plane, package, key, file_containing_symbol="no.such.Thing").error_response
            assert missing.error_code == grpc.StatusCode.NOT_FOUND.value[0]
