"""Calls of a command to the broker, and questions to the user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

import typer

from pydanube.cli import interruption
from pydanube.client.client import connect
from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from pydanube.cli.interruption import Interruption
    from pydanube.client.client import Client

T = TypeVar("T")


def run_with_client(url: str, call: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """
    Connect to the broker at *url*, await *call*, and return its result; Ctrl-C cancels
    it.
    """

    async def work(_: Interruption) -> T:
        async with connect(url) as client:
            return await call(client)

    return interruption.run(work)


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
