"""
`danube produce`: messages from options, a file or standard input to a topic.

What is read together is published together and acknowledged before more is read,
so memory is bounded by one reading, and the counts are true whenever it ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pydanube.cli import parameters
from pydanube.cli.interruption import Interrupted, Interruption, run
from pydanube.cli.output import OutputFormat, print_json, print_line, print_note
from pydanube.cli.parameters import examples
from pydanube.cli.quantities import (
    format_bytes,
    format_count,
    format_messages,
    parse_attribute,
    parse_duration,
    parse_rate,
)
from pydanube.cli.rate_limiter import RateLimiter
from pydanube.cli.standard_streams import LINE_BYTES_MAX, InputStream, read_lines
from pydanube.client.client import CLOSE_TIMEOUT_S, DEFAULT_URL, LATEST, connect
from pydanube.client.messages import PartitionedIds
from pydanube.client.typed_producer import TypedProducer
from pydanube.model.batch import batch_of
from pydanube.model.errors import (
    BrokerError,
    InvalidPayload,
    InvalidRequest,
    MessageTooLarge,
)
from pydanube.model.schemas import SchemaType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    import pyarrow as pa

    from pydanube.client.batching import DeliveryOptions
    from pydanube.client.messages import MessageIds
    from pydanube.client.partitioned_producer import PartitionedProducer
    from pydanube.client.producer import Producer

GROUP_MESSAGES = 8192
GROUP_BYTES = 1024 * 1024
STANDARD_INPUT = Path("-")

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Compression(Enum):
    """How batches are compressed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@app.command(
    epilog=examples(
        "danube produce /default/orders -m 'first' -m 'second'",
        "danube produce /default/orders -f orders.jsonl --key shop-7",
        "tail -f app.log | danube produce /default/logs --attribute host=web-1",
        "danube produce /default/load -m x -n 10000 --rate 500/s",
        "danube produce /default/reminders -m 'call back' --delay 2h --ttl 1d",
        "danube produce /default/orders -f orders.jsonl --schema orders",
    )
)
def produce(
    topic: parameters.Topic,
    *,
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="A message; may be given several times.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Publish every line of FILE as a message; - is standard input, which "
            "is also read if there is neither -m nor -f.",
        ),
    ] = None,
    whole_file: Annotated[
        bool,
        typer.Option("--whole-file", help="Publish the whole file as one message."),
    ] = False,
    count: Annotated[
        int,
        typer.Option(
            "--count",
            "-n",
            min=1,
            metavar="COUNT",
            help="Publish the messages of -m so many times over.",
        ),
    ] = 1,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="TEXT", help="The key of every message."),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            "-a",
            metavar="NAME=VALUE",
            help="An attribute of every message; may be given several times.",
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            metavar="DURATION",
            help="Consumers get the messages so much later, for example 30s or 2h.",
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl",
            metavar="DURATION",
            help="Who has not got a message after so long does not get it any more.",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="N/s",
            help="Publish at most so many messages a second, on average.",
        ),
    ] = None,
    reliable: Annotated[
        bool | None,
        typer.Option(
            "--reliable/--non-reliable",
            help="Create the topic, if it does not exist, on disk or in memory only; "
            "and refuse one of the other kind. Without either, any is taken and a "
            "reliable one created.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            metavar="COUNT",
            help="Create the topic, if it does not exist, with so many partitions.",
        ),
    ] = None,
    access: Annotated[
        str,
        typer.Option(
            "--access",
            metavar="shared|exclusive|exclusive-wait|exclusive-fence",
            help="Whether others may produce to the topic at the same time; if not: be "
            "refused while there are others, wait until they are gone, or end them.",
        ),
    ] = "shared",
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="The producer's name, which consumers see; by default made up.",
        ),
    ] = None,
    compression: Annotated[
        Compression,
        typer.Option(
            "--compression",
            metavar="none|lz4|zstd",
            help="How messages are compressed on their way and in the journal.",
        ),
    ] = Compression.NONE,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="SUBJECT",
            help="Write each message as this subject of the schema registry says. A "
            "message is then a value in JSON, or text if the schema is of type string.",
            show_default=False,
        ),
    ] = None,
    schema_version: Annotated[
        int | None,
        typer.Option(
            "--schema-version",
            min=1,
            metavar="NUMBER",
            help="With --schema: this version of the subject, rather than the latest.",
            show_default=False,
        ),
    ] = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Publish messages to a topic.

    Each is acknowledged by the broker, and on disk if the topic is reliable, before the
    command ends. Ctrl-C stops reading, waits for what is on its way, and says how much
    was published; a second Ctrl-C does not wait.
    """
    if schema_version is not None and schema is None:
        raise InvalidRequest("--schema-version is of a --schema, and there is none")
    options = ProduceOptions(
        topic=topic,
        key=key,
        attributes=dict(map(parse_attribute, attribute or [])),
        delay_s=None if delay is None else parse_duration(delay),
        ttl_s=None if ttl is None else parse_duration(ttl),
        rate=None if rate is None else parse_rate(rate),
        reliable=reliable,
        partitions=partitions,
        access=access,
        name=name,
        compression=None if compression is Compression.NONE else compression.value,
        schema=schema,
        schema_version=schema_version,
        url=url,
    )
    with ExitStack() as held:
        source = _source(held, message, file, count, whole_file=whole_file)
        published = Published(topic)
        try:
            run(lambda interruption: publish(options, source, published, interruption))
        except BrokerError:
            if published.messages:
                published.report(output_format)
            raise
        except Interrupted:
            published.report(output_format)
            raise
        published.report(output_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """How to publish."""

    topic: str
    key: str | None
    attributes: dict[str, str]
    delay_s: float | None
    ttl_s: float | None
    rate: float | None
    reliable: bool | None
    partitions: int | None
    access: str
    name: str | None
    compression: str | None
    schema: str | None = None
    schema_version: int | None = None
    url: str

    @property
    def schema_options(self) -> dict[str, Any]:
        """What a producer is told of schemas."""
        if self.schema is None:
            return {}
        return {"subject": self.schema, "schema_version": self.schema_version or LATEST}

    def batch(self, payloads: Sequence[bytes]) -> Sequence[bytes] | pa.RecordBatch:
        """*payloads* with what every message has."""
        if self.key is None and not self.attributes:
            return payloads
        count = len(payloads)
        key = None if self.key is None else self.key.encode(errors="surrogateescape")
        return batch_of(
            payloads,
            keys=None if key is None else [key] * count,
            attributes=[self.attributes] * count if self.attributes else None,
        )


@dataclass(slots=True)
class Published:
    """What was acknowledged so far."""

    topic: str
    messages: int = 0
    byte_count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    partitions: dict[str, int] = field(default_factory=dict)
    """How many messages went to each, where there are several."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0

    def add(self, payloads: Sequence[bytes], ids: MessageIds) -> None:
        """These were acknowledged."""
        self.messages += len(payloads)
        self.byte_count += sum(map(len, payloads))
        if isinstance(ids, PartitionedIds):
            for name, count in ids.counts().items():
                self.partitions[name] = self.partitions.get(name, 0) + count
            return
        if self.first_offset is None:
            self.first_offset = ids.offsets[0]
        self.last_offset = ids.offsets[-1]

    def report(self, format_: OutputFormat) -> None:
        """Say it."""
        if format_ is OutputFormat.JSON:
            print_json(
                {
                    "topic": self.topic,
                    "messages": self.messages,
                    "bytes": self.byte_count,
                    "seconds": round(self.seconds, 6),
                    "messages_per_second": round(self.rate, 1),
                    "first_offset": self.first_offset,
                    "last_offset": self.last_offset,
                    **({"partitions": self.partitions} if self.partitions else {}),
                }
            )
        else:
            print_line(str(self))

    def __str__(self) -> str:
        said = f"Published {format_messages(self.messages)} to {self.topic}"
        pace = f"in {self.seconds:.2f} s, {format_count(self.rate)} messages/s."
        if self.partitions:
            spread = "1 partition"
            if len(self.partitions) > 1:
                spread = f"{len(self.partitions)} partitions"
            return f"{said} ({format_bytes(self.byte_count)}), to {spread}, {pace}"
        if self.first_offset == self.last_offset:
            where = (
                "" if self.first_offset is None else f" at offset {self.last_offset}"
            )
            return f"{said}{where}."
        return (
            f"{said} ({format_bytes(self.byte_count)}) at offsets {self.first_offset} "
            f"to {self.last_offset} {pace}"
        )


