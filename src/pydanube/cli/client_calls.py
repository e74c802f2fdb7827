"""A command's conversation with the broker: connect, run_with_client, answer."""

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


def run_with_client(
    url: str, question: Callable[[Client], Coroutine[Any, Any, T]]
) -> T:
    """What the broker at *url* answers to *question*; waiting may be interrupted."""

    async def conversation(_: Interruption) -> T:
        async with connect(url) as client:
            return await question(client)

    return interruption.run(conversation)


def confirm(question: str, *, is_sure: bool) -> None:
    """
    Go on only if the user says so, or has said so with ``--yes``.

    Raises:
        InvalidRequest: There is nobody to ask.
        typer.Exit: The user does not want it.
    """
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(f"{question} There is no terminal to ask on; say --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
