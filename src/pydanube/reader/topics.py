"""
The topics of a read, their heads, and the offset ranges to read.

This module detects topics that were deleted, created again or truncated by retention;
tasks check again.  The option ``failOnDataLoss`` decides whether that ends the query.
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
"""By the names of topics and partitions, sorted."""


def find_heads(options: ReadOptions, catalog: Catalog) -> Heads:
    """Return the heads of the existing topics that *options* select."""
    heads = {}
    for name in sorted(_names(options, catalog)):
        try:
            heads[name] = catalog.head(name)
        except TopicNotFound:
            # The topic was deleted; require_topics raises if it is needed.
            continue
        except InvalidRequest:
            # A pattern selects only the topics that can be read.
            if options.pattern is None:
                raise
    return heads


def _names(options: ReadOptions, catalog: Catalog) -> set[str]:
    """Return the existing topics and partitions that *options* select."""
    if options.pattern is not None:
        found = set(catalog.topics())
    else:
        named = options.topics or tuple(options.assigned)
        found = {part for name in named for part in catalog.partitions(name)}
    return {name for name in found if options.selects(name)}


def require_topics(
    options: ReadOptions, catalog: Catalog, heads: Mapping[str, Head]
) -> None:
    """
    Raise unless all topics and partitions that *options* name exist.

    Raises:
        TopicNotFound: A topic or a partition does not exist.
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
    """Return whether *name* exists and ``filter.partitions`` excludes all of it."""
    return options.partitions is not None and bool(catalog.partitions(name))


def readable_heads(options: ReadOptions, heads: Heads) -> Heads:
    """Return the part of *heads* that *options* read: with or without the tail."""
    if options.has_tail:
        return heads
    return {topic: head.without_tail() for topic, head in heads.items()}


def find_positions(
    bound: Bound, option: str, heads: Mapping[str, Head], catalog: Catalog
) -> Positions:
    """
    Return the positions of *bound*, the value of *option*, in the topics of *heads*.

    Raises:
        InvalidConfig: *bound* does not fit these topics.
    """
    return offsets.resolve(bound, heads, option, catalog.offset_at_time)


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
    Return the scans that read ``start … end`` of every topic in *end*.

    Topics and offsets that cannot meet *conditions* are left out.

    Raises:
        OffsetDropped: Messages are gone, and failOnDataLoss is set.
        TopicNotFound: A topic is deleted, and failOnDataLoss is set.
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
    Return the segments of ``start … end`` for every topic in *end*.

    The estimated size of tail messages is taken from *heads*.

    Raises:
        OffsetDropped, TopicNotFound: As for ``plan_read``.
    """
    ranges = {}
    for topic, stop in end.items():
        if not filters.may_match_topic(conditions, topic):
            continue
        begin = start.get(topic)
        # A topic that is new or was created again is read from its beginning.
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
    Return the segments of ``base … stop`` of *topic*, or None if nothing is left.

    Raises:
        OffsetDropped, TopicNotFound: As for ``plan_read``.
    """
    heads: dict[str, Head] = {}
    found: TopicRange | None = None
    with suppress(TopicNotFound):
        heads[topic], found = catalog.layout(topic, base, stop.offset)
    head = heads.get(topic)
    if is_new and head is not None:
        # Messages dropped before the query found the topic are no loss.
        base = max(base, head.base)
    begin, until = {topic: Position(stop.topic_id, base)}, {topic: stop}
    lost = offsets.find_losses(begin, heads, until) or offsets.find_losses(until, heads)
    handle_losses(lost, is_strict=options.fail_on_data_loss)
    if head is None or found is None or head.topic_id != stop.topic_id:
        return None
    base, end = max(base, head.base), min(stop.offset, head.end)
    if base >= end:
        return None
    return replace(found, topic_id=stop.topic_id, base=base, end=end)


def handle_losses(lost: Sequence[offsets.Loss], *, is_strict: bool) -> None:
    """
    Raise an error about *lost* if *is_strict*; otherwise log it.

    Raises:
        OffsetDropped, TopicNotFound: There are losses, and *is_strict*.
    """
    if is_strict:
        offsets.raise_losses(lost)
    for loss in lost:
        log.warning("skipping lost messages: %s", loss)


def selected_positions(options: ReadOptions, start: Positions) -> Positions:
    """
    Return *start* without the topics that *options* no longer select.

    The checkpoint keeps their positions, in case they are selected again.
    """
    return {
        topic: position for topic, position in start.items() if options.selects(topic)
    }
