"""The search for what is wrong with the subscriptions that a broker serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import NotOwner, TopicNotFound
from pydanube.model.findings import (
    LATE_S,
    DeadLetterRoute,
    FindingKind,
    Findings,
    SubscriptionFinding,
    finding_of,
    merged,
    problem_kind,
    worst,
)
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.delivery.subscription import Subscription
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.topics.topic_views import TopicViews
from pydanube_broker.storage.storage import Storage

CHUNK = 200
"""How many topics are examined until their findings are merged."""
IDLE_EXAMINED_MAX = 500
"""How many topics that are not open are looked at for one list."""


async def find(
    topics: Sequence[Topic],
    may_see: Callable[[TopicName], bool],
    now_us: int,
    count_max: int,
) -> Findings:
    """
    Return what is wrong with the subscriptions of *topics* that the caller may see.

    Bounds: The work is proportional to the number of topics and subscriptions, and
        nothing is read.  At most *count_max* findings are kept; all are counted.
    """
    found, parts, work = Findings(), list[Findings](), LongWork()
    for topic in topics:
        await work.did()
        if may_see(topic.name):
            parts.append(_of(topic, now_us))
            await work.did(len(topic.subscriptions))
        if len(parts) >= CHUNK:
            found, parts = merged([found, *parts], count_max), []
    return merged([found, *parts], count_max)


async def find_idle(
    views: TopicViews,
    storage: Storage,
    topics: Iterable[tuple[TopicName, TopicId]],
    now_us: int,
    count_max: int,
) -> Findings:
    """
    Do the same for *topics* that are not open, because nobody has used them.

    The cursors in the journal say which subscriptions have a backlog, and only their
    topics are looked at.  What is stored in the others is not added up.

    Bounds: ``IDLE_EXAMINED_MAX`` topics with a backlog are looked at, and the others
        with one are not counted as measured.
    """
    waiting: list[TopicName] = []
    topic_count = subscription_count = 0
    work = LongWork()
    for name, topic_id in topics:
        await work.did()
        state = storage.find_state(topic_id)
        cursors = () if state is None else state.cursors.values()
        if state and any(each.offset < state.end_offset for each in cursors):
            waiting.append(name)
        else:
            topic_count += 1
            subscription_count += len(cursors)
    found = [Findings(topic_count=topic_count, subscription_count=subscription_count)]
    for name in waiting[:IDLE_EXAMINED_MAX]:
        with suppress(TopicNotFound, NotOwner):
            async with views.viewing(name) as topic:
                found.append(_of(topic, now_us))
        await work.did()
    return merged(found, count_max)


def _of(topic: Topic, now_us: int) -> Findings:
    end_offset, name = topic.end_offset, str(topic.name)
    subscriptions = list(topic.subscriptions.values())
    findings: list[SubscriptionFinding] = []
    routes: list[DeadLetterRoute] = []
    backlog = 0
    for each in subscriptions:
        waiting = each.backlog(end_offset)
        backlog += waiting
        if isinstance(each, ReliableSubscription):
            routes += _routes(topic.name, each)
        age_s = each.lag_s(now_us) if waiting else 0.0
        # Only few are described, which takes longer.
        if _is_suspect(each, age_s):
            finding = finding_of(name, each.describe(end_offset), age_s)
            findings += [] if finding is None else [finding]
    counts = topic.counts
    return Findings(
        subscriptions=worst(findings, len(findings)),
        finding_count=len(findings),
        problem_count=sum(each.kind.is_problem for each in findings),
        topic_count=1,
        subscription_count=len(subscriptions),
        backlog=backlog,
        producers=len(topic.registrations),
        consumers=counts.consumers,
        byte_count=_stored_bytes(topic),
        published=counts.published,
        delivered=counts.delivered,
        dead_letter_routes=tuple(routes),
    )


def _routes(
    topic: TopicName, subscription: ReliableSubscription
) -> Iterator[DeadLetterRoute]:
    policy = subscription.settings.failure_policy
    if policy is not None and policy.dead_letter_topic:
        split = topic.split_partition()
        yield DeadLetterRoute(
            topic=str(topic if split is None else split[0]),
            subscription=str(subscription.name),
            dead_letter_topic=policy.dead_letter_topic,
        )


def problem_of(each: Subscription) -> FindingKind | None:
    """Return the kind of the problem that a finding would report, if there is one."""
    return problem_kind(
        is_stopped=each.is_stopped,
        is_blocked=each.is_blocked,
        has_dead_letter_error=isinstance(each, ReliableSubscription)
        and each.dead_letter_error is not None,
    )


def _stored_bytes(topic: Topic) -> int:
    if not isinstance(topic, ReliableTopic):
        return 0
    return topic.log.tail.byte_count + topic.log.segment_bytes


def _is_suspect(each: Subscription, age_s: float) -> bool:
    if each.is_blocked or each.is_stopped or age_s > LATE_S:
        return True
    return isinstance(each, ReliableSubscription) and (
        each.settings.is_paused or each.dead_letter_error is not None
    )
