"""Sinks that send messages to AWS in requests with several of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Self

from pydanube.client.messages.messages import Message
from pydanube_connect.aws_connection import AwsClient, AwsRefused, aws_client
from pydanube_connect.connector import Sink
from pydanube_connect.pure.failures import Rejected, Transient
from pydanube_connect.sinks.pure.aws_entries import (
    Entry,
    NoEntry,
    requests_of,
    size_of,
)

OF_MESSAGE = frozenset(
    {
        "BatchRequestTooLong",
        "InvalidMessageContents",
        "InvalidParameter",
        "InvalidParameterValue",
        "ValidationException",
    }
)
"""Errors that one message may cause."""


class Failure(Exception):
    """The error of one message in a request."""

    def __init__(self, reason: str, *, is_final: bool) -> None:
        super().__init__(reason)
        self.is_final = is_final


class AwsBatchSink(Sink):
    """A sink whose requests have several messages, of which some may fail."""

    extra = "aws"
    service: ClassVar[str]
    count_max: ClassVar[int] = 10
    bytes_max: ClassVar[int] = 256 * 1024

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._resources = AsyncExitStack()
        self.client: AwsClient
        # Those of a batch that was not written as a whole.
        self._written: set[tuple[str, int]] = set()

    async def __aenter__(self) -> Self:
        """Prepare the client, which connects when it is used."""
        opened = aws_client(self.service, self.options)
        self.client = await self._resources.enter_async_context(opened)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    @abstractmethod
    def fields_of(self, message: Message) -> dict[str, Any]:
        """
        Return the entry of *message* without its id.

        Raises:
            NoEntry: It can never be written.
        """

    @abstractmethod
    async def send(self, entries: Sequence[Entry]) -> Mapping[int, Failure]:
        """Send a request; return the failures of messages by their index there."""

    async def write(self, messages: Sequence[Message]) -> None:
        """Send *messages*; on return AWS has stored them."""
        rejected: dict[int, str] = {}
        entries = []
        for number, message in enumerate(messages):
            if message.id in self._written:
                continue
            try:
                fields = self.fields_of(message)
            except NoEntry as error:
                rejected[number] = str(error)
            else:
                entries.append(Entry(number, fields, size_of(message)))
        for request in requests_of(
            entries, count_max=self.count_max, bytes_max=self.bytes_max
        ):
            failures = await self._send(request)
            for index, entry in enumerate(request):
                if index not in failures:
                    self._written.add(messages[entry.number].id)
                elif failures[index].is_final:
                    rejected[entry.number] = str(failures[index])
            for failure in failures.values():
                if not failure.is_final:
                    raise Transient(str(failure))
        self._written.clear()
        if rejected:
            raise Rejected(rejected)

    async def _send(self, request: Sequence[Entry]) -> Mapping[int, Failure]:
        try:
            return await self.send(request)
        except AwsRefused as error:
            if error.code not in OF_MESSAGE:
                raise
            reason = str(error)
        if len(request) == 1:
            return {0: Failure(reason, is_final=True)}
        # One of the messages is the reason.
        failures: dict[int, Failure] = {}
        for index, entry in enumerate(request):
            alone = await self._send([entry])
            if alone:
                failures[index] = alone[0]
        return failures


def failures_in(answer: Mapping[str, Any]) -> dict[int, Failure]:
    """Return the failures in the answer of a queue or a topic."""
    return {
        int(each["Id"]): Failure(
            f"{each.get('Message') or 'no reason'} ({each.get('Code')})",
            is_final=bool(each.get("SenderFault")),
        )
        for each in answer.get("Failed", ())
    }
