"""The types, limits and helpers that all schema languages share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.model.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import pyarrow as pa


DEFINITION_BYTES_MAX = 1024 * 1024
"""The maximum size of a definition."""
DEPTH_MAX = 64
"""The maximum nesting of a schema."""
PARTS_MAX = 10_000
"""The maximum number of types, fields, symbols and keywords of a schema."""

REASON_LENGTH_MAX = 500
"""The maximum number of characters that are quoted from a library's error."""

INCOMPATIBILITIES_MAX = 1000
"""The maximum number of reasons that a comparison of two schemas finds."""

BadPayload = tuple[int, str]
"""The index of a payload in its batch, and the reason why it is invalid."""

Validate = Callable[[Sequence[bytes]], list[BadPayload]]
"""Finds the invalid payloads of a batch; never raises."""

Decoder = Callable[[Sequence[bytes]], list[Any]]
"""Decodes payloads into Python values; raises InvalidPayload for the first bad one."""

Encoder = Callable[[Sequence[Any]], list[bytes]]
"""Encodes Python values as payloads; raises InvalidPayload for the first bad one."""

ColumnDecoder: TypeAlias = "Callable[[pa.Array], pa.Array]"
"""
Decodes a column of payloads into a column of values; nulls stay null.

Raises InvalidPayload for the first bad one, or the error of Arrow if the type of the
column cannot hold a value: a ValueError, a TypeError or an OverflowError.
"""

Convert = Callable[[Any], Any]
"""Converts one value."""


class Column(NamedTuple):
    """A column of decoded values."""

    type: pa.DataType
    convert: Convert | None = None
    """Converts decoded values other than None for Arrow; None if none is needed."""


class TooManyParts(Exception):
    """A schema expands to more parts than a column may have."""


class PartCounter:
    """Counts the parts of a column; a schema may refer to itself, or repeatedly."""

    def __init__(self) -> None:
        self._parts = 0

    def add(self, depth: int) -> None:
        """
        Count a part that is inside *depth* others.

        Raises:
            TooManyParts: There are more than ``PARTS_MAX`` parts, or *depth* is more
                than ``DEPTH_MAX``.
        """
        self._parts += 1
        if self._parts > PARTS_MAX or depth > DEPTH_MAX:
            raise TooManyParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """A reason why data written with one schema cannot be read with another."""

    path: str
    """The place in the reader's schema, in the notation of its language."""
    rule: str
    """The identifier of the rule that is broken; identifiers never change."""
    text: str
    """An explanation for people."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text} ({self.rule})"


class ComparedPairs:
    """
    The results of comparing pairs of schemas, which may contain themselves.

    Until its comparison is finished, a pair counts as compatible; the comparison finds
    the reasons why it is not.
    """

    def __init__(self) -> None:
        # In the order in which the comparisons began.
        self._results: dict[Hashable, list[Incompatibility]] = {}

    def compare(
        self, pair: Hashable, find: Callable[[], Iterable[Incompatibility]]
    ) -> list[Incompatibility]:
        """Return the reasons that *find* returns, which is called once for a *pair*."""
        known = self._results.get(pair)
        if known is not None:
            return known
        self._results[pair] = []
        # The same reason may be found in several ways.
        result = list(dict.fromkeys(find()))[:INCOMPATIBILITIES_MAX]
        if result:
            # Later results assumed that this pair is compatible.
            while next(reversed(self._results)) != pair:
                self._results.popitem()
        self._results[pair] = result
        return result


def invalid_payload(index: int, reason: str) -> InvalidPayload:
    """Return the error for the payload at *index* of a batch."""
    return InvalidPayload(f"message {index} of the batch: {reason}")


def reason_of(error: InvalidPayload) -> str:
    """Return the reason in *error*, which concerns a batch of one payload."""
    return str(error).removeprefix(str(invalid_payload(0, "")))


def error_text(error: Exception) -> str:
    """Return the text of a library's error on one line, or its name if it has none."""
    parts = getattr(error, "errors", None)
    text = _pydantic_text(parts()) if callable(parts) else str(error)
    return " ".join(text.split())[:REASON_LENGTH_MAX] or type(error).__name__


def _pydantic_text(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the *parts* of a pydantic error, without its links."""
    return "; ".join(
        ".".join(map(str, each["loc"]))
        + (": " if each["loc"] else "")
        + each["msg"].removeprefix("Value error, ")
        for each in parts
    )


def does_not_fit(error: Exception, value: Any) -> str:
    """Return the reason why *value* cannot be encoded."""
    try:
        quoted = f"{value!r:.80}"
    except RecursionError:
        quoted = f"a deeply nested {type(value).__name__}"
    return f"{quoted} does not fit the schema: {error_text(error)}"


def convert_each(
    values: Sequence[Any],
    convert: Convert,
    refusals: type[Exception] | tuple[type[Exception], ...] = InvalidPayload,
    reason: Callable[[Exception, Any], str] = lambda error, _value: error_text(error),
) -> list[Any]:
    """
    Return *values*, each converted.

    Raises:
        InvalidPayload: *convert* raised one of *refusals*; the message has the index of
            the value and the *reason*, by default the text of the error.
    """
    converted: list[Any] = []
    try:
        for value in values:
            converted.append(convert(value))  # noqa: PERF401  # The index.
    except refusals as error:
        index = len(converted)
        raise invalid_payload(index, reason(error, values[index])) from error
    return converted


def convert_items(convert: Convert, values: Sequence[Any]) -> list[Any]:
    """Return *values* converted; None stays None."""
    return [None if each is None else convert(each) for each in values]


def convert_fields(
    converters: dict[str, Convert], value: dict[str, Any]
) -> dict[str, Any]:
    """Return *value* with those fields converted that have one of *converters*."""
    converted = dict(value)
    for name, convert in converters.items():
        if converted[name] is not None:
            converted[name] = convert(converted[name])
    return converted


def find_bad_payloads(
    payloads: Sequence[bytes], read: Callable[[bytes], object]
) -> list[BadPayload]:
    """Return the payloads for which *read* raises InvalidPayload, with the reasons."""
    bad = []
    for index, payload in enumerate(payloads):
        try:
            read(payload)
        except InvalidPayload as error:
            bad.append((index, str(error)))
    return bad


def refuse_bad_payloads(validate: Validate, payloads: Sequence[bytes]) -> None:
    """
    Raise for the first invalid payload.

    Raises:
        InvalidPayload: *validate* finds an invalid payload.
    """
    for index, reason in validate(payloads):
        raise invalid_payload(index, reason)


def nested_values(value: Any) -> Iterator[Any]:
    """Yield *value* and all values inside its dicts, lists and tuples."""
    pending = [value]
    while pending:
        found = pending.pop()
        yield found
        if isinstance(found, dict):
            pending += found.values()
        elif isinstance(found, list | tuple):
            pending += found


def definition_text(definition: bytes | str) -> str:
    """
    Return a definition as text.

    Raises:
        InvalidSchema: It is too long, or not UTF-8.
    """
    length = len(definition)
    if length > DEFINITION_BYTES_MAX:
        raise InvalidSchema(
            f"the schema has {length} bytes; the maximum is {DEFINITION_BYTES_MAX}"
        )
    if isinstance(definition, str):
        return definition
    try:
        return definition.decode()
    except UnicodeDecodeError as error:
        raise InvalidSchema(f"the schema is not UTF-8 text: {error}") from error
