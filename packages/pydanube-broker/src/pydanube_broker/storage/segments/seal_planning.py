"""The decision which topics are sealed next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.storage.config import StorageConfig

CROWDED_AGE_S = 60.0
"""The age at which messages are sealed that pin the oldest of too many groups."""
ENTRIES_MAX = 24_576
"""How many entries a journal may have for the next owner of its topics to read."""
ENTRIES_PER_SEAL = 256
"""How many of them a topic must keep on average to be sealed for that."""

SMALL_TOPICS_NAMED = 3
"""How many topics with many small segments are named."""
SMALL_SEGMENTS_MIN = 50_000
"""A broker with more segments than this reports it if they are small on average."""
SMALL_SEGMENT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SealCandidate:
    """A topic with unsealed messages, and what is needed to plan its sealing."""

    topic_id: TopicId
    byte_count: int
    """The memory that its unsealed messages take when decoded."""
    held_bytes: int
    """How much they count for the limit of all tails."""
    time: float
    """When the oldest of them was appended."""
    seal_bytes: int
    """The size at which they are sealed."""
    seal_age_s: float
    """The age at which they are sealed."""
    pins_journal: bool
    """Whether they keep the oldest journal file from being deleted."""


@dataclass(frozen=True, slots=True)
class SealPlan:
    """The topics to seal now, the most urgent first."""

    topics: tuple[TopicId, ...]
    is_urgent: bool
    """Whether memory or journal are short, so that sealing must not pause."""


def pressure_bytes(tail_bytes_max: int) -> int:
    """Return the size of all tails from which the largest topics are sealed."""
    # Publishers wait at the limit itself, so sealing must begin before it.
    return tail_bytes_max * 3 // 4


def plan_seals(
    loads: Iterable[SealCandidate],
    *,
    now: float,
    tail_bytes: int,
    tail_bytes_max: int,
    journal_bytes: int,
    has_many_groups: bool = False,
    entry_count: int = 0,
    config: StorageConfig,
) -> SealPlan:
    """
    Decide which topics are to be sealed now.

    If memory is short, the largest topics, until half of the memory is free; if the
    journal is too long, the topics that pin its oldest file; then all topics that are
    large or old enough, the oldest first.  Those that pin the oldest file are old
    enough after ``CROWDED_AGE_S`` if the journal has many groups, and at once if it has
    many entries for each of them: one seal then saves the next owner many entries.
    """
    loads = list(loads)
    crowded_age_s = float("inf")
    pinning = sum(each.pins_journal for each in loads)
    if entry_count > max(ENTRIES_MAX, ENTRIES_PER_SEAL * pinning):
        crowded_age_s = 0.0
    elif has_many_groups:
        crowded_age_s = CROWDED_AGE_S
    chosen: dict[TopicId, None] = {}
    excess = tail_bytes - tail_bytes_max // 2
    if tail_bytes >= pressure_bytes(tail_bytes_max):
        for load in sorted(loads, key=lambda each: (-each.held_bytes, each.topic_id)):
            if excess <= 0:
                break
            chosen[load.topic_id] = None
            excess -= load.held_bytes
    if journal_bytes > config.journal_bytes_max:
        chosen.update((each.topic_id, None) for each in loads if each.pins_journal)
    is_urgent = bool(chosen)
    for load in sorted(loads, key=lambda each: (each.time, each.topic_id)):
        seal_age_s = load.seal_age_s
        if load.pins_journal:
            seal_age_s = min(seal_age_s, crowded_age_s)
        if load.byte_count >= load.seal_bytes or now - load.time >= seal_age_s:
            chosen[load.topic_id] = None
    return SealPlan(tuple(chosen), is_urgent)


def small_segments_problem(
    count: int, byte_count: int, counts: Callable[[], Iterable[tuple[int, str]]]
) -> str | None:
    """
    Say that so many segments are too small, or return None.

    *counts* returns the number of segments of each topic; the topics with the most are
    named.
    """
    if count <= SMALL_SEGMENTS_MIN or byte_count >= count * SMALL_SEGMENT_BYTES:
        return None
    named = heapq.nlargest(SMALL_TOPICS_NAMED, counts())
    most = ", ".join(f"{topic} ({number})" for number, topic in named)
    return (
        f"{count} segments have {byte_count // count} bytes on average, and each costs "
        f"readers a request; most are of {most}: merge them with 'danube maintenance "
        "run TOPIC --merge', or --all instead of a topic"
    )