async def publish(
    options: ProduceOptions,
    source: AsyncIterator[Sequence[bytes]],
    published: Published,
    interruption: Interruption,
) -> None:
    """
    Publish what *source* yields, and count in *published* what is acknowledged.

    The first signal ends it before the next reading.
    """
    loop = asyncio.get_running_loop()
    async with (
        connect(options.url) as client,
        client.producer(
            options.topic,
            name=options.name,
            reliable=options.reliable,
            compression=options.compression,
            access=options.access,
            partitions=options.partitions,
            **options.schema_options,
        ) as producer,
    ):
        limiter = (
            None if options.rate is None else RateLimiter(options.rate, loop.time())
        )
        started = loop.time()
        with _progress() as show, interruption.shielded(CLOSE_TIMEOUT_S):
            async for payloads in _read_until_interrupted(
                source, limiter, interruption
            ):
                try:
                    await _publish(producer, options, payloads, published)
                except asyncio.CancelledError:
                    count = format_messages(len(payloads))
                    print_note(
                        f"The broker has not acknowledged {count} to {options.topic}; "
                        "it may or may not have stored them."
                    )
                    raise
                published.seconds = loop.time() - started
                show(published)


async def _publish(
    producer: Producer | PartitionedProducer | TypedProducer[Any],
    options: ProduceOptions,
    payloads: Sequence[bytes],
    published: Published,
) -> None:
    delivery: DeliveryOptions = {
        "deliver_after_s": options.delay_s,
        "ttl_s": options.ttl_s,
    }
    if isinstance(producer, TypedProducer):
        count = len(payloads)
        ids = await producer.send_batch(
            values_of(producer.schema.type, payloads),
            keys=None if options.key is None else [options.key] * count,
            attributes=[options.attributes] * count if options.attributes else None,
            **delivery,
        )
    else:
        ids = await producer.send_batch(options.batch(payloads), **delivery)
    published.add(payloads, ids)


