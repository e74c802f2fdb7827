"""The acknowledging side of consumers of one topic, of partitions or of several."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Protocol, Self

from pydanube.client.connections.channel import Openable
from pydanube.client.messages.messages import Message, MessageId, ReceivedBatch
from pydanube.client.messages.options import ConsumerOptions
from pydanube.client.pure.offsets import AckTarget, parts_of
from pydanube.model.arguments import check
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.ranges import Range


class RangeAcknowledger(Protocol):
    """The consumer of one topic or partition, as ``Acknowledger`` uses it."""

    def _check_origin(self, topic: str, batch: ReceivedBatch | None) -> None: ...

    def _ack_ranges(self, ranges: Iterable[Range]) -> None: ...

    def _ack_through(self, offset: int) -> None: ...

    def _nack_ranges(
        self, ranges: Iterable[Range], delay_s: float, reason: str
    ) -> None: ...

    def _extend_ranges(
        self, ranges: Iterable[Range], ack_timeout_s: float | None
    ) -> None: ...

    def _release_ranges(self, ranges: Iterable[Range]) -> None: ...


class Acknowledger(Openable):
    """A consumer of a topic or of its partitions, which acknowledges messages."""

    _options: ConsumerOptions

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    def _consumer_of(self, topic: str) -> RangeAcknowledger | None:
        """
        Return the consumer that may have received messages of *topic*.

        None: the topic was deleted, and there is nothing to acknowledge.
        """

    async def ack(self, messages: AckTarget) -> None:
        """
        Acknowledge messages.

        Durability: This does not wait: the acknowledgement is sent within
            milliseconds, and is on the broker's disk soon after.  After a crash
            before that, the messages are delivered again.  ``flush`` waits until it
            is on disk.

        Raises:
            InvalidRequest: Another subscription delivered a message, or this
                consumer received it before a seek.  No message is acknowledged.
            BrokerError: The consumer is closed or has failed, as for ``receive``.
        """
        self._ack_nowait(messages)

    def _ack_nowait(self, messages: AckTarget) -> None:
        """Acknowledge messages, as ``ack`` does."""
        for consumer, ranges in self._acknowledgeable(messages):
            consumer._ack_ranges(ranges)

    async def ack_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge this message and all before it in its partition; see ``ack``."""
        for consumer, _ in self._acknowledgeable(message):
            consumer._ack_through(message.offset)

    async def nack(
        self, messages: AckTarget, *, delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """
        Report that messages were not processed: the broker delivers them again.

        Args:
            messages: The messages that failed; each has one failure more.
            delay_s: The shortest delay before redelivery; the failure policy may
                require a longer one.
            reason: A text for people; it is stored with a dead letter.

        Raises: As ``ack``.
        """
        self._nack_nowait(messages, delay_s=delay_s, reason=reason)

    def _nack_nowait(
        self, messages: AckTarget, *, delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """Reject messages, as ``nack`` does."""
        for consumer, ranges in self._acknowledgeable(messages):
            consumer._nack_ranges(ranges, delay_s, reason)

    async def extend(
        self, messages: AckTarget, ack_timeout_s: float | None = None
    ) -> None:
        """
        Tell the broker that messages are still being processed.

        The broker waits longer for their acknowledgement before it delivers them
        again.  Messages that are acknowledged, or were delivered again meanwhile, are
        ignored, and so is the call while the consumer is not connected.

        Args:
            messages: The messages that this consumer received.
            ack_timeout_s: The time from now on; None: the ack timeout of the
                subscription.  A later deadline that a message already has stays.

        Raises:
            InvalidRequest: As ``ack``, or the broker is too old for extensions.
            BrokerError: As ``ack``.
        """
        self._extend_nowait(messages, ack_timeout_s)

    async def release(self, messages: AckTarget) -> None:
        """
        Give messages back that are not processed: the broker delivers them again.

        They have not failed, and keep their place in the order.  Messages that this
        consumer no longer has are ignored.

        Raises:
            InvalidRequest: As ``ack``, or the broker is too old.
        """
        self._release_nowait(messages)

    def _release_nowait(self, messages: AckTarget) -> None:
        """Give messages back, as ``release`` does."""
        for consumer, ranges in self._acknowledgeable(messages):
            consumer._release_ranges(ranges)

    def _extend_nowait(
        self, messages: AckTarget, ack_timeout_s: float | None = None
    ) -> None:
        """Extend the ack timeout of messages, as ``extend`` does."""
        check(Acknowledger.extend, {"ack_timeout_s": ack_timeout_s})
        if ack_timeout_s is not None and not 0 < ack_timeout_s < float("inf"):
            raise InvalidRequest(
                f"ack_timeout_s is {ack_timeout_s}: it must be finite and more than 0"
            )
        for consumer, ranges in self._acknowledgeable(messages):
            consumer._extend_ranges(ranges, ack_timeout_s)

    async def reply(
        self,
        request: Message,
        payload: bytes | str,
        *,
        attributes: Mapping[str, str] | None = None,
        error: str | None = None,
    ) -> None:
        """
        Reply to a message that ``Client.request`` published.

        This does not acknowledge the message.  The reply is dropped if the client that
        waits for it has gone, or has another reply already.

        Args:
            request: The message.
            payload: The content of the reply.
            attributes: Further attributes of the reply.
            error: Why the request failed, at most 1,024 characters:
                ``Client.request`` raises it as ``RequestFailed``.

        Raises:
            InvalidRequest: The message is not a request.
            MessageTooLarge: The reply exceeds the size limit.
        """
        await self._options.send_reply(
            request, payload, attributes=attributes, error=error
        )

    def _acknowledgeable_ranges(self, messages: AckTarget) -> dict[str, list[Range]]:
        """
        Return the offsets of *messages*, if this consumer may acknowledge them.

        Raises: As ``ack``.
        """
        found: defaultdict[str, list[Range]] = defaultdict(list)
        for topic, batch, ranges in parts_of(messages):
            consumer = self._consumer_of(topic)
            if consumer is not None:
                consumer._check_origin(topic, batch)
                found[topic] += ranges
        return found

    def _acknowledgeable(
        self, messages: AckTarget
    ) -> list[tuple[RangeAcknowledger, list[Range]]]:
        """Return the offsets of *messages*, by the consumer that received them."""
        return [
            (consumer, ranges)
            for topic, ranges in self._acknowledgeable_ranges(messages).items()
            if (consumer := self._consumer_of(topic)) is not None
        ]

    async def _aclose_failed(self) -> None:
        # Do not wait for a broker that is gone.
        with suppress(BrokerError):
            if self.is_connected:
                await self.aclose()
