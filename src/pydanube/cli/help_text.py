"""Help texts: joins the lines of each paragraph, so that the terminal wraps them."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any


def unwrap(command: Any) -> None:
    """
    Join the lines of each paragraph in the help of *command* and of its subcommands.
    """
    command.help = _unwrapped(command.help or "")
    for each in getattr(command, "commands", {}).values():
        unwrap(each)


def _unwrapped(text: str) -> str:
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)
