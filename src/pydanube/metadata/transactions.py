"""Changes of the metadata store that somebody else may get in the way of."""

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
"""Who loses a race so often is not in a race: something is wrong."""


async def settled(attempt: Callable[[], Awaitable[T]]) -> T:
    """
    What *attempt*, which reads and then changes what it read, comes to.

    It is made again as long as something has changed between reading and writing.

    Raises:
        RevisionConflict: That went on for ``ATTEMPTS_MAX`` times.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await attempt()
        except RevisionConflict:
            continue
    return await attempt()


def unchanged(key: Key[T], stored: Stored[T] | None) -> Unchanged[T]:
    """The condition that *key* is still as it was read."""
    return Unchanged(key, ABSENT if stored is None else stored.revision)
