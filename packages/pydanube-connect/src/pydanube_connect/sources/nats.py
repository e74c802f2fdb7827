"""
A source of the messages in a stream of NATS JetStream.

The number of the last message is stored with the messages, so each is published exactly
once, without a durable consumer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pydanube_connect.connector import Source
from pydanube_connect.nats_connection import NatsConnection, nats_client
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.server_access import access_problems
from pydanube_connect.sources.nats_pull import (
    PullRequests,
    numbers_of,
    sequence_index,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg  # An extra.
    from nats.js import JetStreamContext

log = logging.getLogger("pydanube_connect")

INACTIVE_S = 60.0
"""After which time without requests the server forgets the reader."""


class NatsStart(Enum):
    """Where to begin in a stream that is read first."""

    EARLIEST = "earliest"
    LATEST = "latest"


class MissingMessages(Enum):
    """The answer to messages that NATS has deleted before they were read."""

    FAIL = "fail"
    CONTINUE = "continue"


class NatsOptions(NatsConnection, frozen=True, kw_only=True):
    """The options of ``NatsSource``."""

    stream: Annotated[str, Meta(description="The stream of JetStream.")]
    subject: Annotated[
        str | None,
        Meta(
            description="The subjects to read, such as `orders.>`; by default all of "
            "the stream."
        ),
    ] = None
    start: Annotated[
        NatsStart, Meta(description="Where to begin in a stream that is read first.")
    ] = NatsStart.EARLIEST
    missing_messages: Annotated[
        MissingMessages,
        Meta(
            description="What to do if NATS has deleted messages that were not read, "
            "because of the limits of the stream."
        ),
    ] = MissingMessages.FAIL


class StreamPosition(msgspec.Struct, frozen=True):
    """How far a stream is published; the position of the batches."""

    stream: str
    created: str
    """When the stream was created, because its numbers begin again then."""
    sequence: int
    """The number of the last message."""


class NatsSource(Source):
    """
    Publishes the messages of a stream of NATS JetStream; the keys are the subjects.

    Delivery: exactly once, in the order of the stream.
    """

    Options = NatsOptions
    extra = "nats"

    def __init__(self, options: NatsOptions) -> None:
        super().__init__(options)
        self._lag: int | None = None

    @classmethod
    def problems(cls, options: NatsOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = access_problems(options)
        if not options.stream or set(options.stream) & set(".*> "):
            found["stream"] = "is the name of a stream, without dots and wildcards"
        if not options.servers.strip():
            found["servers"] = "has no server, such as 'nats://127.0.0.1:4222'"
        return found

    def lag(self) -> int | None:
        """Return how many messages wait in the stream."""
        return self._lag

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield the messages after *position*."""
        options: NatsOptions = self.options
        requests = PullRequests()
        async with nats_client(options, closed_cb=requests.on_closed) as client:
            reading = _Reading(client.jetstream(), options)
            last = await reading.check(position)
            if position is None:
                # Where the stream begins is decided once.
                yield Batch([], msgspec.to_builtins(last))
            consumer = await reading.create_consumer(last.sequence + 1)
            await requests.open(client, options.stream, consumer)
            delivered = 0
            while True:
                messages = await requests.next()
                numbers = numbers_of(messages[-1].reply)
                delivered += len(messages)
                if numbers.delivery != delivered:
                    raise Transient("messages of NATS were lost on their way")
                if numbers.sequence - last.sequence > len(messages):
                    # Others have another subject, or were deleted.
                    await reading.check_first(last.sequence)
                last = msgspec.structs.replace(last, sequence=numbers.sequence)
                self._lag = numbers.pending
                records = [_record(each) for each in messages]
                yield Batch(records, msgspec.to_builtins(last))


class _Reading:
    """The stream, and what is wrong with it."""

    def __init__(self, jetstream: JetStreamContext, options: NatsOptions) -> None:
        self._jetstream = jetstream
        self._options = options

    async def check(self, stored: Any) -> StreamPosition:
        """
        Return the position to continue at, after the one that is stored.

        Raises:
            ConnectorFailed: There is no such stream, or messages are missing.
        """
        options = self._options
        info = await self._jetstream.stream_info(options.stream)
        created = str(info.created)
        beginning = StreamPosition(options.stream, created, 0)
        if stored is None:
            if options.start is NatsStart.LATEST:
                last = info.state.last_seq
            else:
                last = max(0, info.state.first_seq - 1)
            return msgspec.structs.replace(beginning, sequence=last)
        try:
            position = msgspec.convert(stored, StreamPosition)
        except msgspec.ValidationError as error:
            raise ConnectorFailed(f"the stored position is invalid: {error}") from error
        if (position.stream, position.created) != (options.stream, created):
            self._report(
                f"the stored position is of the stream {position.stream} that was "
                f"created at {position.created}; now there is {options.stream} of "
                f"{created}"
            )
            return beginning
        self._check_first(info.state.first_seq, position.sequence)
        return position

    async def create_consumer(self, first: int) -> str:
        """Create a consumer that begins with the message *first*; return its name."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy  # noqa: PLC0415

        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=INACTIVE_S,
            filter_subject=self._options.subject,
        )
        info = await self._jetstream.add_consumer(self._options.stream, config)
        name: str = info.name
        return name

    async def check_first(self, last: int) -> None:
        """Notice that messages after *last* were deleted before they were read."""
        info = await self._jetstream.stream_info(self._options.stream)
        self._check_first(info.state.first_seq, last)

    def _check_first(self, first: int, last: int) -> None:
        if first > last + 1:
            self._report(
                f"NATS has deleted the messages {last + 1} to {first - 1} of the "
                f"stream {self._options.stream}"
            )

    def _report(self, problem: str) -> None:
        if self._options.missing_messages is MissingMessages.FAIL:
            raise ConnectorFailed(
                f"{problem}; 'missing_messages: continue' goes on with what is there"
            )
        log.warning("%s", problem)


def _record(message: Msg) -> Record:
    tokens = message.reply.split(".")
    attributes = {
        **(message.headers or {}),
        "nats.subject": message.subject,
        "nats.sequence": tokens[sequence_index(tokens)],
    }
    return Record(value=message.data, key=message.subject, attributes=attributes)
