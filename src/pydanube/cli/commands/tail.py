"""`danube tail`: prints the new messages of topics, without a subscription."""

from __future__ import annotations

import sys
from contextlib import suppress

import typer

from pydanube.cli import parameters
from pydanube.cli.declaration import command
from pydanube.cli.interruption import Interruption, run
from pydanube.cli.output import print_note
from pydanube.cli.quantities import parse_position
from pydanube.cli.reading_options import (
    CLOSE_TIMEOUT_S,
    STANDARD_OUTPUT,
    Decode,
    From,
    Limit,
    Output,
    OutputOption,
    PrintOptions,
    Template,
    Topics,
    Where,
)
from pydanube.cli.standard_streams import OutputStream
from pydanube.cli.topic_ranges import find_ranges
from pydanube.cli.topic_reading import LimitReached, follow_ranges
from pydanube.client.client import DEFAULT_URL, connect

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube tail /default/orders",
    "danube tail /default/orders --from 10m -o json | jq .payload",
    "danube tail '/default/orders-*' /default/refunds",
    "danube tail /default/orders --where \"key ~ 'eu-*'\"",
    "danube tail /default/orders -n 1 -f '%v'",
)
def tail(
    topics: Topics,
    *,
    start: From = "latest",
    where: Where = None,
    limit: Limit = None,
    output: OutputOption = Output.TABLE,
    template: Template = None,
    decode: Decode = False,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Print the new messages of topics as they arrive, without a subscription.

    The command runs until Ctrl-C, or until a program that reads its output ends. It
    acknowledges nothing and leaves nothing behind.
    """
    first = parse_position(start)
    options = PrintOptions(
        topics,
        where=where,
        limit=limit,
        output=output,
        template=template,
        decode=decode,
    )

    async def work(_: Interruption) -> None:
        stream = OutputStream(STANDARD_OUTPUT)
        async with connect(url, close_timeout_s=CLOSE_TIMEOUT_S) as client:
            ranges = await find_ranges(client, topics, first, None)
            printer = options.printer(stream, ranges)
            if sys.stdout.isatty() and sys.stderr.isatty():
                print_note("Waiting for messages; press Ctrl-C to stop.")
            with suppress(LimitReached):
                await follow_ranges(client, ranges, printer, stream)

    run(work)
