"""Copies of parts of the metadata store, kept up to date by watches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from pydanube.model.errors import MetadataUnavailable
from pydanube.model.retry import RetryPolicy
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.store import Changes, MetadataStore, Revision, Stored

T = TypeVar("T")

log = logging.getLogger(__name__)

_RETRIES = RetryPolicy(first_s=0.1, max_s=2.0)


async def follow(
    store: MetadataStore,
    prefix: Prefix[T],
    on_changes: Callable[[Changes[T]], None],
    on_begin: Callable[[], None] | None = None,
) -> None:
    """
    Follow the values below *prefix*, and call *on_changes* with each change.

    The first changes of a watch are all values; *on_begin* is called before them.  If
    the store does not answer, another watch begins later.  Values that cannot be
    decoded end nothing: ``Changes.damaged`` has their paths.

    Raises:
        Closed: The store was closed.
    """
    failures = 0
    while True:
        try:
            async with store.watch(prefix) as watch:
                first = await anext(watch)
                if on_begin is not None:
                    on_begin()
                on_changes(first)
                async for changes in watch:
                    on_changes(changes)
        except MetadataUnavailable as error:
            failures += 1
            log.warning("the watch of %s waits: %s", prefix.path, error)
            await asyncio.sleep(_RETRIES.delay_s(failures))


class Mirror(Generic[T]):
    """
    The values below one prefix, by the rest of their paths.

    It may be late: transactions compare what they depend on.  It keeps the last value
    of what cannot be decoded any more, so that what is served is served on.
    """

    def __init__(self, prefix: Prefix[T]) -> None:
        self.values: dict[str, Stored[T]] = {}
        self.revision: Revision | None = None
        """It has all changes up to this revision; None: it was not read yet."""
        self.damaged: set[str] = set()
        """The names whose present values cannot be decoded."""
        self._prefix = prefix
        self._is_first = True

    async def follow(self, store: MetadataStore, on_change: Callable[[], None]) -> None:
        """
        Follow the store, and call *on_change* after each change.

        If the store does not answer at first, it is asked again.

        Raises:
            Closed: The store was closed.
        """

        def begin() -> None:
            self._is_first = True

        def take(changes: Changes[T]) -> None:
            self._take(changes)
            on_change()

        await follow(store, self._prefix, take, begin)

    def has(self, revision: Revision) -> bool:
        """Return whether it has a change of *revision*."""
        return self.revision is not None and self.revision >= revision

    def _take(self, changes: Changes[T]) -> None:
        self.revision = changes.revision
        damaged = {self._prefix.name_of(path) for path in changes.damaged}
        if self._is_first:
            self._is_first = False
            self.damaged.clear()
            kept = damaged & self.values.keys()
            self.values = {name: self.values[name] for name in kept}
        self.damaged |= damaged
        for path, stored in changes.values.items():
            name = self._prefix.name_of(path)
            self.damaged.discard(name)
            if stored is None:
                self.values.pop(name, None)
            else:
                self.values[name] = stored
