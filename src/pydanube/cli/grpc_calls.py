"""
Calls over gRPC, for the tools of those who come from Danube.

`danube` talks the native protocol and needs nothing of this; `danube-cli` and
`danube-admin` speak to any broker of the original as well.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import grpc
from google.protobuf.message_factory import GetMessageClass

from pydanube.cli import interruption
from pydanube.model.errors import BrokerError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Coroutine,
        Mapping,
        Sequence,
    )

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
    from google.protobuf.message import Message

    from pydanube.cli.interruption import Interruption

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0

_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who calls, and how the connection is protected; the default is in the clear."""

    token: str = ""
    is_tls: bool = False
    domain: str = ""
    """The name in the broker's certificate, where it is not the host."""
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Credentials:
        """What the variables of the original's admin tool say."""

        def path(name: str) -> Path | None:
            return Path(environ[name]) if environ.get(name) else None

        return cls(
            token=environ.get("DANUBE_ADMIN_TOKEN")
            or environ.get("DANUBE_ADMIN_API_KEY", ""),
            is_tls=environ.get("DANUBE_ADMIN_TLS", "").lower() in _TRUE,
            domain=environ.get("DANUBE_ADMIN_DOMAIN", ""),
            ca=path("DANUBE_ADMIN_CA"),
            certificate=path("DANUBE_ADMIN_CERT"),
            key=path("DANUBE_ADMIN_KEY"),
        )


NOBODY = Credentials()


class Caller:
    """A connection to one broker; made by ``open_caller``."""

    def __init__(
        self, channel: grpc.aio.Channel, url: str, metadata: Sequence[tuple[str, str]]
    ) -> None:
        self.url = url
        self._channel = channel
        self._metadata = tuple(metadata)

    async def call(
        self,
        service: ServiceDescriptor,
        method: str,
        request: Message,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Any:
        """
        The answer to *request*.

        Raises:
            CallFailed: Nobody answers, or the broker says no.
        """
        descriptor = service.methods_by_name[method]
        call = self._channel.unary_unary(**_shape(descriptor))
        try:
            return await call(request, metadata=self._metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None

    async def stream(
        self, service: ServiceDescriptor, method: str, request: Message
    ) -> AsyncIterator[Any]:
        """The answers to *request*, as they come; raises as ``call``."""
        descriptor = service.methods_by_name[method]
        call = self._channel.unary_stream(**_shape(descriptor))
        try:
            async for answer in call(request, metadata=self._metadata):
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None

    def _failure(self, error: grpc.aio.AioRpcError) -> CallFailed:
        status, details = error.code(), error.details() or ""
        if status is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details:
            details = f"no broker answers at {self.url}"
        return CallFailed(status, details)


class CallFailed(BrokerError):
    """What a broker answered instead of doing it."""

    code = "call_failed"

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{details} ({status.name})" if details else status.name)
        self.status = status
        self.details = details


@asynccontextmanager
async def open_caller(
    url: str,
    credentials: Credentials = NOBODY,
    metadata: Sequence[tuple[str, str]] = (),
) -> AsyncIterator[Caller]:
    """
    A connection to the broker at *url*, which is made by the first call.

    Every call carries *metadata*, and the token if there is one.

    Raises:
        InvalidRequest: *url* is no URL, or a file of *credentials* cannot be read.
    """
    target, is_tls = parse_url(url)
    if is_tls or credentials.is_tls:
        options = (
            [("grpc.ssl_target_name_override", credentials.domain)]
            if credentials.domain
            else []
        )
        channel = grpc.aio.secure_channel(target, _tls(credentials), options=options)
    else:
        channel = grpc.aio.insecure_channel(target)
    token = credentials.token
    authorization = [("authorization", f"Bearer {token}")] if token else []
    async with channel:
        yield Caller(channel, url, [*authorization, *metadata])


def ask(
    url: str,
    question: Callable[[Caller], Coroutine[Any, Any, T]],
    credentials: Credentials = NOBODY,
) -> T:
    """What the broker at *url* answers to *question*; waiting may be interrupted."""

    async def conversation(_: Interruption) -> T:
        async with open_caller(url, credentials) as caller:
            return await question(caller)

    return interruption.run(conversation)


def parse_url(url: str) -> tuple[str, bool]:
    """
    Host and port, and whether it is over TLS; the scheme may be missing.

    Raises:
        InvalidRequest: It is no such URL.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port:
        raise InvalidRequest(f"{url!r} is not a URL like http://127.0.0.1:6650")
    return parts.netloc.rpartition("@")[2], parts.scheme == "https"


def _tls(credentials: Credentials) -> grpc.ChannelCredentials:
    ca, key, certificate = map(
        _read, (credentials.ca, credentials.key, credentials.certificate)
    )
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from error


def _shape(method: MethodDescriptor) -> dict[str, Any]:
    """What a channel has to know of a method."""
    request: type[Message] = GetMessageClass(method.input_type)
    response: type[Message] = GetMessageClass(method.output_type)
    return {
        "method": f"/{method.containing_service.full_name}/{method.name}",
        "request_serializer": request.SerializeToString,
        "response_deserializer": response.FromString,
    }
