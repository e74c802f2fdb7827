"""The search for what is wrong with the subscriptions that a broker serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pydanube.broker.reliable_subscription import ReliableSubscription
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import ReliableTopic, Topic
from pydanube.model.findings import (
    LATE_S,
    Findings,
    SubscriptionFinding,
    finding_of,
    merged,
    worst,
)
from pydanube.model.names import TopicName

CHUNK = 200
"""How many topics are examined until other tasks run."""


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
    found = Findings()
    for begin in range(0, len(topics), CHUNK):
        chunk = topics[begin : begin + CHUNK]
        parts = [_of(each, now_us) for each in chunk if may_see(each.name)]
        found = merged([found, *parts], count_max)
        await asyncio.sleep(0)
    return found


def _of(topic: Topic, now_us: int) -> Findings:
    end_offset, name = topic.end_offset, str(topic.name)
    subscriptions = list(topic.subscriptions.values())
    findings: list[SubscriptionFinding] = []
    backlog = 0
    for each in subscriptions:
        waiting = each.backlog(end_offset)
        backlog += waiting
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
