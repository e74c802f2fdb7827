"""
The rules of deliveries, checked for every subscription.

The wiretap reports the frames at the broker's end of the connections, in order: the
requests of consumers and administrators, deliveries and confirmations.  They determine
which messages may be delivered, when, how often and to which consumer; and, at the end,
that every message was done for a reason.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydanube.model.policy import FailurePolicy, PoisonPolicy, SubscriptionType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydanube.model.ranges import Range
    from simulation.ledger import Ledger, SubscriptionHistory, Violations
    from simulation.plan import SubscriptionPlan

OPENINGS_MAX = 60
"""The most times that a producer may be opened in a second."""
SENDING_S_MAX = 0.3
"""The time between deciding and sending a delivery, to read segments."""
READ_RETRY_S_MAX = 30.0
"""The longest pause before a failed read of a segment is repeated."""

_CLOCK_US = 1000
"""The tolerance of comparisons of clocks."""

ChannelId = tuple[int, int]
"""A consumer's link and channel."""


@dataclass(slots=True)
class Delivered:
    """The properties of a delivered message that the rules need."""

    offset: int
    key: bytes
    """The key by which key-shared subscriptions choose the consumer."""
    deliver_at: int | None = None
    expires_at: int | None = None


@dataclass(slots=True)
class _Consumer:
    channel: ChannelId
    name: str
    credit: int = 0


@dataclass(slots=True)
class _InFlight:
    """A message that a consumer has."""

    channel: ChannelId
    since: float
    key: bytes
    keep_until: float = 0.0
    """The time until which the consumer has asked to keep it."""


@dataclass(slots=True)
class _Firsts:
    """
    The end of the messages that were delivered for the first time.

    Deliveries at the same moment on different connections have no order, because each
    connection has its own outbox.
    """

    now: float = -1.0
    end_before: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    """The end of the deliveries at *now*, by connection."""

    def add(self, offset: int, link: int, now: float) -> int | None:
        """Note a delivery; return the end of earlier ones if it is out of order."""
        if now > self.now:
            self.end_before = max([self.end_before, *self.ends.values()])
            self.now, self.ends = now, {}
        end = max(self.end_before, self.ends.get(link, 0))
        self.ends[link] = max(end, offset + 1)
        return end if offset < end else None


@dataclass(slots=True)
class _Session:
    """The deliveries of a subscription since the broker's start or the last seek."""

    consumers: dict[ChannelId, _Consumer] = field(default_factory=dict)
    in_flight: dict[int, _InFlight] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """The number of each message's last delivery."""
    firsts: defaultdict[bytes | None, _Firsts] = field(
        default_factory=lambda: defaultdict(_Firsts)
    )
    """By key, or of all messages under None."""
    done: dict[int, float] = field(default_factory=dict)
    """The time of the ack of each message."""
    not_before: dict[int, float] = field(default_factory=dict)
    """The earliest redelivery of messages that were nacked with a delay."""


class SubscriptionWatch:
    """The observations of one subscription."""

    def __init__(self, history: SubscriptionHistory, plan: SubscriptionPlan) -> None:
        self.history = history
        self.plan = plan
        self.session = _Session()
        self.confirmed: dict[int, float] = {}
        """The time at which the broker confirmed that a message is done for ever."""
        self.acknowledged: set[int] = set()
        """All messages that were ever acknowledged."""
        self.failed: set[int] = set()
        """All messages that were ever nacked or timed out."""
        self.handled: set[int] = set()
        """Messages that were delivered or acknowledged since this was cleared."""
        self.skip_count = 0
        """The most messages that may have been skipped."""
        self.last_seek_at: float | None = None
        """The time of the last seek."""
        self.seek_count = 0
        """The number of seeks whose result is unknown."""
        self.paused_at: float | None = None
        self.may_drop = False
        """Whether a policy has ever allowed to drop failed messages."""
        policy = plan.policy or FailurePolicy()
        self.ack_timeout_s = plan.ack_timeout_s or policy.ack_timeout_s or float("inf")
        """The shortest ack timeout that ever applied."""
        self.may_shorten = "policy" in plan.operations
        """Whether policies may shorten at any time what a consumer has extended."""
        self.delay_s_max = policy.redelivery_delay_s_max
        self.may_drop = policy.poison is PoisonPolicy.DROP

    @property
    def key(self) -> str:
        """The name in the trace."""
        return self.history.key

    def is_overdue(self, flight: _InFlight, now: float) -> bool:
        """Return whether the message may have timed out."""
        deadline = max(flight.since + self.ack_timeout_s, flight.keep_until)
        return now >= deadline - SENDING_S_MAX

    def remove_in_flight(self, offsets: Iterable[int], now: float) -> None:
        """Note that *offsets* are no longer with a consumer."""
        for offset in offsets:
            flight = self.session.in_flight.pop(offset, None)
            if flight is not None and self.is_overdue(flight, now):
                self.failed.add(offset)

    def reset(self) -> None:
        """Forget earlier deliveries after a seek."""
        session = self.session
        self.session = _Session(consumers=session.consumers)
        self.confirmed.clear()


