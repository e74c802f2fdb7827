"""
What the broker owes to every subscription, and whether it keeps to it.

Entered here is what passes at the broker's end of the connections: what consumers
and administrators told it, what it delivered and confirmed, in that order.  From
that follows which messages may be delivered when, to whom and how often; and, in
the end, that every message was done for a reason.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydanube.model.policy import FailurePolicy, PoisonPolicy, SubscriptionType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydanube.model.ranges import Range
    from simulation.ledger import Ledger, SubscriptionBook, Verdict
    from simulation.plan import SubscriptionPlan

OPENINGS_MAX = 60
"""So often a producer may be opened in a second."""
SENDING_S_MAX = 0.3
"""A delivery is decided first and sent a little later: history has to be read."""

_CLOCK_US = 1000
"""How exactly clocks are compared."""

Place = tuple[int, int]
"""Where a consumer is: link and channel."""


@dataclass(slots=True)
class Delivered:
    """A message as it is delivered, as far as that matters here."""

    offset: int
    key: bytes
    """What goes to one consumer, where consumers share by key."""
    deliver_at: int | None = None
    expires_at: int | None = None


@dataclass(slots=True)
class _Consumer:
    place: Place
    name: str
    credit: int = 0


@dataclass(slots=True)
class _Flight:
    """A message that a consumer has."""

    place: Place
    since: float
    key: bytes


@dataclass(slots=True)
class _Firsts:
    """
    How far messages have been delivered for the first time.

    What leaves at one moment on several connections has no order among them: each
    has an outbox of its own.
    """

    now: float = -1.0
    end_before: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    """By connection, of what was delivered now."""

    def add(self, offset: int, link: int, now: float) -> int | None:
        """*offset* is delivered; the end of what it should not be behind, if it is."""
        if now > self.now:
            self.end_before = max([self.end_before, *self.ends.values()])
            self.now, self.ends = now, {}
        end = max(self.end_before, self.ends.get(link, 0))
        self.ends[link] = max(end, offset + 1)
        return end if offset < end else None


@dataclass(slots=True)
class _Life:
    """What the broker has done for a subscription since its start or the last seek."""

    consumers: dict[Place, _Consumer] = field(default_factory=dict)
    flights: dict[int, _Flight] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """The number of each message's last delivery."""
    firsts: defaultdict[bytes | None, _Firsts] = field(
        default_factory=lambda: defaultdict(_Firsts)
    )
    """Of each key, or of all messages."""
    done: dict[int, float] = field(default_factory=dict)
    """What consumers have acknowledged, and when."""
    not_before: dict[int, float] = field(default_factory=dict)
    """What was given back with a delay."""


class SubscriptionWatch:
    """One subscription."""

    def __init__(self, book: SubscriptionBook, plan: SubscriptionPlan) -> None:
        self.book = book
        self.plan = plan
        self.life = _Life()
        self.confirmed: dict[int, float] = {}
        """What the broker has said to be done for good, and when."""
        self.acknowledged: set[int] = set()
        """What anybody has ever acknowledged."""
        self.failed: set[int] = set()
        """What was given back, or was with a consumer for too long, at any time."""
        self.handled: set[int] = set()
        """What was delivered or acknowledged, since somebody last cleared it."""
        self.skip_count = 0
        """How many messages were skipped, at most."""
        self.sought_at: float | None = None
        """When it was last moved elsewhere."""
        self.seek_count = 0
        """Of how many seeks nobody knows what became of them."""
        self.paused_at: float | None = None
        self.may_drop = False
        """Whether it ever gave up on messages that failed too often."""
        policy = plan.policy or FailurePolicy()
        self.ack_timeout_s = plan.ack_timeout_s or policy.ack_timeout_s or float("inf")
        """The shortest that ever held."""
        self.delay_s_max = policy.redelivery_delay_s_max
        self.may_drop = policy.poison is PoisonPolicy.DROP

    @property
    def key(self) -> str:
        """What the trace calls it."""
        return self.book.key

    def is_overdue(self, flight: _Flight, now: float) -> bool:
        """Whether the consumer may have lost the message to its ack timeout."""
        return now - flight.since >= self.ack_timeout_s - SENDING_S_MAX

    def land(self, offsets: Iterable[int], now: float) -> None:
        """These messages are no longer with a consumer."""
        for offset in offsets:
            flight = self.life.flights.pop(offset, None)
            if flight is not None and self.is_overdue(flight, now):
                self.failed.add(offset)

    def begin_anew(self) -> None:
        """The broker has moved elsewhere: what it did before means nothing now."""
        life = self.life
        self.life = _Life(consumers=life.consumers)
        self.confirmed.clear()


