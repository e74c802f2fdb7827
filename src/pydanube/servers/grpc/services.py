"""
Services: how descriptors and the objects that implement them are connected.

There is no generated code for services.  An object implements a service with a
coroutine for each method of the descriptor, named like the method in snake case::

    class StorageService:
        async def list_segment_descriptors(
            self, request: pb.ListSegmentDescriptorsRequest, context: Context
        ) -> pb.ListSegmentDescriptorsResponse: ...

A method that streams its answer is also a coroutine, and writes to the *context*.  A
method with streamed requests gets an iterator of them.

The task for a call costs more than some calls themselves.  For these an object may
also have a method with the suffix ``_nowait``, tried first; see ``CallNowait``.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.servers.errors import grpc_status_of
from pydanube.wire.grpc.connection import StatusCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
    from google.protobuf.message import Message

log = logging.getLogger(__name__)


class Context(Protocol):
    """The call of a method, besides its request."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The text headers of the request by name in lower case."""

    def peer(self) -> str:
        """Return the name of the connection, which changes when a client reconnects."""

    async def send_initial_metadata(self) -> None:
        """Tell the client that its call was accepted, before any message."""

    async def write(self, message: Message) -> None:
        """Send one message of a streamed answer when the client's window allows it."""


Call = Callable[[Any, Context], Awaitable[Any]]

OnAnswer = Callable[[Any], None]
"""Called once with the answer to a call, or with its exception."""

CallNowait = Callable[[Any, OnAnswer], bool]
"""
Starts to answer a request without a task, and returns whether it started.

If it returns true, it calls ``OnAnswer`` at once or later.  If it returns false, the
coroutine answers the request.  If it raises, the exception is the answer.  It cannot
be cancelled.
"""


class StatusError(Exception):
    """An error with a status that the table of errors does not contain."""

    def __init__(self, status: StatusCode, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of a service."""

    call: Call
    call_nowait: CallNowait | None
    parse: Callable[[bytes], Message]
    streams_requests: bool
    streams_answers: bool
    service: Service

    def request_of(self, data: bytes) -> Message:
        """
        Parse a request.

        Raises:
            InvalidRequest: *data* is not a message of the method's type.
        """
        try:
            return self.parse(data)
        except DecodeError as error:
            raise InvalidRequest(f"the request is malformed: {error}") from error


class Service:
    """One service of a gRPC server."""

    def __init__(self, descriptor: ServiceDescriptor, implementation: object) -> None:
        """
        Create a service for *descriptor*, which *implementation* implements.

        It must have all methods.  A method that is not supported answers
        UNIMPLEMENTED with the reason.
        """
        self.name = str(descriptor.full_name)
        self.errors: Counter[str] = Counter()
        """The number of failed requests by error code."""
        self.methods: dict[str, Method] = {
            f"/{self.name}/{method.name}": self._method(method, implementation)
            for method in descriptor.methods
        }
        """The methods by path."""

    def refusal(self, error: Exception) -> tuple[StatusCode, str]:
        """Count *error*, and return the status and message for the caller."""
        if isinstance(error, BrokerError):
            self.errors[error.code] += 1
            return grpc_status_of(error), str(error)
        if isinstance(error, StatusError):
            self.errors[error.status.name.lower()] += 1
            return error.status, str(error)
        # A bug fails this request, not the server.
        log.error("a request to %s failed", self.name, exc_info=error)
        self.errors[BrokerError.code] += 1
        return StatusCode.INTERNAL, f"the broker failed: {error!r}"

    def _method(self, method: MethodDescriptor, implementation: object) -> Method:
        name = _snake_case(method.name)
        request: type[Message] = GetMessageClass(method.input_type)
        return Method(
            call=getattr(implementation, name),
            call_nowait=getattr(implementation, f"{name}_nowait", None),
            parse=request.FromString,
            streams_requests=method.client_streaming,
            streams_answers=method.server_streaming,
            service=self,
        )


class UnimplementedService:
    """A service whose methods all answer UNIMPLEMENTED with the reason."""

    def __init__(self, descriptor: ServiceDescriptor, sentence: str) -> None:
        self._sentence = sentence
        for method in descriptor.methods:
            setattr(self, _snake_case(method.name), self._refuse)

    async def _refuse(self, request: Message, context: Context) -> NoReturn:
        raise StatusError(StatusCode.UNIMPLEMENTED, self._sentence)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
