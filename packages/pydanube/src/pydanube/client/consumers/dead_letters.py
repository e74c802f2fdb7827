"""
The dead letters of a subscription: listing, replaying and dropping them.

The dead letters of a subscription are the messages of its dead-letter topic whose
attributes name it.  A client that replays or drops one acknowledges it for the
subscription ``dead-letters`` of that topic; the message stays in the topic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice

from pydanube.client.connections.requester import Requester, retry
from pydanube.client.consumers.reader import read
from pydanube.client.messages.messages import Message, MessageId
from pydanube.client.messages.options import ProducerOptions, parse_or_choose_name
from pydanube.client.messages.writer_schemas import ValueDecoding
from pydanube.client.operations.subscriptions import Subscriptions
from pydanube.client.operations.topics import Topics
from pydanube.client.producers.producer import Producer, wait_for_offsets
from pydanube.client.pure.outgoing import outgoing
from pydanube.model.arguments import checks_arguments
from pydanube.model.dead_letters import (
    ATTEMPT,
    HANDLED_SUBSCRIPTION,
    HISTORY,
    ORIGINAL_OFFSET,
    ORIGINAL_SUBSCRIPTION,
    ORIGINAL_TOPIC,
    REASON,
    parse_count,
    parse_history,
)
from pydanube.model.deduplication import DEDUPLICATION_ID
from pydanube.model.errors import (
    AlreadyExists,
    InvalidRequest,
    SubscriptionNotFound,
    TopicNotFound,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.message_columns import MessageColumns, column_of
from pydanube.model.names import TopicName, parse_subscription
from pydanube.model.ranges import RangeSet

CHUNK_MESSAGES_MAX = 1000
"""The most dead letters that are replayed or dropped before they are acked."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a subscription has given up on."""

    message: Message
    """The copy in the dead-letter topic."""
    topic: str
    """The topic or partition of the original message."""
    offset: int | None
    """The offset of the original message."""
    attempt: int | None
    """The number of deliveries."""
    reason: str
    """The reason of the last failure."""
    history: tuple[dict[str, str], ...]
    """The same of earlier dead letters of this message, oldest first."""

    @property
    def id(self) -> MessageId:
        """The id of the message in the dead-letter topic."""
        return self.message.id


