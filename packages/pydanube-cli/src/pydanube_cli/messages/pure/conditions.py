"""
Conditions on messages, such as ``value.amount > 100``.  Pure.

A condition is a path, an operator and a literal::

    path      key | attributes.NAME | value | value.FIELD.FIELD[INDEX]
    operator  = | != | < | <= | > | >= | ~
    literal   a JSON number, true, false, null, or text in ' or "

A field that does not exist is null.  ``=`` and ``!=`` compare all literals, the others
compare numbers with numbers and text with text, and are false for everything else.  In
a text after ``~``, ``*`` stands for any text and ``?`` for one character.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import isnan
from typing import Any

import msgspec

from pydanube.model.errors import InvalidRequest
from pydanube.model.field_paths import ABSENT, Path, find_field, malformed, scan_path
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.wildcards import compile_wildcards

CONDITIONS_MAX = 20
"""The most conditions of a command."""
CONDITION_CHARACTERS_MAX = 1000
"""The longest condition."""

ROOTS = ("key", "attributes", "value")
"""The parts of a message that a path may begin with."""

_SPACE = re.compile(r"\s*")
_OPERATOR = re.compile(r"==|!=|<=|>=|=|<|>|~")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,4})?")
_TEXT = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_WORD = re.compile(r"\w+")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)

_WORDS = {"true": True, "false": False, "null": None}

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one field of a message."""

    root: str
    """One of ``ROOTS``."""
    path: Path
    """The path below the root."""
    test: Callable[[Any], bool]
    """Returns whether the field, None if it does not exist, fulfils the condition."""

    def accepts(self, part: Any) -> bool:
        """Return whether *part*, which the root stands for, fulfils the condition."""
        found = find_field(part, self.path)
        return self.test(None if found is ABSENT else found)


def parse_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """
    Return the conditions that *texts* are.

    Raises:
        InvalidRequest: There are too many, or one is malformed.
    """
    if len(texts) > CONDITIONS_MAX:
        raise InvalidRequest(
            f"there are {len(texts)} conditions; at most {CONDITIONS_MAX} are allowed"
        )
    return tuple(map(parse_condition, texts))


def parse_condition(text: str) -> Condition:
    """
    Return the condition that *text* is.

    Raises:
        InvalidRequest: *text* is malformed; the error names the position.
    """
    if len(text) > CONDITION_CHARACTERS_MAX:
        raise InvalidRequest(
            f"a condition has {len(text)} characters; at most "
            f"{CONDITION_CHARACTERS_MAX} are allowed"
        )
    start = _skip_space(text, 0)
    path, at = scan_path(text, start)
    root, below = path[0], path[1:]
    is_whole = not below
    if (
        root not in ROOTS
        or (root == "key" and not is_whole)
        or (root == "attributes" and len(below) != 1)
    ):
        raise malformed(text, start, "key, attributes.NAME, value or value.FIELD")
    at = _skip_space(text, at)
    sign = _OPERATOR.match(text, at)
    if sign is None:
        raise malformed(text, at, "one of = != < <= > >= ~")
    at = _skip_space(text, sign.end())
    literal, end = _scan_literal(text, at)
    if sign[0] == "~" and not isinstance(literal, str):
        raise malformed(text, at, "a text in quotation marks")
    if sign[0] in _ORDERS and (literal is None or isinstance(literal, bool)):
        raise malformed(text, at, "a number, or a text in quotation marks")
    end = _skip_space(text, end)
    if end < len(text):
        raise malformed(text, end, "the end")
    return Condition(str(root), below, _test_of(sign[0], literal))


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _scan_literal(text: str, at: int) -> tuple[Any, int]:
    if found := _TEXT.match(text, at):
        content = found[1] if found[2] is None else found[2]
        return _ESCAPE.sub(r"\1", content), found.end()
    if found := _NUMBER.match(text, at):
        return Decimal(found[0]), found.end()
    found = _WORD.match(text, at)
    if found is not None and found[0] in _WORDS:
        return _WORDS[found[0]], found.end()
    raise malformed(
        text, at, "a number, true, false, null, or a text in quotation marks"
    )


def _test_of(sign: str, literal: Any) -> Callable[[Any], bool]:
    if sign == "~":
        pattern = compile_wildcards(literal)

        def is_like(value: Any) -> bool:
            value = _comparable(value)
            return isinstance(value, str) and pattern.fullmatch(value) is not None

        return is_like
    if sign in _ORDERS:
        compare, kind = _ORDERS[sign], type(literal)

        def is_ordered(value: Any) -> bool:
            value = _comparable(value)
            return type(value) is kind and compare(value, literal)

        return is_ordered
    is_wanted = sign != "!="

    def is_equal(value: Any) -> bool:
        value = _comparable(value)
        return (type(value) is type(literal) and value == literal) is is_wanted

    return is_equal


def _comparable(value: Any) -> Any:
    """Return *value* as a literal for it would be: a Decimal, text, bool or None."""
    if value is None or isinstance(value, bool | str | Decimal):
        return value
    if isinstance(value, float):
        # NaN equals no literal and has no order.
        return value if isnan(value) else Decimal(repr(value))
    if isinstance(value, int):
        return Decimal(value)
    # Times, UUIDs and bytes are text in JSON; lists and objects equal no literal.
    return msgspec.to_builtins(value, enc_hook=str)
