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
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli import options
from pydanube.cli.answers import Format, print_json, print_line, say
from pydanube.cli.interruption import Interrupted, Interruption, run
from pydanube.cli.options import examples
from pydanube.cli.pace import Pace
from pydanube.cli.quantities import (
    format_bytes,
    format_count,
    format_messages,
    parse_attribute,
    parse_rate,
)
from pydanube.cli.streams import LINE_BYTES_MAX, Inlet, read_lines
from pydanube.client.client import DEFAULT_URL, connect
from pydanube.model.batch import batch_of
from pydanube.model.errors import BrokerError, InvalidRequest, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    import pyarrow as pa

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
    )
)
def produce(
    topic: options.Topic,
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
    url: options.Url = DEFAULT_URL,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """
    Publish messages to a topic.

    Each is acknowledged by the broker, and on disk if the topic is reliable, before the
    command ends. Ctrl-C stops reading, waits for what is on its way, and says how much
    was published; a second Ctrl-C does not wait.
    """
    orders = Orders(
        topic=topic,
        key=key,
        attributes=dict(map(parse_attribute, attribute or [])),
        rate=None if rate is None else parse_rate(rate),
        reliable=reliable,
        name=name,
        compression=None if compression is Compression.NONE else compression.value,
        url=url,
    )
    with ExitStack() as held:
        source = _source(held, message, file, count, whole_file=whole_file)
        published = Published(topic)
        try:
            run(lambda interruption: publish(orders, source, published, interruption))
        except BrokerError:
            if published.messages:
                published.report(answer_format)
            raise
        except Interrupted:
            published.report(answer_format)
            raise
        published.report(answer_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How to publish."""

    topic: str
    key: str | None
    attributes: dict[str, str]
    rate: float | None
    reliable: bool | None
    name: str | None
    compression: str | None
    url: str

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
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0

    def add(self, payloads: Sequence[bytes], offsets: Sequence[int]) -> None:
        """These were acknowledged."""
        self.messages += len(payloads)
        self.byte_count += sum(map(len, payloads))
        if self.first_offset is None:
            self.first_offset = offsets[0]
        self.last_offset = offsets[-1]

    def report(self, format_: Format) -> None:
        """Say it."""
        if format_ is Format.JSON:
            print_json(
                {
                    "topic": self.topic,
                    "messages": self.messages,
                    "bytes": self.byte_count,
                    "seconds": round(self.seconds, 6),
                    "messages_per_second": round(self.rate, 1),
                    "first_offset": self.first_offset,
                    "last_offset": self.last_offset,
                }
            )
        else:
            print_line(str(self))

    def __str__(self) -> str:
        said = f"Published {format_messages(self.messages)} to {self.topic}"
        if self.first_offset == self.last_offset:
            where = (
                "" if self.first_offset is None else f" at offset {self.last_offset}"
            )
            return f"{said}{where}."
        return (
            f"{said} ({format_bytes(self.byte_count)}) at offsets {self.first_offset} "
            f"to {self.last_offset} in {self.seconds:.2f} s, "
            f"{format_count(self.rate)} messages/s."
        )


async def publish(
    orders: Orders,
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
        connect(orders.url) as client,
        client.producer(
            orders.topic,
            name=orders.name,
            reliable=orders.reliable,
            compression=orders.compression,
        ) as producer,
    ):
        pace = None if orders.rate is None else Pace(orders.rate, loop.time())
        started = loop.time()
        with _progress() as show, interruption.finishing():
            async for payloads in _until_it_comes(source, pace, interruption):
                await _publish(producer, orders, payloads, published)
                published.seconds = loop.time() - started
                show(published)


async def _publish(
    producer: Producer,
    orders: Orders,
    payloads: Sequence[bytes],
    published: Published,
) -> None:
    ids = await producer.send_batch(orders.batch(payloads))
    published.add(payloads, ids.offsets)


async def _until_it_comes(
    source: AsyncIterator[Sequence[bytes]],
    pace: Pace | None,
    interruption: Interruption,
) -> AsyncIterator[Sequence[bytes]]:
    """What *source* yields, at this *pace*, until a signal comes."""
    loop = asyncio.get_running_loop()
    while True:
        payloads: Sequence[bytes] | None = None
        async with interruption.until_it_comes():
            payloads = await anext(source, None)
        if payloads is None:
            return
        while pace is not None and len(payloads) > (
            allowed := pace.allowed(loop.time())
        ):
            if allowed:
                pace.spend(allowed)
                yield payloads[:allowed]
                payloads = payloads[allowed:]
            async with interruption.until_it_comes():
                now = loop.time()
                await asyncio.sleep(pace.next_time(now) - now)
            if interruption.came:
                return
        if pace is not None:
            pace.spend(len(payloads))
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
            say("Each line is a message; Ctrl-D ends the input.")
        descriptor = sys.stdin.fileno()
    else:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        held.callback(os.close, descriptor)
    inlet = Inlet(descriptor)
    return _read_whole(inlet) if whole_file else read_lines(inlet)


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


async def _read_whole(inlet: Inlet) -> AsyncIterator[Sequence[bytes]]:
    pieces, byte_count = [], 0
    while data := await inlet.read():
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
