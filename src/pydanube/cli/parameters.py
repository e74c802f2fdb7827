"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.cli.output import OutputFormat
from pydanube.cli.position_option import METAVAR, POSITION_HELP

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="The topic as /NAMESPACE/TOPIC, for example /default/orders.",
        show_default=False,
    ),
]

Subscription = Annotated[
    str,
    typer.Option(
        "--subscription",
        "-s",
        metavar="NAME",
        help="The subscription.",
        show_default=False,
    ),
]

Type = Annotated[
    str,
    typer.Option(
        "--type",
        "-t",
        metavar="exclusive|failover|shared|key-shared",
        help="How consumers share a new subscription: only one is let in; one works "
        "and others stand by; each message goes to one of them; all messages of a key "
        "go to the same one, in order.",
    ),
]

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar=METAVAR,
        help=f"Where a new subscription begins: {POSITION_HELP}.",
    ),
]

Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="DANUBE_URL",
        help="Where the broker listens.",
    ),
]

FormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--format",
        metavar="table|json",
        help="A table for people, or JSON for machines.",
    ),
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def examples(*lines: str) -> str:
    """The end of a command's help: what one may type, line by line."""
    return "\n".join(["Examples:", *(f"$ {line}" for line in lines)])
