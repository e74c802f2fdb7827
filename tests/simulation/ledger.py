"""
The actions and results of applications, and the rules that they must satisfy.

Every message has a unique payload, so it can be recognised everywhere.  Each action of
an application, and each answer, is recorded at once and compared with earlier records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydanube.model.policy import SubscriptionType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of a rule."""

    time: float
    rule: str
    details: str

    def __str__(self) -> str:
        return f"at {self.time:.6f}: {self.rule}: {self.details}"


class Violations:
    """The violations of rules in a run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.found: list[Violation] = []
        self.on_violation: Callable[[], None] = lambda: None
        self._clock = clock

    def add(self, rule: str, details: str) -> None:
        """Add a violation of the rule *rule*."""
        self.found.append(Violation(self._clock(), rule, details))
        self.on_violation()


@dataclass(slots=True)
class TopicHistory:
    """A topic, as its producers and consumers see it."""

    name: str
    is_reliable: bool = True
    is_durable: bool = True
    """Whether receipts mean that messages are synced to disk."""
    attempted: dict[bytes, int] = field(default_factory=dict)
    """The number of each sent message, in the order of sending."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """The offset in the receipt of each message, by payload."""
    refused: set[bytes] = field(default_factory=set)
    """Messages that are not stored, as their producers were told."""
    at: dict[int, bytes] = field(default_factory=dict)
    """The payload seen at each offset."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    keys: dict[bytes, str] = field(default_factory=dict)
    """The keys of messages that have one."""
    delayed: set[bytes] = field(default_factory=set)
    """Messages with a delivery delay."""
    expiring: set[bytes] = field(default_factory=set)
    """Messages with a time to live."""
    ttl_s: float | None = None
    """The time to live of all messages."""
    has_retention: bool = False
    """Whether retention removes old messages, done or not."""
    ends: list[tuple[float, int]] = field(default_factory=list)
    """The known ends of the topic, with their times."""

    def end_at(self, time: float) -> int:
        """Return the end of the topic at *time*, as far as known."""
        return max((end for at, end in self.ends if at <= time), default=0)

    def may_expire(self, offset: int) -> bool:
        """Return whether the message at *offset* may expire."""
        if self.ttl_s is not None:
            return True
        # The message at this offset may be unknown so far.
        payload = self.at.get(offset)
        return bool(self.expiring) and (payload is None or payload in self.expiring)


@dataclass(slots=True)
class SubscriptionHistory:
    """A subscription, as its consumers see it."""

    topic: TopicHistory
    name: str
    type: SubscriptionType
    start: int | None = None
    """The offset at which it began, once known."""
    seen: set[int] = field(default_factory=set)
    frontier: int = 0
    """The end of the messages that consumers have seen."""
    waived_end: int = 0
    """The end of cumulative acks, which include messages not seen."""
    deliveries: int = 0
    sent_on: dict[bytes, int] = field(default_factory=dict)
    """For topics in memory: the start of the broker that delivered each message."""

    @property
    def has_order(self) -> bool:
        """Whether first deliveries are in the order of offsets."""
        is_alone = self.type in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
        topic = self.topic
        return is_alone and not topic.delayed and not topic.has_retention

    @property
    def key(self) -> str:
        """The name in the trace."""
        return f"{self.topic.name}:{self.name}"


