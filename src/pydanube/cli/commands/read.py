"""
`danube read`: prints a range of the messages of topics, without a subscription.

`danube tail`, which prints new messages, has most options in common with it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Annotated

import typer

from pydanube.cli import message_formats, parameters
from pydanube.cli.declaration import command
from pydanube.cli.interruption import Interruption, run
from pydanube.cli.message_formats import RENDERERS, Renderer
from pydanube.cli.message_table import MessageTable
from pydanube.cli.quantities import POSITION_HELP, POSITION_METAVAR, parse_position
from pydanube.cli.standard_streams import OutputStream
from pydanube.cli.topic_ranges import TopicRange, find_ranges
from pydanube.cli.topic_reading import LimitReached, Printer, print_ranges
from pydanube.client.client import DEFAULT_URL, connect
from pydanube.model.errors import InvalidRequest

STANDARD_OUTPUT = 1
CLOSE_TIMEOUT_S = 3.0
"""The time to wait for an unreachable broker when the command is ended."""


class Output(Enum):
    """The format in which messages are printed."""

    TABLE = "table"
    JSON = "json"
    RAW = "raw"


Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC...",
        help="The topics, as /NAMESPACE/TOPIC. In a pattern such as "
        "'/default/orders-*', * stands for any text and ? for one character. A "
        "partitioned topic stands for its partitions.",
        show_default=False,
    ),
]

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar=POSITION_METAVAR,
        help=f"The first message to print: {POSITION_HELP}. A time means the first "
        "message that was published then or later.",
    ),
]

Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        metavar="COUNT",
        min=1,
        help="Stop after this number of messages.",
    ),
]

OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        "--format",
        metavar="table|json|raw",
        help="table prints a row per message, with its value if it has a schema; "
        "json prints one JSON object per line, with topic, offset, publish_time, key, "
        "attributes, producer and payload, or key_base64 and payload_base64 for bytes "
        "that are not UTF-8; raw prints each payload and a newline.",
    ),
]

Decode = Annotated[
    bool,
    typer.Option(
        "--decode",
        help="With raw: print values, decoded with the schemas that they were written "
        "with, as JSON, instead of payloads. With json: add the field value.",
    ),
]

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube read /default/orders",
    "danube read /default/orders --from 10m",
    "danube read /default/orders --from 2025-03-01T09:30 --to 2025-03-01T10:00",
    "danube read /default/orders --from 100 --to 200 -o json | jq .payload",
    "danube read '/default/orders-*' /default/refunds -n 20",
)
def read(
    topics: Topics,
    *,
    start: From = "earliest",
    end: str = "latest",
    limit: Limit = None,
    output: OutputOption = Output.TABLE,
    decode: Decode = False,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Print the messages that topics have now, without a subscription.

    The command ends at the end that each topic had when the command began. It
    acknowledges nothing and leaves nothing behind. Messages of several topics are
    printed in the order of their publish times.

    Args:
        end (--to OFFSET|earliest|latest|TIME|DURATION): The first message not to
            print, as for --from.
    """
    first, last = parse_position(start), parse_position(end)
    if isinstance(first, int) and isinstance(last, int) and first > last:
        raise InvalidRequest(f"--from {first} is after --to {last}")

    async def work(_: Interruption) -> None:
        async with connect(url, close_timeout_s=CLOSE_TIMEOUT_S) as client:
            ranges = await find_ranges(client, topics, first, last)
            render = renderer(topics, ranges, output, decode=decode)
            printer = Printer(OutputStream(STANDARD_OUTPUT), render, limit)
            with suppress(LimitReached):
                await print_ranges(client, ranges, printer)

    run(work)


def renderer(
    topics: list[str], ranges: Sequence[TopicRange], output: Output, *, decode: bool
) -> Renderer:
    """Return the renderer of the messages of *ranges*, which *topics* stand for."""
    if output is Output.TABLE:
        is_terminal = sys.stdout.isatty()
        return MessageTable(
            has_topics=len(topics) > 1 or [each.topic for each in ranges] != topics,
            terminal_width=shutil.get_terminal_size().columns if is_terminal else None,
        )
    is_json = output is Output.JSON
    text_or_json = (
        message_formats.Output.JSON if is_json else message_formats.Output.TEXT
    )
    return RENDERERS[text_or_json, decode]