def values_of(type_: SchemaType, payloads: Sequence[bytes]) -> list[Any]:
    """
    What was typed or read, as values of a schema of this type.

    Raises:
        InvalidPayload: It is not JSON, or not text.
    """
    values: list[Any] = []
    try:
        for payload in payloads:
            if type_ is SchemaType.BYTES:
                values.append(payload)
            elif type_ is SchemaType.STRING:
                values.append(payload.decode())
            else:
                values.append(msgspec.json.decode(payload))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = payloads[len(values)][:80].decode(errors="backslashreplace")
        raise InvalidPayload(
            f"a message for a schema of type {type_.value} is "
            f"{'text' if type_ is SchemaType.STRING else 'JSON'}, not {said!r}: {error}"
        ) from error
    return values


async def _read_until_interrupted(
    source: AsyncIterator[Sequence[bytes]],
    limiter: RateLimiter | None,
    interruption: Interruption,
) -> AsyncIterator[Sequence[bytes]]:
    """What *source* yields, at this *pace*, until a signal comes."""
    loop = asyncio.get_running_loop()
    while True:
        payloads: Sequence[bytes] | None = None
        async with interruption.until_requested():
            payloads = await anext(source, None)
        if payloads is None:
            return
        while limiter is not None and len(payloads) > (
            available := limiter.available(loop.time())
        ):
            if available:
                limiter.take(available)
                yield payloads[:available]
                payloads = payloads[available:]
            async with interruption.until_requested():
                now = loop.time()
                await asyncio.sleep(limiter.next_time(now) - now)
            if interruption.is_requested:
                return
        if limiter is not None:
            limiter.take(len(payloads))
        yield payloads


def _source(
    held: ExitStack,
    messages: list[str] | None,
    file: Path | None,
    count: int,
    *,
    whole_file: bool,
) -> AsyncIterator[Sequence[bytes]]:
    """What to publish, some messages at a time; files stay open as long as *held*."""
    if messages is not None:
        if file is not None or whole_file:
            raise InvalidRequest("messages come from -m or from a file, not from both")
        payloads = [each.encode(errors="surrogateescape") for each in messages]
        return repeated(payloads, count)
    if count != 1:
        raise InvalidRequest("-n says how often -m is repeated, and there is no -m")
    if file is None or file == STANDARD_INPUT:
        if sys.stdin.isatty():
            print_note("Each line is a message; Ctrl-D ends the input.")
        descriptor = sys.stdin.fileno()
    else:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        held.callback(os.close, descriptor)
    source = InputStream(descriptor)
    return _read_whole(source) if whole_file else read_lines(source)


async def repeated(
    payloads: Sequence[bytes], count: int
) -> AsyncIterator[Sequence[bytes]]:
    """*payloads*, *count* times over, as many at a time as make a good batch."""
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
            raise MessageTooLarge(f"the file has more than {LINE_BYTES_MAX} bytes")
    yield [b"".join(pieces)]


@contextmanager
def _progress() -> Iterator[Callable[[Published], None]]:
    """Shows how far it is, where somebody looks and nobody types."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  # Only where it is shown.
    from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

    columns = SpinnerColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("publishing")

        def show(published: Published) -> None:
            progress.update(
                task,
                description=f"{format_messages(published.messages)}  "
                f"{format_bytes(published.byte_count)}  "
                f"{format_count(published.rate)} messages/s",
            )

        yield show
