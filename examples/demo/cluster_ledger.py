"""The counts of the cluster demo: acknowledgements, deliveries, failovers.  Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from examples.demo.proofs import Claim

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class TopicLedger:
    """
    The messages of one topic, which are the numbers 0, 1, 2, ….

    Times are in seconds since the start.
    """

    name: str
    acknowledged: list[float] = field(default_factory=list)
    """The time of the acknowledgement of each message."""
    owners: list[str] = field(default_factory=list)
    """The broker that acknowledged each message."""
    delivered: list[float] = field(default_factory=list)
    """The time of the first delivery of each message."""
    redelivered: int = 0
    """The deliveries of messages that had been delivered before."""
    skipped: int = 0
    """The messages that were not delivered before a later one."""

    def on_acknowledged(self, now: float, owner: str) -> None:
        """Count the next message as acknowledged by *owner*."""
        self.acknowledged.append(now)
        self.owners.append(owner)

    def on_delivered(self, number: int, now: float) -> None:
        """Count a delivery of the message *number*."""
        if number < len(self.delivered):
            self.redelivered += 1
            return
        self.skipped += number - len(self.delivered)
        self.delivered += [now] * (number + 1 - len(self.delivered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The death of a broker, and when its topics were served again."""

    broker: str
    killed_at: float
    acknowledged_s: Sequence[float]
    """For each of its topics, the time to the first new acknowledgement."""
    delivered_s: Sequence[float]
    """For each of its topics, the time to the first delivery of a new message."""


def rate(times: Sequence[float], now: float, window_s: float) -> float:
    """Return how many of the ordered *times* are in the last *window_s*, per second."""
    return (len(times) - bisect_right(times, now - window_s)) / window_s


def rates_by_owner(
    topics: Sequence[TopicLedger], interval_s: float, end: float
) -> dict[str, list[float]]:
    """Return the acknowledgements per second of each broker, for each interval."""
    length = int(end / interval_s) + 1
    counts: dict[str, Counter[int]] = {}
    for topic in topics:
        for at, owner in zip(topic.acknowledged, topic.owners, strict=True):
            counts.setdefault(owner, Counter())[int(at / interval_s)] += 1
    return {
        owner: [found[at] / interval_s for at in range(length)]
        for owner, found in sorted(counts.items())
    }


def prove_topics(
    topics: Sequence[TopicLedger], stored: Sequence[Sequence[int]]
) -> list[Claim]:
    """Compare what was acknowledged with *stored*, the messages of each topic."""
    acknowledged = sum(len(topic.acknowledged) for topic in topics)
    present = repeated = invented = disordered = 0
    for topic, numbers in zip(topics, stored, strict=True):
        different = set(numbers)
        end = len(topic.acknowledged)
        present += sum(number < end for number in different)
        repeated += len(numbers) - len(different)
        # The last message may be stored without its acknowledgement.
        invented += sum(not 0 <= number <= end for number in different)
        disordered += sum(after < before for before, after in pairwise(numbers))
    subject = f"{len(topics)} topics"
    counts = {
        "messages acknowledged = stored": (acknowledged, present),
        "messages stored twice": (0, repeated),
        "messages stored that nobody sent": (0, invented),
        "messages stored out of order": (0, disordered),
        "messages acknowledged = delivered": (
            acknowledged,
            sum(min(len(topic.delivered), len(topic.acknowledged)) for topic in topics),
        ),
        "messages skipped by a delivery": (0, sum(topic.skipped for topic in topics)),
    }
    return [Claim(subject, text, *pair) for text, pair in counts.items()]
