"""The options of `danube read`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer

from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import POSITION_HELP
from pydanube_cli.messages import message_formats
from pydanube_cli.messages.message_fields import parse_fields
from pydanube_cli.messages.message_formats import RENDERERS, Renderer
from pydanube_cli.messages.message_table import MessageTable
from pydanube_cli.messages.pure.conditions import parse_conditions
from pydanube_cli.messages.pure.message_template import FIELDS_HELP, MessageTemplate
from pydanube_cli.messages.topic_ranges import TopicRange
from pydanube_cli.messages.topic_reading import Printer
from pydanube_cli.presentation.quantities import POSITION_METAVAR
from pydanube_cli.presentation.standard_streams import OutputStream

STANDARD_OUTPUT = 1
CLOSE_TIMEOUT_S = 3.0
"""The time to wait for an unreachable broker when the command is ended."""


class Output(Enum):
    """The format in which messages are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
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
    str | None,
    typer.Option(
        "--from",
        metavar=POSITION_METAVAR,
        help=f"The first message to print: {POSITION_HELP}. A time means the first "
        "message that was published then or later. By default earliest, or latest with "
        "--follow.",
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
        "that are not UTF-8; jsonl is json; raw prints each payload and a newline.",
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

Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-f",
        metavar="TEMPLATE",
        help="Print each message by a template instead of --output, for example "
        rf"'%o %k %v\n': {FIELDS_HELP}, %% a percent sign; the escapes \n, \t, \r, \0, "
        r"\\ and \xHH stand for bytes.",
        show_default=False,
    ),
]


Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Print only messages that fulfil this condition: a path, an operator and "
        'a literal, such as "value.amount > 100" or "key ~ \'eu-*\'". Paths begin with '
        "key, attributes or value; the operators are =, !=, <, <=, >, >= and ~, with * "
        "and ? in the text. May be repeated; then all conditions must be fulfilled.",
        show_default=False,
    ),
]


Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="PATH,PATH…",
        help="In the table, show these fields instead of attributes and payload, for "
        "example user.name,amount: paths in the value, which is the payload as JSON if "
        "it has no schema; key, attributes.NAME and value.FIELD are paths, too.",
        show_default=False,
    ),
]


class PrintOptions:
    """Which messages of *topics* are printed, and in which form."""

    def __init__(
        self,
        topics: list[str],
        *,
        where: list[str] | None,
        limit: int | None,
        output: Output,
        template: str | None,
        columns: str | None,
        decode: bool,
    ) -> None:
        """
        Check the options.

        Raises:
            InvalidRequest: The template, a column or a condition is malformed, or there
                are columns without a table.
        """
        if columns is not None and (output is not Output.TABLE or template is not None):
            raise InvalidRequest(
                "--columns are those of the table; leave out --output and --template"
            )
        self._fields = () if columns is None else parse_fields(columns)
        self._conditions = parse_conditions(where or ())
        self._topics = topics
        self._limit = limit
        self._output = output
        self._decode = decode
        self._is_for_terminal = sys.stdout.isatty()
        self._template = None
        if template is not None:
            self._template = MessageTemplate(
                template, is_for_terminal=self._is_for_terminal
            )

    def printer(self, stream: OutputStream, ranges: Sequence[TopicRange]) -> Printer:
        """Return the printer of the messages of *ranges* to *stream*."""
        # Several topics, or one that stands for others.
        has_topics = len(ranges) > 1 or [each.topic for each in ranges] != self._topics
        render = self._renderer(has_topics=has_topics)
        return Printer(stream, render, self._limit, self._conditions)

    def _renderer(self, *, has_topics: bool) -> Renderer:
        if self._template is not None:
            return self._template
        if self._output is Output.TABLE:
            width = shutil.get_terminal_size().columns
            return MessageTable(
                has_topics=has_topics,
                terminal_width=width if self._is_for_terminal else None,
                fields=self._fields,
            )
        return RENDERERS[_FORMATS[self._output], self._decode]


_FORMATS = {
    Output.JSON: message_formats.Output.JSON,
    Output.JSONL: message_formats.Output.JSON,
    Output.RAW: message_formats.Output.TEXT,
}
