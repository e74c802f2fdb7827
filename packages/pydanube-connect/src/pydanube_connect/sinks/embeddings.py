"""Vectors for messages: from a field of theirs, or from a function of the user."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section
from pydanube.model.field_paths import ABSENT, find_field, parse_path
from pydanube_connect.pure.failures import JSON_ERRORS, ConnectorFailed, is_transient

TEXTS_MAX = 1000
"""The most texts that a function may be called with."""

Vector = list[float]


class Embedding(Section, frozen=True, kw_only=True):
    """A function that returns vectors of texts."""

    function: Annotated[
        str,
        Meta(
            description="The function, such as `embed.py:embed` beside the file: it is "
            "called in a thread with a list of texts, and returns a list of vectors."
        ),
    ]
    field: Annotated[
        str | None,
        Meta(
            description="The field with the text; by default the whole payload is the "
            "text."
        ),
    ] = None
    batch: Annotated[
        int,
        Meta(description="The maximum number of texts of a call, at most 1,000."),
    ] = 32


class InvalidMessage(Exception):
    """A message cannot become a point with a vector."""


def content_of(message: Message) -> dict[str, Any]:
    """Return the JSON object in *message*; any other text is its field ``text``."""
    try:
        found = msgspec.json.decode(message.payload)
    except JSON_ERRORS:
        found = None
    if isinstance(found, dict):
        return found
    return {"text": _text_of(message)}


def text_of(message: Message, content: Mapping[str, Any], field: str | None) -> str:
    """
    Return the text to embed.

    Raises:
        InvalidMessage: It has none.
    """
    if field is None:
        return _text_of(message)
    found = find_field(content, parse_path(field))
    if not isinstance(found, str):
        raise InvalidMessage(f"the field {field!r} is not a text")
    return found


def _text_of(message: Message) -> str:
    try:
        return message.payload.decode()
    except UnicodeDecodeError:
        raise InvalidMessage("the payload is not UTF-8") from None


def vector_in(content: Mapping[str, Any], field: str) -> Vector:
    """
    Return the vector in *field*.

    Raises:
        InvalidMessage: There is none.
    """
    found = find_field(content, parse_path(field))
    if found is ABSENT:
        raise InvalidMessage(f"there is no field {field!r}")
    return as_vector(found)


def as_vector(value: Any) -> Vector:
    """
    Return *value*, a list or an array, as a vector.

    Raises:
        InvalidMessage: It is not one.
    """
    items = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(items, list | tuple) or not items:
        raise InvalidMessage("the vector is not a list of numbers")
    found = []
    for each in items:
        is_number = isinstance(each, int | float) and not isinstance(each, bool)
        try:
            number = float(each) if is_number else math.nan
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise InvalidMessage("the vector is not a list of numbers")
        found.append(number)
    return found


class Embedder:
    """Calls a function of the user with texts, a bounded number at a time."""

    def __init__(
        self, function: Callable[[list[str]], Sequence[Any]], name: str, texts_max: int
    ) -> None:
        self._function = function
        self._name = name
        self._texts_max = texts_max

    async def vectors(self, texts: Sequence[str]) -> list[Vector | InvalidMessage]:
        """
        Return the vector of each text, or why it has none.

        A call that fails is repeated with each of its texts alone.

        Raises:
            ConnectorFailed: The function does not return a vector for each text.
            OSError, Transient: The function cannot work at the moment.
        """
        found: list[Vector | InvalidMessage] = []
        for begin in range(0, len(texts), self._texts_max):
            some = list(texts[begin : begin + self._texts_max])
            try:
                found += await self._call(some)
            except Exception as error:  # The function may raise any.
                if is_transient(error) or isinstance(error, ConnectorFailed):
                    raise
                found += [await self._call_alone(each) for each in some]
        return found

    async def _call_alone(self, text: str) -> Vector | InvalidMessage:
        try:
            [found] = await self._call([text])
        except Exception as error:  # The function may raise any.
            if is_transient(error) or isinstance(error, ConnectorFailed):
                raise
            return InvalidMessage(f"{self._name}: {type(error).__name__}: {error}")
        return found

    async def _call(self, texts: list[str]) -> list[Vector | InvalidMessage]:
        vectors = list(await asyncio.to_thread(self._function, texts))
        if len(vectors) != len(texts):
            raise ConnectorFailed(
                f"{self._name} returns {len(vectors)} vectors for {len(texts)} texts"
            )
        return [_checked(each) for each in vectors]


def _checked(value: Any) -> Vector | InvalidMessage:
    try:
        return as_vector(value)
    except InvalidMessage as error:
        return error
