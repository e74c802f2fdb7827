"""
Ways to divide partitions among the members of a group.

Each is a function of the subscriptions and of what members have: it gives every
partition of a topic to one of the members that subscribe to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeAlias

Partition: TypeAlias = "tuple[Hashable, int]"
"""The id of a topic, and the number of a partition."""
Subscriptions: TypeAlias = "Mapping[str, Collection[Hashable]]"
"""The ids of the topics to which each member subscribes."""
Partitions: TypeAlias = "Mapping[Hashable, Sequence[int]]"
"""The numbers of the partitions of each topic."""
Held: TypeAlias = "Mapping[str, Collection[Partition]]"
"""The partitions that each member was to have before."""
Parts: TypeAlias = "dict[str, set[Partition]]"

PASSES_MAX = 10
"""The most times that all topics are looked at to even out different subscriptions."""


def assign_range(
    subscriptions: Subscriptions, partitions: Partitions, held: Held
) -> Parts:
    """
    Give each member consecutive partitions of each topic, in the order of the members.

    Members with the same subscriptions have the same partitions of topics that have
    equally many.
    """
    parts: Parts = {member: set() for member in subscriptions}
    for topic, members in _subscribers(subscriptions, partitions).items():
        numbers = partitions[topic]
        share, extra = divmod(len(numbers), len(members))
        at = 0
        for place, member in enumerate(members):
            count = share + (place < extra)
            parts[member].update((topic, each) for each in numbers[at : at + count])
            at += count
    return parts


def assign_uniform(
    subscriptions: Subscriptions, partitions: Partitions, held: Held
) -> Parts:
    """
    Give members as equally many partitions as their subscriptions allow.

    Members keep what they were to have, as far as that is even.
    """
    parts: Parts = {member: set() for member in subscriptions}
    subscribers = _subscribers(subscriptions, partitions)
    existing = {topic: frozenset(numbers) for topic, numbers in partitions.items()}
    taken = set[Partition]()
    for member, topics in subscriptions.items():
        for topic, number in held.get(member, ()):
            is_kept = topic in topics and number in existing.get(topic, ())
            if is_kept and (topic, number) not in taken:
                parts[member].add((topic, number))
                taken.add((topic, number))
    for topic, members in subscribers.items():
        loads = [(len(parts[each]), each) for each in members]
        heapify(loads)
        for number in partitions[topic]:
            if (topic, number) not in taken:
                load, member = loads[0]
                parts[member].add((topic, number))
                heapreplace(loads, (load + 1, member))
    for _ in range(PASSES_MAX):
        moves = [
            _even_out(topic, members, parts) for topic, members in subscribers.items()
        ]
        if not any(moves):
            break
    return parts


def _even_out(topic: Hashable, members: Sequence[str], parts: Parts) -> bool:
    """Move partitions of a topic from members with many to those with few."""
    low = [(len(parts[each]), each) for each in members]
    heapify(low)
    has_moved = False
    for member in sorted(members, key=lambda each: -len(parts[each])):
        if len(parts[member]) <= low[0][0] + 1:
            # Those that follow have not more.
            break
        movable = sorted(each[1] for each in parts[member] if each[0] == topic)
        while movable:
            load, other = low[0]
            if len(parts[other]) != load:
                # It has given some away.
                heapreplace(low, (len(parts[other]), other))
                continue
            if len(parts[member]) <= load + 1:
                break
            moved = topic, movable.pop()
            parts[member].remove(moved)
            parts[other].add(moved)
            heapreplace(low, (load + 1, other))
            has_moved = True
    return has_moved


def _subscribers(
    subscriptions: Subscriptions, partitions: Partitions
) -> dict[Hashable, list[str]]:
    """Return the members that subscribe to each topic, in the order of the members."""
    found: dict[Hashable, list[str]] = {}
    for member, topics in subscriptions.items():
        for topic in topics:
            if topic in partitions:
                found.setdefault(topic, []).append(member)
    # In an order that is the same for the same topics.
    return {topic: found[topic] for topic in partitions if topic in found}


ASSIGNORS: Mapping[str, Callable[[Subscriptions, Partitions, Held], Parts]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""The assignors by the names that members ask for; the first is the default."""
