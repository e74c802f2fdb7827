"""The latest changes of a store in this process, for its watchers."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakSet

from pydanube.metadata.store import Change, Revision
from pydanube.model.errors import RevisionConflict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.metadata.key import Prefix

T = TypeVar("T")

CHANGES_MAX = 10_000
"""A watcher that is further behind must scan again; about 5 MB of records."""


class History:
    """
    The newest changes, oldest first, and the watchers that wait for the next one.

    Watchers read at their own pace and keep only a position, so a slow watcher takes no
    memory and delays nothing.
    """

    def __init__(self, start: Revision, *, changes_max: int = CHANGES_MAX) -> None:
        self._complete_after = start
        self._changes: deque[Change[bytes]] = deque()
        self._changes_max = changes_max
        self._waiting: WeakSet[asyncio.Event] = WeakSet()
        self.is_closed = False

    def record(self, changes: Iterable[Change[bytes]]) -> None:
        """Append *changes*, and wake the watchers that wait."""
        self._changes.extend(changes)
        while len(self._changes) > self._changes_max:
            self._complete_after = self._changes.popleft().revision
        self._wake()

    def close(self) -> None:
        """End all watches."""
        self.is_closed = True
        self._wake()

    def watch(self, prefix: Prefix[T], after: Revision) -> Watch[T]:
        """Return an iterator over the changes below *prefix* later than *after*."""
        return Watch(self, prefix, after)

    def later_than(self, revision: Revision) -> list[Change[bytes]]:
        """
        Return every change later than *revision*, oldest first.

        Raises:
            RevisionConflict: Some of them are no longer in the history.
        """
        if revision < self._complete_after:
            raise RevisionConflict(
                f"the changes after revision {revision} are no longer available, only "
                f"those after {self._complete_after}; scan again"
            )
        later: list[Change[bytes]] = []
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            later.append(change)
        later.reverse()
        return later

    def wait_with(self, event: asyncio.Event) -> None:
        """Set *event* at every change, as long as it is referenced elsewhere."""
        self._waiting.add(event)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()


class Watch(Generic[T]):
    """
    The changes below one prefix, as an asynchronous iterator.

    It is not a generator, because it may be dropped at any time without cleaning up.
    """

    def __init__(self, history: History, prefix: Prefix[T], after: Revision) -> None:
        self._history = history
        self._prefix = prefix
        self._after = after
        self._ready: deque[Change[T]] = deque()
        self._event = asyncio.Event()
        history.wait_with(self._event)

    def __aiter__(self) -> Watch[T]:
        return self

    async def __anext__(self) -> Change[T]:
        while not self._ready:
            self._event.clear()
            self._take()
            if self._ready:
                break
            if self._history.is_closed:
                raise StopAsyncIteration
            await self._event.wait()
        return self._ready.popleft()

    def _take(self) -> None:
        for change in self._history.later_than(self._after):
            self._after = change.revision
            if change.path.startswith(self._prefix.path):
                self._ready.append(self._typed(change))

    def _typed(self, change: Change[bytes]) -> Change[T]:
        value = None if change.value is None else self._prefix.decode(change.value)
        return Change(change.path, value, change.revision)
