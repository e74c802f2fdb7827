"""
How a service's methods get to be called: descriptors on one side, objects on the other.

There is no generated code for services.  A service is an object with a coroutine for
each method of its descriptor, named like the method in lower case::

    class StorageService:
        async def list_segment_descriptors(
            self, request: pb.ListSegmentDescriptorsRequest, context: Context
        ) -> pb.ListSegmentDescriptorsResponse: ...

A method that streams its answer is a coroutine too; it writes to the *context*.  One
to which requests are streamed is given an iterator of them.

A task for each call costs more than some calls do.  Next to such a coroutine an object
may have a method with the suffix ``_nowait``, which is tried first; see ``CallNowait``.
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
    """What a method knows of its call besides the request."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The request's headers that are text, by name in lower case."""

    def peer(self) -> str:
        """The connection that the call came over; a reconnected client has another."""

    async def send_initial_metadata(self) -> None:
        """Let the client know that its call has been taken, before any message."""

    async def write(self, message: Message) -> None:
        """Send one message of a streamed answer, as soon as the client takes it."""


Call = Callable[[Any, Context], Awaitable[Any]]

OnAnswer = Callable[[Any], None]
"""Called once with the answer to a call, or with the exception that it failed with."""

CallNowait = Callable[[Any, OnAnswer], bool]
"""
Begins to answer a request, without a task; says whether it did.

If it returns true, it calls ``OnAnswer`` at once or later.  If it returns false or
raises, it does not: then the coroutine answers, or the caller is told of the exception.
It cannot be cancelled.
"""


class StatusError(Exception):
    """Answers with a status that the table of errors does not give."""

    def __init__(self, status: StatusCode, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method, ready to be called."""

    call: Call
    call_nowait: CallNowait | None
    parse: Callable[[bytes], Message]
    streams_requests: bool
    streams_answers: bool
    service: Service

    def request_of(self, data: bytes) -> Message:
        """
        The request in *data*.

        Raises:
            InvalidRequest: It holds no such message.
        """
        try:
            return self.parse(data)
        except DecodeError as error:
            raise InvalidRequest(f"the request is malformed: {error}") from error


class Service:
    """One service of a gRPC server."""

    def __init__(self, descriptor: ServiceDescriptor, implementation: object) -> None:
        """
        Make *implementation* answer for *descriptor*.

        It must have all of the methods: leaving one out is a decision that an
        object says by answering UNIMPLEMENTED, in words.
        """
        self.name = str(descriptor.full_name)
        self.errors: Counter[str] = Counter()
        """How many requests failed, by the code of the error."""
        self.methods: dict[str, Method] = {
            f"/{self.name}/{method.name}": self._method(method, implementation)
            for method in descriptor.methods
        }
        """By the path of a request."""

    def refusal(self, error: Exception) -> tuple[StatusCode, str]:
        """What the caller is told of *error*, which is counted."""
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
    """A service whose every method says in one sentence why it is not there."""

    def __init__(self, descriptor: ServiceDescriptor, sentence: str) -> None:
        self._sentence = sentence
        for method in descriptor.methods:
            setattr(self, _snake_case(method.name), self._refuse)

    async def _refuse(self, request: Message, context: Context) -> NoReturn:
        raise StatusError(StatusCode.UNIMPLEMENTED, self._sentence)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
