"""
What users were promised and what they got: the view from the applications.

Every message has a payload of its own, so that it can be recognised wherever it
turns up.  What an application did, and what it was told, is entered here at once,
and compared with everything that was entered before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydanube.model.policy import SubscriptionType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was not kept."""

    time: float
    promise: str
    facts: str

    def __str__(self) -> str:
        return f"at {self.time:.6f}: {self.promise}: {self.facts}"


class Verdict:
    """The promises that were not kept in a run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.broken: list[Broken] = []
        self.on_broken: Callable[[], None] = lambda: None
        self._clock = clock

    def add(self, promise: str, facts: str) -> None:
        """*promise* was not kept, as the *facts* show."""
        self.broken.append(Broken(self._clock(), promise, facts))
        self.on_broken()


@dataclass(slots=True)
class TopicBook:
    """One topic, as its producers and consumers know it."""

    name: str
    is_reliable: bool = True
    is_durable: bool = True
    """Whether an acknowledgement means that the disk has it."""
    attempted: dict[bytes, int] = field(default_factory=dict)
    """What was ever sent, with the place in the order of sending."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """What a producer was told, by payload: its offset."""
    at: dict[int, bytes] = field(default_factory=dict)
    """What anybody has seen at an offset."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    keys: dict[bytes, str] = field(default_factory=dict)
    """The keys of those messages that have one."""
    delayed: set[bytes] = field(default_factory=set)
    """What is to be delivered later than it could be."""
    mortal: set[bytes] = field(default_factory=set)
    """What expires."""
    ttl_s: float | None = None
    """When everything in it expires."""
    has_retention: bool = False
    """Whether old messages are dropped, done or not."""
    ends: list[tuple[float, int]] = field(default_factory=list)
    """Where the topic ended, as far as somebody could know, and when."""

    def end_at(self, time: float) -> int:
        """Where the topic ended at *time*, as far as anybody knew."""
        return max((end for at, end in self.ends if at <= time), default=0)

    def may_expire(self, offset: int) -> bool:
        """Whether the message at *offset* need not be delivered for ever."""
        if self.ttl_s is not None:
            return True
        # Nobody may know yet what is there.
        payload = self.at.get(offset)
        return bool(self.mortal) and (payload is None or payload in self.mortal)


@dataclass(slots=True)
class SubscriptionBook:
    """One subscription, as its consumers know it."""

    topic: TopicBook
    name: str
    type: SubscriptionType
    start: int | None = None
    """Where it began, as soon as somebody knows."""
    seen: set[int] = field(default_factory=set)
    frontier: int = 0
    """Behind everything that any consumer has seen."""
    waived_end: int = 0
    """Below this everything was acknowledged at once, seen or not."""
    deliveries: int = 0
    sent_on: dict[bytes, int] = field(default_factory=dict)
    """Of a topic in memory: in which life of the broker it passed a message on."""

    @property
    def has_order(self) -> bool:
        """Whether messages are first seen in the order of their offsets."""
        is_alone = self.type in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
        topic = self.topic
        return is_alone and not topic.delayed and not topic.has_retention

    @property
    def key(self) -> str:
        """What the trace calls it."""
        return f"{self.topic.name}:{self.name}"


