"""
Lists of topics that have only those that the caller of the request may see.

The catalog is read in chunks, and other tasks run in between.  What the client asks for
does not make chunks small: otherwise a client that sees few topics, and asks for one,
would have the broker read the catalog one topic at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pydanube.aio.long_work import LongWork
from pydanube.model.descriptions import TopicDescription
from pydanube.model.findings import Findings, merged
from pydanube.model.ids import TopicId
from pydanube.model.names import NamespaceName, TopicName
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.governance.namespaces import namespace_not_found
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.serving.findings import find, find_idle
from pydanube_broker.metadata.records import TopicRecord
from pydanube_broker.operations.authorization import (
    current_caller,
    may_see,
    requesting_caller,
    visible_namespaces,
)
from pydanube_broker.operations.quota_holds import wait_for_quota

CHUNK = 1000
"""The fewest topics that are read at once after the first chunk."""
DESCRIBING_STEPS = 2
"""The steps of ``LongWork`` for the description of a topic in a list."""

FREED_AT_ONCE = 100
"""How many elements of a long list are freed together."""

Records = list[tuple[TopicName, TopicRecord]]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class RepeatedField(Protocol[T_contra]):
    """A repeated field of a message."""

    def append(self, value: T_contra, /) -> object: ...


async def check_namespace(broker: Broker, name: NamespaceName) -> None:
    """
    Raise if a namespace does not exist, or the caller may not know whether it does.

    Raises:
        NamespaceNotFound: In both cases.
    """
    if not visible_namespaces([name]):
        raise namespace_not_found(name)
    await broker.namespaces.find(name)


async def visible_names(broker: Broker, namespace: NamespaceName) -> list[TopicName]:
    """Return the topics of *namespace* that the caller may see, by name."""
    records, names, work = await visible_records(broker, namespace), [], LongWork()
    for name, _ in records:
        names.append(name)
        await work.did()
    await free(records)
    return names


async def visible_findings(broker: Broker, count_max: int) -> Findings:
    """Return what is wrong with topics that the caller may see; see ``find``."""
    now_us, opened = time.time_ns() // 1000, broker.topics.opened
    idle, work = list[tuple[TopicName, TopicId]](), LongWork()
    records = await visible_records(broker)
    for name, record in records:
        await work.did()
        if name not in opened and (
            broker.shards is None or broker.shards.serves(record.shard)
        ):
            idle.append((name, TopicId(record.topic_id)))
    await free(records)
    parts = [
        await find(
            list(opened.values()),
            lambda name: may_see(Resource.topic(name)),
            now_us,
            count_max,
        ),
        await find_idle(broker.views, broker.storage, idle, now_us, count_max),
    ]
    await free(idle)
    return merged(parts, count_max)


async def free(values: list[Any]) -> None:
    """
    Remove all *values* of a long list, and let other tasks run.

    Python frees a hundred thousand records in some 40 ms if nobody has them any more.
    """
    work = LongWork()
    while values:
        del values[-FREED_AT_ONCE:]
        await work.did(FREED_AT_ONCE)


async def describe_in(
    field: RepeatedField[T],
    records: Records,
    describe: Callable[[TopicName, TopicRecord], T],
) -> None:
    """Add what *describe* makes of each topic to *field*, and let other tasks run."""
    work = LongWork()
    for name, record in records:
        field.append(describe(name, record))
        await work.did(DESCRIBING_STEPS)


def described_at(
    broker: Broker, topic: Topic, description: TopicDescription
) -> TopicDescription:
    """Add to the *description* of a *topic* who serves it."""
    place = broker.place_of(topic.shard)
    return replace(description, broker_id=place.broker_id, shard=place.shard)


async def visible_records(
    broker: Broker,
    namespace: NamespaceName | None = None,
    after: TopicName | None = None,
    limit: int | None = None,
) -> Records:
    """
    Return the topics that the caller may see, by name; see ``Catalog.records``.

    Bounds: Namespaces of which the caller sees nothing are not read.  Each chunk but
        the first counts as a request of the caller's quota.
    """
    if requesting_caller() is not None:
        # Its request has a turn already.
        return await _visible_records(broker, namespace, after, limit)
    async with broker.lists.of(""):
        return await _visible_records(broker, namespace, after, limit)


async def _visible_records(
    broker: Broker,
    namespace: NamespaceName | None,
    after: TopicName | None,
    limit: int | None,
) -> Records:
    found, work = Records(), LongWork()
    for each, begin in await _parts(broker, namespace, after):
        async for chunk in _chunks(broker, each, begin, limit):
            for one in chunk:
                if may_see(Resource.topic(one[0])):
                    found.append(one)
                await work.did()
            if limit is not None and len(found) >= limit:
                return found[:limit]
    return found


async def _parts(
    broker: Broker, namespace: NamespaceName | None, after: TopicName | None
) -> Sequence[tuple[NamespaceName | None, TopicName | None]]:
    """Return the namespaces to read, in order, and after which topic of each."""
    caller = current_caller()
    if caller is None:
        return [(namespace, after)]
    policy = broker.access.policy
    if not policy.holds_anywhere(caller.principal, Permission.DESCRIBE):
        return []
    if namespace is not None:
        seen = visible_namespaces([namespace])
        return [(each, after) for each in seen]
    names = await broker.namespaces.names()
    seen = visible_namespaces(names)
    if len(seen) == len(names):
        return [(None, after)]
    # As the keys of topics, in which a slash follows the namespace.
    begin = "" if after is None else f"{after.namespace}/"
    return [
        (each, after if f"{each}/" == begin else None)
        for each in sorted(seen, key=lambda each: f"{each}/")
        if f"{each}/" >= begin
    ]


async def _chunks(
    broker: Broker,
    namespace: NamespaceName | None,
    after: TopicName | None,
    limit: int | None,
) -> AsyncIterator[Records]:
    size = CHUNK if limit is None else limit
    while True:
        chunk = await broker.catalog.records(namespace, after=after, limit=size)
        yield chunk
        if len(chunk) < size:
            return
        after, size = chunk[-1][0], max(size, CHUNK)
        await _charge(broker)


async def _charge(broker: Broker) -> None:
    """Charge a chunk as a request, and let other tasks run."""
    await asyncio.sleep(0)
    caller = requesting_caller()
    if caller is not None:
        meter = broker.quotas.of_principal(caller.principal)
        delay_s = meter.take_request(broker.quotas.now())
        await wait_for_quota(delay_s, meter.delay_request_s)
