"""Which messages a worker processes next: properties for all histories."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.messages.messages import MessageId
from pydanube.client.pure.work_queue import (
    WAITING_MAX,
    WaitingLimit,
    WorkItem,
    WorkQueue,
)


@pytest.fixture
def source():
    return SimpleNamespace(drops=0)


def item(source, offset, lane, arrival=1):
    return WorkItem(MessageId("t", offset), lane, None, source, source.drops, arrival)


def queue_of(source, lanes, **options):
    queue = WorkQueue(
        **{"concurrency": 2, "batch_max": 1, "waiting_max": 100} | options
    )
    for offset, lane in enumerate(lanes):
        queue.add(item(source, offset, lane))
    return queue


def offsets(items):
    return [each.id.offset for each in items]


def taken(queue):
    """All calls that may run now, as offsets."""
    found = []
    while (work := queue.take()) is not None:
        found.append(work)
    return found


def test_calls_are_limited_and_lanes_run_one_message_at_a_time(source):
    queue = queue_of(source, "aabca")
    first, second = taken(queue)
    assert [offsets(first.items), offsets(second.items)] == [[0], [2]]
    queue.finish(second)
    [third] = taken(queue)
    assert offsets(third.items) == [3]
    queue.finish(first)
    assert [offsets(each.items) for each in taken(queue)] == [[1]]


def test_a_batch_has_messages_of_several_lanes_in_order(source):
    queue = queue_of(source, "abacab", batch_max=4)
    first, second = taken(queue)
    assert offsets(first.items) == [0, 2, 4, 1]
    assert offsets(second.items) == [3]
    queue.finish(first)
    assert [offsets(each.items) for each in taken(queue)] == [[5]]


def test_a_failure_releases_what_waits_in_its_lanes_only(source):
    queue = queue_of(source, "abab", concurrency=1)
    [work] = taken(queue)
    released, recoveries = queue.fail(work)
    assert (offsets(released), recoveries) == ([2], [])
    assert offsets(queue) == [1, 3]
    # The broker delivers them again.
    queue.add(item(source, 0, "a"))
    queue.add(item(source, 2, "a"))
    order = []
    while works := taken(queue):
        order += [offset for work in works for offset in offsets(work.items)]
        for work in works:
            queue.finish(work)
    assert [each for each in order if each % 2 == 0] == [0, 2]
    assert not list(queue)


def test_what_the_broker_sent_before_it_learnt_of_a_failure_is_released(source):
    queue = queue_of(source, "ab", is_ordered=True)
    first, second = taken(queue)
    [recovery] = queue.fail(first)[1]
    assert not queue.add(item(source, 2, "a", arrival=2))
    assert queue.add(item(source, 3, "b", arrival=2))
    # The delivery after the next one is the first that was sent afterwards.
    recovery.limit = 4
    queue.recover(source, unread_from=3)
    assert not queue.add(item(source, 4, "a", arrival=3))
    assert queue.add(item(source, 5, "a", arrival=4))
    assert queue.add(item(source, 6, "a", arrival=4))
    [recovery] = queue.fail(second)[1]
    recovery.limit = 6
    queue.recover(source, unread_from=6)
    assert queue.add(item(source, 7, "b", arrival=5))


@pytest.mark.parametrize("is_reconnected", [False, True])
def test_a_failed_message_that_comes_again_ends_the_recovery(source, is_reconnected):
    queue = queue_of(source, "aa", is_ordered=True)
    [work] = taken(queue)
    queue.fail(work)
    source.drops += is_reconnected
    if not is_reconnected:
        assert not queue.add(item(source, 2, "a", arrival=2))
    for offset in (0, 1, 2):
        assert queue.add(item(source, offset, "a", arrival=3))
    assert offsets(queue) == [0, 1, 2]


def test_room_counts_waiting_messages_only(source):
    queue = queue_of(source, "abcd", waiting_max=4)
    assert queue.room == 0
    works = taken(queue)
    assert queue.room == 2
    queue.finish(works[0])
    assert queue.room == 2


def test_messages_that_the_broker_delivers_again_do_not_run_twice(source):
    queue = queue_of(source, "ab", concurrency=1)
    [work] = taken(queue)
    # The connection breaks: 1 may be with another worker by now.
    source.drops += 1
    queue.add(item(source, 0, "a"))
    queue.finish(work)
    assert taken(queue) == []
    queue = queue_of(source, "ab", concurrency=1)
    [work] = taken(queue)
    source.drops += 1
    for offset, lane in enumerate("ab"):
        queue.add(item(source, offset, lane))
    queue.finish(work)
    [again] = taken(queue)
    assert offsets(again.items) == [1]
    queue.finish(again)
    assert (list(queue), taken(queue), queue.is_running) == ([], [], False)


events = st.lists(
    st.tuples(
        st.sampled_from(["add", "take", "finish", "fail", "drop"]), st.integers(0, 3)
    )
)


@given(events, st.integers(1, 3), st.integers(1, 3))
def test_each_message_runs_once_and_in_the_order_of_its_lane(
    events, concurrency, batch_max
):
    source = SimpleNamespace(drops=0)
    queue = queue_of(source, "", concurrency=concurrency, batch_max=batch_max)
    lanes, running = defaultdict(list), []
    added = 0
    for event, number in events:
        if event == "add":
            queue.add(item(source, added, number))
            added += 1
        elif event == "take" and (work := queue.take()) is not None:
            running.append(work)
            assert len(running) <= concurrency
            assert len(work.items) <= batch_max
            for each in work.items:
                lanes[each.lane].append(each.id.offset)
        elif event == "drop":
            source.drops += 1
        elif event in ("finish", "fail") and running:
            work = running.pop(number % len(running))
            if event == "finish":
                queue.finish(work)
            else:
                released, _ = queue.fail(work)
                assert {each.lane for each in released} <= {*work.lanes}
        busy = [lane for work in running for lane in work.lanes]
        assert len(busy) == len(set(busy))
    for order in lanes.values():
        assert order == sorted(set(order))
    while (works := running + taken(queue)) != []:
        running = []
        for work in works:
            queue.finish(work)
    assert not queue.is_running
    assert not list(queue)


def test_fast_worker_lets_many_messages_wait_and_a_slow_one_few():
    limit = WaitingLimit(2, 100.0)
    assert limit.messages == 2
    assert not limit.on_processed(30, 100.01)
    assert limit.on_processed(30, 100.5)
    # 120 messages in a second.
    assert limit.messages == 12
    assert limit.on_processed(10_000, 101.0)
    assert limit.messages == WAITING_MAX
    assert limit.on_processed(1, 102.0)
    assert limit.messages == 2


def test_queue_has_room_when_half_of_the_waiting_messages_are_taken(source):
    queue = WorkQueue(concurrency=1, batch_max=1, waiting_max=4)
    assert (queue.room, queue.has_room) == (4, True)
    for offset in range(3):
        queue.add(item(source, offset, offset))
    assert (queue.room, queue.has_room) == (1, False)
    queue.take()
    assert (queue.room, queue.has_room) == (2, True)
