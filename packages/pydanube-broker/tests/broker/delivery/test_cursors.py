"""When cursors are written, with a manual clock."""

from heapq import heappop, heappush

from pydanube.model.errors import NotOwner, SubscriptionNotFound
from pydanube.model.ranges import RangeSet
from pydanube_broker.broker.delivery.cursors import (
    CURSOR_BYTES_PER_S,
    CURSOR_LINGER_S,
    SMALL_CURSOR_BYTES,
    CursorSaver,
)
from pydanube_broker.dispatch.cursor import Cursor


class HandLoop:
    """The part of an event loop that a cursor saver needs."""

    def __init__(self):
        self.now = 0.0
        self.calls = []
        self.numbers = iter(range(10**9))

    def time(self):
        return self.now

    def call_soon(self, callback, *arguments):
        return self.call_later(0.0, callback, *arguments)

    def call_later(self, delay_s, callback, *arguments):
        call = [self.now + delay_s, next(self.numbers), callback, arguments]
        heappush(self.calls, call)
        return Call(call)

    def run(self, until=None):
        """Make the calls that are due by then, or those of this iteration."""
        until = self.now if until is None else until
        while self.calls and self.calls[0][0] <= until:
            due, _, callback, arguments = heappop(self.calls)
            self.now = max(self.now, due)
            if callback is not None:
                callback(*arguments)
        self.now = max(self.now, until)


class Call:
    def __init__(self, call):
        self.call = call

    def cancel(self):
        self.call[2] = None


class Saved:
    """A storage that records the saved cursors and the times."""

    def __init__(self, loop):
        self.loop = loop
        self.entries = []

    def save(self, entry, done=None):
        saved = entry.topic_id, entry.subscription, entry.cursor
        self.entries.append((self.loop.now, *saved))
        if done is not None:
            self.loop.call_soon(done, None)

    @property
    def offsets(self):
        return [(name, state.offset) for _, _, name, state in self.entries]

    @property
    def times(self):
        return [time for time, *_ in self.entries]


def saver():
    loop = HandLoop()
    saved = Saved(loop)
    return loop, saved, CursorSaver(saved, loop)


def large(offset=0):
    """A cursor with very many acknowledged ranges, far apart."""
    return Cursor(offset, RangeSet((n * 1000, n * 1000 + 1) for n in range(1, 20_000)))


def test_burst_of_changes_is_written_as_one_entry():
    loop, saved, cursors = saver()
    cursor = Cursor(0)
    for offset in range(1, 10):
        cursor.mark(0, offset)
        cursors.mark(1, "s", cursor)
    loop.run()
    assert saved.entries == []
    loop.run(CURSOR_LINGER_S)
    assert saved.offsets == [("s", 9)]
    loop.run(10)
    assert len(saved.entries) == 1


def test_callers_in_the_same_iteration_share_one_entry():
    loop, saved, cursors = saver()
    cursor, told = Cursor(0), []
    cursors.mark(1, "s", cursor)
    for each in "abc":
        cursor.mark(0, cursor.offset + 1)
        cursors.save_now(1, "s", cursor, lambda error, each=each: told.append(each))
    cursors.save_now(1, "t", Cursor(7), lambda error: told.append("t"))
    loop.run()
    assert saved.offsets == [("s", 3), ("t", 7)]
    assert told == ["a", "b", "c", "t"]
    loop.run(10)
    assert len(saved.entries) == 2


def test_urgent_write_does_not_write_other_cursors():
    loop, saved, cursors = saver()
    cursors.mark(1, "lingers", Cursor(1))
    cursors.save_now(1, "waits", Cursor(2), lambda error: None)
    loop.run()
    assert saved.offsets == [("waits", 2)]


def test_cursor_is_written_in_its_state_at_the_time_of_writing():
    loop, saved, cursors = saver()
    cursor = Cursor(0, RangeSet([(5, 6)]))
    cursors.save_now(1, "s", cursor, lambda error: None)
    loop.run()
    cursor.mark(0, 10)
    state = saved.entries[0][3]
    assert (state.offset, list(state.done)) == (0, [(5, 6)])


def test_all_acknowledged_ranges_are_written():
    loop, saved, cursors = saver()
    cursor = large()
    cursors.mark(1, "s", cursor)
    loop.run(1)
    assert saved.entries[0][3].done == cursor.done


def test_large_cursor_pauses_in_proportion_to_its_size():
    loop, saved, cursors = saver()
    cursor, told = large(), []
    pause_s = cursor.done.byte_count / CURSOR_BYTES_PER_S
    assert pause_s > 0.2
    while loop.now < 20 * pause_s:
        cursors.mark(1, "s", cursor)
        cursors.save_now(1, "s", cursor, lambda error: told.append(loop.now))
        loop.run(loop.now + 0.01)
    assert 15 <= len(saved.entries) <= 21
    assert len(told) > 300
    # Small cursors do not wait for it.
    cursors.save_now(1, "small", Cursor(3), lambda error: None)
    loop.run()
    assert saved.offsets[-1] == ("small", 3)


def test_small_cursor_is_written_without_pause_after_a_large_one():
    loop, saved, cursors = saver()
    cursor = large()
    cursors.save_now(1, "s", cursor, lambda error: None)
    loop.run(10)
    cursor.mark(0, 10**8)
    for _ in range(3):
        cursors.save_now(1, "s", cursor, lambda error: None)
        loop.run()
    assert saved.times[-3:] == [10, 10, 10]
    assert cursor.done.byte_count < SMALL_CURSOR_BYTES
    loop.run(100)
    assert loop.calls == []


def test_flush_ignores_pauses():
    loop, saved, cursors = saver()
    cursor = large()
    for _ in range(2):
        cursors.save_now(1, "s", cursor, lambda error: None)
        cursors.flush()
    assert len(saved.entries) == 2
    loop.run(100)
    assert len(saved.entries) == 2


def test_deleted_cursor_is_not_written_and_its_waiters_fail():
    loop, saved, cursors = saver()
    told = []
    for topic, name in ((1, "s"), (1, "t"), (2, "s")):
        cursors.save_now(topic, name, Cursor(0), told.append)
    cursors.forget(1, ["s"])
    loop.run()
    assert [(topic, name) for _, topic, name, _ in saved.entries] == [
        (1, "t"),
        (2, "s"),
    ]
    assert [type(error) for error in told] == [SubscriptionNotFound] + [type(None)] * 2
    for name in "st":
        cursors.mark(1, name, Cursor(0))
    cursors.forget(1, "st")
    loop.run(1)
    assert len(saved.entries) == 2


def test_cursors_of_a_topic_that_leaves_are_written_for_the_last_time():
    loop, saved, cursors = saver()
    answers = []
    leaving, staying = Cursor(1), Cursor(2)
    cursors.mark(1, "leaving", leaving)
    cursors.mark(2, "staying", staying)
    reason = NotOwner("another broker serves it")
    cursors.leave(1, reason)
    assert saved.offsets == [("leaving", 1)]
    leaving.mark(1, 5)
    cursors.mark(1, "leaving", leaving)
    cursors.save_now(1, "leaving", leaving, answers.append)
    loop.run(10)
    assert answers == [reason]
    assert saved.offsets == [("leaving", 1), ("staying", 2)]
    cursors.forget_left(1)
    cursors.save_now(1, "leaving", leaving, answers.append)
    loop.run(20)
    assert answers == [reason, None]
    assert saved.offsets[2:] == [("leaving", 5)]
