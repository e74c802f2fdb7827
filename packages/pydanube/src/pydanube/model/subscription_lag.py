"""How far subscriptions lag behind their topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from pydanube.model.descriptions import SubscriptionDescription, TopicDescription
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName

DEAD_LETTERS = "dead letters"
"""The reason of messages that cannot be copied; other messages are delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionLag:
    """The lag of a subscription of a topic, or of all partitions of one."""

    topic: str
    subscription: str
    lag: int
    """The number of messages that are not acknowledged."""
    byte_count: int
    """Their approximate stored size."""
    age_s: float | None
    """The approximate age of the oldest of them; None if there are none."""
    in_flight: int
    consumers: int
    blocked_by: tuple[str, ...]
    """The reasons why messages wait: a pause, a message, a corrupt segment, or that
    messages cannot be copied to the dead-letter topic."""

    def exceeds(self, lag_max: int | None, age_max_s: float | None) -> bool:
        """Return whether the lag or the age exceeds its limit; None: there is none."""
        is_late = age_max_s is not None and (self.age_s or 0.0) > age_max_s
        return is_late or (lag_max is not None and self.lag > lag_max)


def base_of(name: str) -> str:
    """Return the base name of a partition; of other topics, the name itself."""
    partition = TopicName.parse(name).split_partition()
    return name if partition is None else str(partition[0])


def lags_of(
    topics: Iterable[TopicDescription], now_us: int, *, by_partition: bool = False
) -> list[SubscriptionLag]:
    """
    Return the lag of every subscription of *topics*, the largest first.

    Partitions of a topic are added up, unless *by_partition* is true.
    """
    groups: dict[tuple[str, str], list[tuple[str, SubscriptionDescription]]] = {}
    for topic in topics:
        name = topic.topic if by_partition else base_of(topic.topic)
        for each in topic.subscriptions:
            groups.setdefault((name, each.subscription), []).append((topic.topic, each))
    found = [
        _lag_of(name, subscription, parts, now_us)
        for (name, subscription), parts in groups.items()
    ]
    found.sort(key=attrgetter("topic", "subscription"))
    found.sort(key=attrgetter("lag"), reverse=True)
    return found


def _lag_of(
    name: str,
    subscription: str,
    parts: list[tuple[str, SubscriptionDescription]],
    now_us: int,
) -> SubscriptionLag:
    described = [each for _, each in parts]
    oldest = [
        each.oldest_publish_time
        for each in described
        if each.backlog and each.oldest_publish_time is not None
    ]
    return SubscriptionLag(
        topic=name,
        subscription=subscription,
        lag=sum(each.backlog for each in described),
        byte_count=sum(each.backlog_bytes for each in described),
        age_s=max(0.0, (now_us - min(oldest)) / 1e6) if oldest else None,
        in_flight=sum(each.in_flight for each in described),
        # A consumer of a partitioned topic has the same name in all partitions.
        consumers=len({name for each in described for name in each.consumers}),
        blocked_by=tuple(
            dict.fromkeys(
                reason
                for topic, each in parts
                for reason in _reasons(each, "" if topic == name else f" of {topic}")
            )
        ),
    )


def _reasons(each: SubscriptionDescription, where: str) -> Iterator[str]:
    """Yield the reasons that prevent deliveries, in the partition *where*, if any."""
    if each.is_paused:
        yield "paused"
    if each.stopped_by is not None:
        yield f"corrupt segment{where}"
    if each.blocked:
        yield f"message {each.blocked[0][0]}{where}"
    if each.dead_letter_error is not None:
        yield f"{DEAD_LETTERS}{where}"
