"""Calls through a bare gRPC channel, without any client in between."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from pydanube.wire.pb import POOL
from pydanube_broker.servers.grpc.server import open_listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pydanube_broker.servers.grpc.services import Service


class Caller:
    """Every method of the services in our pool, by ``package.Service/Method``."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._calls: dict[str, Any] = {}

    def __call__(self, method: str, request: Any, **options: Any) -> Any:
        """Start a call: await it, or iterate over it if it streams."""
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self._new_call(method)
        return call(request, **options)

    @staticmethod
    def request_type(method: str) -> Any:
        """The class of a method's requests."""
        service, _, name = method.partition("/")
        found = POOL.FindServiceByName(service).methods_by_name[name]
        return GetMessageClass(found.input_type)

    async def refusal(self, method: str, request: Any) -> tuple[str, str]:
        """The status and text with which a request is refused."""
        try:
            call = self(method, request)
            answer = await (call.read() if hasattr(call, "read") else call)
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
        raise AssertionError(f"{method} answered {answer!r}")

    def _new_call(self, method: str) -> Any:
        service, _, name = method.partition("/")
        descriptor = POOL.FindServiceByName(service).methods_by_name[name]
        make = (
            self.channel.unary_stream
            if descriptor.server_streaming
            else self.channel.unary_unary
        )
        return make(
            f"/{method}",
            request_serializer=GetMessageClass(descriptor.input_type).SerializeToString,
            response_deserializer=GetMessageClass(descriptor.output_type).FromString,
        )


@asynccontextmanager
async def connected(
    port: int, credentials: grpc.ChannelCredentials | None = None, **options: Any
):
    """A caller with a connection of its own to *port* of this machine."""
    arguments = [("grpc.use_local_subchannel_pool", 1), *options.items()]
    address = f"127.0.0.1:{port}"
    async with (
        grpc.aio.insecure_channel(address, options=arguments)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=arguments)
    ) as channel:
        yield Caller(channel)


@asynccontextmanager
async def open_grpc_server(
    host: str, port: int, services: Sequence[Service], *, name: str, flag: str
) -> AsyncIterator[int]:
    """Serve *services* during the body; yields the port."""
    async with (
        open_listener(host, port, name=name, flag=flag) as listener,
        listener.serving(services),
    ):
        yield listener.port