class Watch:
    """Observes all subscriptions and checks the rules."""

    def __init__(
        self,
        ledger: Ledger,
        violations: Violations,
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
        self.remote_failed_at: Callable[[], float] = lambda: float("-inf")
        """Returns when a request to the remote object store has last failed."""
        self._ledger = ledger
        self._violations = violations
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._note = note
        self._channels: dict[ChannelId, SubscriptionWatch] = {}
        self._openings: dict[str, deque[float]] = defaultdict(deque)

    # The broker's process and machine.

    def on_broker_ended(self) -> None:
        """Handle that the broker's process has ended and lost its memory."""
        for watch in self.subscriptions.values():
            watch.remove_in_flight(list(watch.session.in_flight), self._clock())
            watch.session = _Session()
            if watch.seek_count:
                watch.seek_count, watch.last_seek_at = 0, self._clock()
        self._channels.clear()

    def on_power_lost(self) -> None:
        """Handle that topics without sync to disk may have lost messages."""
        for watch in self.subscriptions.values():
            if not watch.history.topic.is_durable:
                watch.confirmed.clear()

    # Consumers.

    def on_opened(self, channel: ChannelId, request: Any, cursor: int) -> None:
        """Handle that the broker has opened a consumer."""
        watch = self.subscriptions[request.topic, request.subscription]
        watch.session.consumers[channel] = _Consumer(channel, request.name)
        self._channels[channel] = watch
        if watch.history.start is None:
            watch.history.start = cursor
            self._note(watch.key, f"begins at {cursor}")

    def on_credit(self, channel: ChannelId, messages: int) -> None:
        """Handle that a consumer gives credit."""
        found = self._find(channel)
        if found is not None:
            found[1].credit += messages

    def on_acks(
        self, channel: ChannelId, ranges: Iterable[Range], through: int
    ) -> set[int]:
        """Handle the acks of a consumer; return the offsets."""
        offsets = {at for base, end in ranges for at in range(base, end)}
        found = self._find(channel)
        if found is None:
            return offsets
        watch = found[0]
        if not watch.history.topic.is_reliable:
            # Nothing is stored, so acks from before a restart mean nothing.
            return set()
        offsets |= {at for at in watch.session.attempts if at < through}
        watch.handled |= offsets
        self._settle(watch, offsets)
        return offsets

    def on_marked(
        self, topic: str, subscription: str, offsets: set[int]
    ) -> Callable[[], None]:
        """
        Handle that an administrator marks messages as done.

        Call what is returned if the broker refuses that: they may be delivered again.
        """
        watch = self.subscriptions[topic, subscription]
        session = watch.session
        new = offsets - session.done.keys()
        watch.acknowledged |= offsets
        self._settle(watch, offsets)

        def on_refused() -> None:
            for offset in new:
                session.done.pop(offset, None)

        return on_refused

    def confirmation(
        self, watch: SubscriptionWatch, offsets: set[int]
    ) -> Callable[[], None]:
        """Return what to call when the broker confirms that acks are on disk."""
        session = watch.session

        def on_confirmed() -> None:
            # A seek after the acks undoes them, whether its own answer arrives or not.
            if watch.session is session:
                for offset in offsets:
                    watch.confirmed.setdefault(offset, self._clock())

        return on_confirmed

    def on_nack(
        self, channel: ChannelId, ranges: Iterable[Range], delay_s: float
    ) -> None:
        """Handle the nacks of a consumer."""
        found = self._find(channel)
        if found is None:
            return
        watch, now = found[0], self._clock()
        offsets = {at for base, end in ranges for at in range(base, end)}
        in_flight = watch.session.in_flight
        affected = [at for at in in_flight if at in offsets]
        # A consumer cannot delay a message that has timed out before.
        delayed = [at for at in affected if not watch.is_overdue(in_flight[at], now)]
        watch.failed |= offsets
        watch.remove_in_flight(affected, now)
        for offset in delayed:
            watch.session.not_before[offset] = now + min(delay_s, watch.delay_s_max)

    def on_release(self, channel: ChannelId, ranges: Iterable[Range]) -> None:
        """Handle that a consumer gives messages back."""
        found = self._find(channel)
        if found is not None:
            watch = found[0]
            in_flight = watch.session.in_flight
            offsets = {at for base, end in ranges for at in range(base, end)}
            watch.remove_in_flight(
                [
                    at
                    for at in offsets & in_flight.keys()
                    if in_flight[at].channel == channel
                ],
                self._clock(),
            )

    def on_extend(
        self, channel: ChannelId, ranges: Iterable[Range], ack_timeout_s: float
    ) -> None:
        """Handle that a consumer asks for more time, for what it surely still has."""
        found = self._find(channel)
        if found is None or found[0].may_shorten:
            return
        watch, now = found[0], self._clock()
        timeout_s = ack_timeout_s or watch.ack_timeout_s
        for at in {at for base, end in ranges for at in range(base, end)}:
            flight = watch.session.in_flight.get(at)
            if (
                flight is not None
                and flight.channel == channel
                and not watch.is_overdue(flight, now)
            ):
                flight.keep_until = max(flight.keep_until, now + timeout_s)

    def on_closed(self, channel: ChannelId) -> None:
        """Handle that a consumer has left or was closed."""
        found = self._find(channel)
        if found is not None:
            watch = found[0]
            del watch.session.consumers[channel]
            in_flight = watch.session.in_flight.items()
            watch.remove_in_flight(
                [at for at, each in in_flight if each.channel == channel], self._clock()
            )

    def on_link_lost(self, number: int) -> None:
        """Handle that the broker has noticed the loss of a connection."""
        for channel in [each for each in self._channels if each[0] == number]:
            self.on_closed(channel)

    def watch_of(self, channel: ChannelId) -> SubscriptionWatch | None:
        """Return the subscription of the consumer that is, or was, at *channel*."""
        return self._channels.get(channel)

    def on_producer_opens(self, name: str) -> None:
        """Handle that a producer tries to open."""
        times = self._openings[name]
        times.append(self._clock())
        if len(times) > OPENINGS_MAX and times[0] > self._clock() - 1.0:
            self._violations.add(
                "refused producers wait before they retry",
                f"{name} was opened {OPENINGS_MAX} times in a second",
            )
        if len(times) > OPENINGS_MAX:
            times.popleft()

    # Administrators.

    def on_seek(self, watch: SubscriptionWatch) -> None:
        """Handle the request of a seek, which happens some time before its answer."""
        watch.reset()
        watch.last_seek_at = self._clock()
        watch.seek_count += 1

    def on_seek_answered(self, watch: SubscriptionWatch) -> None:
        """Handle the answer to a seek."""
        watch.reset()
        watch.last_seek_at = self._clock()
        watch.seek_count -= 1

    def on_skip(self, watch: SubscriptionWatch, count: int) -> None:
        """Handle the request to skip messages."""
        watch.skip_count += count

    def on_paused(self, watch: SubscriptionWatch) -> None:
        """Handle that the broker confirms a pause."""
        watch.paused_at = self._clock()

    def on_resumed(self, watch: SubscriptionWatch) -> None:
        """Handle the request to resume deliveries."""
        watch.paused_at = None

    def on_policy(self, watch: SubscriptionWatch, policy: FailurePolicy) -> None:
        """Handle the request of a new failure policy."""
        if policy.ack_timeout_s is not None:
            watch.ack_timeout_s = min(watch.ack_timeout_s, policy.ack_timeout_s)
        # A timeout of the consumers replaces that of the policy here as well.
        latest = self._clock() + watch.ack_timeout_s
        for flight in watch.session.in_flight.values():
            flight.keep_until = min(flight.keep_until, latest)
        watch.delay_s_max = min(watch.delay_s_max, policy.redelivery_delay_s_max)
        watch.may_drop |= policy.poison is PoisonPolicy.DROP
        # Messages that the old policy delayed may be delivered at once.
        watch.session.not_before.clear()

    # Deliveries.

    def on_delivery(
        self, channel: ChannelId, messages: Sequence[Delivered], attempt: int
    ) -> None:
        """Check a delivery to a consumer."""
        found = self._find(channel)
        if found is None:
            self._violations.add(
                "only open consumers get messages",
                f"link {channel[0]} channel {channel[1]} has none",
            )
            return
        watch, consumer = found
        session, now = watch.session, self._clock()
        for message in messages:
            offset = message.offset
            consumer.credit -= 1
            self._check_delivery(watch, consumer, message, attempt)
            watch.remove_in_flight([offset], now)
            session.attempts[offset] = attempt
            session.not_before.pop(offset, None)
            if watch.history.topic.is_reliable:
                # In other topics, messages are done when they are sent.
                session.in_flight[offset] = _InFlight(channel, now, message.key)
            watch.handled.add(offset)
        self.delivery_count += len(messages)
        self.redelivery_count += len(messages) * (attempt > 1)
        self._check_amounts(watch, consumer)

    def is_explained(self, topic: str, subscription: str, offset: int) -> bool:
        """Return whether a message may be delivered out of order."""
        watch = self.subscriptions[topic, subscription]
        flight = watch.session.in_flight.get(offset)
        return (
            watch.last_seek_at is not None
            or watch.skip_count > 0
            or offset in watch.failed
            or offset in watch.acknowledged
            or (flight is not None and watch.is_overdue(flight, self._clock()))
        )

    def check_done(
        self, topic: str, subscription: str, begin: int, end: int, parked: set[int]
    ) -> None:
        """Check that each message from *begin* to *end* was done for a reason."""
        watch = self.subscriptions[topic, subscription]
        left = [at for at in range(begin, end) if not self._is_answered(watch, at)]
        left = [at for at in left if at not in parked]
        if len(left) > watch.skip_count:
            self._violations.add(
                "every stored message is delivered at least once to every subscription",
                f"{watch.key}: {left[:10]} of {begin} to {end} were not acknowledged",
            )

    def _is_answered(self, watch: SubscriptionWatch, offset: int) -> bool:
        return offset in watch.acknowledged or (
            watch.may_drop and offset in watch.failed
        )

    def _settle(self, watch: SubscriptionWatch, offsets: set[int]) -> None:
        session, now = watch.session, self._clock()
        if not watch.history.topic.is_durable:
            # A consumer may ack a message that was lost together with its offset.
            offsets = offsets & session.attempts.keys()
        watch.acknowledged |= offsets
        for offset in offsets:
            session.done.setdefault(offset, now)
        watch.remove_in_flight([at for at in session.in_flight if at in offsets], now)

    def _find(self, channel: ChannelId) -> tuple[SubscriptionWatch, _Consumer] | None:
        watch = self._channels.get(channel)
        consumer = None if watch is None else watch.session.consumers.get(channel)
        return None if watch is None or consumer is None else (watch, consumer)

    # The rules.

    def _check_delivery(
        self,
        watch: SubscriptionWatch,
        consumer: _Consumer,
        message: Delivered,
        attempt: int,
    ) -> None:
        session, add, offset = watch.session, self._violations.add, message.offset
        now = self._clock()
        who = f"{watch.key}: {offset} goes to {consumer.name}"
        settled_at = now - SENDING_S_MAX
        if watch.confirmed.get(offset, settled_at) < settled_at:
            add("messages that are confirmed as done are not delivered again", who)
        elif session.done.get(offset, settled_at) < settled_at:
            add("acknowledged messages are not delivered again", who)
        flight = session.in_flight.get(offset)
        if flight is not None and not watch.is_overdue(flight, now):
            add(
                "a message is with one consumer at a time",
                f"{who}, and {flight.channel} has had it since {flight.since:.6f}",
            )
        if attempt <= session.attempts.get(offset, 0):
            add(
                "each delivery of a message has a higher attempt",
                f"{who} with number {attempt} again",
            )
        if now < session.not_before.get(offset, now) - 1e-6:
            add(
                "nacked messages are not redelivered before their delay",
                f"{who}, due at {session.not_before[offset]:.6f}",
            )
        decided_at, failed_at = settled_at, self.remote_failed_at()
        if now - failed_at <= READ_RETRY_S_MAX:
            # The delivery may have been decided before the outage.
            decided_at = min(decided_at, failed_at - SENDING_S_MAX)
        if watch.paused_at is not None and watch.paused_at < decided_at:
            add(
                "a paused subscription delivers nothing",
                f"{who}, paused since {watch.paused_at:.6f}",
            )
        # A skipped message may be with a consumer, but no longer blocks its key.
        if watch.history.type is SubscriptionType.KEY_SHARED and not watch.skip_count:
            self._check_key(watch, consumer, message, who)
        self._check_order(watch, consumer.channel[0], message, attempt, who)
        self._check_window(message, who)

    def _check_key(
        self,
        watch: SubscriptionWatch,
        consumer: _Consumer,
        message: Delivered,
        who: str,
    ) -> None:
        now = self._clock()
        for at, flight in watch.session.in_flight.items():
            if (
                flight.key == message.key
                and flight.channel != consumer.channel
                and at != message.offset
                and not watch.is_overdue(flight, now)
            ):
                self._violations.add(
                    "the messages of a key are with one consumer at a time",
                    f"{who}, and {at} of the same key is with {flight.channel}",
                )

    def _check_order(
        self,
        watch: SubscriptionWatch,
        link: int,
        message: Delivered,
        attempt: int,
        who: str,
    ) -> None:
        session, offset = watch.session, message.offset
        if attempt > 1 or message.deliver_at is not None:
            return
        is_by_key = watch.history.type is SubscriptionType.KEY_SHARED
        key = message.key if is_by_key else None
        end = session.firsts[key].add(offset, link, self._clock())
        if end is not None:
            self._violations.add(
                "first deliveries are in the order of offsets",
                f"{who} for the first time, behind {end - 1}",
            )

    def _check_window(self, message: Delivered, who: str) -> None:
        now = self._wall_clock_us()
        if now is None:
            return
        if message.deliver_at is not None and now < message.deliver_at - _CLOCK_US:
            self._violations.add(
                "delayed messages are not delivered before they are due",
                f"{who}, {message.deliver_at - now} microseconds early",
            )
        slack = int(SENDING_S_MAX * 1_000_000)
        if message.expires_at is not None and now > message.expires_at + slack:
            self._violations.add(
                "expired messages are not delivered",
                f"{who}, {now - message.expires_at} microseconds late",
            )

    def _check_amounts(self, watch: SubscriptionWatch, consumer: _Consumer) -> None:
        if consumer.credit < 0:
            self._violations.add(
                "consumers get no more messages than their credit",
                f"{watch.key}: {consumer.name} got {-consumer.credit} too many",
            )
        limits = watch.plan.limits
        if limits is None:
            return
        now = self._clock()
        taken: dict[ChannelId, int] = defaultdict(int)
        for offset, flight in watch.session.in_flight.items():
            # Messages that became done during a redelivery do not count.
            if offset not in watch.session.done and not watch.is_overdue(flight, now):
                taken[flight.channel] += 1
        # Skipped messages may still be with a consumer.
        each_max = limits.unacked_messages_max_per_consumer or 1_000_000
        all_max = limits.unacked_messages_max or 1_000_000
        each_max, all_max = each_max + watch.skip_count, all_max + watch.skip_count
        most = max(taken.values(), default=0)
        if sum(taken.values()) > all_max or most > each_max:
            self._violations.add(
                "unacknowledged messages do not exceed the limits",
                f"{watch.key}: {dict(taken)}, allowed are {all_max} and {each_max}",
            )
