"""
`danube consume`: prints the messages of a subscription on standard output.

Only printed messages are acknowledged: those that were written to standard output
completely.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from pydanube.client.client import DEFAULT_URL, Client, connect
from pydanube.client.consumers.consumer import Consumer
from pydanube.client.messages.messages import MessageBatch
from pydanube.model.choices import SubscriptionTypeName
from pydanube.model.errors import InvalidRequest, TimedOut
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.quantity_formats import format_messages
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.messages.message_formats import RENDERERS, Output, Renderer
from pydanube_cli.presentation.output import print_note
from pydanube_cli.presentation.progress_line import progress_line
from pydanube_cli.presentation.quantities import (
    optional,
    parse_duration,
    parse_position,
)
from pydanube_cli.presentation.standard_streams import OutputStream

BATCH_MESSAGES = 1000
STANDARD_OUTPUT = 1
CLOSE_TIMEOUT_S = 3.0
"""The time to wait for an unreachable broker when the command is ended."""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube consume /default/orders -s me --from earliest",
    "danube consume /default/orders -s me -n 10 --timeout 5s",
    "danube consume /default/orders -s audit --output json | jq .payload",
    "danube consume /default/orders -s workers --type shared",
    "danube consume /default/orders -s eu --type key-shared --key-filter 'eu-*'",
    "danube consume /default/orders -s again --from 2h",
    "danube consume /default/orders -s me --decode",
    "danube consume '/default/orders-*' -s all",
)
def consume(
    topic: parameters.Topic,
    *,
    subscription: str,
    type: parameters.Type = "exclusive",  # noqa: A002  # The option's name.
    start: parameters.From = "latest",
    key_filter: list[str] | None = None,
    priority: int = 0,
    count: Annotated[int | None, typer.Option(min=1)] = None,
    timeout: str | None = None,
    ack: bool = True,
    nack: str | None = None,
    nack_delay: str = "0s",
    output: Output = Output.TEXT,
    decode: bool = False,
    name: str | None = None,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Print the messages of a topic as they arrive.

    TOPIC may be a pattern of several topics, in which * stands for any text without a
    slash and ? for one character. New topics that match are found every 5 seconds.

    Messages are acknowledged when they have been printed. Ctrl-C ends the command after
    the acknowledgements are on the broker's disk; run it again to continue with the
    next message.

    Args:
        subscription (-s NAME): The subscription, which remembers what is acknowledged.
            It is created if it does not exist.
        key_filter (PATTERN): With a key-shared subscription: receive only messages
            whose key matches, with * for any text and ? for one character; may be
            repeated.
        priority (NUMBER): The consumer's priority on a shared subscription; consumers
            with a lower number receive messages first.
        count (-n COUNT): Stop after this number of messages; by default never.
        timeout (DURATION): Stop when no message has arrived for this time; by default
            never. It is an error if fewer messages arrived than -n asks for.
        ack (--ack/--no-ack): Acknowledge the messages that were printed, or leave them
            unacknowledged, so that they are delivered again.
        nack (REASON): Negatively acknowledge the messages that were printed, with this
            reason; they are delivered again as the subscription's failure policy says.
        nack_delay (DURATION): With --nack: the minimum time until a message is
            delivered again.
        output (--output -o --format text|json): text prints each payload and a newline;
            json prints one JSON object per line, with topic, offset, publish_time, key,
            attributes, producer, attempt and payload, or payload_base64 if the payload
            is not UTF-8.
        decode: Decode payloads with the schemas that they were written with, and print
            the values as JSON; messages without a schema are printed unchanged.
        name (NAME): The consumer's name, by default generated. A new consumer replaces
            a connected one of the same name.
    """
    if nack is not None and not ack:
        raise InvalidRequest("--nack and --no-ack exclude each other")
    timeout_s = optional(parse_duration, timeout)
    options = ConsumeOptions(
        count=count,
        timeout_s=timeout_s,
        is_acking=ack and nack is None,
        nack_reason=nack,
        nack_delay_s=parse_duration(nack_delay),
        render=RENDERERS[output, decode],
    )
    position = parse_position(start)

    async def work(interruption: Interruption) -> None:
        async with (
            connect(url, close_timeout_s=CLOSE_TIMEOUT_S) as client,
            client.consumer(
                topic,
                subscription=subscription,
                type=cast("SubscriptionTypeName", type),
                start=position,
                name=name,
                key_filters=tuple(key_filter or ()),
                priority=priority,
            ) as consumer,
        ):
            printed = await print_messages(client, consumer, options, interruption)
        if count is not None and printed < count and not interruption.is_requested:
            raise TimedOut(
                f"received {format_messages(printed)} of {count}, then none for "
                f"{timeout_s:g} s"
            )

    run(work)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """How many messages are consumed, and what happens to them."""

    count: int | None
    timeout_s: float | None
    is_acking: bool
    nack_reason: str | None
    nack_delay_s: float
    render: Renderer


async def print_messages(
    client: Client,
    consumer: Consumer,
    options: ConsumeOptions,
    interruption: Interruption,
) -> int:
    """
    Print messages up to the wanted number, the timeout, or a signal; return the number.

    Durability: On return, and after an error, the broker has the acknowledgements of
        all printed messages on disk, unless it cannot be reached.
    """
    output = OutputStream(STANDARD_OUTPUT)
    if sys.stdout.isatty() and sys.stderr.isatty():
        print_note(f"Waiting for messages of {consumer.topic}; press Ctrl-C to stop.")
    printed = 0
    with progress_line("consuming", is_shown=_shows_progress(), has_rate=True) as show:
        async with interruption.until_requested():
            while options.count is None or printed < options.count:
                left = BATCH_MESSAGES
                if options.count is not None:
                    left = min(left, options.count - printed)
                batch = await consumer.receive_batch(
                    max_messages=left, timeout_s=options.timeout_s
                )
                if not batch:
                    break
                await _print(output, consumer, batch, options)
                printed += len(batch)
                show(format_messages(printed), printed)
    if options.is_acking and output.byte_count:
        await _flush(client, consumer)
    return printed


async def _print(
    output: OutputStream,
    consumer: Consumer,
    batch: MessageBatch,
    options: ConsumeOptions,
) -> None:
    """Print *batch*; ack or nack its messages, or those that were printed."""
    lines = options.render(batch)
    before = output.byte_count
    try:
        await output.write(b"".join(lines))
    finally:
        count = whole_lines(lines, output.byte_count - before)
        printed = batch if count == len(batch) else batch[:count]
        if options.is_acking and count:
            consumer._ack_nowait(printed)
        elif options.nack_reason is not None and count:
            await consumer.nack(
                printed, delay_s=options.nack_delay_s, reason=options.nack_reason
            )


async def _flush(client: Client, consumer: Consumer) -> None:
    try:
        async with client.requester.closing():
            await consumer.flush()
    except TimeoutError:
        raise TimedOut(
            "the broker cannot be reached, so messages that were printed last may be "
            "delivered again"
        ) from None


def whole_lines(lines: Sequence[bytes], byte_count: int) -> int:
    """Return how many of *lines* are complete in their first *byte_count* bytes."""
    for index, line in enumerate(lines):
        byte_count -= len(line)
        if byte_count < 0:
            return index
    return len(lines)


def _shows_progress() -> bool:
    """Return whether messages are written to a file, and a user sees the progress."""
    is_file = stat.S_ISREG(os.fstat(STANDARD_OUTPUT).st_mode)
    return is_file and sys.stderr.isatty()
