"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from pydanube.model.positions import POSITION_HELP
from pydanube_cli.invocation.completion import complete_subscriptions, complete_topics
from pydanube_cli.invocation.context_options import value_from_context
from pydanube_cli.invocation.contexts import URL_VARIABLE
from pydanube_cli.presentation.help_pages import HelpfulGroup
from pydanube_cli.presentation.output import OutputFormat
from pydanube_cli.presentation.quantities import POSITION_METAVAR

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="The topic, as /NAMESPACE/TOPIC, for example /default/orders.",
        autocompletion=complete_topics,
        show_default=False,
    ),
]

Pattern = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]",
        help="A topic, or a pattern such as '/shop/*'; by default all topics.",
        autocompletion=complete_topics,
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
        autocompletion=complete_subscriptions,
        show_default=False,
    ),
]

Type = Annotated[
    str,
    typer.Option(
        "--type",
        "-t",
        metavar="exclusive|failover|shared|key-shared",
        help="The type of a new subscription: exclusive admits one consumer; failover "
        "delivers to one while others stand by; shared delivers each message to one "
        "of them; key-shared delivers all messages of a key to the same one, in "
        "order.",
    ),
]

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar=POSITION_METAVAR,
        help=f"Where a new subscription starts: {POSITION_HELP}.",
    ),
]

Url = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar=URL_VARIABLE,
        callback=value_from_context,
        help="The address of the broker, or several of a cluster, with commas; "
        "a context can change the default.",
    ),
]

FormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--format",
        metavar="table|json",
        callback=value_from_context,
        help="The output format.",
    ),
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples, one per line."""
    return "\n".join(["Examples:", *(f"$ {line}" for line in lines)])


def command_group(text: str, *lines: str) -> typer.Typer:
    """Return a command with subcommands, whose help has examples."""
    return typer.Typer(
        cls=HelpfulGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        help=text,
        epilog=examples(*lines),
    )
