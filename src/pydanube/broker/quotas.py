"""
The quotas in the metadata store, and the meters of what clients and topics use.

All brokers of a cluster follow the store, so a change applies to all of them within
seconds.  Rates and connections are counted by each broker for itself: a count that
brokers share would cost a request to the metadata store for each batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any
from urllib.parse import quote

from pydanube.aio.tasks import task_scope
from pydanube.broker.topic import Topic
from pydanube.cluster.mirror import follow
from pydanube.dispatch.quota_meter import QuotaCounts, QuotaMeter
from pydanube.metadata import keys
from pydanube.metadata.records import QuotaRecord
from pydanube.metadata.store import MetadataStore
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

_FIELDS = tuple(field.name for field in fields(Quota))
_MEASURED = ("topics", "subscriptions", "storage_bytes")


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
    ) -> None:
        """
        Create the quotas of the topics *opened*.

        Principals without a quota of their own have *default*; those for which
        *is_exempt* returns true have none.
        """
        self.default = default
        self.counts = QuotaCounts()
        self.quotas: dict[QuotaTarget, Quota] = {}
        """The quotas in the metadata store."""
        self._store = store
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
        self._wake = asyncio.Event()
        self._measure_soon = asyncio.Event()
        self._lock = asyncio.Lock()

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
        meter = QuotaMeter(target, self.counts, quota, self._clock())
        if len(self._principals) >= METERS_MAX:
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
        topic.pacing.meters = tuple(each for each in found if each is not None)

    def _forget_idle(self) -> None:
        """Forget the principal that has been idle for longest, if one is idle."""
        now = self._clock()
        for name, meter in self._principals.items():
            is_held = meter.delay_in_s(now) or meter.delay_out_s(now)
            is_used = meter.connections or meter.used("sessions")
            if not is_used and not is_held:
                del self._principals[name]
                return

    # Changes.

    async def set(self, target: QuotaTarget, quota: Quota) -> None:
        """
        Set the quota of *target*, instead of an earlier one.

        Durability: On return it is on disk.

        Raises:
            InvalidRequest: A limit is out of range, or *target* cannot have it.
            QuotaExceeded: There are ``QUOTAS_MAX`` quotas.
        """
        check_quota_of(target, quota)
        if target not in self.quotas and len(self.quotas) >= QUOTAS_MAX:
            raise QuotaExceeded(
                f"there are {QUOTAS_MAX} quotas, the most allowed: remove some"
            )
        record = QuotaRecord(
            target=str(target),
            created_at=self._wall_clock_us(),
            **{name: getattr(quota, name) for name in _FIELDS},
        )
        await self._store.put(_key_of(target), record)
        await self.load()
        await self.measure()

    async def remove(self, target: QuotaTarget) -> None:
        """
        Remove the quota of *target*.

        Raises:
            NotFound: It has none.
        """
        if not await self._store.delete(_key_of(target)):
            raise NotFound(
                f"{target} has no quota: list quotas with 'danube security quotas list'"
            )
        await self.load()

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
            for name in ("connections", "sessions", *_MEASURED)
            if name in LIMITS_OF[target.scope]
        ]
        return QuotaDescription(
            target=str(target),
            quota=self.quotas.get(target, self.default if is_principal else NO_QUOTA),
            used={} if meter is None else {each: meter.used(each) for each in limits},
            throttled_s=0.0 if meter is None else meter.throttled_s,
            refused_count=0 if meter is None else meter.refused_count,
            is_default=is_principal and target not in self.quotas,
        )

    # Following the store.

    async def run(self) -> None:
        """Follow the store, and measure regularly, until cancelled."""

        def wake(_: object) -> None:
            self._wake.set()

        async with task_scope() as tasks:
            following = follow(self._store, keys.QUOTAS, wake)
            tasks.run(following, "follow the quotas")
            tasks.run(self._measure_regularly(), "measure quotas")
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self.load()
                except BrokerError as error:
                    log.warning("the quotas cannot be read now: %s", error)
                    await asyncio.sleep(RETRY_S)
                    self._wake.set()

    async def load(self) -> None:
        """Read the quotas from the store, as their changes also do."""
        async with self._lock:
            found: dict[QuotaTarget, Quota] = {}
            for _, stored in await self._store.scan_valid(keys.QUOTAS):
                record = stored.value
                quota = Quota(**{name: getattr(record, name) for name in _FIELDS})
                try:
                    target = QuotaTarget.parse(record.target)
                    check_quota_of(target, quota)
                except BrokerError as error:
                    log.warning("leaving out the quota of %s: %s", record.target, error)
                else:
                    found[target] = quota
            if found != self.quotas:
                self.quotas = found
                self._apply()

    def _apply(self) -> None:
        now = self._clock()
        for meter in self._principals.values():
            meter.set_quota(self.quotas.get(meter.target, self.default), now)
        before, self._meters = self._meters, {}
        for target, quota in self.quotas.items():
            if target.scope is not QuotaScope.PRINCIPAL:
                meter = before.get(target) or QuotaMeter(target, self.counts)
                meter.set_quota(quota, now)
                self._meters[target] = meter
                if target not in before:
                    self._measure_soon.set()
        for target in before.keys() - self._meters.keys():
            # Whatever waits for it goes on.
            before[target].set_quota(NO_QUOTA, now)
        for topic in self._opened.values():
            self.apply_to(topic)

    # Measuring.

    async def _measure_regularly(self) -> None:
        while True:
            try:
                async with asyncio.timeout(MEASURE_S):
                    await self._measure_soon.wait()
            except TimeoutError:
                pass
            try:
                await self.measure()
            except BrokerError as error:
                log.warning("quotas cannot be measured now: %s", error)
                await asyncio.sleep(RETRY_S)

    async def measure(self) -> None:
        """Count what namespaces and topics with quotas have, in all brokers."""
        self._measure_soon.clear()
        meters = dict(self._meters)
        if not any(
            getattr(meter.quota, each)
            for meter in meters.values()
            for each in _MEASURED
        ):
            return
        before = {target: meter.added() for target, meter in meters.items()}
        found: dict[QuotaTarget, Counter[str]] = {each: Counter() for each in meters}
        topics = await self._count_topics(found)
        async for name, _ in self._pages(keys.SUBSCRIPTIONS):
            _count(topics, name, "subscriptions", 1)
        async for name, segment in self._pages(keys.SEGMENTS):
            _count(topics, name, "storage_bytes", segment.byte_count)
        for topic in list(self._opened.values()):
            # What is not sealed yet; other brokers know that of their topics.
            for counts in topics.get(str(topic.topic_id), ()):
                counts["storage_bytes"] += topic.offsets().tail_bytes
        for target, meter in meters.items():
            meter.on_measured(found[target], before[target])

    async def _count_topics(
        self, found: Mapping[QuotaTarget, Counter[str]]
    ) -> dict[str, Sequence[Counter[str]]]:
        """Count the topics of namespaces; return the counters by topic id."""
        topics: dict[str, Sequence[Counter[str]]] = {}
        async for path, record in self._pages(keys.TOPICS):
            targets = _targets_of(TopicName.parse(f"/{path}"))
            counters = [found[each] for each in targets if each in found]
            if counters:
                topics[str(record.topic_id)] = counters
                for counts in counters:
                    counts["topics"] += 1
        return topics

    async def _pages(self, prefix: Any) -> AsyncIterator[tuple[str, Any]]:
        """Yield the values below *prefix*, without holding others up for long."""
        after = ""
        while page := await self._store.scan_valid(prefix, after=after, limit=PAGE):
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
