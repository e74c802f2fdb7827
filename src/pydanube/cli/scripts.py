"""What the scripts `danube-cli` and `danube-admin` have in common."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pydanube.cli.answers import say
from pydanube.cli.failures import reported
from pydanube.cli.help_text import unwrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Output(Enum):
    """The only format besides the one for people."""

    JSON = "json"


OutputOption = Annotated[
    Output | None,
    typer.Option(
        "--output", "-o", metavar="json", help="Answer with JSON instead of lines."
    ),
]


class Reported(TyperGroup):
    """A script that ends with an answer, or with a line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with reported():
            return super().invoke(ctx)


def add_unavailable(app: typer.Typer, name: str, reason: str) -> None:
    """Let *app* know the command *name*, whatever follows it, and say why it is not."""

    @app.command(
        name,
        help=f"Not available: {reason}.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def unavailable(_: typer.Context) -> None:
        say(f"error: '{name}' is not available: {reason}")
        raise typer.Exit(1)


def run(app: typer.Typer, name: str, arguments: Sequence[str]) -> None:
    """Run the command that *arguments* name, as the process *name*."""
    command = typer.main.get_command(app)
    unwrap(command)
    command(list(arguments), prog_name=name)


def quoted(names: Iterable[str]) -> str:
    """*names* as the original prints a list, such as ``["a", "b"]``."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def truth(value: bool) -> str:
    """How the original prints a yes or no."""
    return "true" if value else "false"
