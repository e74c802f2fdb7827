"""Transactions: optimistic changes that are retried, and what all stores do alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydanube.metadata.key import Key
from pydanube.metadata.store import (
    ABSENT,
    Comparison,
    Delete,
    Expected,
    HasValue,
    Operation,
    Put,
    Stored,
    Unchanged,
)
from pydanube.model.errors import RevisionConflict

T = TypeVar("T")

ATTEMPTS_MAX = 100
"""More conflicts than this are no coincidence but a bug."""


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]]) -> T:
    """
    Return the result of *attempt*, which reads values and then changes them.

    The attempt is repeated if a value has changed between reading and writing.

    Raises:
        RevisionConflict: ``ATTEMPTS_MAX`` attempts had conflicts.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await attempt()
        except RevisionConflict:
            continue
    return await attempt()


def unchanged(key: Key[T], stored: Stored[T] | None) -> Unchanged[T]:
    """Return the condition that *key* has not changed since it was read."""
    return Unchanged(key, ABSENT if stored is None else stored.revision)


def encode_changes(operations: Sequence[Operation]) -> dict[str, bytes | None]:
    """Return the new value of each path that *operations* change; None: deleted."""
    changes: dict[str, bytes | None] = {}
    for operation in operations:
        match operation:
            case Put(key, value):
                changes[key.path] = key.encode(value)
            case Delete(key):
                changes[key.path] = None
    assert len(changes) == len(operations), "two operations change the same key"
    return changes


def conditions(key: Key[T], expected: Expected) -> list[Comparison]:
    """Return the comparisons of a change that expects this revision of *key*."""
    return [] if expected is None else [Unchanged(key, expected)]


def check(comparison: Comparison, stored: Stored[bytes] | None) -> None:
    """Raise RevisionConflict if *comparison* does not hold for the entry *stored*."""
    expected: str | None = None
    found: str | None = None
    match comparison:
        case HasValue(key, value):
            expected = key.encode(value).decode()
            if stored is not None:
                found = stored.value.decode(errors="replace")
        case Unchanged(_, revision):
            if revision is not ABSENT:
                expected = f"revision {revision}"
            if stored is not None:
                found = f"revision {stored.revision}"
    if found != expected:
        raise RevisionConflict(
            f"{comparison.key.path} has {found or 'no value'}; expected "
            f"{expected or 'no value'}"
        )
