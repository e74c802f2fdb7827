"""
Which topics a read has, where they stand, and what there is of them to read.

Topics that were deleted, created again, or cut short by retention are found out
here, and in the tasks once more; whether that ends the query is the user's choice.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube.reader import filters, offsets
from pydanube.reader.bounds import split_name
from pydanube.reader.offsets import Head, Position, Positions
from pydanube.reader.scans import Scan, TopicRange, plan_scans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydanube.reader.bounds import Bound
    from pydanube.reader.catalog import Catalog
    from pydanube.reader.filters import Condition
    from pydanube.reader.read_options import ReadOptions

log = logging.getLogger(__name__)

Heads = dict[str, Head]
"""By the names of topics and partitions, in their order."""


def find_heads(options: ReadOptions, catalog: Catalog) -> Heads:
    """The topics that *options* select and that exist, with their heads."""
    heads = {}
    for name in sorted(_names(options, catalog)):
        try:
            heads[name] = catalog.head(name)
        except TopicNotFound:
            # Deleted, perhaps just now; whoever needs it says so.
            continue
        except InvalidRequest:
            # A pattern means the topics that can be read.
            if options.pattern is None:
                raise
    return heads


def _names(options: ReadOptions, catalog: Catalog) -> set[str]:
    """The topics and partitions that *options* select, as far as they exist."""
    if options.pattern is not None:
        found = set(catalog.topics())
    else:
        asked = options.topics or tuple(options.assigned)
        found = {part for name in asked for part in catalog.partitions(name)}
    return {name for name in found if options.selects(name)}


def require_topics(
    options: ReadOptions, catalog: Catalog, heads: Mapping[str, Head]
) -> None:
    """
    Make sure that what *options* name is there.

    Raises:
        TopicNotFound: A topic or a partition is not.
    """
    parts = {split_name(topic) for topic in heads}
    bases = {base for base, _ in parts}
    missing = [
        name
        for name in options.topics
        if name not in {*heads, *bases} and not _is_left_out(options, catalog, name)
    ]
    missing += [
        name if name not in bases else f"{name} partition {number}"
        for name, numbers in options.assigned.items()
        for number in numbers
        if (name, number) not in parts and options.selects_partition(number)
    ]
    if missing:
        raise TopicNotFound(f"no such topic: {', '.join(dict.fromkeys(missing))}")


def _is_left_out(options: ReadOptions, catalog: Catalog, name: str) -> bool:
    """Whether *name* is there, and only its partitions are not asked for."""
    return options.partitions is not None and bool(catalog.partitions(name))


def readable(options: ReadOptions, heads: Heads) -> Heads:
    """*heads* as far as they are to be read: with or without the tail."""
    if options.has_tail:
        return heads
    return {topic: head.without_tail() for topic, head in heads.items()}


def find_positions(
    bound: Bound, option: str, heads: Mapping[str, Head], catalog: Catalog
) -> Positions:
    """
    Where *bound*, which *option* said, is in topics that stand at *heads*.

    Raises:
        InvalidConfig: It does not fit these topics.
    """
    return offsets.resolve(bound, heads, option, catalog.find_time)


def plan_read(
    options: ReadOptions,
    catalog: Catalog,
    start: Positions,
    end: Positions,
    *,
    heads: Mapping[str, Head],
    conditions: Sequence[Condition] = (),
) -> list[Scan]:
    """
    The scans that read ``start … end`` of every topic in *end*.

    What no message can meet the *conditions* in is left out.

    Raises:
        OffsetDropped: Some of it is gone, and failOnDataLoss.
        TopicNotFound: A topic is deleted, and failOnDataLoss.
    """
    ranges = find_ranges(
        options, catalog, start, end, heads=heads, conditions=conditions
    )
    return plan_scans(
        list(ranges.values()),
        scans_min=options.partitions_min,
        scan_bytes_max=options.partition_bytes_max,
        scan_rows_max=options.partition_rows_max,
    )


def find_ranges(
    options: ReadOptions,
    catalog: Catalog,
    start: Positions,
    end: Positions,
    *,
    heads: Mapping[str, Head],
    conditions: Sequence[Condition] = (),
) -> dict[str, TopicRange]:
    """
    Where the messages ``start … end`` of every topic in *end* are.

    What was seen of a topic among *heads* says how large messages of its tail are.

    Raises:
        OffsetDropped, TopicNotFound: As for ``plan_read``.
    """
    ranges = {}
    for topic, stop in end.items():
        if not filters.accept_topic(conditions, topic):
            continue
        begin = start.get(topic)
        # A new topic, or one that was created again, is read from its beginning.
        is_new = begin is None or begin.topic_id != stop.topic_id
        base = 0 if begin is None or is_new else begin.offset
        base, until = filters.clip(conditions, base, stop.offset)
        if base >= until:
            continue
        wanted = Position(stop.topic_id, until)
        found = find_range(options, catalog, topic, base, wanted, is_new=is_new)
        if found is not None and topic in heads:
            found = replace(found, message_bytes=heads[topic].message_bytes)
        if found is not None:
            ranges[topic] = found
    return ranges


def find_range(
    options: ReadOptions,
    catalog: Catalog,
    topic: str,
    base: int,
    stop: Position,
    *,
    is_new: bool = False,
) -> TopicRange | None:
    """
    Where ``base … stop`` of *topic* is, or None if nothing is left of it.

    Raises:
        OffsetDropped, TopicNotFound: As for ``plan_read``.
    """
    heads: dict[str, Head] = {}
    found: TopicRange | None = None
    with suppress(TopicNotFound):
        heads[topic], found = catalog.layout(topic, base, stop.offset)
    head = heads.get(topic)
    if is_new and head is not None:
        # Nobody misses what retention dropped before the query knew the topic.
        base = max(base, head.base)
    begin, until = {topic: Position(stop.topic_id, base)}, {topic: stop}
    lost = offsets.losses(begin, heads, until) or offsets.losses(until, heads)
    settle(lost, is_strict=options.fail_on_data_loss)
    if head is None or found is None or head.topic_id != stop.topic_id:
        return None
    base, end = max(base, head.base), min(stop.offset, head.end)
    if base >= end:
        return None
    return replace(found, topic_id=stop.topic_id, base=base, end=end)


def settle(lost: Sequence[offsets.Loss], *, is_strict: bool) -> None:
    """
    Refuse what is *lost*, or log it.

    Raises:
        OffsetDropped, TopicNotFound: Something is, and *is_strict*.
    """
    if is_strict:
        offsets.refuse(lost)
    for loss in lost:
        log.warning("skipping what is lost: %s", loss)


def only_selected(options: ReadOptions, start: Positions) -> Positions:
    """
    *start* without the topics that *options* do not select any more.

    A checkpoint keeps their positions, in case they are selected again.
    """
    return {
        topic: position for topic, position in start.items() if options.selects(topic)
    }
