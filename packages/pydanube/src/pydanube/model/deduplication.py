"""The ids by which topics recognise messages that producers publish repeatedly."""

from __future__ import annotations

from pydanube.model.errors import InvalidRequest

DEDUPLICATION_ID = "x-deduplication-id"
"""The attribute that has the id of a message."""
ID_CHARACTERS_MAX = 256


def check_id(value: str) -> None:
    """
    Raise if *value* cannot be the id of a message.

    Raises:
        InvalidRequest: It is not text, empty, or longer than ``ID_CHARACTERS_MAX``.
    """
    if not isinstance(value, str):
        raise InvalidRequest(
            f"the id of a message is a str, not {type(value).__name__}"
        )
    if not 1 <= len(value) <= ID_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the id of a message has {len(value)} characters; it must have 1 to "
            f"{ID_CHARACTERS_MAX}"
        )
