"""
The topics of a read, their heads, and the offset ranges to read.

This module detects topics that were deleted, created again or truncated by retention;
tasks check again.  The option ``failOnDataLoss`` decides whether that ends the query.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from pydanube.model.errors import TopicNotFound
from pydanube_spark.reader.catalog import Catalog, ChangedHeads, Layout
from pydanube_spark.reader.pure import filters
from pydanube_spark.reader.pure.bounds import split_name
from pydanube_spark.reader.pure.filters import Condition
from pydanube_spark.reader.pure.query_positions import (
    Head,
    Position,
    Positions,
    find_loss,
    raise_losses,
)
from pydanube_spark.reader.pure.read_options import ReadOptions
from pydanube_spark.reader.pure.scans import TopicRange

log = logging.getLogger(__name__)

Heads = dict[str, Head]
"""By the names of topics and partitions, sorted."""


def find_names(options: ReadOptions, catalog: Catalog) -> list[str]:
    """Return the topics and partitions that *options* select, sorted."""
    if options.pattern is not None:
        names = catalog.topics()
    else:
        named = options.topics or options.assigned
        names = [part for name in named for part in catalog.partitions(name)]
    return sorted(set(filter(options.selects, names)))


def find_heads(
    options: ReadOptions, catalog: Catalog, names: Sequence[str] | None = None
) -> Heads:
    """
    Return the heads of the topics that *options* select and that exist.

    *names* are the topics, if ``find_names`` has found them before.
    """
    if names is None:
        names = find_names(options, catalog)
    # A pattern selects only the topics that can be read.
    skips = options.pattern is not None
    heads = catalog.heads(names, skips_non_reliable=skips)
    return {name: heads[name] for name in names if name in heads}


def find_changed_heads(
    options: ReadOptions, catalog: Catalog, names: Set[str], since: Any
) -> ChangedHeads:
    """
    Return the heads of *names* that have changed, in the order of *names*.

    *since* are the ``revisions`` of the last answer about the same names.
    """
    skips = options.pattern is not None
    found = catalog.changed_heads(names, since, skips_non_reliable=skips)
    if not found.is_complete:
        return found
    heads = {name: found.heads[name] for name in names if name in found.heads}
    return found._replace(heads=heads)


def require_heads(options: ReadOptions, catalog: Catalog) -> Heads:
    """
    Return the heads of the topics that *options* select, after checking their names.

    Raises:
        TopicNotFound: A topic or a partition that *options* name does not exist.
    """
    heads = find_heads(options, catalog)
    parts = {split_name(topic) for topic in heads}
    bases = {base for base, _ in parts}
    missing = [
        name
        for name in options.topics
        if name not in {*heads, *bases}
        # The filter may exclude all partitions of a topic that exists.
        and (options.partitions is None or not catalog.partitions(name))
    ]
    missing += [
        name if name not in bases else f"{name} partition {number}"
        for name, numbers in options.assigned.items()
        for number in numbers
        if (name, number) not in parts and options.selects_partition(number)
    ]
    if missing:
        raise TopicNotFound(f"no such topic: {', '.join(dict.fromkeys(missing))}")
    return heads


def readable_heads(options: ReadOptions, heads: Heads) -> Heads:
    """Return the part of *heads* that *options* read: with or without the tail."""
    if options.has_tail:
        return heads
    return {topic: head.without_tail() for topic, head in heads.items()}


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

    Topics and offsets that cannot meet *conditions* are left out.  The estimated size
    of tail messages is taken from *heads*.  The broker is asked only for topics of
    which more than the tail is read.

    Raises:
        OffsetDropped: Messages are gone, and failOnDataLoss is set.
        TopicNotFound: A topic is deleted, and failOnDataLoss is set.
    """
    wanted = {}
    for topic, stop in end.items():
        if not filters.may_match_topic(conditions, topic):
            continue
        begin = start.get(topic)
        # A topic that is new or was created again is read from its beginning.
        is_new = begin is None or begin.topic_id != stop.topic_id
        base = 0 if begin is None or is_new else begin.offset
        base, until = filters.clip(conditions, base, stop.offset)
        if base < until:
            wanted[topic] = _Wanted(base, Position(stop.topic_id, until), is_new)
    layouts = {
        topic: Layout(
            heads[topic],
            TopicRange(topic, each.stop.topic_id, each.base, each.stop.offset),
        )
        for topic, each in wanted.items()
        if _is_in_tail(each, heads.get(topic))
    }
    unknown = {
        topic: (each.base, each.stop.offset)
        for topic, each in wanted.items()
        if topic not in layouts
    }
    if unknown:
        layouts |= catalog.layouts(unknown)
    ranges = {}
    for topic, each in wanted.items():
        found = _readable(
            topic,
            each,
            layouts.get(topic),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        if found is None:
            continue
        if topic in heads:
            found = replace(found, message_bytes=heads[topic].message_bytes)
        ranges[topic] = found
    return ranges


class _Wanted(NamedTuple):
    """The messages ``base … stop`` of a topic."""

    base: int
    stop: Position
    is_new: bool = False
    """Messages dropped before the query found the topic are no loss."""


def _is_in_tail(wanted: _Wanted, head: Head | None) -> bool:
    """Return whether no segment had any of the messages when *head* was requested."""
    return (
        head is not None
        and head.sealed is not None
        and head.topic_id == wanted.stop.topic_id
        and head.sealed <= wanted.base
        and wanted.stop.offset <= head.end
    )


def find_range(
    catalog: Catalog,
    topic: str,
    base: int,
    stop: Position,
    *,
    fail_on_data_loss: bool,
    is_new: bool = False,
) -> TopicRange | None:
    """
    Return the segments of ``base … stop`` of *topic*, or None if nothing is left.

    Without *fail_on_data_loss* losses are logged, and what is left is returned.

    Raises:
        OffsetDropped, TopicNotFound: As for ``find_ranges``.
    """
    layout = catalog.layouts({topic: (base, stop.offset)}).get(topic)
    wanted = _Wanted(base, stop, is_new)
    return _readable(topic, wanted, layout, fail_on_data_loss=fail_on_data_loss)


def _readable(
    topic: str, wanted: _Wanted, layout: Layout | None, *, fail_on_data_loss: bool
) -> TopicRange | None:
    """Return what is left of the *wanted* messages of *topic*; None: nothing."""
    base, stop, is_new = wanted
    head = None if layout is None else layout.head
    if is_new and head is not None:
        base = max(base, head.base)
    begin = Position(stop.topic_id, base)
    loss = find_loss(topic, begin, head, stop.offset) or find_loss(topic, stop, head)
    if loss is not None:
        if fail_on_data_loss:
            raise_losses([loss])
        log.warning("skipping lost messages: %s", loss)
    if layout is None or head is None or head.topic_id != stop.topic_id:
        return None
    base, end = max(base, head.base), min(stop.offset, head.end)
    if base >= end:
        return None
    return replace(layout.range, topic_id=stop.topic_id, base=base, end=end)
