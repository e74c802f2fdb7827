"""`danube read`: prints a range of the messages of topics, without a subscription."""

from __future__ import annotations

import sys
from contextlib import suppress

import typer

from pydanube.client.client import DEFAULT_URL, connect
from pydanube.client.connections.requester import READ_RETRY_S
from pydanube.model.errors import InvalidRequest
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.messages.reading_options import (
    CLOSE_TIMEOUT_S,
    STANDARD_OUTPUT,
    Columns,
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
from pydanube_cli.messages.topic_ranges import find_ranges
from pydanube_cli.messages.topic_reading import (
    LimitReached,
    follow_ranges,
    print_ranges,
)
from pydanube_cli.presentation.output import print_note
from pydanube_cli.presentation.quantities import parse_position
from pydanube_cli.presentation.standard_streams import OutputStream

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube read /default/orders",
    "danube read /default/orders --from 10m",
    "danube read /default/orders --from 2025-03-01T09:30 --to 2025-03-01T10:00",
    "danube read /default/orders --from 100 --to 200 -o json | jq .payload",
    "danube read /default/orders -w 'value.amount > 100' -w \"key ~ 'eu-*'\"",
    "danube read /default/orders --columns user.name,amount",
    "danube read /default/orders -f '%o %k %v\\n'",
    "danube read '/default/orders-*' /default/refunds -n 20",
    "danube read /default/orders --follow",
    "danube read /default/orders --follow --from 10m -o json | jq .payload",
)
def read(
    topics: Topics,
    *,
    start: From = None,
    end: str = "latest",
    follow: bool = False,
    where: Where = None,
    limit: Limit = None,
    output: OutputOption = Output.TABLE,
    template: Template = None,
    columns: Columns = None,
    decode: Decode = False,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Print the messages that topics have now, without a subscription.

    The command ends at the end that each topic had when the command began. With
    --follow it prints the new messages as they arrive, until Ctrl-C or until a program
    that reads its output ends. It acknowledges nothing and leaves nothing behind.
    Messages of several topics are printed in the order of their publish times, or as
    they arrive with --follow.

    Args:
        follow: Print new messages as they arrive; by default from the latest one on.
        end (--to OFFSET|earliest|latest|TIME|DURATION): The first message not to
            print, as for --from.
    """
    if follow and end != "latest":
        raise InvalidRequest("--follow and --to exclude each other")
    start = start or ("latest" if follow else "earliest")
    first = parse_position(start)
    last = None if follow else parse_position(end)
    if isinstance(first, int) and isinstance(last, int) and first > last:
        raise InvalidRequest(f"--from {first} is after --to {last}")
    options = PrintOptions(
        topics,
        where=where,
        limit=limit,
        output=output,
        template=template,
        columns=columns,
        decode=decode,
    )

    async def work(_: Interruption) -> None:
        stream = OutputStream(STANDARD_OUTPUT)
        async with connect(
            url, close_timeout_s=CLOSE_TIMEOUT_S, retry_s=READ_RETRY_S
        ) as client:
            ranges = await find_ranges(client, topics, first, last)
            printer = options.printer(stream, ranges)
            if follow and sys.stdout.isatty() and sys.stderr.isatty():
                print_note("Waiting for messages; press Ctrl-C to stop.")
            with suppress(LimitReached):
                if follow:
                    await follow_ranges(client, ranges, printer, stream)
                else:
                    await print_ranges(client, ranges, printer)

    run(work)