@checks_arguments
class DeadLetters:
    """
    The dead letters of one subscription; made by ``Client.dead_letters``.

    Several clients may handle them at the same time; a dead letter that two of them
    replay is published twice.  Of a topic with partitions, they are those of all.  By
    default they lie in the topic that the subscription's failure policy names.
    """

    def __init__(
        self,
        client: Requester,
        topic: str,
        subscription: str,
        dead_letter_topic: str | None,
        *,
        decoding: ValueDecoding,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.subscription: str = parse_subscription(subscription)
        self._client = client
        self._subscriptions = Subscriptions(client)
        self._decoding = decoding
        # A topic that the caller names exists; that of the policy is created with
        # the first dead letter.
        self._must_exist = dead_letter_topic is not None
        self._dead_letter_topic = dead_letter_topic and str(
            TopicName.parse(dead_letter_topic)
        )

    async def dead_letter_topic(self) -> str:
        """
        Return the topic that stores them, by default the failure policy's.

        Raises:
            InvalidRequest: The failure policy names no dead-letter topic.
            TopicNotFound: There is no such topic.
        """
        if self._dead_letter_topic is None:
            settings = await self._subscriptions.settings(self.topic, self.subscription)
            policy = settings.failure_policy
            if policy is None or policy.dead_letter_topic is None:
                raise InvalidRequest(
                    f"subscription {self.subscription} of {self.topic} has no "
                    "dead-letter topic; if it had one before, pass dead_letter_topic"
                )
            self._dead_letter_topic = policy.dead_letter_topic
        return self._dead_letter_topic

    async def messages(self) -> AsyncIterator[DeadLetter]:
        """
        Yield the dead letters that nobody has replayed or dropped, oldest first.

        There are none while the failure policy's dead-letter topic does not exist:
        the broker creates it for the first dead letter.

        Raises, while it is iterated:
            InvalidRequest: The subscription has no dead-letter topic.
            TopicNotFound: *topic*, or the *dead_letter_topic* that was passed, does
                not exist.
        """
        topic = await self.dead_letter_topic()
        try:
            facts = await Topics(self._client).describe(topic)
        except TopicNotFound:
            if self._must_exist:
                raise
            return
        start, done = facts.base_offset, RangeSet()
        for each in facts.subscriptions:
            if each.subscription == HANDLED_SUBSCRIPTION:
                start = max(start, each.cursor)
                done = RangeSet(each.done)
        batches = read(
            self._client,
            topic,
            start=start,
            end=facts.end_offset,
            follow=False,
            decoding=self._decoding,
        )
        async for batch in batches:
            for message in batch:
                letter = self._letter_of(message)
                if letter is not None and message.offset not in done:
                    yield letter

    async def replay(self, dead_letters: Iterable[DeadLetter]) -> int:
        """
        Publish *dead_letters* again to their original topics, and mark them as handled.

        They keep their key, payload, schema and attributes, including those about
        their failures, so that the next dead letter has the whole history.  They lose
        their delivery windows, and their ids for deduplication.

        Ordering: Dead letters of one topic are published in their order.

        Durability: On return they are as safe as their topics promise, and marked.
            After a crash before that, some may be published once more.

        Returns: The number of dead letters.

        Raises:
            TopicNotFound: The topic of one is gone; those before it are handled.
        """
        count = 0
        for chunk in _chunks(dead_letters):
            for topic, group in groupby(chunk, lambda letter: letter.topic):
                # A replay must not create a topic that was deleted.
                await Topics(self._client).describe(topic)
                await self._publish(topic, list(group))
            await self._mark_done(chunk)
            count += len(chunk)
        return count

    async def drop(self, dead_letters: Iterable[DeadLetter]) -> int:
        """
        Mark *dead_letters* as handled without publishing them.

        They stay in the dead-letter topic, as long as its retention keeps them.

        Durability: On return the marks are on disk.

        Returns: The number of dead letters.
        """
        count = 0
        for chunk in _chunks(dead_letters):
            await self._mark_done(chunk)
            count += len(chunk)
        return count

    def _letter_of(self, message: Message) -> DeadLetter | None:
        """Return *message* as a dead letter, or None if another subscription's."""
        attributes = message.attributes
        topic = attributes.get(ORIGINAL_TOPIC, "")
        if attributes.get(
            ORIGINAL_SUBSCRIPTION
        ) != self.subscription or self.topic not in _names_of(topic):
            return None
        return DeadLetter(
            message=message,
            topic=topic,
            offset=parse_count(attributes.get(ORIGINAL_OFFSET, "")),
            attempt=parse_count(attributes.get(ATTEMPT, "")),
            reason=attributes.get(REASON, ""),
            history=tuple(parse_history(attributes.get(HISTORY, ""))),
        )

    async def _publish(self, topic: str, dead_letters: Sequence[DeadLetter]) -> None:
        shipped = []
        name = parse_or_choose_name("producer", None)
        options = ProducerOptions(name=name, is_anonymous=True)
        async with Producer(self._client, topic, options)._opened() as producer:
            for schema, group in groupby(dead_letters, _schema_of):
                messages = [letter.message for letter in group]
                columns = MessageColumns(
                    payloads=[each.payload for each in messages],
                    keys=column_of([each.key_bytes for each in messages]),
                    attributes=[_without_id(each.attributes) for each in messages],
                )
                shipped += await producer._send_batches(
                    [outgoing(columns)], schema=schema
                )
            await wait_for_offsets(shipped)

    async def _mark_done(self, dead_letters: Sequence[DeadLetter]) -> None:
        topic = await self.dead_letter_topic()
        ids = [letter.id for letter in dead_letters]
        try:
            await self._subscriptions.mark_done(topic, HANDLED_SUBSCRIPTION, ids)
        except SubscriptionNotFound:
            create = partial(
                self._subscriptions.create,
                topic,
                HANDLED_SUBSCRIPTION,
                type="shared",
                start="earliest",
            )
            # Another client may create it at the same time, and so may an earlier
            # attempt whose outcome is unknown because the topic has moved.
            with suppress(AlreadyExists):
                await retry(create, self._client.retry_s)
            await self._subscriptions.mark_done(topic, HANDLED_SUBSCRIPTION, ids)


def _without_id(attributes: Mapping[str, str]) -> dict[str, str]:
    # The topic would drop the message as a duplicate of its first publication.
    return {
        name: value for name, value in attributes.items() if name != DEDUPLICATION_ID
    }


def _chunks(dead_letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    remaining = iter(dead_letters)
    while chunk := list(islice(remaining, CHUNK_MESSAGES_MAX)):
        yield chunk


def _names_of(topic: str) -> set[str]:
    """Return the topic names whose dead letters include those of *topic*."""
    partition = TopicName.parse(topic).split_partition() if topic else None
    return {topic} if partition is None else {topic, str(partition[0])}


def _schema_of(letter: DeadLetter) -> tuple[int, int]:
    return letter.message.schema_id, letter.message.schema_version
