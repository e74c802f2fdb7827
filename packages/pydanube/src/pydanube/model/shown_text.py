"""Text that is shown to people: without control characters, and not too long."""

from __future__ import annotations


def printable(text: str) -> str:
    """
    Return *text* with control characters escaped, so that it cannot affect a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char == "\t"
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def excerpt(text: str, characters_max: int) -> str:
    """Return the beginning of *text*, with an ellipsis if it is longer."""
    if len(text) <= characters_max:
        return text
    return text[: characters_max - 1] + "\u2026"
