"""
An observer of the frames at the broker's end of a connection.

The tap parses the bytes itself, so it knows all requests and answers and their order,
even if the answers never arrived.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pydanube.model.batch import Column
from pydanube.model.policy import FailurePolicy, SubscriptionSettings
from pydanube.wire.batches import decode
from pydanube.wire.native.connection import DELIVERY_PREFIX_BYTES
from pydanube.wire.native.frames import FrameReader
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import changes_from_wire, ranges_from_wire
from simulation.deliveries import Delivered
from support.fakes.streams import cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.wire.batches import BatchFrame
    from pydanube.wire.native.frames import RawFrame
    from simulation.deliveries import ChannelId, SubscriptionWatch, Watch
    from simulation.network import Link

_SILENT = (Kind.HELLO, Kind.WELCOME, Kind.PING, Kind.PONG)
"""Frames whose content is not noted: it depends on the environment, or is empty."""
_RANDOM = re.compile(r"(?<= consumer_id: )\d+")
_FRAME_BYTES_MAX = 1 << 30


class LinkTap:
    """Observes the frames of one link, at the broker's end."""

    def __init__(
        self,
        link: Link,
        watch: Watch,
        note: Callable[[str, str], None],
        on_stored: Callable[[str, int], None],
    ) -> None:
        self._number = link.number
        self._watch = watch
        self._note = note
        self._on_stored = on_stored
        self._from_client = FrameReader(_FRAME_BYTES_MAX)
        self._from_broker = FrameReader(_FRAME_BYTES_MAX)
        # The handlers of answers, by correlation.
        self._handlers: dict[int, Callable[[Kind, Any], None]] = {}
        # The topics of producers, by channel, and the message counts of batches.
        self._topics: dict[int, str] = {}
        self._published: dict[tuple[int, int], int] = {}

    def on_received(self, data: bytes) -> None:
        """See network.Tap."""
        for frame in cut(self._from_client, data):
            message, batch = self._decoded(frame, "<")
            if batch is not None:
                sequence = batch.header.base_sequence
                self._published[frame.channel, sequence] = batch.count
            else:
                self._on_request(frame, message)

    def on_written(self, data: bytes) -> None:
        """See network.Tap."""
        for frame in cut(self._from_broker, data):
            self._on_answer(frame, *self._decoded(frame, ">"))

    def on_lost(self) -> None:
        """See network.Tap."""
        self._note(f"link {self._number}", "is lost to the broker")
        self._watch.on_link_lost(self._number)

    def _on_request(self, frame: RawFrame, m: Any) -> None:
        watch, channel = self._watch, (self._number, frame.channel)
        handlers = self._handlers
        match frame.kind:
            case Kind.OPEN_CONSUMER:

                def on_opened(kind: Kind, answer: Any) -> None:
                    if kind is Kind.CONSUMER_OPENED:
                        watch.on_opened(channel, m, answer.cursor)

                handlers[frame.correlation] = on_opened
            case Kind.CLOSE_CONSUMER:
                handlers[frame.correlation] = lambda *_: watch.on_closed(channel)
            case Kind.CREDIT:
                watch.on_credit(channel, m.messages)
            case Kind.NACK | Kind.RELEASE | Kind.EXTEND:
                self._on_unprocessed(frame.kind, channel, m)
            case Kind.ACK:
                of = watch.watch_of(channel)
                offsets = watch.on_acks(channel, _ranges(m), m.through)
                if frame.correlation and of is not None:
                    self._when_ok(frame, watch.confirmation(of, offsets))
            case Kind.SEEK:
                of = watch.watch_of(channel)
                if of is not None:
                    watch.on_seek(of)
                    handlers[frame.correlation] = lambda *_: watch.on_seek_answered(of)
            case Kind.OPEN_PRODUCER:
                self._topics[frame.channel] = m.topic
                watch.on_producer_opens(m.name)
            case _ if hasattr(m, "subscription"):
                found = watch.subscriptions.get((m.topic, m.subscription))
                if found is not None:
                    self._on_administration(frame, m, found)

    def _on_unprocessed(self, kind: Kind, channel: ChannelId, m: Any) -> None:
        if kind is Kind.NACK:
            self._watch.on_nack(channel, _ranges(m), m.delay_s)
        elif kind is Kind.EXTEND:
            self._watch.on_extend(channel, _ranges(m), m.ack_timeout_s)
        else:
            self._watch.on_release(channel, _ranges(m))

    def _on_administration(
        self, frame: RawFrame, m: Any, of: SubscriptionWatch
    ) -> None:
        watch = self._watch
        match frame.kind:
            case Kind.SEEK_SUBSCRIPTION:
                watch.on_seek(of)
                self._handlers[frame.correlation] = lambda *_: watch.on_seek_answered(
                    of
                )
            case Kind.SKIP:
                watch.on_skip(of, m.count)
            case Kind.MARK_DONE:
                offsets = {at for base, end in _ranges(m) for at in range(base, end)}
                on_refused = watch.on_marked(m.topic, m.subscription, offsets)
                self._when_ok(frame, watch.confirmation(of, offsets), on_refused)
            case Kind.CONFIGURE_SUBSCRIPTION:
                changes = changes_from_wire(SubscriptionSettings, m.settings, m.changes)
                if changes.get("is_paused") is True:
                    self._when_ok(frame, lambda: watch.on_paused(of))
                elif "is_paused" in changes:
                    watch.on_resumed(of)
                if "failure_policy" in changes:
                    policy = changes["failure_policy"] or FailurePolicy()
                    watch.on_policy(of, policy)

    def _when_ok(
        self,
        frame: RawFrame,
        then: Callable[[], None],
        otherwise: Callable[[], None] = lambda: None,
    ) -> None:
        def on_answer(kind: Kind, _: Any) -> None:
            if kind is Kind.OK:
                then()
            else:
                otherwise()

        self._handlers[frame.correlation] = on_answer

    def _on_answer(self, frame: RawFrame, m: Any, batch: BatchFrame | None) -> None:
        channel = self._number, frame.channel
        handler = self._handlers.pop(frame.correlation, None)
        if handler is not None:
            handler(frame.kind, m)
        elif frame.kind is Kind.DELIVERY:
            assert batch is not None
            self._watch.on_delivery(channel, _messages(batch), m)
        elif frame.kind is Kind.RECEIPT:
            topic = self._topics[frame.channel]
            for sequence, offset in zip(m.base_sequence, m.base_offset, strict=True):
                count = self._published.get((frame.channel, sequence), 1)
                self._on_stored(topic, offset + count)
        elif frame.kind is Kind.ERROR and not frame.correlation:
            self._watch.on_closed(channel)

    def _decoded(self, frame: RawFrame, arrow: str) -> tuple[Any, BatchFrame | None]:
        """Return the frame's message and batch; for a delivery, attempt and batch."""
        body_type, body, message, batch = frame.kind.body, frame.body, None, None
        text = ""
        if body_type is not None:
            message = body_type()
            message.ParseFromString(bytes(body))
            if frame.kind not in _SILENT:
                text = _RANDOM.sub("…", " ".join(str(message).split()))
        else:
            data = memoryview(body)
            if frame.kind is Kind.DELIVERY:
                message = int.from_bytes(data[:4], "little")
                data = data[DELIVERY_PREFIX_BYTES:]
            batch = decode(data)
            text = (
                f"{batch.base}+{batch.count} seq {batch.header.base_sequence} "
                f"{crc32(data):08x}{f' attempt {message}' if message else ''}"
            )
        self._note(
            f"link {self._number} {arrow}",
            f"{frame.kind.name} ch {frame.channel} #{frame.correlation} {text}",
        )
        return message, batch


