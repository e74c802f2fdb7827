"""
`danube produce`: publishes messages from options, a file or standard input.

The messages of one read are published together, and acknowledged before the next
read.  This bounds memory, and keeps the counts true whenever the command ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import field
from enum import Enum
from pathlib import Path
from time import time_ns
from typing import Annotated, Any, cast

import typer

from pydanube.client.client import DEFAULT_URL, connect
from pydanube.client.connections.requester import CLOSE_TIMEOUT_S
from pydanube.client.messages.messages import MessageIds
from pydanube.client.messages.options import LATEST
from pydanube.client.messages.partitioned_ids import PartitionedIds
from pydanube.client.messages.schema import schema_of
from pydanube.client.producers.partitioned_producer import PartitionedProducer
from pydanube.client.producers.producer import Producer
from pydanube.client.producers.typed_producer import TypedProducer
from pydanube.client.pure.batching import DeliveryOptions
from pydanube.model.batch import batch_of
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    MessageTooLarge,
)
from pydanube.model.field_paths import parse_path
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.quantity_formats import format_bytes, format_count, format_messages
from pydanube.model.schemas import SchemaType
from pydanube.model.token_bucket import TokenBucket
from pydanube.schemas.language import Encoder
from pydanube.schemas.value_codecs import json_value_encoder
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interrupted, Interruption, run
from pydanube_cli.messages.pure.message_records import (
    PARSERS,
    FieldOptions,
    Input,
    Parser,
    Record,
    RefusedRecord,
    batch_of_records,
    encode_records,
    values_of,
)
from pydanube_cli.presentation.output import (
    OutputFormat,
    Result,
    print_note,
    print_result,
)
from pydanube_cli.presentation.progress_line import progress_line
from pydanube_cli.presentation.quantities import (
    optional,
    parse_attribute,
    parse_duration,
    parse_rate,
)
from pydanube_cli.presentation.standard_streams import LINE_BYTES_MAX, InputStream

GROUP_MESSAGES = 8192
GROUP_BYTES = 1024 * 1024
STANDARD_INPUT = Path("-")

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Compression(Enum):
    """The compression of batches."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@command(
    app,
    "danube produce /default/orders -m 'first' -m 'second'",
    "danube produce /default/orders -f orders.jsonl --key shop-7",
    "tail -f app.log | danube produce /default/logs --attribute host=web-1",
    "danube produce /default/load -m x -n 10000 --rate 500/s",
    "danube produce /default/reminders -m 'call back' --delay 2h --ttl 1d",
    "danube produce /default/orders -f orders.jsonl --schema orders",
    "danube produce /default/orders -f orders.csv --input csv --key-field shop",
    "danube read /default/orders -o json | danube produce /default/copy --input json",
)
def produce(
    topic: parameters.Topic,
    *,
    message: list[str] | None = None,
    file: Path | None = None,
    whole_file: bool = False,
    input_format: Input = Input.RAW,
    key_field: str | None = None,
    id_field: str | None = None,
    attribute_field: list[str] | None = None,
    count: Annotated[int, typer.Option(min=1)] = 1,
    key: str | None = None,
    attribute: list[str] | None = None,
    delay: str | None = None,
    ttl: str | None = None,
    rate: str | None = None,
    reliable: bool | None = None,
    partitions: Annotated[int | None, typer.Option(min=1)] = None,
    access: str = "shared",
    name: str | None = None,
    compression: Compression = Compression.NONE,
    schema: str | None = None,
    schema_version: Annotated[int | None, typer.Option(min=1)] = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Publish messages to a topic.

    The command ends when the broker has acknowledged all messages; those of a reliable
    topic are on disk then. Ctrl-C stops reading, waits for outstanding
    acknowledgements, and prints the number of published messages; a second Ctrl-C does
    not wait.

    Args:
        message (-m TEXT): A message; may be repeated.
        file (-f FILE): Publish each line of FILE as a message; - means standard input,
            which is the default without -m.
        whole_file: Publish the whole file as one message.
        input_format (--input raw|json|csv): The form of the input. With raw each line
            is a payload. With json each line is an object with payload, payload_base64
            or value, and optionally key, key_base64, attributes, publish_time,
            deliver_at and expires_at, as 'danube read -o json' prints it. With csv the
            first row names the columns, and each other row is published as a JSON
            object of texts. The first malformed record ends the command.
        key_field (FIELD): Take the key of each message from this field of its value, a
            JSON object or a row of CSV; inner fields as in user.id or items[0].id.
        id_field (FIELD): Take the id of each message from this field of its value. The
            topic does not store a message whose id it knows.
        attribute_field (FIELD): Add this field of the value to the attributes of each
            message, under the same name; may be repeated.
        count (-n COUNT): How often to publish the messages of -m.
        key (-k TEXT): The key of every message that has none in the input.
        attribute (-a NAME=VALUE): An attribute of every message; may be repeated. An
            attribute of the same name in the input has precedence.
        delay (DURATION): Deliver the messages after this delay, for example 30s or 2h.
        ttl (DURATION): Messages that were not delivered expire after this time.
        rate (N/s): The maximum number of messages per second, on average.
        reliable (--reliable/--non-reliable): Create a reliable (on disk) or
            non-reliable (in memory) topic if it does not exist, and fail if it exists
            with the other kind. By default existing topics of both kinds are accepted,
            and new ones are reliable.
        partitions (COUNT): The number of partitions with which to create the topic, if
            it does not exist.
        access (shared|exclusive|exclusive-wait|exclusive-fence): The access mode:
            shared admits other producers; exclusive fails if there are others;
            exclusive-wait waits until there are none; exclusive-fence disconnects them.
        name (NAME): The producer's name, which consumers see; by default generated.
        compression (none|lz4|zstd): The compression of batches on the network and in
            the journal.
        schema (SUBJECT): Encode each message with this subject of the schema registry.
            Messages are given as JSON, or as text if the schema is of type string.
        schema_version (NUMBER): With --schema: the version of the subject; by default
            the latest.
    """
    if schema_version is not None and schema is None:
        raise InvalidRequest("--schema-version requires --schema")
    producer_options: dict[str, Any] = {
        "name": name,
        "reliable": reliable,
        "compression": None if compression is Compression.NONE else compression.value,
        "access": access,
        "partitions": partitions,
    }
    if schema is not None:
        producer_options |= {
            "subject": schema,
            "schema_version": schema_version or LATEST,
        }
    common = CommonOptions(
        key=None if key is None else key.encode(errors="surrogateescape"),
        attributes=dict(map(parse_attribute, attribute or [])),
        delivery={
            "deliver_after_s": optional(parse_duration, delay),
            "ttl_s": optional(parse_duration, ttl),
        },
    )
    messages_per_s = optional(parse_rate, rate)
    fields = FieldOptions(
        key=optional(parse_path, key_field),
        id=optional(parse_path, id_field),
        attributes={each: parse_path(each) for each in attribute_field or ()},
    )
    if input_format is not Input.RAW and (message is not None or whole_file):
        raise InvalidRequest(
            f"--input {input_format.value} reads records from a file or from standard "
            "input, and cannot be combined with -m or --whole-file"
        )
    # Lines that are encoded one by one are parsed, so that errors name the line.
    is_parsed = (
        input_format is not Input.RAW
        or bool(fields)
        or (schema is not None and message is None and not whole_file)
    )
    with ExitStack() as held:
        lines = _source(held, message, file, count, whole_file=whole_file)
        source: AsyncIterator[Sequence[bytes] | list[Record]] = lines
        if is_parsed:
            source = parsed(lines, PARSERS[input_format](fields))
        published = Published(topic)
        is_typed = sys.stdin.isatty() and reads_standard_input(message, file)

        async def work(interruption: Interruption) -> None:
            async with (
                connect(url) as client,
                client.producer(topic, **producer_options) as producer,
            ):
                await publish(
                    producer,
                    common,
                    await _encoding(producer, source) if is_parsed else source,
                    published,
                    interruption,
                    rate=messages_per_s,
                    # Progress would be between the lines that the user types.
                    shows_progress=sys.stderr.isatty() and not is_typed,
                )

        try:
            run(work)
        except RefusedRecord as refused:
            if published.messages:
                print_result(published.result(), output_format)
            raise InvalidRequest(f"{refused}; {published.before_refusal}") from None
        except BrokerError:
            if published.messages:
                print_result(published.result(), output_format)
            raise
        except Interrupted:
            print_result(published.result(), output_format)
            raise
        print_result(published.result(), output_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The key, attributes and delivery window that all messages have."""

    key: bytes | None
    attributes: dict[str, str]
    delivery: DeliveryOptions


@dataclass(slots=True)
class Published:
    """The acknowledged messages, and how long they took."""

    topic: str
    messages: int = 0
    byte_count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    partitions: dict[str, int] = field(default_factory=dict)
    """The number of messages by partition, for a partitioned topic."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def progress(self) -> str:
        """The counts and the rate so far."""
        return (
            f"{format_messages(self.messages)}  {format_bytes(self.byte_count)}  "
            f"{format_count(self.rate)} messages/s"
        )

    @property
    def before_refusal(self) -> str:
        """A clause about the messages that were published before a refused record."""
        match self.messages:
            case 0:
                return "nothing was published"
            case 1:
                return "the message before it was published"
            case count:
                return f"the {format_messages(count)} before it were published"

    def add(self, payloads: Sequence[bytes], ids: MessageIds) -> None:
        """Add acknowledged messages."""
        self.messages += len(payloads)
        self.byte_count += sum(map(len, payloads))
        if isinstance(ids, PartitionedIds):
            for name, count in ids.counts().items():
                self.partitions[name] = self.partitions.get(name, 0) + count
            return
        if self.first_offset is None:
            self.first_offset = ids.offsets[0]
        self.last_offset = ids.offsets[-1]

    def result(self) -> Result:
        """Return the counts and the rate."""
        facts = {
            "topic": self.topic,
            "messages": self.messages,
            "bytes": self.byte_count,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.rate, 1),
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
        }
        if self.partitions:
            facts["partitions"] = self.partitions
        return Result(facts, str(self))

    def __str__(self) -> str:
        text = f"Published {format_messages(self.messages)} to {self.topic}"
        speed = f"in {self.seconds:.2f} s, {format_count(self.rate)} messages/s."
        if self.partitions:
            target = "1 partition"
            if len(self.partitions) > 1:
                target = f"{len(self.partitions)} partitions"
            return f"{text} ({format_bytes(self.byte_count)}), to {target}, {speed}"
        if self.first_offset == self.last_offset:
            where = (
                "" if self.first_offset is None else f" at offset {self.last_offset}"
            )
            return f"{text}{where}."
        return (
            f"{text} ({format_bytes(self.byte_count)}) at offsets {self.first_offset} "
            f"to {self.last_offset} {speed}"
        )


async def publish(
    producer: Producer | PartitionedProducer | TypedProducer[Any],
    common: CommonOptions,
    source: AsyncIterator[Sequence[bytes] | list[Record]],
    published: Published,
    interruption: Interruption,
    *,
    rate: float | None,
    shows_progress: bool,
) -> None:
    """
    Publish the messages of *source*, and count acknowledged ones in *published*.

    The first signal stops it before the next read.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    limiter = None
    if rate is not None:
        limiter = TokenBucket(rate, started)
        # Without this, the messages of the first second would be published at once.
        limiter.spend(limiter.capacity - 1)
    with (
        progress_line("publishing", is_shown=shows_progress) as show,
        interruption.shielded(CLOSE_TIMEOUT_S),
    ):
        async for payloads in _read_until_interrupted(source, limiter, interruption):
            try:
                await _publish(producer, common, payloads, published)
            except asyncio.CancelledError:
                count = format_messages(len(payloads))
                print_note(
                    f"The broker has not acknowledged {count} to {published.topic}; it "
                    "may or may not have stored them."
                )
                raise
            published.seconds = loop.time() - started
            show(published.progress, published.messages)


async def _publish(
    producer: Producer | PartitionedProducer | TypedProducer[Any],
    common: CommonOptions,
    messages: Sequence[bytes] | list[Record],
    published: Published,
) -> None:
    if isinstance(messages[0], Record):
        records = cast("list[Record]", messages)
        batch = batch_of_records(
            records,
            now=time_ns() // 1000,
            key=common.key,
            attributes=common.attributes,
            has_delay=common.delivery.get("deliver_after_s") is not None,
            has_ttl=common.delivery.get("ttl_s") is not None,
        )
        given = [each.id for each in records if each.id is not None] or None
        if isinstance(producer, TypedProducer):
            ids = await producer.send_encoded(batch, ids=given, **common.delivery)
        else:
            ids = await producer.send_batch(batch, ids=given, **common.delivery)
        published.add([each.payload for each in records], ids)
        return
    payloads = cast("Sequence[bytes]", messages)
    count = len(payloads)
    keys = None if common.key is None else [common.key] * count
    attributes = [common.attributes] * count if common.attributes else None
    if isinstance(producer, TypedProducer):
        ids = await producer.send_batch(
            values_of(producer.schema.type, payloads),
            keys=keys,
            attributes=attributes,
            **common.delivery,
        )
    else:
        ids = await producer.send_batch(
            batch_of(payloads, keys=keys, attributes=attributes)
            if keys or attributes
            else payloads,
            **common.delivery,
        )
    published.add(payloads, ids)


async def parsed(
    lines: AsyncIterator[Sequence[bytes]], parser: Parser
) -> AsyncIterator[list[Record]]:
    """
    Yield the records in *lines*, in groups that arrived together.

    Raises:
        RefusedRecord: A record is malformed; all records before it were yielded.
    """
    async for some in lines:
        records: list[Record] = []
        refused: RefusedRecord | None = None
        try:
            records.extend(parser.feed(some))
        except RefusedRecord as error:
            refused = error
        if records:
            yield records
        if refused is not None:
            raise refused
    parser.finish()


async def _encoding(
    producer: Producer | PartitionedProducer | TypedProducer[Any],
    source: AsyncIterator[Any],
) -> AsyncIterator[list[Record]]:
    """Return the records of *source*, encoded if *producer* has a schema."""
    if not isinstance(producer, TypedProducer):
        return source
    schema = schema_of(producer.schema)
    # Building an encoder may take a while.
    encode = await asyncio.to_thread(lambda: json_value_encoder(schema.parse()))
    return _encoded(source, schema.type, encode)


async def _encoded(
    source: AsyncIterator[list[Record]], type_: SchemaType, encode: Encoder
) -> AsyncIterator[list[Record]]:
    async for some in source:
        records, refused = encode_records(type_, encode, some)
        if records:
            yield records
        if refused is not None:
            raise refused


async def _read_until_interrupted(
    source: AsyncIterator[Sequence[bytes] | list[Record]],
    limiter: TokenBucket | None,
    interruption: Interruption,
) -> AsyncIterator[Sequence[bytes] | list[Record]]:
    """
    Yield the messages of *source* at the rate of *limiter*, until a signal arrives.
    """
    loop = asyncio.get_running_loop()
    while True:
        payloads: Sequence[bytes] | list[Record] | None = None
        async with interruption.until_requested():
            payloads = await anext(source, None)
        if payloads is None:
            return
        while limiter is not None and len(payloads) > (
            available := limiter.available(loop.time())
        ):
            if available:
                limiter.spend(available)
                yield payloads[:available]
                payloads = payloads[available:]
            async with interruption.until_requested():
                now = loop.time()
                await asyncio.sleep(limiter.next_time(len(payloads), now) - now)
            if interruption.is_requested:
                return
        if limiter is not None:
            limiter.spend(len(payloads))
        yield payloads


def reads_standard_input(messages: list[str] | None, file: Path | None) -> bool:
    """Return whether the messages to publish come from standard input."""
    return messages is None and file in {None, STANDARD_INPUT}


def _source(
    held: ExitStack,
    messages: list[str] | None,
    file: Path | None,
    count: int,
    *,
    whole_file: bool,
) -> AsyncIterator[Sequence[bytes]]:
    """Return the messages to publish, in groups; files stay open as long as *held*."""
    if messages is not None:
        if file is not None or whole_file:
            raise InvalidRequest("-m cannot be combined with --file or --whole-file")
        payloads = [each.encode(errors="surrogateescape") for each in messages]
        return repeated(payloads, count)
    if count != 1:
        raise InvalidRequest("-n repeats the messages of -m, which is missing")
    if file is None or file == STANDARD_INPUT:
        if sys.stdin.isatty():
            print_note("Each line is a message; press Ctrl-D to end the input.")
        descriptor = sys.stdin.fileno()
    else:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        held.callback(os.close, descriptor)
    source = InputStream(descriptor)
    return _read_whole(source) if whole_file else source.read_lines()


async def repeated(
    payloads: Sequence[bytes], count: int
) -> AsyncIterator[Sequence[bytes]]:
    """Yield *payloads* *count* times, in groups of a good batch size."""
    byte_count = sum(map(len, payloads))
    times = min(GROUP_MESSAGES // len(payloads), GROUP_BYTES // max(byte_count, 1))
    times = max(times, 1)
    group = [*payloads] * min(times, count)
    for _ in range(count // times):
        yield group
    if rest := count % times:
        yield group[: rest * len(payloads)]


async def _read_whole(source: InputStream) -> AsyncIterator[Sequence[bytes]]:
    pieces, byte_count = [], 0
    while data := await source.read():
        pieces.append(data)
        byte_count += len(data)
        if byte_count > LINE_BYTES_MAX:
            raise MessageTooLarge(f"the file is longer than {LINE_BYTES_MAX} bytes")
    yield [b"".join(pieces)]
