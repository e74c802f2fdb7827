"""
Services: how descriptors and the objects that implement them are connected.

There is no generated code for services.  An object implements a service with a
coroutine for each method of the descriptor, named like the method in snake case::

    class StorageService:
        async def list_segment_descriptors(
            self, request: pb.ListSegmentDescriptorsRequest
        ) -> pb.ListSegmentDescriptorsResponse: ...

A method that also takes a *context* gets its ``CallContext``.  A method that streams
its answer writes to that.  A method with streamed requests gets an iterator of them.
A method that returns None answers that it succeeded.

The task for a call costs more than some calls themselves.  For these an object may
also have a method with the suffix ``_nowait``, tried first; see ``CallNowait``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from inspect import signature
from typing import Any, NoReturn

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.histograms import Histogram
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.servers.connections.errors import as_broker_error, grpc_status_of
from pydanube_broker.servers.grpc.call_rules import CALL_RULES, CallRule
from pydanube_broker.wire.grpc.status import StatusCode

Call = Callable[..., Awaitable[Any]]
"""Answers a request; gets the call's context as well if it takes two arguments."""

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


@contextmanager
def refusing(
    *errors: type[BrokerError], status: StatusCode | None = None, prefix: str = ""
) -> Iterator[None]:
    """
    Raise *errors* with *prefix* before their text, and with *status*.

    By default the status is that of the table of errors.
    """
    try:
        yield
    except errors as error:
        text = f"{prefix}{error}"
        raise StatusError(status or grpc_status_of(error), text) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of a service."""

    path: str
    """``/package.Service/Method``"""
    call: Call
    takes_context: bool
    call_nowait: CallNowait | None
    parse: Callable[[bytes], Message]
    streams_requests: bool
    streams_answers: bool
    success: Message | None
    """The answer of a method that returns None."""
    service: Service
    rule: CallRule | None
    """The permission for a call; None for standard services, which need none."""
    seconds: Histogram = field(default_factory=Histogram)
    """The time of each call without streams, until its answer."""

    @property
    def is_unary(self) -> bool:
        """Whether the method has one request and one answer."""
        return not (self.streams_requests or self.streams_answers)

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

    def __init__(
        self,
        descriptor: ServiceDescriptor,
        implementation: object,
        *,
        unimplemented: str | None = None,
        is_public: bool = False,
        check_caller: Callable[[str], None] | None = None,
    ) -> None:
        """
        Create a service for *descriptor*, which *implementation* implements.

        Callers of a service that *is_public* need no credentials.  *check_caller*
        raises Unauthenticated unless a credential is that of another broker; without
        it, clients call the service.  Methods that it
        lacks answer UNIMPLEMENTED with the reason *unimplemented*; without a reason it
        must have all methods.
        """
        self.name = str(descriptor.full_name)
        self.errors: Counter[str] = Counter()
        """The number of failed requests by error code."""
        self.is_public = is_public
        self.check_caller = check_caller
        self._unimplemented = unimplemented
        self.methods: dict[str, Method] = {
            f"/{self.name}/{method.name}": self._method(method, implementation)
            for method in descriptor.methods
        }
        """The methods by path."""

    def refusal(self, error: Exception) -> tuple[StatusCode, str]:
        """Count *error*, and return the status and message for the caller."""
        if isinstance(error, StatusError):
            self.errors[error.status.name.lower()] += 1
            return error.status, str(error)
        failure = as_broker_error(error, f"a request to {self.name}")
        self.errors[failure.code] += 1
        return grpc_status_of(failure), str(failure)

    def _method(self, method: MethodDescriptor, implementation: object) -> Method:
        name = _snake_case(method.name)
        request: type[Message] = GetMessageClass(method.input_type)
        answer = GetMessageClass(method.output_type)
        fields = method.output_type.fields_by_name
        default = () if self._unimplemented is None else (self._refuse,)
        call = getattr(implementation, name, *default)
        return Method(
            path=f"/{self.name}/{method.name}",
            call=call,
            takes_context=len(signature(call).parameters) > 1,
            call_nowait=getattr(implementation, f"{name}_nowait", None),
            parse=request.FromString,
            streams_requests=method.client_streaming,
            streams_answers=method.server_streaming,
            success=answer(success=True) if "success" in fields else None,
            service=self,
            rule=CALL_RULES.get(f"{self.name}/{method.name}"),
        )

    async def _refuse(self, _: Message) -> NoReturn:
        assert self._unimplemented is not None
        raise StatusError(StatusCode.UNIMPLEMENTED, self._unimplemented)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