def _messages(batch: BatchFrame) -> list[Delivered]:
    columns = batch.header.columns
    plain = Column.PAYLOAD | Column.PUBLISH_TIME | Column.ATTRIBUTES
    # Messages without a key have the name of their producer as the key.
    author = batch.header.producer.encode()
    if not columns & ~plain:
        return [Delivered(offset, author) for offset in range(batch.base, batch.end)]
    rows = batch.arrow()

    def values(column: Column, name: str) -> list[Any]:
        if not columns & column:
            return [None] * batch.count
        found = rows.column(name)
        if name.endswith("_at"):
            found = found.cast("int64")
        listed: list[Any] = found.to_pylist()
        return listed

    offsets = (
        values(Column.OFFSET, "offset")
        if columns & Column.OFFSET
        else range(batch.base, batch.end)
    )
    authors = [each and each.encode() for each in values(Column.PRODUCER, "producer")]
    return [
        Delivered(offset, key or name or author, deliver_at, expires_at)
        for offset, key, name, deliver_at, expires_at in zip(
            offsets,
            values(Column.KEY, "key"),
            authors,
            values(Column.DELIVER_AT, "deliver_at"),
            values(Column.EXPIRES_AT, "expires_at"),
            strict=True,
        )
    ]


def _ranges(message: Any) -> list[tuple[int, int]]:
    return ranges_from_wire(message.ranges)
