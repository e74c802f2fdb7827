"""The standard services of every gRPC server: health and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from pydanube.wire.pb import POOL, health_pb2
from pydanube.wire.pb import reflection_v1_pb2 as reflection
from pydanube_broker.servers.grpc.calls import CallContext
from pydanube_broker.servers.grpc.services import Service, StatusError
from pydanube_broker.wire.grpc.status import StatusCode

_Status = health_pb2.HealthCheckResponse


class Health:
    """The service ``grpc.health.v1.Health``."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"", *names}
        self._is_closing = asyncio.Event()

    def close(self) -> None:
        """Report NOT_SERVING from now on."""
        self._is_closing.set()

    async def check(
        self, request: health_pb2.HealthCheckRequest
    ) -> health_pb2.HealthCheckResponse:
        """Return whether a service is served; NOT_FOUND if it is unknown."""
        if request.service not in self._names:
            raise StatusError(
                StatusCode.NOT_FOUND, f"there is no service {request.service} here"
            )
        return self._answer()

    async def watch(
        self, request: health_pb2.HealthCheckRequest, context: CallContext
    ) -> None:
        """Send the state of a service now, and again when the server stops."""
        if request.service not in self._names:
            await context.write(_Status(status=_Status.SERVICE_UNKNOWN))
        else:
            await context.write(self._answer())
        if not self._is_closing.is_set():
            await self._is_closing.wait()
            await context.write(self._answer())

    def _answer(self) -> health_pb2.HealthCheckResponse:
        is_closing = self._is_closing.is_set()
        return _Status(status=_Status.NOT_SERVING if is_closing else _Status.SERVING)


class Reflection:
    """
    The service ``grpc.reflection.v1.ServerReflection``.

    It lets tools such as grpcurl call every method without our ``.proto`` files, which
    define no extensions.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = sorted(names)

    async def server_reflection_info(
        self,
        requests: AsyncIterator[reflection.ServerReflectionRequest],
        context: CallContext,
    ) -> None:
        """Answer each request of the stream."""
        async for request in requests:
            answer = reflection.ServerReflectionResponse(
                valid_host=request.host, original_request=request
            )
            try:
                self._fill(answer, request)
            except KeyError as error:
                refusal = reflection.ErrorResponse(
                    error_code=int(StatusCode.NOT_FOUND), error_message=str(error)
                )
                answer.error_response.CopyFrom(refusal)
            await context.write(answer)

    def _fill(
        self,
        answer: reflection.ServerReflectionResponse,
        request: reflection.ServerReflectionRequest,
    ) -> None:
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in self._names:
                    answer.list_services_response.service.add(name=name)
                return
            case "file_by_filename":
                file = POOL.FindFileByName(request.file_by_filename)
            case "file_containing_symbol":
                file = POOL.FindFileContainingSymbol(request.file_containing_symbol)
            case _:
                raise KeyError("there are no extensions here")
        # Our files do not import each other.
        answer.file_descriptor_response.file_descriptor_proto.append(file.serialized_pb)


def standard_services(names: Sequence[str]) -> tuple[Health, list[Service]]:
    """Return the standard services of a server that has the services *names*."""
    descriptors = (
        health_pb2.DESCRIPTOR.services_by_name["Health"],
        reflection.DESCRIPTOR.services_by_name["ServerReflection"],
    )
    all_names = [*names, *(each.full_name for each in descriptors)]
    health = Health(all_names)
    return health, [
        Service(descriptors[0], health, is_public=True),
        Service(descriptors[1], Reflection(all_names)),
    ]
