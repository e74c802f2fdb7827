"""
The quotas in the metadata store, and the meters of what clients and topics use.

All brokers of a cluster follow the store, so a change applies to all of them within
seconds.  Rates and connections are counted by each broker for itself: a count that
brokers share would cost a request to the metadata store for each batch.  The processes
of one broker count together, in memory that they share.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, NotFound, QuotaExceeded
from pydanube.model.names import NamespaceName, TopicName
from pydanube.security.policy import ANONYMOUS_MEMBER
from pydanube.security.principals import Principal
from pydanube.security.quotas import (
    LIMITS_OF,
    NO_QUOTA,
    Quota,
    QuotaDescription,
    QuotaScope,
    QuotaTarget,
    check_quota_of,
)
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.cluster.mirror import follow
from pydanube_broker.dispatch.quota_meter import MEASURED, QuotaCounts, QuotaMeter
from pydanube_broker.dispatch.shared_counts import ONE_PROCESS, SharedCounts
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.records import QuotaRecord, TopicRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    Changes,
    Delete,
    MetadataStore,
    Revision,
    retry_on_conflict,
    unchanged,
)

log = logging.getLogger(__name__)

QUOTAS_MAX = 10_000
METERS_MAX = 10_000
"""The most principals without a connection whose use is remembered."""
MEASURE_S = 60.0
"""The interval at which subscriptions and storage are measured; what this broker adds
meanwhile is counted at once."""
PAGE = 1000
"""How many records a measurement reads at a time."""
RETRY_S = 1.0
FEW_TOPICS = 100
"""Up to this many topics are measured one by one; for more, all records are read."""
REMOVED_MAX = 1000
"""How many revisions of removed quotas are kept, in addition to those of quotas."""

T = TypeVar("T")

_FIELDS = tuple(field.name for field in fields(Quota))


class Quotas:
    """The quotas of a broker; ``following_quotas`` reads them."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        opened: Mapping[TopicName, Topic],
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int],
        default: Quota = NO_QUOTA,
        is_exempt: Callable[[Principal], bool] | None = None,
        quotas_max: int = QUOTAS_MAX,
        meters_max: int = METERS_MAX,
        shared: SharedCounts = ONE_PROCESS,
    ) -> None:
        """
        Create the quotas of the topics *opened*.

        Principals without a quota of their own have *default*; those for which
        *is_exempt* returns true have none.  *shared* has what the other processes of
        the broker count.
        """
        self.default = default
        self._quotas_max = quotas_max
        self._meters_max = meters_max
        self.counts = QuotaCounts()
        self.quotas: dict[QuotaTarget, Quota] = {}
        """The quotas in the metadata store."""
        self._store = store
        self.shared = shared
        """The counts of the other processes of the broker."""
        self._opened = opened
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._is_exempt = is_exempt or (lambda _: False)
        # The meters of principals by name, those that were used last at the end.
        self._principals: dict[str, QuotaMeter] = {}
        self._exempt = QuotaMeter(
            QuotaTarget(QuotaScope.PRINCIPAL, "exempt"), self.counts
        )
        # The meters of namespaces and topics with quotas.
        self._meters: dict[QuotaTarget, QuotaMeter] = {}
        self._measure_soon = asyncio.Event()
        # The targets whose meters are new.
        self._unmeasured: set[QuotaTarget] = set()
        # The revision at which each quota was set or removed: a watch may be late.
        self._revisions: dict[QuotaTarget, Revision] = {}

    # Meters.

    def of_principal(self, principal: Principal) -> QuotaMeter:
        """Return the meter of a client, which clients of the same name share."""
        meter = self._principals.get(principal.name)
        if meter is not None:
            return meter
        if self._is_exempt(principal):
            return self._exempt
        target = QuotaTarget(QuotaScope.PRINCIPAL, principal.name or ANONYMOUS_MEMBER)
        quota = self.quotas.get(target, self.default)
        meter = QuotaMeter(target, self.counts, quota, self._clock(), self.shared)
        if len(self._principals) >= self._meters_max:
            self._forget_idle()
        self._principals[principal.name] = meter
        return meter

    def now(self) -> float:
        """Return the time by which meters charge."""
        return self._clock()

    def check_new_topics(
        self, namespace: NamespaceName, present: int, more: int
    ) -> None:
        """
        Raise if a namespace with *present* topics cannot have *more*.

        Raises:
            QuotaExceeded: It cannot.
        """
        meter = self._meters.get(QuotaTarget(QuotaScope.NAMESPACE, namespace))
        if meter is not None:
            meter.check_count("topics", present, more)

    def topics_max(self, namespace: NamespaceName) -> int:
        """Return how many topics a namespace may have; 0: no limit."""
        target = QuotaTarget(QuotaScope.NAMESPACE, namespace)
        return self.quotas.get(target, NO_QUOTA).topics

    def apply_to(self, topic: Topic) -> None:
        """Give *topic* the meters of the quotas that apply to it."""
        found = (self._meters.get(each) for each in _targets_of(topic.name))
        topic.pacing.set_meters(tuple(each for each in found if each is not None))

    def _forget_idle(self) -> None:
        """Forget the principal that has been idle for longest, if one is idle."""
        now = self._clock()
        for name, meter in self._principals.items():
            is_held = meter.delay_in_s(now) or meter.delay_out_s(now)
            if not meter.is_used and not is_held:
                self._principals.pop(name).release()
                return

    # Changes.

    async def set(self, target: QuotaTarget, quota: Quota) -> None:
        """
        Set the quota of *target*, instead of an earlier one.

        Durability: On return it is on disk.

        Raises:
            InvalidRequest: A limit is out of range, or *target* cannot have it.
            QuotaExceeded: There are *quotas_max* quotas.
        """
        check_quota_of(target, quota)
        before = self.quotas.get(target, NO_QUOTA)
        if target not in self.quotas and len(self.quotas) >= self._quotas_max:
            raise QuotaExceeded(
                f"there are {self._quotas_max} quotas, the most allowed: remove some"
            )
        record = QuotaRecord(
            target=str(target),
            created_at=self._wall_clock_us(),
            **{name: getattr(quota, name) for name in _FIELDS},
        )
        revision = await self._store.put(_key_of(target), record)
        self._take([(target, revision, quota)])
        if _is_measured(quota) and not _is_measured(before):
            await self.measure([target])

    async def remove(self, target: QuotaTarget) -> None:
        """
        Remove the quota of *target*.

        Raises:
            NotFound: It has none.
        """
        key = _key_of(target)

        async def attempt() -> Revision:
            stored = await self._store.get(key)
            if stored is None:
                raise NotFound(
                    f"{target} has no quota: list quotas with 'danube security quotas "
                    "list'"
                )
            condition = unchanged(key, stored)
            return await self._store.transaction([condition], [Delete(key)])

        self._take([(target, await retry_on_conflict(attempt), None)])

    # Questions.

    def own_target(self, principal: Principal) -> QuotaTarget | None:
        """Return the target whose quota limits a client; None: the client has none."""
        if self._is_exempt(principal):
            return None
        return self.of_principal(principal).target

    def describe(self, target: QuotaTarget) -> QuotaDescription:
        """Return the quota that applies to *target*, and what it uses."""
        is_principal = target.scope is QuotaScope.PRINCIPAL
        meter: QuotaMeter | None
        if is_principal:
            meter = self._principals.get(target.name)
        else:
            meter = self._meters.get(target)
        limits = [
            name
            for name in ("connections", "sessions", *MEASURED)
            if name in LIMITS_OF[target.scope]
        ]
        others = self.shared.of(str(target))
        if meter is None:
            # Other processes of the broker may have clients of the principal.
            found = {each: others.others(each) for each in limits}
            used = found if any(found.values()) else {}
        else:
            used = {each: meter.used(each) for each in limits}
        return QuotaDescription(
            target=str(target),
            quota=self.quotas.get(target, self.default if is_principal else NO_QUOTA),
            used=used,
            throttled_s=(0.0 if meter is None else meter.throttled_s)
            + others.others("throttled_us") / 1e6,
            refused_count=(0 if meter is None else meter.refused_count)
            + others.others("refused"),
            is_default=is_principal and target not in self.quotas,
        )

    # Following the store.

    async def run(self) -> None:
        """Follow the store, and measure regularly, until cancelled."""
        is_first = True

        def begin() -> None:
            nonlocal is_first
            is_first = True

        def take(changes: Changes[QuotaRecord]) -> None:
            nonlocal is_first
            self.on_changes(changes, are_all=is_first)
            is_first = False

        async with task_scope() as tasks:
            tasks.run(self._measure_regularly(), "measure quotas")
            await follow(self._store, keys.QUOTAS, take, begin)

    async def load(self) -> None:
        """Read all quotas from the store."""
        revision = await self._store.revision()
        stored = dict(await self._store.scan_valid(keys.QUOTAS))
        self.on_changes(Changes(revision, stored), are_all=True)

    def on_changes(self, changes: Changes[QuotaRecord], *, are_all: bool) -> None:
        """
        Take over what was stored, and what was removed.

        With *are_all*, other quotas are gone, except those whose records are damaged.
        """
        revision = changes.revision
        found: list[tuple[QuotaTarget, Revision, Quota | None]] = []
        for path, stored in changes.values.items():
            if (target := _target_of(path)) is None:
                continue
            if stored is None:
                found.append((target, revision, None))
            else:
                found.append((target, stored.revision, _quota_of(target, stored.value)))
        if are_all:
            kept = {target for target, _, _ in found}
            kept.update(filter(None, map(_target_of, changes.damaged)))
            gone = self.quotas.keys() - kept
            found += ((target, revision, None) for target in gone)
        self._take(found)
        if len(self._revisions) > 2 * len(self.quotas) + REMOVED_MAX:
            # Nothing older than this is reported any more.
            for target in self._revisions.keys() - self.quotas.keys():
                if self._revisions[target] <= revision:
                    del self._revisions[target]

    def _take(
        self, found: Iterable[tuple[QuotaTarget, Revision, Quota | None]]
    ) -> None:
        """Take over quotas of which nothing newer is known; None: it was removed."""
        changed = set()
        for target, revision, quota in found:
            if revision < self._revisions.get(target, ABSENT):
                continue
            self._revisions[target] = revision
            if quota != self.quotas.get(target):
                changed.add(target)
                if quota is None:
                    del self.quotas[target]
                else:
                    self.quotas[target] = quota
        if changed:
            self._apply(changed)

    def _apply(self, changed: Set[QuotaTarget]) -> None:
        """
        Apply the quotas that have *changed*.

        Bounds: The work is that of the changes, and one look at each open topic if
            a meter of a namespace or a topic appears or disappears.
        """
        now = self._clock()
        moved: set[QuotaTarget] = set()
        for target in changed:
            quota = self.quotas.get(target)
            if target.scope is QuotaScope.PRINCIPAL:
                for name in {target.name, ""}:
                    meter = self._principals.get(name)
                    if meter is not None and meter.target == target:
                        meter.set_quota(quota or self.default, now)
            elif quota is None:
                # Whatever waits for it goes on.
                removed = self._meters.pop(target)
                removed.set_quota(NO_QUOTA, now)
                removed.release()
                moved.add(target)
            elif target in self._meters:
                self._meters[target].set_quota(quota, now)
            else:
                self._meters[target] = QuotaMeter(
                    target, self.counts, quota, now, self.shared
                )
                self._unmeasured.add(target)
                self._measure_soon.set()
                moved.add(target)
        if moved:
            for topic in self._opened.values():
                if not moved.isdisjoint(_targets_of(topic.name)):
                    self.apply_to(topic)

    # Measuring.

    async def _measure_regularly(self) -> None:
        while True:
            targets = None
            try:
                # The processes of a broker measure at the same time: what one of them
                # has added since is not yet in the measurement of another.
                async with asyncio.timeout(MEASURE_S - self._clock() % MEASURE_S):
                    await self._measure_soon.wait()
                self._measure_soon.clear()
                targets = list(self._unmeasured)
            except TimeoutError:
                pass
            try:
                await self.measure(targets)
            except BrokerError as error:
                self._measure_soon.set()
                log.warning("quotas cannot be measured now: %s", error)
                await asyncio.sleep(RETRY_S)

    async def measure(self, targets: Iterable[QuotaTarget] | None = None) -> None:
        """
        Count what namespaces and topics with quotas have, in all brokers.

        *targets* are those to measure; None: all.

        Bounds: If few topics belong to *targets*, only they are read.
        """
        wanted = list(self._meters if targets is None else targets)
        await self._measure(wanted)
        self._unmeasured.difference_update(wanted)

    async def _measure(self, targets: Iterable[QuotaTarget]) -> None:
        meters = {each: self._meters[each] for each in targets if each in self._meters}
        if not any(_is_measured(meter.quota) for meter in meters.values()):
            return
        before = {target: meter.added() for target, meter in meters.items()}
        found: dict[QuotaTarget, Counter[str]] = {each: Counter() for each in meters}
        topics = await self._count_topics(found)
        parts: Sequence[str | None] = [None]
        if len(topics) <= FEW_TOPICS:
            parts = list(topics)
        async for name, _ in self._pages(keys.SUBSCRIPTIONS, parts):
            _count(topics, name, "subscriptions", 1)
        async for name, segment in self._pages(keys.SEGMENTS, parts):
            _count(topics, name, "storage_bytes", segment.byte_count)
        own: dict[QuotaTarget, Counter[str]] = {each: Counter() for each in meters}
        for topic in list(self._opened.values()):
            # What is not sealed yet; other brokers know that of their topics.
            for target in _targets_of(topic.name):
                if target in own and str(topic.topic_id) in topics:
                    own[target]["storage_bytes"] += topic.offsets().tail_bytes
        for target, meter in meters.items():
            meter.on_measured(found[target], own[target], before[target])

    async def _count_topics(
        self, found: Mapping[QuotaTarget, Counter[str]]
    ) -> dict[str, Sequence[Counter[str]]]:
        """Count the topics of namespaces; return the counters by topic id."""
        topics: dict[str, Sequence[Counter[str]]] = {}

        def count(name: TopicName, record: TopicRecord) -> None:
            counters = [found[each] for each in _targets_of(name) if each in found]
            if counters:
                topics[str(record.topic_id)] = counters
                for counts in counters:
                    counts["topics"] += 1

        if len(found) > FEW_TOPICS or (names := await self._names_of(found)) is None:
            namespaces = {_namespace_of(each) for each in found}
            parts: list[str | None] = [None]
            if len(namespaces) <= FEW_TOPICS:
                parts = list(namespaces)
            async for path, record in self._pages(keys.TOPICS, parts):
                count(TopicName.parse(f"/{path}"), record)
            return topics
        for name, stored in zip(
            names,
            await self._store.get_each([keys.topic(each) for each in names]),
            strict=True,
        ):
            if stored is not None:
                count(name, stored.value)
        return topics

    async def _names_of(self, targets: Iterable[QuotaTarget]) -> list[TopicName] | None:
        """Return the topics and partitions that *targets* are; None: many, or not."""
        names: list[TopicName] = []
        for target in targets:
            if target.scope is not QuotaScope.TOPIC:
                return None
            name = TopicName.parse(target.name)
            partitioned = await self._store.get(keys.partitioned_topic(name))
            count = 0 if partitioned is None else partitioned.value.partitions
            if len(names) + count >= FEW_TOPICS:
                return None
            names += (name, *(name.partition(each) for each in range(count)))
        return names

    async def _pages(
        self, prefix: Prefix[T], parts: Iterable[str | None]
    ) -> AsyncIterator[tuple[str, T]]:
        """
        Yield the values below *parts* of *prefix*; None: all of it.

        Others are not held up for long.
        """
        for part in parts:
            within, after = prefix if part is None else prefix.within(part), ""
            while page := await self._store.scan_valid(within, after=after, limit=PAGE):
                for path, stored in page:
                    yield prefix.name_of(path), stored.value
                after = page[-1][0]
                await asyncio.sleep(0)


