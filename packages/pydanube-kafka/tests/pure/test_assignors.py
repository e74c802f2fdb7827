"""Every partition gets one of the members that subscribe to its topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_kafka.pure.assignors import ASSIGNORS, assign_range, assign_uniform

TOPICS = "abcd"
PARTITIONS = st.dictionaries(
    st.sampled_from(TOPICS), st.integers(0, 6).map(lambda count: tuple(range(count)))
)
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("12345"), st.frozensets(st.sampled_from(TOPICS)), max_size=5
)
PART = st.tuples(st.sampled_from(TOPICS), st.integers(0, 8))
HELD = st.dictionaries(st.sampled_from("12345"), st.sets(PART))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS, held=HELD)
def test_each_partition_has_one_member_that_subscribes(
    name, subscriptions, partitions, held
):
    parts = ASSIGNORS[name](subscriptions, partitions, held)
    assert parts.keys() == subscriptions.keys()
    found = [(each, member) for member, some in parts.items() for each in some]
    assert all(topic in subscriptions[member] for (topic, _), member in found)
    expected = [
        (topic, number)
        for topic, numbers in partitions.items()
        for number in numbers
        if any(topic in each for each in subscriptions.values())
    ]
    assert sorted(each for each, _ in found) == sorted(expected)


@given(
    count=st.integers(1, 5), partitions=PARTITIONS, held=HELD, gone=st.integers(0, 5)
)
def test_equal_subscriptions_are_even_and_keep_what_they_can(
    count, partitions, held, gone
):
    subscriptions = {str(each): frozenset(TOPICS) for each in range(count)}
    parts = assign_uniform(subscriptions, partitions, held)
    loads = list(map(len, parts.values()))
    assert max(loads) - min(loads) <= 1
    assert assign_uniform(subscriptions, partitions, parts) == parts
    # If a member leaves, the others keep all that they have.
    del subscriptions[str(gone % count)]
    after = assign_uniform(subscriptions, partitions, parts)
    assert all(after[each] >= parts[each] for each in subscriptions)


def test_a_range_is_consecutive_and_the_same_for_topics_of_one_size():
    topics = {"1": "ab", "2": "ab", "3": "a"}
    parts = assign_range(topics, {"a": range(5), "b": range(4)}, {})
    assert parts["1"] == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}
    assert parts["3"] == {("a", 4)}


def test_different_subscriptions_are_evened_out():
    subscriptions = {"1": "ab", "2": "b"}
    held = {"1": {("a", 0), ("b", 0), ("b", 1)}}
    parts = assign_uniform(subscriptions, {"a": (0,), "b": (0, 1)}, held)
    assert {each: len(some) for each, some in parts.items()} in (
        {"1": 2, "2": 1},
        {"1": 1, "2": 2},
    )


class Counted(str):
    """The id of a topic that counts how often it is compared."""

    __slots__ = ()
    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.count += 1
        return str.__eq__(self, other)


def test_the_work_for_many_topics_is_not_that_for_pairs_of_them():
    topics = frozenset(Counted(each) for each in range(1000))
    partitions = dict.fromkeys(topics, (0,))
    parts = assign_uniform({"1": topics}, partitions, {})
    Counted.count = 0
    parts = assign_uniform(dict.fromkeys("123", topics), partitions, parts)
    assert sorted(map(len, parts.values())) == [333, 333, 334]
    assert Counted.count < 20_000