class Ledger:
    """All topics and subscriptions of a run."""

    def __init__(self, violations: Violations, clock: Callable[[], float]) -> None:
        self.topics: dict[str, TopicHistory] = {}
        self.subscriptions: dict[tuple[str, str], SubscriptionHistory] = {}
        self.may_be_out_of_order: Callable[[str, str, int], bool] = lambda *_: False
        """Whether a message may be delivered out of order."""
        self.broker_starts: Callable[[], int] = lambda: 0
        """The number of starts of the broker."""
        self._violations = violations
        self._clock = clock

    # Producers.

    def on_sent(self, topic: str, payloads: Iterable[bytes]) -> None:
        """Record that a producer sends *payloads*, in this order."""
        history = self.topics[topic]
        for payload in payloads:
            assert payload not in history.attempted
            history.attempted[payload] = len(history.attempted)

    def on_acknowledged(self, topic: str, payload: bytes, offset: int) -> None:
        """Record the receipt of a message at *offset*."""
        history = self.topics[topic]
        if history.is_reliable:
            self._check_placement(history, payload, offset, "a receipt said so")
            history.acknowledged[payload] = offset
        else:
            history.acknowledged[payload] = -1

    def on_refused(self, topic: str, payload: bytes) -> None:
        """Record that the broker has refused a message."""
        self.topics[topic].refused.add(payload)

    def on_stored(self, topic: str, end: int) -> None:
        """Record that the topic has reached *end*."""
        self.topics[topic].ends.append((self._clock(), end))

    # Consumers.

    def on_read(self, topic: str, offset: int, payload: bytes) -> None:
        """Record that a reader has found a message."""
        self._check_placement(self.topics[topic], payload, offset, "a reader found it")

    def on_received(
        self, topic: str, subscription: str, offset: int, payload: bytes
    ) -> None:
        """Record that a consumer has received a message."""
        history = self.subscriptions[topic, subscription]
        history.deliveries += 1
        if not history.topic.is_reliable:
            self._check_direct(history, offset, payload)
            return
        self._check_placement(
            history.topic, payload, offset, f"{subscription} received it"
        )
        if offset in history.seen:
            return
        history.seen.add(offset)
        if history.has_order and history.start is not None:
            self._check_order(history, offset)
        history.frontier = max(history.frontier, offset + 1)

    def on_cumulative_ack(self, topic: str, subscription: str, offset: int) -> None:
        """Record a cumulative ack up to *offset*."""
        history = self.subscriptions[topic, subscription]
        history.waived_end = max(history.waived_end, offset + 1)

    # At the end.

    def check_stored(self, topic: str, base: int, stored: Iterable[bytes]) -> None:
        """Check the messages that a reader found in the topic from *base* on."""
        history = self.topics[topic]
        order: dict[bytes, int] = {}
        count = base
        for offset, payload in enumerate(stored, base):
            count = offset + 1
            self._check_placement(history, payload, offset, "a reader found it")
            author = payload.partition(b":")[0]
            number = history.attempted.get(payload, -1)
            if number < order.get(author, -1):
                self._violations.add(
                    "messages of a producer are stored in the order of sending",
                    f"{topic} has {_short(payload)} at {offset}, after later ones",
                )
            order[author] = number
        if base == 0 and history.is_durable:
            self._check_all_there(history, count)

    def _check_order(self, history: SubscriptionHistory, offset: int) -> None:
        # Messages below the frontier were skipped for a reason.
        begin = max(history.start or 0, history.frontier)
        for skipped in range(begin, offset):
            if not history.topic.may_expire(skipped) and not self.may_be_out_of_order(
                history.topic.name, history.name, skipped
            ):
                self._violations.add(
                    "exclusive and failover consumers see all messages in order",
                    f"{history.key} sees {offset} for the first time, and has not seen "
                    f"{skipped}",
                )

    def _check_all_there(self, history: TopicHistory, count: int) -> None:
        lost = {
            payload: offset
            for payload, offset in history.acknowledged.items()
            if offset >= count
        }
        if lost:
            payload, offset = next(iter(lost.items()))
            self._violations.add(
                "acknowledged messages are stored",
                f"{history.name} ends at {count}; {_short(payload)} was acknowledged "
                f"at {offset}, and {len(lost) - 1} more",
            )

    def _check_direct(
        self, history: SubscriptionHistory, offset: int, payload: bytes
    ) -> None:
        if payload not in history.topic.attempted:
            self._violations.add(
                "only sent messages are delivered", f"{history.key}: {payload!r}"
            )
        # A restarted broker does not know which messages it had delivered.
        if history.sent_on.get(payload) == self.broker_starts():
            self._violations.add(
                "topics in memory deliver at most once",
                f"{history.key} got {_short(payload)} twice",
            )
        history.sent_on[payload] = self.broker_starts()

    def _check_placement(
        self, history: TopicHistory, payload: bytes, offset: int, how: str
    ) -> None:
        """Check that *payload*, and nothing else, is at *offset* only."""
        if payload not in history.attempted:
            self._violations.add(
                "only sent messages are stored",
                f"{history.name} has {payload!r} at {offset}",
            )
        if payload in history.refused:
            self._violations.add(
                "refused messages are not stored",
                f"{history.name} has {_short(payload)} at {offset}, and {how}",
            )
        if not history.is_durable:
            # Unsynced messages may be lost, and their offsets reused.
            history.at[offset] = payload
            return
        if history.at.setdefault(offset, payload) != payload:
            self._violations.add(
                "an offset always holds the same message",
                f"{history.name} has {_short(history.at[offset])} at {offset}, and "
                f"{how}: {_short(payload)}",
            )
        if history.offsets.setdefault(payload, offset) != offset:
            self._violations.add(
                "a message is stored once, even if it was sent several times",
                f"{history.name} has {_short(payload)} at {history.offsets[payload]}, "
                f"and {how}: at {offset}",
            )


def _short(payload: bytes) -> str:
    return payload[:20].rstrip(b".").decode(errors="replace")
