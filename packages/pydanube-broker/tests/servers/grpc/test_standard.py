"""The health and reflection services."""

from __future__ import annotations

import asyncio

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from pydanube.wire.pb import danube_api_pb2, health_pb2, reflection_v1_pb2
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.grpc.standard import Health, Reflection
from support.fakes.grpc_calls import connected, open_grpc_server
from support.fakes.grpc_contexts import CallContext

DISCOVERY = danube_api_pb2.DESCRIPTOR.services_by_name["Discovery"]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Silent:
    async def topic_lookup(self, request): ...
    async def topic_partitions(self, request): ...


async def test_health_check_answers_for_the_server_and_each_service():
    async with (
        open_grpc_server(
            *("127.0.0.1", 0, [Service(DISCOVERY, Silent())]),
            name="tests",
            flag="--x",
        ) as port,
        connected(port) as call,
    ):
        check = "grpc.health.v1.Health/Check"
        for name in ("", "danube.Discovery", "grpc.health.v1.Health"):
            request = health_pb2.HealthCheckRequest(service=name)
            assert (await call(check, request)).status == SERVING
        request = health_pb2.HealthCheckRequest(service="danube.Nothing")
        status, _ = await call.refusal(check, request)
        assert status == "NOT_FOUND"


async def test_health_watch_reports_that_the_server_stops():
    health = Health(["danube.Discovery"])
    context = CallContext()
    async with asyncio.TaskGroup() as tasks:
        request = health_pb2.HealthCheckRequest(service="danube.Discovery")
        tasks.create_task(health.watch(request, context))
        await context.until_written(1)
        health.close()
    assert [each.status for each in context.written] == [SERVING, NOT_SERVING]


async def test_health_watch_of_an_unknown_service_reports_service_unknown():
    health = Health([])
    health.close()
    context = CallContext()
    request = health_pb2.HealthCheckRequest(service="danube.Nothing")
    await health.watch(request, context)
    unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert [each.status for each in context.written] == [unknown]


async def test_reflection_describes_the_services():
    async def run():
        async def requests():
            ask = reflection_v1_pb2.ServerReflectionRequest
            yield ask(list_services="")
            yield ask(file_containing_symbol="danube.Discovery")
            yield ask(file_by_filename="pydanube/wire/pb/health.proto")
            yield ask(file_containing_symbol="danube.Nothing")
            yield ask(all_extension_numbers_of_type="danube.MsgID")

        context = CallContext()
        reflection = Reflection(["danube.Discovery", "b", "a"])
        await reflection.server_reflection_info(requests(), context)
        return context.written

    names, discovery, health, unknown, extensions = await run()
    listed = [each.name for each in names.list_services_response.service]
    assert listed == ["a", "b", "danube.Discovery"]
    for answer, package in ((discovery, "danube"), (health, "grpc.health.v1")):
        [file] = answer.file_descriptor_response.file_descriptor_proto
        assert FileDescriptorProto.FromString(file).package == package
    assert unknown.error_response.error_code == 5
    assert extensions.error_response.error_code == 5