class Ledger:
    """All topics and subscriptions of a run."""

    def __init__(self, verdict: Verdict, clock: Callable[[], float]) -> None:
        self.topics: dict[str, TopicBook] = {}
        self.subscriptions: dict[tuple[str, str], SubscriptionBook] = {}
        self.is_excused: Callable[[str, str, int], bool] = lambda *_: False
        """Whether a message may come later than it is in turn."""
        self.life: Callable[[], int] = lambda: 0
        """How often the broker was started."""
        self._verdict = verdict
        self._clock = clock

    # What producers do and are told.

    def on_sent(self, topic: str, payloads: Iterable[bytes]) -> None:
        """A producer was given these, in this order."""
        book = self.topics[topic]
        for payload in payloads:
            assert payload not in book.attempted
            book.attempted[payload] = len(book.attempted)

    def on_acknowledged(self, topic: str, payload: bytes, offset: int) -> None:
        """The producer was told that the message is stored at *offset*."""
        book = self.topics[topic]
        if book.is_reliable:
            self._place(book, payload, offset, "a producer was told so")
            book.acknowledged[payload] = offset
        else:
            book.acknowledged[payload] = -1

    def on_stored(self, topic: str, end: int) -> None:
        """The broker has said that the topic goes up to *end*."""
        self.topics[topic].ends.append((self._clock(), end))

    # What consumers get.

    def on_received(
        self, topic: str, subscription: str, offset: int, payload: bytes
    ) -> None:
        """A consumer was handed a message."""
        book = self.subscriptions[topic, subscription]
        book.deliveries += 1
        if not book.topic.is_reliable:
            self._check_direct(book, offset, payload)
            return
        self._place(book.topic, payload, offset, f"{subscription} received it")
        if offset in book.seen:
            return
        book.seen.add(offset)
        if book.has_order and book.start is not None:
            self._check_order(book, offset)
        book.frontier = max(book.frontier, offset + 1)

    def on_cumulative_ack(self, topic: str, subscription: str, offset: int) -> None:
        """A consumer says that everything up to *offset* is done."""
        book = self.subscriptions[topic, subscription]
        book.waived_end = max(book.waived_end, offset + 1)

    # In the end.

    def check_stored(self, topic: str, base: int, stored: Iterable[bytes]) -> None:
        """Compare with what a reader finds in the topic from *base* on."""
        book = self.topics[topic]
        order: dict[bytes, int] = {}
        count = base
        for offset, payload in enumerate(stored, base):
            count = offset + 1
            self._place(book, payload, offset, "a reader found it")
            author = payload.partition(b":")[0]
            number = book.attempted.get(payload, -1)
            if number < order.get(author, -1):
                self._verdict.add(
                    "messages of a producer are stored in the order of sending",
                    f"{topic} has {_short(payload)} at {offset}, behind later ones",
                )
            order[author] = number
        if base == 0 and book.is_durable:
            self._check_all_there(book, count)

    def _check_order(self, book: SubscriptionBook, offset: int) -> None:
        # What lies below the frontier was passed over with a reason.
        begin = max(book.start or 0, book.frontier)
        for skipped in range(begin, offset):
            if not book.topic.may_expire(skipped) and not self.is_excused(
                book.topic.name, book.name, skipped
            ):
                self._verdict.add(
                    "one consumer after the other sees all messages in order",
                    f"{book.key} sees {offset} for the first time, and has not seen "
                    f"{skipped}",
                )

    def _check_all_there(self, book: TopicBook, count: int) -> None:
        lost = {
            payload: offset
            for payload, offset in book.acknowledged.items()
            if offset >= count
        }
        if lost:
            payload, offset = next(iter(lost.items()))
            self._verdict.add(
                "what was acknowledged is stored",
                f"{book.name} ends at {count}; {_short(payload)} was acknowledged at "
                f"{offset}, and {len(lost) - 1} more",
            )

    def _check_direct(
        self, book: SubscriptionBook, offset: int, payload: bytes
    ) -> None:
        if payload not in book.topic.attempted:
            self._verdict.add(
                "nothing is delivered that was not sent", f"{book.key}: {payload!r}"
            )
        # A broker that has been started again does not know what it had sent on.
        if book.sent_on.get(payload) == self.life():
            self._verdict.add(
                "a topic in memory delivers at most once",
                f"{book.key} got {_short(payload)} twice",
            )
        book.sent_on[payload] = self.life()

    def _place(self, book: TopicBook, payload: bytes, offset: int, how: str) -> None:
        """*payload* is at *offset*: nothing else is there, and it is nowhere else."""
        if payload not in book.attempted:
            self._verdict.add(
                "nothing is stored that was not sent",
                f"{book.name} has {payload!r} at {offset}",
            )
        if not book.is_durable:
            # What the disk does not have yet may be lost, and its offset given away.
            book.at[offset] = payload
            return
        if book.at.setdefault(offset, payload) != payload:
            self._verdict.add(
                "an offset always holds the same message",
                f"{book.name} has {_short(book.at[offset])} at {offset}, and {how}: "
                f"{_short(payload)}",
            )
        if book.offsets.setdefault(payload, offset) != offset:
            self._verdict.add(
                "a message is stored once, however often it was sent",
                f"{book.name} has {_short(payload)} at {book.offsets[payload]}, and "
                f"{how}: at {offset}",
            )


def _short(payload: bytes) -> str:
    return payload[:20].rstrip(b".").decode(errors="replace")
