"""Which messages a worker processes next: properties for all histories."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.pure.work_queue import (
    RUN_MESSAGES_MAX,
    WAITING_MAX,
    Delivery,
    WaitingLimit,
    WorkQueue,
)


@pytest.fixture
def source():
    return SimpleNamespace(drops=0)


def delivery(source, offsets, lanes=None, arrival=1):
    batch = SimpleNamespace(topic="t", offsets=offsets, arrival=arrival)
    return Delivery(batch, source, source.drops, lanes)


def add(queue, source, offsets, lanes=None, arrival=1):
    """Add a delivery; return whether none of its messages must be released."""
    return not queue.add(
        delivery(source, offsets, lanes, arrival), base=0, end=len(offsets)
    )


def queue_of(source, lanes, *, ordered=True, **options):
    queue = WorkQueue(
        **{"concurrency": 2, "batch_max": 1, "waiting_max": 100} | options
    )
    if lanes:
        add(queue, source, range(len(lanes)), lanes if ordered else None)
    return queue


def offsets(runs):
    return [
        offset for each, base, end in runs for offset in each.batch.offsets[base:end]
    ]


def taken(queue):
    """All calls that may run now."""
    found = []
    while (work := queue.take()) is not None:
        found.append(work)
    return found


def test_calls_are_limited_and_lanes_run_one_message_at_a_time(source):
    queue = queue_of(source, "aabca")
    first, second = taken(queue)
    assert [offsets(first.runs), offsets(second.runs)] == [[0], [2]]
    queue.finish(second)
    [third] = taken(queue)
    assert offsets(third.runs) == [3]
    queue.finish(first)
    assert [offsets(each.runs) for each in taken(queue)] == [[1]]


def test_messages_without_lanes_run_as_they_arrived(source):
    queue = queue_of(source, "aaaaa", ordered=False, batch_max=2)
    first, second = taken(queue)
    assert [first.runs[0][1:], second.runs[0][1:]] == [(0, 2), (2, 4)]
    queue.finish(first)
    assert queue.fail(second) == ([], [])
    [third] = taken(queue)
    assert offsets(third.runs) == [4]


def test_a_batch_has_messages_of_several_lanes_in_order(source):
    queue = queue_of(source, "abacabd", batch_max=4)
    first, second = taken(queue)
    assert first.runs[0][1:] == (0, 4)
    assert offsets(second.runs) == [6]
    queue.finish(first)
    assert [offsets(each.runs) for each in taken(queue)] == [[4, 5]]


def test_a_run_passes_up_to_the_first_message_that_waits_for_a_call(source):
    queue = queue_of(source, "abcad")
    first = queue.take()
    assert queue.next_run()[1:] == (1, 3)
    queue.pass_first(1)
    assert offsets(queue.take_first().runs) == [2]
    # Both calls run.
    assert queue.next_run() is None
    assert queue.room == 98
    queue.finish(first)
    assert queue.next_run()[1:] == (3, 5)
    queue.pass_first(2)
    assert (queue.next_run(), queue.room, offsets(queue)) == (None, 100, [2])
    # They are no longer held.
    assert add(queue, source, [0, 1, 3, 4], "abad")
    assert queue.next_run()[1:] == (0, 4)
    source.drops += 1
    assert queue.next_run() is None


def test_a_run_is_short_however_many_messages_wait(source):
    lanes = ["a", *map(str, range(2 * RUN_MESSAGES_MAX))]
    queue = queue_of(source, lanes, waiting_max=len(lanes))
    queue.take()
    assert queue.next_run()[1:] == (1, 1 + RUN_MESSAGES_MAX)
    queue.pass_first(2)
    assert queue.next_run()[1:] == (3, 3 + RUN_MESSAGES_MAX)
    queue.pass_first(RUN_MESSAGES_MAX)
    assert queue.next_run()[1:] == (3 + RUN_MESSAGES_MAX, len(lanes))


def test_a_failure_releases_what_waits_in_its_lanes_only(source):
    queue = queue_of(source, "abab", concurrency=1)
    [work] = taken(queue)
    released, [recovery] = queue.fail(work)
    assert (offsets(released), recovery.lane) == ([2], "a")
    assert offsets(queue) == [1, 3]
    # The broker delivers them again.
    add(queue, source, [0, 2], "aa")
    order = []
    while works := taken(queue):
        order += [offset for work in works for offset in offsets(work.runs)]
        for work in works:
            queue.finish(work)
    assert [each for each in order if each % 2 == 0] == [0, 2]
    assert not list(queue)


def test_a_failure_releases_messages_that_are_parked_behind_a_running_one(source):
    queue = queue_of(source, "aab")
    first, second = taken(queue)
    assert offsets(second.runs) == [2]
    released, _ = queue.fail(first)
    assert offsets(released) == [1]
    assert offsets(queue) == [2]


def test_what_the_broker_sent_before_it_learnt_of_a_failure_is_released(source):
    queue = queue_of(source, "ab")
    first, second = taken(queue)
    [recovery] = queue.fail(first)[1]
    assert not add(queue, source, [2], "a", arrival=2)
    assert add(queue, source, [3], "b", arrival=2)
    # The delivery after the next one is the first that was sent afterwards.
    recovery.limit = 4
    queue.recover(source, unread_from=3)
    assert not add(queue, source, [4], "a", arrival=3)
    assert add(queue, source, [5, 6], "aa", arrival=4)
    [recovery] = queue.fail(second)[1]
    recovery.limit = 6
    queue.recover(source, unread_from=6)
    assert add(queue, source, [7], "b", arrival=5)


@pytest.mark.parametrize("is_reconnected", [False, True])
def test_a_failed_message_that_comes_again_ends_the_recovery(source, is_reconnected):
    queue = queue_of(source, "aa")
    [work] = taken(queue)
    queue.fail(work)
    source.drops += is_reconnected
    if not is_reconnected:
        assert not add(queue, source, [2], "a", arrival=2)
    assert add(queue, source, [0, 1, 2], "aaa", arrival=3)
    assert offsets(queue) == [0, 1, 2]


def test_room_counts_waiting_messages_only(source):
    queue = queue_of(source, "abcd", waiting_max=4)
    assert queue.room == 0
    works = taken(queue)
    assert queue.room == 2
    queue.finish(works[0])
    assert queue.room == 2


def test_calls_that_wait_for_a_thread_take_room(source):
    queue = queue_of(source, "abcd", waiting_max=4, prepared_max=2)
    works = taken(queue)
    assert (len(works), queue.room) == (4, 2)
    queue.finish(works[0])
    assert queue.room == 3


@pytest.mark.parametrize("ordered", [False, True])
def test_messages_that_the_broker_delivers_again_do_not_run_twice(source, ordered):
    queue = queue_of(source, "ab", concurrency=1, ordered=ordered)
    [work] = taken(queue)
    # The connection breaks: 1 may be with another worker by now.
    source.drops += 1
    add(queue, source, [0], "a" if ordered else None)
    queue.finish(work)
    assert taken(queue) == []
    queue = queue_of(source, "ab", concurrency=1, ordered=ordered)
    [work] = taken(queue)
    source.drops += 1
    add(queue, source, [0, 1], "ab" if ordered else None)
    queue.finish(work)
    [again] = taken(queue)
    assert offsets(again.runs) == [1]
    queue.finish(again)
    assert (list(queue), taken(queue), list(queue.running)) == ([], [], [])


def test_a_message_that_waits_and_comes_again_runs_once(source):
    queue = queue_of(source, "ab", ordered=False)
    add(queue, source, [1, 2])
    works = []
    while found := taken(queue):
        for work in found:
            queue.finish(work)
        works += found
    assert [offsets(work.runs) for work in works] == [[0], [1], [2]]


class Consumption:
    """Messages that a broker delivers, and a worker processes."""

    def __init__(self, queue, source, *, ordered):
        self.queue, self.source, self.ordered = queue, source, ordered
        self.lanes, self.running, self.order = [], [], defaultdict(list)

    def add(self, lanes):
        base = len(self.lanes)
        self.lanes += lanes
        self.deliver(range(base, len(self.lanes)))

    def again(self, numbers):
        """Deliver messages again that the worker has."""
        before = sorted(offsets(self.queue))
        is_lost = any(each.is_lost for each, _, _ in self.queue)
        for offset in before[: numbers[0]]:
            self.deliver([offset])
        assert is_lost or sorted(offsets(self.queue)) == before

    def deliver(self, found):
        lanes = [self.lanes[offset] for offset in found] if self.ordered else None
        add(self.queue, self.source, found, lanes)

    def take(self, _):
        work = self.queue.take()
        if work is None:
            return
        self.running.append(work)
        assert work.count == len(offsets(work.runs))
        for offset in offsets(work.runs):
            self.order[self.lanes[offset]].append(offset)

    def drop(self, _):
        self.source.drops += 1

    def finish(self, numbers):
        if self.running:
            self.queue.finish(self.running.pop(numbers[0] % len(self.running)))

    def fail(self, numbers):
        if self.running:
            work = self.running.pop(numbers[0] % len(self.running))
            released, _ = self.queue.fail(work)
            assert {self.lanes[each] for each in offsets(released)} <= {*work.lanes}


events = st.lists(
    st.tuples(
        st.sampled_from(["add", "again", "take", "finish", "fail", "drop"]),
        st.lists(st.integers(0, 3), min_size=1, max_size=5),
    )
)


@given(events, st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.booleans())
def test_each_message_runs_once_and_in_the_order_of_its_lane(
    events, concurrency, batch_max, prepared_max, ordered
):
    source = SimpleNamespace(drops=0)
    queue = queue_of(
        source,
        "",
        concurrency=concurrency,
        batch_max=batch_max,
        prepared_max=prepared_max,
    )
    consumption = Consumption(queue, source, ordered=ordered)
    for event, numbers in events:
        getattr(consumption, event)(numbers)
        running = consumption.running
        assert len(running) <= concurrency + prepared_max
        assert all(work.count <= batch_max for work in running)
        busy = [lane for work in running for lane in work.lanes]
        assert len(busy) == len(set(busy))
        held = offsets(queue)
        assert len(held) == len(set(held))
        in_calls = sum(work.count for work in running)
        prepared = max(0, in_calls - concurrency * batch_max)
        assert queue.room == 100 - (len(held) - in_calls) - prepared
    for order in consumption.order.values():
        assert len(order) == len(set(order))
        assert order == sorted(order) or not ordered
    works = consumption.running
    while works := [*works, *taken(queue)]:
        for work in works:
            queue.finish(work)
        works = []
    assert not list(queue)
    assert queue.room == 100


def test_fast_worker_lets_many_messages_wait_and_a_slow_one_few():
    limit = WaitingLimit(2, 100.0)
    assert limit.messages == 2
    assert not limit.on_processed(30, 100.01)
    assert limit.on_processed(30, 100.5)
    # 120 messages in a second.
    assert limit.messages == 12
    assert limit.on_processed(100_000, 101.0)
    assert limit.messages == WAITING_MAX
    assert limit.on_processed(1, 102.0)
    assert limit.messages == 2


def test_queue_has_room_when_half_of_the_waiting_messages_are_taken(source):
    queue = WorkQueue(concurrency=1, batch_max=1, waiting_max=4)
    assert (queue.room, queue.has_room) == (4, True)
    add(queue, source, range(3))
    assert (queue.room, queue.has_room) == (1, False)
    queue.take()
    assert (queue.room, queue.has_room) == (2, True)
