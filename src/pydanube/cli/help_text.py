"""The text of a command's help, written in lines and shown in paragraphs."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any


def unwrap(command: Any) -> None:
    """Put each paragraph of *command* and its commands on a line, to be wrapped."""
    command.help = _unwrapped(command.help or "")
    for each in getattr(command, "commands", {}).values():
        unwrap(each)


def _unwrapped(text: str) -> str:
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)