@asynccontextmanager
async def following_quotas(quotas: Quotas) -> AsyncIterator[Quotas]:
    """Read the quotas and measure what is used, and follow them during the body."""
    await quotas.load()
    await quotas.measure()
    async with task_scope() as tasks:
        tasks.run(quotas.run(), "follow the quotas")
        yield quotas


def _key_of(target: QuotaTarget) -> Any:
    # Names of principals may contain slashes.
    return keys.QUOTAS.key(quote(str(target), safe=""))


def _target_of(path: str) -> QuotaTarget | None:
    """Return the target of a record; None: this broker does not know such targets."""
    try:
        return QuotaTarget.parse(unquote(keys.QUOTAS.name_of(path)))
    except BrokerError as error:
        log.warning("leaving out the quota at %s: %s", path, error)
        return None


def _quota_of(target: QuotaTarget, record: QuotaRecord) -> Quota | None:
    """Return a quota as it is stored; None: it limits what *target* cannot have."""
    quota = Quota(**{name: getattr(record, name) for name in _FIELDS})
    try:
        check_quota_of(target, quota)
    except BrokerError as error:
        log.warning("leaving out the quota of %s: %s", target, error)
        return None
    return quota


def _is_measured(quota: Quota) -> bool:
    return any(getattr(quota, each) for each in MEASURED)


def _namespace_of(target: QuotaTarget) -> NamespaceName:
    """Return the namespace that *target* is, or is in."""
    if target.scope is QuotaScope.TOPIC:
        return TopicName.parse(target.name).namespace
    return NamespaceName(target.name)


def _targets_of(name: TopicName) -> Iterable[QuotaTarget]:
    """Return the targets whose quotas limit a topic."""
    yield QuotaTarget(QuotaScope.NAMESPACE, name.namespace)
    yield QuotaTarget(QuotaScope.TOPIC, str(name))
    if (split := name.split_partition()) is not None:
        # Partitions share the quota of their topic.
        yield QuotaTarget(QuotaScope.TOPIC, str(split[0]))


def _count(
    topics: Mapping[str, Sequence[Counter[str]]], path: str, limit: str, change: int
) -> None:
    for counts in topics.get(path.partition("/")[0], ()):
        counts[limit] += change
