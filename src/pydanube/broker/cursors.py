"""
When cursors reach the journal.

Acks come in small pieces; writing the cursor for each would cost more than the
messages.  A moved cursor is written after a short linger, so that a burst of
acks becomes one entry.  A crash loses at most that much, which means that some
messages are delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.wire.journal_format import CursorState

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pydanube.dispatch.cursor import Cursor
    from pydanube.model.errors import BrokerError
    from pydanube.model.ids import TopicId
    from pydanube.model.names import SubscriptionName
    from pydanube.storage.storage import Storage

CURSOR_LINGER_S = 0.02
RANGES_MAX = 1000
"""Of the done ranges above a cursor, so many are stored; the rest is redelivered."""


class CursorSaver:
    """Cursors that have moved and are not written yet."""

    def __init__(self, storage: Storage, loop: asyncio.AbstractEventLoop) -> None:
        self._storage = storage
        self._loop = loop
        self._moved: dict[tuple[TopicId, SubscriptionName], Cursor] = {}
        self._timer: asyncio.TimerHandle | None = None

    def mark(
        self, topic: TopicId, subscription: SubscriptionName, cursor: Cursor
    ) -> None:
        """Write *cursor* soon, as it is by then."""
        self._moved[topic, subscription] = cursor
        if self._timer is None:
            self._timer = self._loop.call_later(CURSOR_LINGER_S, self.flush)

    def save_now(
        self,
        topic: TopicId,
        subscription: SubscriptionName,
        cursor: Cursor,
        done: Callable[[BrokerError | None], None],
    ) -> None:
        """Write *cursor*; *done* is called when it is on disk."""
        self._moved.pop((topic, subscription), None)
        self._storage.save_cursor(topic, subscription, state_of(cursor), done)

    def forget(
        self, topic: TopicId, subscription: SubscriptionName | None = None
    ) -> None:
        """The topic, or one subscription of it, is deleted."""
        for key in list(self._moved):
            if key[0] == topic and subscription in (None, key[1]):
                del self._moved[key]

    def flush(self) -> None:
        """Hand every moved cursor to the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moved, self._moved = self._moved, {}
        for (topic, subscription), cursor in moved.items():
            self._storage.save_cursor(topic, subscription, state_of(cursor))


def state_of(cursor: Cursor) -> CursorState:
    """The cursor as the journal stores it."""
    return CursorState(cursor.offset, tuple(cursor.done)[:RANGES_MAX])
