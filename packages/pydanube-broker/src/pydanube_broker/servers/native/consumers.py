"""The consumers of a native connection: credit, deliveries and acknowledgements."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydanube.model.connections import ConnectionMember
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import Range
from pydanube.model.shown_text import excerpt
from pydanube.wire.batches import BatchFrame
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import (
    RANGES_MAX,
    bits_from_wire,
    ranges_from_wire,
)
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.delivery.subscription import Consumer, Subscription
from pydanube_broker.broker.delivery.subscription_settings import DURATION_S_MAX
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.dispatch.quota_meter import credit_bytes_of, delay_out_s, take_out
from pydanube_broker.operations.quota_holds import QuotaHold
from pydanube_broker.servers.native.link import Channel, ClientLink

log = logging.getLogger(__name__)

CREDIT_BYTES_MAX = 16 * 1024 * 1024
"""The maximum number of bytes of credit that the subscription has at a time."""
RANGES_PER_TURN = 1000
"""The number of ranges of a frame applied in one turn of the event loop."""
REASON_CHARACTERS_MAX = 1024
"""The maximum length of a NACK's reason; longer reasons end in an ellipsis."""


class ConsumerChannel(Channel):
    """One consumer of one connection; implements ``ConsumerPort``."""

    __slots__ = (
        *("_granted_bytes", "_hold", "_owed_bytes", "_owed_messages"),
        *("consumer", "subscription", "topic"),
    )

    def __init__(
        self,
        link: ClientLink,
        number: int,
        topic: Topic,
        subscription: Subscription,
    ) -> None:
        super().__init__(link, number)
        self.topic = topic
        self.subscription = subscription
        self.consumer: Consumer | None = None
        # Credit from the client that the subscription does not have yet, and the
        # bytes that the subscription may still deliver.
        self._owed_messages = 0
        self._owed_bytes = 0
        self._granted_bytes = 0
        # Set while quotas keep credit back.
        self._hold = QuotaHold(link.loop, self._owed_s, self.grant)

    @property
    def member(self) -> tuple[TopicName, ConnectionMember] | None:
        if self.consumer is None:
            return None
        topic = self.topic.name
        return topic, ConnectionMember(
            topic=str(topic),
            name=self.consumer.name,
            subscription=self.subscription.name,
        )

    def on_frame(self, frame: ReceivedFrame) -> None:
        message: Any = frame.message
        if frame.kind is Kind.CREDIT:
            self._owed_messages += message.messages
            self._owed_bytes += message.bytes
            self.grant()
        else:
            self._settle(frame, message)

    def grant(self) -> None:
        """
        Pass credit on to the subscription, if the client reads what it is sent.

        A client may give any credit.  The transport's buffer limit and one grant bound
        the bytes that wait for the client.
        """
        most = self._credit_bytes_max()
        byte_count = min(self._owed_bytes, most - self._granted_bytes)
        if (
            self.consumer is None
            or self._hold.is_held
            or not self._link.can_write
            or (byte_count <= 0 and not self._owed_messages)
        ):
            return
        messages, self._owed_messages = self._owed_messages, 0
        byte_count = max(0, byte_count)
        self._owed_bytes -= byte_count
        self._granted_bytes += byte_count
        self.subscription.credit(self.consumer, messages, byte_count)

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        self._granted_bytes -= frame.plain_bytes
        self._charge(self._link.deliver(self._number, frame, attempt))
        if self._owed_bytes and self._granted_bytes * 2 < self._credit_bytes_max():
            self.grant()

    def _credit_bytes_max(self) -> int:
        meters = self._link.meters_out(self.topic)
        return credit_bytes_of(meters, CREDIT_BYTES_MAX) if meters else CREDIT_BYTES_MAX

    def _charge(self, byte_count: int) -> None:
        """Charge delivered bytes to quotas; keep credit back until they are due."""
        if meters := self._link.meters_out(self.topic):
            delay_s = take_out(meters, byte_count, self._link.loop.time())
            if delay_s > 0:
                self._hold.extend(delay_s)

    def _owed_s(self, now: float) -> float:
        return delay_out_s(self._link.meters_out(self.topic), now)

    def set_state(self, *, is_active: bool, ack_timeout_s: float | None) -> None:
        state = pb.ConsumerState(is_active=is_active, ack_timeout_s=ack_timeout_s or 0)
        self._link.send_on(self._number, Kind.CONSUMER_STATE, state)

    def close(self, reason: BrokerError) -> None:
        self._link.close_channel(self._number, reason)

    def leave(self) -> None:
        self._hold.end()
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            self.subscription.detach(consumer)

    def _settle(self, frame: ReceivedFrame, message: Any) -> None:
        """Apply an ACK, NACK, EXTEND or RELEASE."""
        try:
            sent, bits = message.ranges, 0
            if (
                frame.kind is Kind.ACK
                and self.subscription.type is SubscriptionType.KEY_SHARED
                and not sent.base
                and not sent.end
            ):
                # Its machine keeps messages as bits, too.
                bits, ranges = bits_from_wire(sent), []
            else:
                ranges = ranges_from_wire(sent, RANGES_MAX)
        except InvalidRequest as error:
            if frame.correlation:
                self._link.answer(frame, self._link.server.error(error))
            else:
                self._link.close_channel(self._number, error)
            return
        subscription = self.subscription
        match frame.kind:
            case Kind.EXTEND:
                # An invalid time counts as 0.
                asked_s = message.ack_timeout_s if message.ack_timeout_s > 0 else 0.0
                timeout_s = min(asked_s, DURATION_S_MAX) or None
                self._apply_ranges(ranges, partial(self._extend, timeout_s))
            case Kind.RELEASE:
                self._apply_ranges(ranges, self._release)
            case Kind.NACK:
                # An invalid delay counts as 0.
                delay_s = message.delay_s if 0 < message.delay_s < float("inf") else 0.0
                reason = excerpt(message.reason, REASON_CHARACTERS_MAX)
                nack = partial(subscription.nack, delay_s=delay_s, reason=reason)
                self._apply_ranges(ranges, nack)
            case _ if bits:
                subscription.ack_bits(sent.origin, bits)
                self._finish_ack(frame, message.through)
            case _:
                self._apply_ranges(
                    ranges,
                    partial(subscription.ack, through=0),
                    partial(self._finish_ack, frame, message.through),
                )

    def _extend(self, ack_timeout_s: float | None, ranges: Sequence[Range]) -> None:
        if self.consumer is not None:
            self.subscription.extend(self.consumer, ranges, ack_timeout_s)

    def _release(self, ranges: Sequence[Range]) -> None:
        if self.consumer is not None:
            self.subscription.release_messages(self.consumer, ranges)

    def _finish_ack(self, frame: ReceivedFrame, through: int) -> None:
        self.subscription.ack((), through)
        if frame.correlation:
            self.subscription.save_cursor_now(partial(self._on_saved, frame))

    def _on_saved(self, frame: ReceivedFrame, error: BrokerError | None) -> None:
        link = self._link
        link.answer(frame, link.server.error(error) if error else pb.Ok())

    def _apply_ranges(
        self,
        ranges: Sequence[Range],
        apply: Callable[[Sequence[Range]], None],
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """Call *apply* with all ranges, in several turns if there are many."""
        if len(ranges) <= RANGES_PER_TURN:
            apply(ranges)
            finish()
            return
        self._link.pause("ranges")
        self._link.server.run(self._apply_in_turns(ranges, apply, finish))

    async def _apply_in_turns(
        self,
        ranges: Sequence[Range],
        apply: Callable[[Sequence[Range]], None],
        finish: Callable[[], None],
    ) -> None:
        try:
            for at in range(0, len(ranges), RANGES_PER_TURN):
                apply(ranges[at : at + RANGES_PER_TURN])
                await asyncio.sleep(0)
            finish()
        except Exception:
            peer = self._link.peer
            log.exception("closing the connection of %s after a failure", peer)
            self._link.abort()
        self._link.unpause("ranges")
