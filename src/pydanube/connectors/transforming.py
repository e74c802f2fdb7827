"""The transformation of a source's records: a JMESPath expression and a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from pydanube.connectors.mapping import InvalidRecord
from pydanube.connectors.records import Record
from pydanube.connectors.spec import Transform
from pydanube.declarations.functions import load_function
from pydanube.model.errors import InvalidConfig

Step = Callable[[Record], Iterable[Record]]

RECORDS_MAX = 10_000
"""How many records a function may make of one."""


def check_expression(text: str) -> None:
    """
    Check that *text* is a JMESPath expression.

    Raises:
        InvalidConfig: It is none.
    """
    _compiled(text)


class Transformation:
    """The transformation of a connector's records; none if *declared* is empty."""

    def __init__(self, declared: Transform, directory: Path) -> None:
        """Load the function from *directory*; raise as ``load_function``."""
        self._steps: list[Step] = []
        if declared.jmespath is not None:
            self._steps.append(_by_expression(declared.jmespath))
        if declared.function is not None:
            self._steps.append(_by_function(declared.function, directory))

    def apply(self, record: Record) -> list[Record]:
        """
        Return the records that *record* becomes: usually one; none: it is dropped.

        Raises:
            InvalidRecord: It cannot be transformed.
        """
        records = [record]
        for step in self._steps:
            records = [made for each in records for made in step(each)]
        return records


def _by_expression(text: str) -> Step:
    expression = _compiled(text)

    def step(record: Record) -> Iterable[Record]:
        value = record.value
        if isinstance(value, bytes | str):
            try:
                value = msgspec.json.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidRecord(f"the value is not JSON: {error}") from error
        try:
            found = expression.search(value)
        except (ValueError, RecursionError) as error:
            raise InvalidRecord(f"transform: {error}") from error
        return [] if found is None else [replace(record, value=found)]

    return step


def _by_function(name: str, directory: Path) -> Step:
    function = load_function(name, directory)

    def step(record: Record) -> Iterable[Record]:
        try:
            made = function(record)
            if made is None or isinstance(made, Record):
                return [] if made is None else [made]
            records = list(made)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InvalidRecord(f"{name}: {reason}") from error
        if len(records) > RECORDS_MAX or not all(
            isinstance(each, Record) for each in records
        ):
            raise InvalidRecord(
                f"{name} returns a Record, None, or up to {RECORDS_MAX:,} Records"
            )
        return records

    return step


def _compiled(text: str) -> Any:
    import jmespath  # noqa: PLC0415  # An extra.
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415

    try:
        return jmespath.compile(text)
    except JMESPathError as error:
        reason = " ".join(str(error).split())
        raise InvalidConfig(f"is no JMESPath expression: {reason}") from None
