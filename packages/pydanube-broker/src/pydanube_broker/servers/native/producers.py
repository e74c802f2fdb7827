"""The producers of a native connection: publishing, flow control and receipts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from pydanube.model.connections import ConnectionMember
from pydanube.model.errors import BrokerError
from pydanube.model.names import TopicName
from pydanube.wire.batches import BatchFrame
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.pure.producer_session import ProducerSession
from pydanube_broker.servers.connections.errors import as_broker_error
from pydanube_broker.servers.native.link import Channel, ClientLink

HELD_BYTES_MAX = 16 * 1024 * 1024
"""
The connection stops reading if its producers hold more bytes of batches.

A producer holds batches that arrive faster than their topic accepts them.
"""
INLINE_CHECK_BYTES_MAX = 1024 * 1024
"""Batches that are longer before compression are checked in a thread."""
KEEPALIVE_INTERVAL_S = 5.0
"""The interval of empty receipts for a producer whose batches have to wait."""


class ProducerChannel(Channel):
    """One producer of one connection."""

    __slots__ = (
        *("_deduplicated", "_held", "_offsets", "_refusal", "_sequences"),
        *("_unanswered", "is_anonymous", "is_open", "session", "topic"),
    )

    def __init__(
        self,
        link: ClientLink,
        number: int,
        topic: Topic,
        session: ProducerSession,
        *,
        is_anonymous: bool,
    ) -> None:
        super().__init__(link, number)
        self.topic = topic
        self.session = session
        self.is_anonymous = is_anonymous
        self.is_open = True
        # The receipts for the next frame.
        self._sequences: list[int] = []
        self._offsets: list[int] = []
        self._deduplicated: list[pb.Deduplicated] = []
        # Batches that wait, and when they arrived.
        self._held: deque[tuple[BatchFrame, float]] = deque()
        # The sequences of the batches that the topic has taken and not stored yet; and
        # that of the batch that it has refused, with the reason.
        self._unanswered: set[int] = set()
        self._refusal: tuple[int, BrokerError] | None = None

    @property
    def member(self) -> tuple[TopicName, ConnectionMember] | None:
        topic = self.topic.name
        return topic, ConnectionMember(topic=str(topic), name=self.session.name)

    def on_frame(self, frame: ReceivedFrame) -> None:
        """Publish a batch, at once or when topic and memory allow it."""
        batch, link = frame.batch, self._link
        assert batch is not None
        link.charge_received(batch)
        if self._refusal is not None:
            return
        if batch.plain_bytes > link.batch_bytes_max:
            link.close_channel(self._number, link.too_long(batch))
            return
        now = link.loop.time()
        if self._held:
            self._hold(batch, now)
            return
        delay_s = self.topic.publish_delay_s(now)
        if (
            delay_s > 0
            or batch.plain_bytes > INLINE_CHECK_BYTES_MAX
            or not link.broker.topics.has_room
        ):
            self._hold(batch, now)
            link.pause_without_room("room", link.broker.topics)
            link.server.run(self._publish_held(delay_s))
            return
        self._publish(batch, now)

    def send_receipts(self) -> None:
        """Send the receipts of stored batches in one frame."""
        if not self.is_open or not self._sequences:
            return
        receipt = pb.Receipt(
            base_sequence=self._sequences,
            base_offset=self._offsets,
            deduplicated=self._deduplicated,
        )
        self._sequences, self._offsets, self._deduplicated = [], [], []
        self._link.send_on(self._number, Kind.RECEIPT, receipt)

    def finish(self) -> None:
        self.send_receipts()
        self.leave(forget=self.is_anonymous)

    def leave(self, *, forget: bool = False) -> None:
        """Drop held batches and end the session; see ``Producers.close``."""
        self.is_open = False
        self._drop_held()
        self._link.broker.producers.close(
            self.topic,
            self.session,
            forget=forget,
            # A client whose batch was refused goes on with the next one.
            may_return=self._link.is_lost or self._refusal is not None,
        )

    def _publish(self, batch: BatchFrame, arrived_at: float) -> None:
        sequence = batch.header.base_sequence
        on_published = partial(self._on_published, sequence, arrived_at)
        self._unanswered.add(sequence)
        try:
            self.topic.publish(self.session, batch, on_published)
        except BrokerError as error:
            self._refuse(sequence, error)

    def _refuse(self, sequence: int, reason: BrokerError) -> None:
        """
        Close the channel for *reason*, after the receipts of all batches before.

        Without them the client would take those for refused, too.
        """
        self._unanswered.discard(sequence)
        if self._refusal is None or sequence < self._refusal[0]:
            self._refusal = sequence, reason
        self._drop_held()
        self._close_if_refused()

    def _close_if_refused(self) -> None:
        if self._refusal is None:
            return
        sequence, reason = self._refusal
        if all(each > sequence for each in self._unanswered):
            self.send_receipts()
            self._link.close_channel(self._number, reason)

    def _drop_held(self) -> None:
        while self._held:
            self._release()

    def _hold(self, batch: BatchFrame, arrived_at: float) -> None:
        self._held.append((batch, arrived_at))
        self._link.held_bytes += batch.byte_count
        if self._link.held_bytes >= HELD_BYTES_MAX:
            self._link.pause("rate")

    def _release(self) -> None:
        if self._held:
            batch, _ = self._held.popleft()
            self._link.held_bytes -= batch.byte_count
            if self._link.held_bytes < HELD_BYTES_MAX:
                self._link.unpause("rate")

    async def _publish_held(self, delay_s: float) -> None:
        """Publish held batches as fast as topic and memory allow."""
        link = self._link
        while self._held and not link.is_lost:
            if delay_s > 0:
                await asyncio.sleep(min(delay_s, KEEPALIVE_INTERVAL_S))
                if self._held and delay_s > KEEPALIVE_INTERVAL_S:
                    # The client would take a silent broker for dead.
                    link.send_on(self._number, Kind.RECEIPT, pb.Receipt())
            else:
                batch, arrived_at = self._held[0]
                try:
                    await self._prepare(batch)
                except Exception as error:  # noqa: BLE001  # The client gets it.
                    if self.is_open:
                        doing = f"checking a batch of {self.topic.name}"
                        reason = as_broker_error(error, doing)
                        self._refuse(batch.header.base_sequence, reason)
                    return
                # The producer may have been closed meanwhile.
                if not self._held:
                    return
                self._publish(batch, arrived_at)
                self._release()
            delay_s = self.topic.publish_delay_s(link.loop.time())

    async def _prepare(self, batch: BatchFrame) -> None:
        """Wait until *batch* can be published without waiting."""
        broker = self._link.broker
        if not broker.topics.has_room:
            self._link.pause_without_room("room", broker.topics)
            await broker.topics.wait_for_room()
        if batch.plain_bytes > INLINE_CHECK_BYTES_MAX:
            await self._link.server.verify(self.topic, batch)

    def _on_published(
        self,
        base_sequence: int,
        arrived_at: float,
        offsets: int | Sequence[int],
        error: BrokerError | None,
    ) -> None:
        self._unanswered.discard(base_sequence)
        if not self.is_open:
            return
        if error is not None:
            self._refuse(base_sequence, error)
            return
        if self._refusal is not None and base_sequence > self._refusal[0]:
            # Its receipt would be one of the refused batch, too.
            return
        link = self._link
        link.server.publish_seconds.observe(link.loop.time() - arrived_at)
        if not self._sequences:
            # All batches of one commit are acknowledged in one frame.
            link.loop.call_soon(self.send_receipts)
        self._sequences.append(base_sequence)
        if isinstance(offsets, int):
            self._offsets.append(offsets)
        else:
            self._offsets.append(offsets[0])
            self._deduplicated.append(
                pb.Deduplicated(base_sequence=base_sequence, offsets=offsets)
            )
        self._close_if_refused()
