"""What every gRPC server has: its health, and a description of itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydanube.servers.grpc.services import Service, StatusError
from pydanube.wire.grpc.connection import StatusCode
from pydanube.wire.pb import POOL, health_pb2, reflection_v1_pb2, reflection_v1alpha_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from pydanube.servers.grpc.services import Context

_Status = health_pb2.HealthCheckResponse


class Health:
    """The service ``grpc.health.v1.Health``."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"", *names}
        self._is_closing = asyncio.Event()

    def close(self) -> None:
        """The server is stopping."""
        self._is_closing.set()

    async def check(
        self, request: health_pb2.HealthCheckRequest, _: Context
    ) -> health_pb2.HealthCheckResponse:
        """Whether a service is there; NOT_FOUND if it never was."""
        if request.service not in self._names:
            raise StatusError(
                StatusCode.NOT_FOUND, f"there is no service {request.service} here"
            )
        return self._answer()

    async def watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> None:
        """The same now, and when that changes, which it does at the end."""
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
    The service ``grpc.reflection.{v1,v1alpha}.ServerReflection``.

    Tools such as grpcurl can then call every method without our ``.proto`` files.
    Nothing of ours has extensions, so there are none to be asked about.
    """

    def __init__(self, messages: Any, names: Sequence[str]) -> None:
        self._pb = messages
        self._names = sorted(names)

    async def server_reflection_info(
        self, requests: AsyncIterator[Any], context: Context
    ) -> None:
        """An answer for each question."""
        async for request in requests:
            answer = self._pb.ServerReflectionResponse(
                valid_host=request.host, original_request=request
            )
            try:
                self._fill(answer, request)
            except KeyError as error:
                answer.error_response.error_code = int(StatusCode.NOT_FOUND)
                answer.error_response.error_message = str(error)
            await context.write(answer)

    def _fill(self, answer: Any, request: Any) -> None:
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in self._names:
                    answer.list_services_response.service.add(name=name)
            case "file_by_filename":
                self._add_file(answer, POOL.FindFileByName(request.file_by_filename))
            case "file_containing_symbol":
                file = POOL.FindFileContainingSymbol(request.file_containing_symbol)
                self._add_file(answer, file)
            case _:
                raise KeyError("there are no extensions here")

    @staticmethod
    def _add_file(answer: Any, file: Any) -> None:
        # None of our files imports another one.
        answer.file_descriptor_response.file_descriptor_proto.append(file.serialized_pb)


def standard_services(names: Sequence[str]) -> tuple[Health, list[Service]]:
    """The services that describe a server which has those called *names*."""
    modules = (reflection_v1_pb2, reflection_v1alpha_pb2)
    own = [
        health_pb2.DESCRIPTOR.services_by_name["Health"],
        *(each.DESCRIPTOR.services_by_name["ServerReflection"] for each in modules),
    ]
    described = [*names, *(each.full_name for each in own)]
    health = Health(described)
    implementations = [health, *(Reflection(each, described) for each in modules)]
    return health, [
        Service(descriptor, implementation)
        for descriptor, implementation in zip(own, implementations, strict=True)
    ]
