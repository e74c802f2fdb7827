"""
The transforms of records: JMESPath expressions and functions of users.  Pure.

A transform is a list of steps.  Each step receives the records that the one before it
returned, and returns any number of records.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydanube.declarations.functions import check_function, load_function
from pydanube.model.errors import InvalidConfig
from pydanube.model.extras import require
from pydanube.model.shown_text import excerpt
from pydanube.model.suggestions import did_you_mean
from pydanube_connect.pure.mapping import InvalidRecord, parse_json
from pydanube_connect.pure.records import Record

STEPS_MAX = 20
EXPRESSION_CHARACTERS_MAX = 10_000
RECORDS_MAX = 1000
"""How many records a transform may make of one."""
REASON_CHARACTERS_MAX = 500
"""Longer errors of a step are cut, because they may contain the value."""


class Step(Protocol):
    """A step of a transform."""

    def apply(self, record: Record) -> Sequence[Record]:
        """
        Return the records that replace *record*.

        Raises:
            Exception: The record is invalid.
        """


@dataclass(frozen=True, slots=True)
class Expression:
    """A JMESPath expression, whose result replaces the value; null drops the record."""

    compiled: Any
    """The result of ``jmespath.compile``."""

    def apply(self, record: Record) -> Sequence[Record]:
        """Return the record with the result, or nothing."""
        value = self.compiled.search(record.value)
        return [] if value is None else [record.replace(value=value)]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a user, which gets a record and returns one, several or None."""

    function: Callable[[Record], Any]

    def apply(self, record: Record) -> Sequence[Record]:
        """Return what the function returns, as a list of valid records."""
        found = self.function(record)
        if found is None:
            return []
        records = [found] if isinstance(found, Record) else found
        if not isinstance(records, list | tuple):
            raise InvalidRecord(
                f"the function has returned {_kind(found)} instead of a Record, a list "
                "of them or None"
            )
        for each in records:
            _check(each)
        return records


class Transform:
    """The steps that a connector declares."""

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self._steps = tuple(steps)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def apply(self, record: Record) -> list[Record]:
        """
        Return the records that replace *record*; none: it is dropped.

        If it becomes several, their ids differ: a number is added to those that have
        the id of *record*.

        Raises:
            InvalidRecord: A step fails, or there are more than 1,000 records.
        """
        records = [record]
        before: Step | None = None
        for number, step in enumerate(self._steps):
            found: list[Record] = []
            # The result of an expression is a value also if it is text.
            is_encoded = not isinstance(before, Expression)
            needs_value = isinstance(step, Expression) and is_encoded
            for each in records:
                try:
                    found += step.apply(_decoded(each) if needs_value else each)
                except Exception as error:  # A function of a user may raise any.
                    reason = _reason(error)
                    raise InvalidRecord(f"transform[{number}]: {reason}") from error
                if len(found) > RECORDS_MAX:
                    raise InvalidRecord(
                        f"transform[{number}]: it makes more than {RECORDS_MAX} "
                        "records of one"
                    )
            records, before = found, step
        if record.id is None or len(records) < 2:
            return records
        return [
            each.replace(id=f"{each.id}-{number}") if each.id == record.id else each
            for number, each in enumerate(records)
        ]


def parse_step(declared: Any, directory: Path) -> Step:
    """
    Return the step that is *declared*; *directory* is that of its file.

    Raises:
        InvalidConfig: It is malformed, or a package is missing.
        NoSuchFunction: There is no such function.
    """
    if isinstance(declared, str):
        return _parse_expression(declared)
    if not isinstance(declared, dict) or declared.keys() != {"function"}:
        raise InvalidConfig(
            "is a JMESPath expression in quotes, or 'function: FILE.py:NAME'"
        )
    name = declared["function"]
    if not isinstance(name, str):
        raise InvalidConfig("'function' is FILE.py:NAME, such as functions.py:enrich")
    check_function(name, directory)
    function = load_function(name, directory)
    if inspect.iscoroutinefunction(function):
        raise InvalidConfig(f"{name} is 'async def'; a transform is a plain function")
    return Function(function)


def _parse_expression(text: str) -> Expression:
    require("connect", "an expression in 'transform'")
    import jmespath  # noqa: PLC0415
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415

    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise InvalidConfig(
            f"the expression has {len(text)} characters; "
            f"{EXPRESSION_CHARACTERS_MAX} are allowed"
        )
    try:
        compiled = jmespath.compile(text)
        _check_functions(compiled.parsed)
    except JMESPathError as error:
        lines = str(error).splitlines()
        raise InvalidConfig(f"{text!r} is not JMESPath: {lines[0]}") from error
    except RecursionError as error:
        raise InvalidConfig("the expression is nested too deeply") from error
    return Expression(compiled)


def _check_functions(node: Mapping[str, Any]) -> None:
    """Check the functions in a parsed expression, which only fail when they run."""
    from jmespath.functions import Functions  # noqa: PLC0415

    if node["type"] == "function_expression":
        known: Mapping[str, Any] = Functions.FUNCTION_TABLE
        name = node["value"]
        if name not in known:
            raise InvalidConfig(
                f"there is no function {name} in JMESPath{did_you_mean(name, known)}"
            )
        signature = known[name]["signature"]
        is_variadic = bool(signature) and signature[-1].get("variadic", False)
        given = len(node["children"])
        if given < len(signature) or (given > len(signature) and not is_variadic):
            count = f"{'at least ' if is_variadic else ''}{len(signature)}"
            raise InvalidConfig(
                f"the function {name} needs {count} arguments, and has {given}"
            )
    for child in node["children"]:
        # Literals and slices have children that are values.
        if isinstance(child, dict) and "type" in child:
            _check_functions(child)


def _decoded(record: Record) -> Record:
    """Return *record* with the value that its bytes or its text are in JSON."""
    if isinstance(record.value, bytes | str):
        return record.replace(value=parse_json(record.value))
    return record


def _check(record: Any) -> None:
    """
    Check the types of a record that a function has made.

    Raises:
        InvalidRecord: It is not a record, or a field has another type.
    """
    if not isinstance(record, Record):
        raise InvalidRecord(f"the function has returned {_kind(record)} in its list")
    if not isinstance(record.attributes, Mapping):
        raise InvalidRecord("the function has returned a record without attributes")
    texts: list[object] = [*record.attributes.keys(), *record.attributes.values()]
    texts += [each for each in (record.id, record.topic) if each is not None]
    if record.key is not None and not isinstance(record.key, bytes):
        texts.append(record.key)
    for text in texts:
        if not isinstance(text, str):
            raise InvalidRecord(
                f"the function has returned a record with {_kind(text)} instead of text"
            )
        # Text from JSON may have half a character.
        text.encode()


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if not isinstance(error, InvalidRecord):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return excerpt(text, REASON_CHARACTERS_MAX)


def _kind(value: object) -> str:
    return f"a value of the type {type(value).__name__}"
