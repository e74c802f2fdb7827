"""The offsets that a command reads, from the topics and positions that a user names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydanube.aio.tasks import gather
from pydanube.client.client import Client
from pydanube.client.described_topics import find_matching
from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import DispatchMode
from pydanube.model.positions import PositionLike
from pydanube.model.wildcards import has_wildcards

TOPICS_MAX = 250
"""
The most topics and partitions of one command.

A broker handles 256 requests of a connection at a time, and the command waits for new
messages of each topic with a request.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """The offsets ``base … end`` of a topic or partition; None: without end."""

    topic: str
    base: int
    end: int | None
    is_base_exact: bool
    """Whether it is an error that retention has dropped *base*."""


async def find_ranges(
    client: Client,
    names: Sequence[str],
    start: PositionLike,
    end: PositionLike | None,
    *,
    topics_max: int = TOPICS_MAX,
) -> list[TopicRange]:
    """
    Return the ranges from *start* to *end* of the topics *names*, None: without end.

    The name of a partitioned topic stands for its partitions, and a name with ``*`` or
    ``?`` for all topics that match it.  No range extends beyond the present end.

    Raises:
        TopicNotFound: A topic does not exist, or no topic matches.
        InvalidRequest: There are too many topics, one of them is not reliable, or
            *start* is beyond its end.
    """
    described = await _describe(client, names, topics_max)
    return await gather(_find_range(client, each, start, end) for each in described)


async def _describe(
    client: Client, names: Sequence[str], topics_max: int
) -> list[TopicDescription]:
    found: dict[str, TopicDescription] = {}
    for name in names:
        is_pattern = has_wildcards(name)
        topics = await (find_matching if is_pattern else _partitions)(client, name)
        new = [topic for topic in topics if topic not in found]
        if len(found) + len(new) > topics_max:
            raise InvalidRequest(
                f"{', '.join(names)} stand for more than {topics_max} topics and "
                "partitions, which is the most that one command reads; name fewer"
            )
        for facts in await gather(map(client.topics.describe, new)):
            if facts.policy.dispatch is DispatchMode.RELIABLE:
                found[facts.topic] = facts
            elif not is_pattern:
                raise InvalidRequest(
                    f"{facts.topic} is not reliable, so its messages are not stored "
                    "and cannot be read; 'danube consume' prints them as they arrive"
                )
    if not found:
        raise TopicNotFound(f"{', '.join(names)}: no reliable topic matches")
    return list(found.values())


async def _partitions(client: Client, name: str) -> list[str]:
    topics = await client.topics.partitions(name)
    if not topics:
        raise TopicNotFound(f"Unable to find the topic: {name}")
    return topics


async def _find_range(
    client: Client,
    facts: TopicDescription,
    start: PositionLike,
    end: PositionLike | None,
) -> TopicRange:
    base = await _offset_at(client, facts, start)
    if base > facts.end_offset:
        raise InvalidRequest(
            f"{facts.topic} ends at offset {facts.end_offset}; {base} is beyond it"
        )
    stop = None
    if end is not None:
        stop = min(await _offset_at(client, facts, end), facts.end_offset)
    is_exact = isinstance(start, int)
    return TopicRange(topic=facts.topic, base=base, end=stop, is_base_exact=is_exact)


async def _offset_at(client: Client, facts: TopicDescription, at: PositionLike) -> int:
    """Return the offset of the position *at* in the topic that *facts* describe."""
    if isinstance(at, int):
        return at
    if isinstance(at, datetime):
        [found] = await client.topics.find_offsets(facts.topic, [at])
        # Messages that came after the topic was described are beyond its end.
        return facts.end_offset if found is None else min(found, facts.end_offset)
    return facts.base_offset if at == "earliest" else facts.end_offset