class Watch:
    """All subscriptions."""

    def __init__(
        self,
        ledger: Ledger,
        verdict: Verdict,
        plans: Iterable[SubscriptionPlan],
        *,
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int | None],
        note: Callable[[str, str], None],
    ) -> None:
        self.subscriptions = {
            (each.topic, each.name): SubscriptionWatch(
                ledger.subscriptions[each.topic, each.name], each
            )
            for each in plans
        }
        self.delivery_count = 0
        self.redelivery_count = 0
        self._ledger = ledger
        self._verdict = verdict
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._note = note
        self._places: dict[Place, SubscriptionWatch] = {}
        self._openings: dict[str, deque[float]] = defaultdict(deque)

    # The broker's process and machine.

    def on_broker_gone(self) -> None:
        """The broker's process has ended, and all it knew with it."""
        for watch in self.subscriptions.values():
            watch.land(list(watch.life.flights), self._clock())
            watch.life = _Life()
            if watch.seek_count:
                watch.seek_count, watch.sought_at = 0, self._clock()
        self._places.clear()

    def on_power_lost(self) -> None:
        """What topics promise only as long as there is power, is over."""
        for watch in self.subscriptions.values():
            if not watch.book.topic.is_durable:
                watch.confirmed.clear()

    # What consumers do, and what is done with them.

    def on_opened(self, place: Place, asked: Any, cursor: int) -> None:
        """The broker has let a consumer in."""
        watch = self.subscriptions[asked.topic, asked.subscription]
        watch.life.consumers[place] = _Consumer(place, asked.name)
        self._places[place] = watch
        if watch.book.start is None:
            watch.book.start = cursor
            self._note(watch.key, f"begins at {cursor}")

    def on_credit(self, place: Place, messages: int) -> None:
        """A consumer asks for more."""
        found = self._find(place)
        if found is not None:
            found[1].credit += messages

    def on_acks(self, place: Place, ranges: Iterable[Range], through: int) -> set[int]:
        """A consumer says that messages are done; returns which."""
        offsets = {at for base, end in ranges for at in range(base, end)}
        found = self._find(place)
        if found is None:
            return offsets
        watch = found[0]
        if not watch.book.topic.is_reliable:
            # Nothing of it is kept, so what it says of another life means nothing.
            return set()
        offsets |= {at for at in watch.life.attempts if at < through}
        watch.handled |= offsets
        self._settle(watch, offsets)
        return offsets

    def on_marked(self, topic: str, subscription: str, offsets: set[int]) -> None:
        """An administrator says that messages are done."""
        watch = self.subscriptions[topic, subscription]
        watch.acknowledged |= offsets
        self._settle(watch, offsets)

    def on_confirmed(self, watch: SubscriptionWatch, offsets: set[int]) -> None:
        """The broker says that acks are on its disk."""
        for offset in offsets:
            watch.confirmed.setdefault(offset, self._clock())

    def on_nack(self, place: Place, ranges: Iterable[Range], delay_s: float) -> None:
        """A consumer gives messages back."""
        found = self._find(place)
        if found is None:
            return
        watch, now = found[0], self._clock()
        offsets = {at for base, end in ranges for at in range(base, end)}
        flights = watch.life.flights
        in_flight = [at for at in flights if at in offsets]
        # A message that was taken back before is not the consumer's to delay.
        delayed = [at for at in in_flight if not watch.is_overdue(flights[at], now)]
        watch.failed |= offsets
        watch.land(in_flight, now)
        for offset in delayed:
            watch.life.not_before[offset] = now + min(delay_s, watch.delay_s_max)

    def on_gone(self, place: Place) -> None:
        """A consumer has left, or was told to."""
        found = self._find(place)
        if found is not None:
            watch = found[0]
            del watch.life.consumers[place]
            flights = watch.life.flights.items()
            watch.land(
                [at for at, each in flights if each.place == place], self._clock()
            )

    def on_link_lost(self, number: int) -> None:
        """The broker knows that a connection is gone."""
        for place in [each for each in self._places if each[0] == number]:
            self.on_gone(place)

    def watch_of(self, place: Place) -> SubscriptionWatch | None:
        """The subscription of the consumer that is, or was, at *place*."""
        return self._places.get(place)

    def on_producer_opens(self, name: str) -> None:
        """A producer tries to get in."""
        times = self._openings[name]
        times.append(self._clock())
        if len(times) > OPENINGS_MAX and times[0] > self._clock() - 1.0:
            self._verdict.add(
                "who is refused waits before trying again",
                f"{name} was opened {OPENINGS_MAX} times in a second",
            )
        if len(times) > OPENINGS_MAX:
            times.popleft()

    # What administrators do.

    def on_seek(self, watch: SubscriptionWatch) -> None:
        """The subscription is moved elsewhere, at any time until the answer."""
        watch.begin_anew()
        watch.sought_at = self._clock()
        watch.seek_count += 1

    def on_sought(self, watch: SubscriptionWatch) -> None:
        """It is done, or will not be."""
        watch.begin_anew()
        watch.sought_at = self._clock()
        watch.seek_count -= 1

    def on_skip(self, watch: SubscriptionWatch, count: int) -> None:
        """The next messages are done, or will be soon, or not."""
        watch.skip_count += count

    def on_paused(self, watch: SubscriptionWatch) -> None:
        """The broker says that it delivers nothing any more."""
        watch.paused_at = self._clock()

    def on_resumed(self, watch: SubscriptionWatch) -> None:
        """It is to deliver again."""
        watch.paused_at = None

    def on_policy(self, watch: SubscriptionWatch, policy: FailurePolicy) -> None:
        """Another failure policy holds, or will soon, or not."""
        if policy.ack_timeout_s is not None:
            watch.ack_timeout_s = min(watch.ack_timeout_s, policy.ack_timeout_s)
        watch.delay_s_max = min(watch.delay_s_max, policy.redelivery_delay_s_max)
        watch.may_drop |= policy.poison is PoisonPolicy.DROP
        # What was delayed under the old one may come at once.
        watch.life.not_before.clear()

    # Deliveries.

    def on_delivery(
        self, place: Place, messages: Sequence[Delivered], attempt: int
    ) -> None:
        """The broker sends messages to a consumer."""
        found = self._find(place)
        if found is None:
            self._verdict.add(
                "only open consumers get messages",
                f"link {place[0]} channel {place[1]} has none",
            )
            return
        watch, consumer = found
        life, now = watch.life, self._clock()
        for message in messages:
            offset = message.offset
            consumer.credit -= 1
            self._check_delivery(watch, consumer, message, attempt)
            watch.land([offset], now)
            life.attempts[offset] = attempt
            life.not_before.pop(offset, None)
            if watch.book.topic.is_reliable:
                # Elsewhere what is sent is done.
                life.flights[offset] = _Flight(place, now, message.key)
            watch.handled.add(offset)
        self.delivery_count += len(messages)
        self.redelivery_count += len(messages) * (attempt > 1)
        self._check_amounts(watch, consumer)

    def has_excuse(self, topic: str, subscription: str, offset: int) -> bool:
        """Whether a message may come later than it is in turn."""
        watch = self.subscriptions[topic, subscription]
        flight = watch.life.flights.get(offset)
        return (
            watch.sought_at is not None
            or watch.skip_count > 0
            or offset in watch.failed
            or offset in watch.acknowledged
            or (flight is not None and watch.is_overdue(flight, self._clock()))
        )

    def check_done(
        self, topic: str, subscription: str, begin: int, end: int, parked: set[int]
    ) -> None:
        """Everything from *begin* to *end* was done for a reason."""
        watch = self.subscriptions[topic, subscription]
        left = [at for at in range(begin, end) if not self._is_answered(watch, at)]
        left = [at for at in left if at not in parked]
        if len(left) > watch.skip_count:
            self._verdict.add(
                "what is stored is delivered at least once to every subscription",
                f"{watch.key}: nobody acknowledged {left[:10]} of {begin} to {end}",
            )

    def _is_answered(self, watch: SubscriptionWatch, offset: int) -> bool:
        return offset in watch.acknowledged or (
            watch.may_drop and offset in watch.failed
        )

    def _settle(self, watch: SubscriptionWatch, offsets: set[int]) -> None:
        life, now = watch.life, self._clock()
        if not watch.book.topic.is_durable:
            # A consumer may speak of a message that was lost with its offset.
            offsets = offsets & life.attempts.keys()
        watch.acknowledged |= offsets
        for offset in offsets:
            life.done.setdefault(offset, now)
        watch.land([at for at in life.flights if at in offsets], now)

    def _find(self, place: Place) -> tuple[SubscriptionWatch, _Consumer] | None:
        watch = self._places.get(place)
        consumer = None if watch is None else watch.life.consumers.get(place)
        return None if watch is None or consumer is None else (watch, consumer)

    # The rules.

    def _check_delivery(
        self,
        watch: SubscriptionWatch,
        consumer: _Consumer,
        message: Delivered,
        attempt: int,
    ) -> None:
        life, add, offset = watch.life, self._verdict.add, message.offset
        now = self._clock()
        who = f"{watch.key}: {offset} goes to {consumer.name}"
        settled_at = now - SENDING_S_MAX
        if watch.confirmed.get(offset, settled_at) < settled_at:
            add("what is confirmed to be done never comes again", who)
        elif life.done.get(offset, settled_at) < settled_at:
            add("what was acknowledged does not come again", who)
        flight = life.flights.get(offset)
        if flight is not None and not watch.is_overdue(flight, now):
            add(
                "a message is with one consumer at a time",
                f"{who}, and {flight.place} has had it since {flight.since:.6f}",
            )
        if attempt <= life.attempts.get(offset, 0):
            add(
                "every delivery of a message has a higher number",
                f"{who} with number {attempt} again",
            )
        if now < life.not_before.get(offset, now) - 1e-6:
            add(
                "what was given back with a delay comes no sooner",
                f"{who}, due at {life.not_before[offset]:.6f}",
            )
        if watch.paused_at is not None and watch.paused_at < settled_at:
            add(
                "a paused subscription delivers nothing",
                f"{who}, paused since {watch.paused_at:.6f}",
            )
        # What was skipped may be with a consumer, and holds its key no more.
        if watch.book.type is SubscriptionType.KEY_SHARED and not watch.skip_count:
            self._check_key(watch, consumer, message, who)
        self._check_order(watch, consumer.place[0], message, attempt, who)
        self._check_window(message, who)

    def _check_key(
        self,
        watch: SubscriptionWatch,
        consumer: _Consumer,
        message: Delivered,
        who: str,
    ) -> None:
        now = self._clock()
        for at, flight in watch.life.flights.items():
            if (
                flight.key == message.key
                and flight.place != consumer.place
                and at != message.offset
                and not watch.is_overdue(flight, now)
            ):
                self._verdict.add(
                    "the messages of a key are with one consumer at a time",
                    f"{who}, and {at} of the same key is with {flight.place}",
                )

    def _check_order(
        self,
        watch: SubscriptionWatch,
        link: int,
        message: Delivered,
        attempt: int,
        who: str,
    ) -> None:
        life, offset = watch.life, message.offset
        if attempt > 1 or message.deliver_at is not None:
            return
        is_by_key = watch.book.type is SubscriptionType.KEY_SHARED
        key = message.key if is_by_key else None
        end = life.firsts[key].add(offset, link, self._clock())
        if end is not None:
            self._verdict.add(
                "new messages come in the order of the topic",
                f"{who} for the first time, behind {end - 1}",
            )

    def _check_window(self, message: Delivered, who: str) -> None:
        now = self._wall_clock_us()
        if now is None:
            return
        if message.deliver_at is not None and now < message.deliver_at - _CLOCK_US:
            self._verdict.add(
                "a delayed message comes no sooner than it is due",
                f"{who}, {message.deliver_at - now} microseconds early",
            )
        slack = int(SENDING_S_MAX * 1_000_000)
        if message.expires_at is not None and now > message.expires_at + slack:
            self._verdict.add(
                "an expired message is not delivered",
                f"{who}, {now - message.expires_at} microseconds late",
            )

    def _check_amounts(self, watch: SubscriptionWatch, consumer: _Consumer) -> None:
        if consumer.credit < 0:
            self._verdict.add(
                "a consumer gets no more than it asked for",
                f"{watch.key}: {consumer.name} got {-consumer.credit} too many",
            )
        limits = watch.plan.limits
        if limits is None:
            return
        now = self._clock()
        taken: dict[Place, int] = defaultdict(int)
        for offset, flight in watch.life.flights.items():
            # What was done while it was on its way again is no burden.
            if offset not in watch.life.done and not watch.is_overdue(flight, now):
                taken[flight.place] += 1
        # What was skipped may still be with a consumer.
        each_max = limits.unacked_messages_max_per_consumer or 1_000_000
        all_max = limits.unacked_messages_max or 1_000_000
        each_max, all_max = each_max + watch.skip_count, all_max + watch.skip_count
        most = max(taken.values(), default=0)
        if sum(taken.values()) > all_max or most > each_max:
            self._verdict.add(
                "no more is unacknowledged than the limits allow",
                f"{watch.key}: {dict(taken)}, allowed are {all_max} and {each_max}",
            )
