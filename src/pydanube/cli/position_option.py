"""A position in a topic, as an option."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pydanube.cli.quantities import parse_duration
from pydanube.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pydanube.model.positions import PositionLike

METAVAR = "OFFSET|earliest|latest|TIME|DURATION"

POSITION_HELP = (
    "an offset; earliest or latest; a time such as 2025-03-01T09:30:00Z; or how long "
    "ago, such as 15m"
)

_AGO = re.compile(r"\d+(\.\d+)?\s*[a-zA-Z]+")


def parse_position(text: str, now: datetime) -> PositionLike:
    """
    Return the position that *text* names; *now* has a time zone.

    Raises:
        InvalidRequest: *text* is not a position.
    """
    word = text.strip()
    if word.isdecimal():
        return int(word)
    if word in {"earliest", "latest"}:
        return word
    if _AGO.fullmatch(word):
        return now - timedelta(seconds=parse_duration(word))
    try:
        return datetime.fromisoformat(word)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not a position in a topic; use {POSITION_HELP}"
        ) from None
