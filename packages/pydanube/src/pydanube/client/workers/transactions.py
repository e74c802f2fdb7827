"""
Transactions: acknowledge messages and publish the results, all or nothing.

A transaction is one version of a query of staged batches (``client.staging``): its
messages are one part, and its commit also names the messages to acknowledge.  The
broker gives each transaction a version that is higher than all before it, so that a
commit whose answer was lost can be repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Unpack

from pydanube.aio.async_scopes import async_scope
from pydanube.client.connections.requester import Requester
from pydanube.client.messages.messages import Receiver
from pydanube.client.producers.producer import BatchData
from pydanube.client.pure.batching import (
    DeliveryOptions,
    Keys,
    ManyAttributes,
    batches_of,
    check_attributes,
    parse_delivery,
    to_bytes,
)
from pydanube.client.pure.offsets import AckTarget, parts_of
from pydanube.client.pure.outgoing import DeliveryWindow, OutgoingBatch, outgoing
from pydanube.client.workers.staging import Staging
from pydanube.model.arguments import check
from pydanube.model.errors import (
    BrokerError,
    Closed,
    InvalidRequest,
    MessageNotHeld,
    Unavailable,
)
from pydanube.model.message_columns import MessageColumns, column_of
from pydanube.model.names import TopicName
from pydanube.model.ranges import RangeSet
from pydanube.model.schemas import SchemaReference
from pydanube.model.staging import TransactionAcks
from pydanube.wire.pb import stream_pb2 as pb

QUERY_PREFIX = "transaction:"
"""The query of a transaction is this and its name."""
ACK_RANGES_MAX = 10_000
"""The most ranges of offsets that a transaction acknowledges."""
GATHERED_BYTES_MAX = 512 * 1024
"""Messages that are sent one by one gather up to this size, for all topics together."""
MESSAGE_OVERHEAD_BYTES = 64


@async_scope
async def open_transaction(
    requester: Requester, name: str, *, gives_back: bool = True
) -> AsyncIterator[Transaction]:
    """
    Open the transaction *name*; see ``Transaction``.

    Unless it *gives_back* the messages of a transaction that fails, the caller does.
    """
    query = QUERY_PREFIX + name
    begun = await requester.send_request(pb.BeginTransaction(query=query))
    staging = Staging(requester, query, begun.version)
    transaction = Transaction(requester, staging, gives_back=gives_back)
    try:
        yield transaction
    except Exception as error:
        await transaction._abort(f"the transaction was aborted: {error}")
        raise
    except BaseException:
        await transaction._abort(None)
        raise
    try:
        await transaction._commit()
    except BaseException as error:
        await transaction._abort(None)
        if isinstance(error, BrokerError) and not isinstance(error, Unavailable):
            # The part is finished: drop it together with its version.
            with suppress(BrokerError):
                await transaction._staging.abort()
        raise


class Transaction:
    """
    Messages to publish and to acknowledge together; made by ``Client.transaction``.

    Its name identifies the program across restarts; programs that run at the same time
    need different names.  Only one task may use a transaction at a time.

    Leaving the body of ``async with`` commits.  If the body raises an exception,
    nothing is published, and the acknowledged messages are rejected: the broker
    delivers them again, as the failure policy of their subscription says.

    Durability: After the body, everything is on disk.  Once the broker has decided a
        commit, it finishes it, even after a crash.

    Ordering: As for ``Staging.commit``.  Transactions of one name are committed one
        after the other, and only the newest one that has begun can be.

    Cancellation: While the body runs, nothing is published, and the acknowledged
        messages are given back.  During the commit, the outcome is unknown; a message
        that is delivered again was not acknowledged.

    Bounds: The broker keeps the messages on its disk, within ``staging.bytes_max``.
        The client keeps 512 KiB that it has not sent, and 16 MiB in flight.  A
        transaction acknowledges at most 10,000 ranges of offsets.

    Raises, when it is left; nothing is published unless the error says so:
        MessageNotHeld: An acknowledged message was acknowledged before, for example by
            another transaction to which the broker has delivered it after its ack
            timeout; or the consumer has reconnected, and the broker delivers it again.
        InvalidRequest: In a cluster: different brokers serve the topics of acknowledged
            messages.  Commit a transaction for each batch.
        SubscriptionNotFound: A subscription of an acknowledged message is deleted.
        TransactionFenced: A newer transaction of this name has begun, or a standalone
            broker has restarted.
        TopicNotFound, StagedPartNotFound, CorruptStage, ProducerBusy, QuotaExceeded:
            As for ``Staging.commit``.
        Unavailable: The outcome is unknown, because no broker has answered for two
            minutes.  If the messages are delivered again, nothing was published.
    """

    def __init__(
        self, client: Requester, staging: Staging, *, gives_back: bool = True
    ) -> None:
        self._client = client
        self._gives_back = gives_back
        self._staging = staging
        self._part = staging.part("transaction")
        self._gathered: dict[tuple[str, SchemaReference | None], _Messages] = {}
        self._gathered_bytes = 0
        # By topic, subscription and the consumer that received them.
        self._acks: dict[tuple[str, str, Receiver], RangeSet] = {}
        # The same by the consumer and the number of the delivery.
        self._arrived: dict[tuple[Receiver, int], RangeSet] = {}
        self._is_open = True

    async def send(
        self,
        topic: str,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        schema: SchemaReference | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> None:
        """
        Publish one message with the commit.

        Args:
            topic: ``/{namespace}/{topic}``; it must exist, and be reliable.
            payload: The content; text is sent as UTF-8.
            key: Messages of one key go to one partition, in their order.
            attributes: Names and values of your own.
            schema: The version of a schema that the payload is written with; one for
                each topic.
            delivery: As for ``Producer.send``.

        Ordering: In each topic or partition, in the order of the calls.

        Raises: As ``PartWriter.write``, perhaps only in a later call; then the
            transaction cannot be committed.
        """
        self._check_open()
        topic = _parse_topic(topic)
        content = to_bytes("payload", payload)
        key_bytes = None if key is None else to_bytes("key", key)
        byte_count = len(content) + MESSAGE_OVERHEAD_BYTES + len(key_bytes or b"")
        if attributes is not None:
            byte_count += check_attributes(attributes)
        window = self._window_of(delivery)
        if self._gathered_bytes + byte_count > GATHERED_BYTES_MAX:
            await self._write_gathered()
        self._gathered_bytes += byte_count
        messages = self._gathered.setdefault((topic, schema), _Messages())
        messages.add(content, key_bytes, attributes, window)

    async def send_batch(
        self,
        topic: str,
        messages: BatchData,
        *,
        keys: Keys = None,
        attributes: ManyAttributes = None,
        schema: SchemaReference | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> None:
        """
        Publish many messages with the commit.

        Args:
            topic: As for ``send``.
            messages, keys, attributes: As for ``Producer.send_batch``.
            schema: As for ``send``, for all of them.
            delivery: As for ``Producer.send``, for all of them.

        Raises: As ``send``.
        """
        self._check_open()
        topic = _parse_topic(topic)
        batches = batches_of(
            messages, self._window_of(delivery), keys=keys, attributes=attributes
        )
        await self._write_gathered()
        await self._part._write_batches(topic, batches, schema)

    async def ack(self, messages: AckTarget) -> None:
        """
        Acknowledge messages with the commit.

        Args:
            messages: Messages or batches that consumers of this client received, from
                any topics and subscriptions; not ids.

        Raises:
            InvalidRequest: A message was not delivered to a consumer, or was delivered
                before a seek; or there are more than 10,000 ranges of offsets: commit
                smaller transactions.
            MessageNotHeld: A message was delivered again, and the transaction has
                acknowledged its earlier delivery.
        """
        self._check_open()
        for topic, batch, ranges in parts_of(messages):
            source = None if batch is None else batch.source
            receiver = None if batch is None else batch.receiver
            if batch is None or source is None or receiver is None:
                raise InvalidRequest(
                    f"a transaction cannot acknowledge a message of {topic} that no "
                    "consumer has delivered: pass the message or the batch that "
                    "consumer.receive returned"
                )
            if source.is_over:
                raise InvalidRequest(
                    f"the consumer of {topic} has received this message before a seek "
                    "or a deletion of the topic: receive the message again"
                )
            count = sum(len(each) for each in self._acks.values()) + len(ranges)
            if count > ACK_RANGES_MAX:
                raise InvalidRequest(
                    f"the transaction would acknowledge {count} ranges of offsets; at "
                    f"most {ACK_RANGES_MAX} are allowed: commit smaller transactions"
                )
            acked = self._acks.setdefault(
                (topic, source.subscription, receiver), RangeSet()
            )
            # A message that was delivered again may still be there from before.
            arrived = self._arrived.setdefault((receiver, batch.arrival), RangeSet())
            for base, end in ranges:
                if acked.count_in(base, end) > arrived.count_in(base, end):
                    raise MessageNotHeld(
                        "the transaction acknowledges two deliveries of one message "
                        f"of {topic}, and would publish its results twice; process the "
                        "messages in another transaction when they are delivered again"
                    )
                acked.add(base, end)
                arrived.add(base, end)

    async def _commit(self) -> None:
        self._is_open = False
        await self._write_gathered()
        part = await self._part.finish()
        acks = [
            TransactionAcks(
                topic=topic,
                subscription=subscription,
                consumer_id=receiver.consumer_id,
                ranges=tuple(ranges),
            )
            for (topic, subscription, receiver), ranges in self._acks.items()
        ]
        if part.batch_count or acks:
            await self._staging.commit_transaction([part], acks)
        counters = self._client.live_counters
        counters.published += part.message_count
        counters.acked += sum(ranges.count for ranges in self._acks.values())

    async def _abort(self, failure: str | None) -> None:
        """Drop everything; *failure* is why the messages were not processed, if so."""
        self._is_open = False
        self._gathered.clear()
        if self._gives_back:
            for (_, _, receiver), ranges in self._acks.items():
                receiver.consumer.return_received(receiver, ranges, failure)
        with suppress(BrokerError):
            await self._part.abort()

    async def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        self._gathered_bytes = 0
        for (topic, schema), messages in gathered.items():
            await self._part._write_batches(topic, [messages.batch()], schema)

    def _window_of(self, delivery: DeliveryOptions) -> DeliveryWindow | None:
        if not delivery:
            return None
        return parse_delivery(self._client.wall_clock_ns() // 1000, delivery)

    def _check_open(self) -> None:
        if not self._is_open:
            raise Closed("the transaction is over: open another one")


class _Messages:
    """Messages for one topic that were sent one by one."""

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._attributes: list[Mapping[str, str] | None] = []
        self._windows: list[DeliveryWindow] = []

    def add(
        self,
        payload: bytes,
        key: bytes | None,
        attributes: Mapping[str, str] | None,
        window: DeliveryWindow | None,
    ) -> None:
        self._payloads.append(payload)
        self._keys.append(key)
        self._attributes.append(attributes)
        self._windows.append(window or DeliveryWindow(None, None))

    def batch(self) -> OutgoingBatch:
        """Return all of them, without the columns that have no values."""
        return outgoing(
            MessageColumns(
                payloads=self._payloads,
                keys=column_of(self._keys),
                attributes=column_of(self._attributes),
                deliver_at=column_of([each.deliver_at for each in self._windows]),
                expires_at=column_of([each.expires_at for each in self._windows]),
            )
        )


def _parse_topic(topic: str) -> str:
    """
    Return the name of *topic* as brokers know it.

    Raises:
        InvalidRequest: It is not a name.
    """
    try:
        return str(TopicName.parse(topic))
    except AttributeError:
        check(Transaction.send, {"topic": topic})
        raise
