"""Retention as output, for topics and namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydanube.model.descriptions import RetentionDrops
from pydanube.model.policy import Retention
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import (
    format_bytes,
    format_count,
    format_duration,
    format_offset_range,
    format_time,
)
from pydanube_cli.presentation.output import Columns, Fields, Table


def describe_retention(retention: Retention, *, has_subscriptions: bool = True) -> str:
    """Return what *retention* keeps, for people."""
    limits = []
    if retention.age_s is not None:
        limits.append(f"up to {format_duration(retention.age_s)} old")
    if retention.bytes_max is not None:
        limits.append(f"up to {format_bytes(retention.bytes_max)}")
    if retention.drops_acknowledged:
        is_kept = "" if has_subscriptions else " (none exists: nothing is acknowledged)"
        limits.append(f"not acknowledged by all subscriptions{is_kept}")
    return " and ".join(limits) or "everything"


def drops_shown(drops: Sequence[RetentionDrops], *, are_planned: bool) -> list[Any]:
    """Return tables of what is dropped: by topic, and each segment."""
    parts: list[Any] = [Table.of(drops, PLANNED if are_planned else DROPPED)]
    for each in drops:
        if each.held_by:
            holds = ", ".join(each.held_by)
            parts.append(f"{each.topic} is held by {holds}: nothing is dropped.")
        if each.segments:
            parts += ["", Fields([("Topic", each.topic)]), Table.of(each.segments, ROW)]
            more = each.segment_count - len(each.segments)
            if more > 0:
                parts.append(f"… and {format_count(more)} more segments")
    return parts


PLANNED: Columns = {
    "Topic": "topic",
    "Segments to drop": "segment_count",
    "Messages": "message_count",
    "Size": lambda drops: format_bytes(drops.byte_count),
    "First offset kept": lambda drops: str(drops.base_offset),
}

DROPPED: Columns = {
    ("Segments dropped" if name == "Segments to drop" else name): cell
    for name, cell in PLANNED.items()
}

ROW: Columns = {
    "Offsets": lambda segment: format_offset_range(segment.base, segment.end),
    "Messages": "count",
    "Size": lambda segment: format_bytes(segment.byte_count),
    "Last published": lambda segment: format_time(
        to_datetime(segment.last_publish_time)
    ),
    "Object": "object_name",
}
