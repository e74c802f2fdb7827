"""
Writing cursors to the journal.

Acks come in small pieces; writing the cursor for each would cost more than the
messages.  A moved cursor is written after a short linger time, so that a burst of acks
becomes one entry.  A crash loses at most that much: some messages are delivered again.

A cursor takes a few bytes if messages are acknowledged in order.  It is larger if it
has many acknowledged ranges, because earlier messages wait or are blocked; those have
their failures in it, so that a restart does not forget that they block.  After a large
cursor was written it pauses, longer the larger it is, so that no cursor writes
more than ``CURSOR_BYTES_PER_S`` to the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import field
from functools import partial

from pydanube.aio.futures import Done
from pydanube.model.errors import BrokerError, SubscriptionNotFound
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import SubscriptionName
from pydanube.wire.files.journal_format import CursorSaved, CursorState
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.storage.storage import Storage

_Key = tuple[TopicId, SubscriptionName]

CURSOR_LINGER_S = 0.02
CURSOR_BYTES_PER_S = 1024 * 1024
SMALL_CURSOR_BYTES = 4096
"""A cursor whose acknowledged ranges are smaller is written without a pause."""


@dataclass(slots=True)
class _PendingCursor:
    """A cursor to write, and the callbacks that wait for it."""

    cursor: Cursor
    waiting: list[Done] = field(default_factory=list)


class CursorSaver:
    """Writes moved cursors to the journal."""

    def __init__(self, storage: Storage, loop: asyncio.AbstractEventLoop) -> None:
        self._storage = storage
        self._loop = loop
        self._moved: dict[_Key, _PendingCursor] = {}
        # Those to write at the end of this iteration of the event loop.
        self._urgent: list[_Key] = []
        # When recently written large cursors may be written again.
        self._pauses: dict[_Key, float] = {}
        # Topics that have left, with the reason: another broker may read their cursors.
        self._left: dict[TopicId, BrokerError] = {}
        self._timer: asyncio.TimerHandle | None = None

    def mark(
        self, topic: TopicId, subscription: SubscriptionName, cursor: Cursor
    ) -> None:
        """Write *cursor* after the linger time, in its state then."""
        key = topic, subscription
        if key not in self._moved and topic not in self._left:
            self._moved[key] = _PendingCursor(cursor)
            self._linger()

    def save_now(
        self,
        topic: TopicId,
        subscription: SubscriptionName,
        cursor: Cursor,
        done: Done,
    ) -> None:
        """
        Write *cursor*, and call *done* when it is on disk.

        Calls in the same iteration of the event loop, or during the pause of a large
        cursor, wait for the same journal entry.  If the topic has left this broker,
        *done* gets the reason.
        """
        if topic in self._left:
            self._loop.call_soon(done, self._left[topic])
            return
        key = topic, subscription
        moved = self._moved.setdefault(key, _PendingCursor(cursor))
        moved.waiting.append(done)
        if key in self._pauses:
            self._linger()
        elif len(moved.waiting) == 1:
            if not self._urgent:
                self._loop.call_soon(self._write_urgent)
            self._urgent.append(key)

    def forget(
        self,
        topic: TopicId,
        subscriptions: Iterable[SubscriptionName],
        reason: BrokerError | None = None,
    ) -> None:
        """Drop pending cursors because of *reason*: the subscriptions are deleted."""
        for subscription in subscriptions:
            key = topic, subscription
            self._pauses.pop(key, None)
            moved = self._moved.pop(key, None)
            if moved is not None:
                gone = reason or SubscriptionNotFound(
                    f"{subscription} has been deleted"
                )
                self._loop.call_soon(_notify, moved.waiting, gone)

    def leave(self, topic: TopicId, reason: BrokerError) -> None:
        """Append the moved cursors of *topic*, and refuse later ones with *reason*."""
        for key in [key for key in self._moved if key[0] == topic]:
            self._write(key)
        self._left[topic] = reason

    def forget_left(self, topic: TopicId) -> None:
        """Forget that a topic has left: it is closed, and may be opened again later."""
        self._left.pop(topic, None)

    def saved_offset(
        self, topic: TopicId, subscription: SubscriptionName, cursor: Cursor
    ) -> int:
        """Return an offset below which messages stay acknowledged after a crash."""
        state = self._storage.find_state(topic)
        saved = None if state is None else state.cursors.get(subscription)
        if saved is None or saved.generation != cursor.generation:
            return 0
        return min(saved.offset, cursor.offset)

    def flush(self) -> None:
        """Append all moved cursors to the journal, also those that pause."""
        for key in list(self._moved):
            self._write(key)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _linger(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(CURSOR_LINGER_S, self._write_lingering)

    def _write_urgent(self) -> None:
        urgent, self._urgent = self._urgent, []
        for key in urgent:
            if key in self._moved:
                self._write(key)

    def _write_lingering(self) -> None:
        self._timer = None
        now = self._loop.time()
        for key in [key for key, end in self._pauses.items() if end <= now]:
            del self._pauses[key]
        for key in [key for key in self._moved if key not in self._pauses]:
            self._write(key)
        if self._pauses:
            # Even if none of them has moved: the next call drops ended pauses.
            self._linger()

    def _write(self, key: _Key) -> None:
        moved = self._moved.pop(key)
        state = state_of(moved.cursor)
        byte_count = state.byte_count
        if byte_count > SMALL_CURSOR_BYTES:
            self._pauses[key] = self._loop.time() + byte_count / CURSOR_BYTES_PER_S
            self._linger()
        done = partial(_notify, moved.waiting) if moved.waiting else None
        self._storage.save(CursorSaved(*key, state), done)


def _notify(waiting: list[Done], error: BrokerError | None) -> None:
    for done in waiting:
        done(error)


def state_of(cursor: Cursor) -> CursorState:
    """Return the state of a cursor as the journal stores it."""
    return CursorState(
        cursor.offset,
        cursor.done.copy(),
        cursor.generation,
        cursor.open_failures(),
        cursor.note,
    )
