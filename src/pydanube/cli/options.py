"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.cli.answers import Format

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="The topic as /NAMESPACE/TOPIC, for example /default/orders.",
        show_default=False,
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

AnswerFormat = Annotated[
    Format,
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
