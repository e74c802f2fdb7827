"""Retention of topics that are not open: which of them have segments to drop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from pydanube.model.ids import TopicId
from pydanube.model.policy import KEEP_ALL, Retention
from pydanube.model.segments import SegmentEntry
from pydanube.storage.manifest import Manifest
from pydanube.storage.retention import plan_drops
from pydanube.storage.state import TopicState


async def find_idle_drops(
    manifest: Manifest,
    retentions: Mapping[TopicId, Retention],
    states: Mapping[TopicId, TopicState],
    *,
    now: int,
) -> set[TopicId]:
    """
    Return the topics with segments that their *retentions* drop, and without holds.

    What is dropped is decided again when a topic is open, because only then all its
    subscriptions are known.

    Raises:
        MetadataUnavailable: The segments cannot be listed.
    """
    idle = {
        topic_id: retention
        for topic_id, retention in retentions.items()
        if retention != KEEP_ALL
    }
    if not idle:
        return set()
    for topic_id in await manifest.held_topics():
        idle.pop(topic_id, None)
    found = set()
    async for topic_id, segments in _segments_by_topic(manifest):
        if topic_id not in idle:
            continue
        state = states.get(topic_id)
        cursors = () if state is None else state.cursors.values()
        drops = plan_drops(
            segments,
            idle[topic_id],
            tail_bytes=0,
            now=now,
            cursors=[cursor.offset for cursor in cursors],
        )
        if drops:
            found.add(topic_id)
    return found


async def _segments_by_topic(
    manifest: Manifest,
) -> AsyncIterator[tuple[TopicId, list[SegmentEntry]]]:
    previous, segments = None, list[SegmentEntry]()
    async for topic_id, entry in manifest.all_segments():
        if previous is not None and topic_id != previous:
            yield previous, segments
            segments = []
        previous = topic_id
        segments.append(entry)
    if previous is not None:
        yield previous, segments
