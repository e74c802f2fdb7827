"""The topics that a pattern matches, with their descriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pydanube.aio.tasks import gather
from pydanube.client.client import Client
from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import TopicNotFound
from pydanube.model.topic_patterns import TopicPattern

REQUESTS_MAX = 32
"""The number of topics that are described at the same time."""


async def describe_topics(
    client: Client, pattern: str | None, count_max: int | None = None
) -> tuple[list[TopicDescription], int]:
    """
    Describe the topics and partitions that match *pattern*; None: all of them.

    Returns: The descriptions of the first *count_max*, and the number of all.

    Raises: As ``find_matching``.
    """
    if pattern is None:
        names = sorted(await client.topics.list())
    else:
        names = await find_matching(client, pattern)
    return await describe_all(client, names[:count_max]), len(names)


async def describe_all(client: Client, names: Iterable[str]) -> list[TopicDescription]:
    """Describe topics and partitions; those that were deleted are left out."""
    slots = asyncio.Semaphore(REQUESTS_MAX)

    async def describe(name: str) -> TopicDescription | None:
        async with slots:
            try:
                return await client.topics.describe(name)
            except TopicNotFound:
                return None

    found = await gather(map(describe, names))
    return [each for each in found if each is not None]


async def find_matching(client: Client, pattern: str) -> list[str]:
    """
    Return the topics and partitions that *pattern* matches, in order.

    Raises:
        InvalidName: *pattern* is not of the form ``/namespace/topic``.
        NamespaceNotFound: There is no such namespace.
        TopicNotFound: No topic matches.
    """
    parsed = TopicPattern(pattern)
    found = parsed.select(await client.topics.list(parsed.namespace))
    if not found:
        raise TopicNotFound(f"no topic matches {pattern}")
    return found
