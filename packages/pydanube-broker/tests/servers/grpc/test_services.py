"""Objects answer for services; what they raise becomes a status."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from pydanube.model.errors import Draining, TopicNotFound
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2
from pydanube_broker.servers.grpc.services import Service, StatusError
from pydanube_broker.wire.grpc.status import StatusCode
from support.fakes.grpc_calls import connected, open_grpc_server

DISCOVERY = pb.DESCRIPTOR.services_by_name["Discovery"]
REGISTRY = schema_registry_pb2.DESCRIPTOR.services_by_name["SchemaRegistry"]


class Echo:
    """Answers a lookup with what was asked, or raises what it was given."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def topic_lookup(self, request):
        if self._error is not None:
            raise self._error
        return pb.TopicLookupResponse(request_id=request.request_id)

    async def topic_partitions(self, request):
        raise AssertionError


def answer_of(service: Service, method: str, request):
    """What *service* answers to one request: a message, or a status and a text."""

    async def run():
        async with (
            open_grpc_server(
                "127.0.0.1", 0, [service], name="tests", flag="--x"
            ) as port,
            connected(port) as call,
        ):
            try:
                return await call(f"{service.name}/{method}", request)
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details()

    return asyncio.run(run())


def test_method_is_called_by_its_snake_case_name():
    request = pb.TopicLookupRequest(request_id=7)
    answer = answer_of(Service(DISCOVERY, Echo()), "TopicLookup", request)
    assert answer == pb.TopicLookupResponse(request_id=7)


def test_implementation_must_have_every_method():
    class Half:
        async def topic_lookup(self, request): ...

    with pytest.raises(AttributeError, match="topic_partitions"):
        Service(DISCOVERY, Half())


@pytest.mark.parametrize(
    ("error", "status", "text", "code"),
    [
        (TopicNotFound("no such topic"), "NOT_FOUND", "no such topic", None),
        (Draining("stopping"), "UNAVAILABLE", "stopping", None),
        (
            StatusError(StatusCode.ABORTED, "in other words"),
            *("ABORTED", "in other words", "aborted"),
        ),
        (
            ZeroDivisionError("ours"),
            *("INTERNAL", "the broker failed; its log says why"),
            "broker_error",
        ),
    ],
)
def test_exceptions_become_statuses_and_are_counted(error, status, text, code):
    service = Service(DISCOVERY, Echo(error))
    answer = answer_of(service, "TopicLookup", pb.TopicLookupRequest())
    assert answer == (status, text)
    assert service.errors == {code or error.code: 1}


def test_unimplemented_service_gives_the_reason():
    service = Service(REGISTRY, None, unimplemented="there is none")
    for method in REGISTRY.methods:
        request = getattr(schema_registry_pb2, method.input_type.name)()
        answer = answer_of(service, method.name, request)
        assert answer == ("UNIMPLEMENTED", "there is none")
