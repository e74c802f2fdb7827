"""The topics that exist, by their names and ids, as groups and clients ask for them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import InvalidName
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube.security.policy import AccessPolicy
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.pure.partitions import names_of
from pydanube_broker.metadata import keys
from pydanube_broker.operations.authorization import Caller, authorized
from pydanube_broker.operations.topic_lists import free, visible_records
from pydanube_kafka.pure.consumer_groups import TopicFacts
from pydanube_kafka.pure.names import TopicNames
from pydanube_kafka.pure.patterns import Pattern
from pydanube_kafka.pure.topic_ids import uuid_of

KNOWN_MAX = 100_000
"""The most names, and the most ids, that are remembered."""
PATTERNS_MAX = 1000
"""The most patterns of which is remembered what they match."""
MATCHED_MAX = 1_000_000
"""The most names that they match together."""


class _Matched(NamedTuple):
    seen: tuple[Sequence[str], AccessPolicy]
    """The names and the policy for which this was found."""
    names: frozenset[str]


class TopicsByName:
    """
    The topics to which groups subscribe.

    Bounds: ``KNOWN_MAX`` names, which are looked up again when they are older than
        *age_max_s*; ``PATTERNS_MAX`` patterns, and *matched_max* names that they match.
    """

    def __init__(
        self,
        broker: Broker,
        names: TopicNames,
        age_max_s: float,
        matched_max: int = MATCHED_MAX,
    ) -> None:
        self._broker = broker
        self._names = names
        self._age_max_s = age_max_s
        self._known: dict[str, tuple[float, TopicFacts | None]] = {}
        self._listed: tuple[float, Sequence[str]] = -math.inf, ()
        self._listing = asyncio.Lock()
        self._matched: dict[tuple[str, Principal], _Matched] = {}
        self._matched_max = matched_max
        self._matched_count = 0

    async def look_up(self, names: Iterable[str], now: float) -> None:
        """
        Look those of *names* up that are not known, or were looked up too long ago.

        Raises:
            MetadataUnavailable: The metadata store does not answer.
        """
        oldest = now - self._age_max_s
        old = [
            each
            for each in names
            if (known := self._known.get(each)) is None or known[0] <= oldest
        ]
        if not old:
            return
        found = await _facts_of(self._broker, self._names, old)
        if len(self._known) + len(old) > KNOWN_MAX:
            self._known = {
                name: each for name, each in self._known.items() if each[0] > oldest
            }
        if len(self._known) + len(old) > KNOWN_MAX:
            self._known.clear()
        for name in old:
            known = self._known.get(name)
            if known is None or known[0] <= now:
                self._known[name] = now, found.get(name)

    async def match(
        self, text: str, principal: Principal, now: float
    ) -> frozenset[str]:
        """
        Return the topics that a principal may consume and a pattern matches.

        Bounds: The work for a name is one step for each character.

        Raises:
            BadPattern: It is no pattern, or takes too much work.
            MetadataUnavailable: The metadata store does not answer.
        """
        names, policy = await self._list(now), self._broker.access.policy
        matched = self._matched.get((text, principal))
        if (
            matched is None
            or matched.seen[0] is not names
            or matched.seen[1] is not policy
        ):
            # Its automaton may be large, and is not kept.
            pattern, found, work = Pattern(text), set[str](), LongWork()
            for name in names:
                await work.did()
                if self._may_consume(principal, name) and pattern.matches(name):
                    found.add(name)
            matched = _Matched((names, policy), frozenset(found))
            self._remember((text, principal), matched)
        return matched.names

    def _remember(self, key: tuple[str, Principal], matched: _Matched) -> None:
        before = self._matched.pop(key, None)
        self._matched_count += len(matched.names)
        if before is not None:
            self._matched_count -= len(before.names)
        is_full = self._matched_count > self._matched_max
        if is_full or len(self._matched) >= PATTERNS_MAX:
            self._matched.clear()
            self._matched_count = len(matched.names)
        self._matched[key] = matched

    async def _list(self, now: float) -> Sequence[str]:
        """Return all names; the same object if they are the same as before."""
        async with self._listing:
            listed_at, names = self._listed
            if listed_at <= now - self._age_max_s:
                async with self._broker.lists.of(""):
                    topics = await self._broker.catalog.names()
                found = {
                    self._names.name_of((each.split_partition() or (each, 0))[0])
                    for each in topics
                }
                after = sorted(each for each in found if each is not None)
                if after != names:
                    names = after
                self._listed = now, names
            return names

    def _may_consume(self, principal: Principal, name: str) -> bool:
        access = self._broker.access
        if not access.is_enforced:
            return True
        topic = Resource.topic(self._names.parse(name))
        return access.policy.decide(principal, Permission.CONSUME, topic).allowed

    def known(
        self, names: Iterable[str], before: Mapping[str, TopicFacts]
    ) -> dict[str, TopicFacts]:
        """Return the topics that exist; of those that nobody looked up, *before*."""
        found = {}
        for name in names:
            known = self._known.get(name)
            facts = before.get(name) if known is None else known[1]
            if facts is not None:
                found[name] = facts
        return found


async def _facts_of(
    broker: Broker, names: TopicNames, wanted: Iterable[str]
) -> dict[str, TopicFacts]:
    """Return those of the *wanted* topics that exist."""
    topics = {each: topic for each in wanted if (topic := parsed(names, each))}
    catalog, store = broker.catalog, broker.store
    records = await catalog.find_each(list(topics.values()))
    found = dict[str, TopicFacts]()
    partitioned = dict[str, TopicName]()
    for (name, topic), record in zip(topics.items(), records, strict=True):
        if record is None:
            partitioned[name] = topic
        else:
            found[name] = TopicFacts(uuid_of(record.value.topic_id), (0,))
    bases = await store.get_each(
        [keys.partitioned_topic(each) for each in partitioned.values()]
    )
    parts = {
        name: each
        for (name, topic), base in zip(partitioned.items(), bases, strict=True)
        if base is not None and (each := names_of(topic, base.value))
    }
    firsts = await catalog.find_each([each[0] for each in parts.values()])
    for (name, each), first in zip(parts.items(), firsts, strict=True):
        if first is not None:
            found[name] = TopicFacts(
                uuid_of(first.value.topic_id), tuple(map(_number_of, each))
            )
    return found


def _number_of(partition: TopicName) -> int:
    split = partition.split_partition()
    return 0 if split is None else split[1]


def parsed(names: TopicNames, name: str) -> TopicName | None:
    """Return the topic that clients call *name*; None if no topic is called so."""
    try:
        return names.parse(name)
    except InvalidName:
        return None


class NamesByTopicId:
    """
    The names that clients use for topics with ids that they were told.

    Bounds: ``KNOWN_MAX`` ids; for others, the catalog is read.
    """

    def __init__(self, broker: Broker, names: TopicNames) -> None:
        self._broker = broker
        self._names = names
        self._known: dict[UUID, str] = {}

    def note(self, topic_id: UUID, name: str) -> None:
        """Remember the *name* of a topic of which a client is told."""
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[topic_id] = name

    async def find(self, ids: Collection[UUID], caller: Caller) -> Mapping[UUID, str]:
        """Return the names of topics that existed, and that *caller* may see if new."""
        if any(each not in self._known for each in ids):
            async with authorized(caller, Kind.LIST_TOPICS, pb.ListTopics()):
                records = await visible_records(self._broker)
            work = LongWork()
            for topic, record in records:
                await work.did()
                name = self._names.name_of((topic.split_partition() or (topic, 0))[0])
                topic_id = uuid_of(record.topic_id)
                if name is not None and topic_id in ids:
                    self.note(topic_id, name)
            await free(records)
        return {each: self._known[each] for each in ids if each in self._known}
