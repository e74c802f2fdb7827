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
    existing = {topic: frozenset(numbers) for topic, numbers in partitions.items()}
    taken = set[Partition]()
    for member, topics in subscriptions.items():
        for topic, number in held.get(member, ()):
            is_kept = topic in topics and number in existing.get(topic, ())
            if is_kept and (topic, number) not in taken:
                parts[member].add((topic, number))
                taken.add((topic, number))
    shared = _shared(subscriptions, partitions)
    for members, some in shared:
        loads = [(len(parts[each]), each) for each in members]
        heapify(loads)
        for each in some:
            if each not in taken:
                load, member = loads[0]
                parts[member].add(each)
                heapreplace(loads, (load + 1, member))
    for _ in range(PASSES_MAX):
        moves = [_even_out(members, some, parts) for members, some in shared]
        if not any(moves):
            break
    return parts


def _even_out(
    members: Sequence[str], partitions: Collection[Partition], parts: Parts
) -> bool:
    """Move some of *partitions* from members with many to those with few."""
    low = [(len(parts[each]), each) for each in members]
    heapify(low)
    has_moved = False
    for member in sorted(members, key=lambda each: -len(parts[each])):
        if len(parts[member]) <= low[0][0] + 1:
            # Those that follow have not more.
            break
        movable = _common(partitions, parts[member])
        while movable:
            load, other = low[0]
            if len(parts[other]) != load:
                # It has given some away.
                heapreplace(low, (len(parts[other]), other))
                continue
            if len(parts[member]) <= load + 1:
                break
            moved = movable.pop()
            parts[member].remove(moved)
            parts[other].add(moved)
            heapreplace(low, (load + 1, other))
            has_moved = True
    return has_moved


def _common(
    partitions: Collection[Partition], part: Collection[Partition]
) -> list[Partition]:
    """Return the partitions in both, by number; the work is that for the smaller."""
    few, many = sorted((partitions, part), key=len)
    return sorted((each for each in few if each in many), key=lambda each: each[1])


def _shared(
    subscriptions: Subscriptions, partitions: Partitions
) -> list[tuple[list[str], dict[Partition, None]]]:
    """
    Return partitions of topics with the same subscribers, with these.

    Members mostly have the same subscription, and then all topics are together.
    """
    alike: dict[frozenset[Hashable], list[str]] = {}
    for member, topics in subscriptions.items():
        alike.setdefault(frozenset(topics), []).append(member)
    found: dict[tuple[int, ...], tuple[list[str], dict[Partition, None]]] = {}
    with_topic: dict[Hashable, list[int]] = {}
    for index, topics in enumerate(alike):
        for topic in topics:
            with_topic.setdefault(topic, []).append(index)
    members = list(alike.values())
    for topic, numbers in partitions.items():
        key = tuple(with_topic.get(topic, ()))
        if key:
            if key not in found:
                found[key] = [each for at in key for each in members[at]], {}
            found[key][1].update(dict.fromkeys((topic, each) for each in numbers))
    return list(found.values())


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
