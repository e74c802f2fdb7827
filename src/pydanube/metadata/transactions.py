"""Optimistic changes of the metadata store, which are retried after conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydanube.metadata.store import ABSENT, Unchanged
from pydanube.model.errors import RevisionConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydanube.metadata.key import Key
    from pydanube.metadata.store import Stored

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
