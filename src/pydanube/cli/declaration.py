"""The declaration of commands: shared options, connections and results."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

import typer

from pydanube.cli.output import OutputFormat, Result, print_result
from pydanube.cli.parameters import FormatOption, Url, examples
from pydanube.client.client import DEFAULT_URL
from pydanube.client.sync import Client, connect
from pydanube.model.errors import InvalidRequest

Connect = Callable[[], AbstractContextManager[Client]]
"""A function that connects to the broker that ``--url`` names."""

F = TypeVar("F", bound=Callable[..., Result])

_URL = Parameter("url", Parameter.KEYWORD_ONLY, annotation=Url, default=DEFAULT_URL)
_FORMAT = Parameter(
    "output_format",
    Parameter.KEYWORD_ONLY,
    annotation=FormatOption,
    default=OutputFormat.TABLE,
)


def command(app: typer.Typer, *lines: str, name: str | None = None) -> Callable[[F], F]:
    """
    Add a function to *app* as a command, whose help has the examples *lines*.

    The command prints the result of the function as the option ``--format`` says.  If
    the function has the parameter ``connect``, the command has the option ``--url``.
    """

    def add(function: F) -> F:
        declared = signature(function, eval_str=True)
        parameters = dict(declared.parameters)
        uses_broker = parameters.pop("connect", None) is not None
        uses_format = parameters.pop("output_format", None) is not None
        options = [_URL, _FORMAT] if uses_broker else [_FORMAT]

        @wraps(function)
        def run(*, output_format: OutputFormat, **given: Any) -> None:
            if uses_broker:
                url = given.pop("url")
                given["connect"] = lambda: connect(url)
            if uses_format:
                given["output_format"] = output_format
            print_result(function(**given), output_format)

        # Typer reads the parameters from here.
        run.__signature__ = declared.replace(  # type: ignore[attr-defined]
            parameters=[*parameters.values(), *options]
        )
        run.__annotations__ = {}
        app.command(name, epilog=examples(*lines))(run)
        return function

    return add


def confirm(question: str, *, is_sure: bool) -> None:
    """
    Return if the user confirms on the terminal, or has passed ``--yes``.

    Raises:
        InvalidRequest: Standard input is not a terminal.
        typer.Exit: The user declined.
    """
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(
            f"{question} Standard input is not a terminal; confirm with --yes"
        )
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
