"""
Requests and replies over topics.

A client has one reply topic: non-reliable, with an unguessable name, created for the
first request and deleted when the client closes.  A request names that topic and a
correlation id in its attributes, and the reply has the same correlation id.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.tasks import run_all
from pydanube.client.connections.connection import retrieve
from pydanube.client.connections.partitions import create_topic
from pydanube.client.connections.requester import Requester
from pydanube.client.consumers.consumer import TopicConsumer
from pydanube.client.messages.messages import Message
from pydanube.client.messages.options import (
    ConsumerOptions,
    ProducerOptions,
    parse_or_choose_name,
)
from pydanube.client.messages.writer_schemas import ValueDecoding
from pydanube.client.producers.partitioned_producer import (
    PartitionedProducer,
    open_producer,
)
from pydanube.client.producers.producer import Producer
from pydanube.model.errors import (
    BrokerError,
    Closed,
    Conflict,
    InvalidRequest,
    NotFound,
    RequestFailed,
    TimedOut,
    TopicNotFound,
)
from pydanube.model.policy import (
    DispatchMode,
    Start,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.request_reply import (
    CORRELATION_ID,
    ERROR_CHARACTERS_MAX,
    REPLY_ERROR,
    REPLY_TO,
    REPLY_TOPIC_PREFIX,
)

log = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT_MAX = 1000
"""The most requests of a client that wait for replies; further ones wait for these."""
REPLY_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes of replies that the broker sends ahead."""
PRODUCERS_KEPT_MAX = 100
"""The most unused producers of requests and replies that a client keeps open."""
EXPIRY_SLACK_S = 30.0
"""Requests expire this long after their timeout, because clocks differ."""


class RequestReply:
    """The requests of one client that wait for replies, and the replies it sends."""

    def __init__(
        self,
        client: Requester,
        decoding: ValueDecoding,
        *,
        requests_max: int = REQUESTS_IN_FLIGHT_MAX,
    ) -> None:
        self._requests_max = requests_max
        self._client = client
        self._decoding = decoding
        self._producers = ProducerCache(client)
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._slots = asyncio.Semaphore(requests_max)
        self._topic = REPLY_TOPIC_PREFIX + secrets.token_hex(16)
        self._opening: asyncio.Future[TopicConsumer] | None = None
        self._count = 0

    async def request(
        self,
        topic: str,
        payload: bytes | str,
        timeout_s: float,
        *,
        key: str | bytes | None,
        attributes: Mapping[str, str] | None,
    ) -> Message:
        """Publish a request and return its reply; see ``Client.request``."""
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                await self._open_reply_topic()
                self._count += 1
                correlation = str(self._count)
                reply: asyncio.Future[Message]
                reply = asyncio.get_running_loop().create_future()
                reply.add_done_callback(retrieve)
                self._waiting[correlation] = reply
                try:
                    async with self._producers.producer(topic) as producer:
                        await producer.send(
                            payload,
                            key=key,
                            attributes={
                                **(attributes or {}),
                                REPLY_TO: self._topic,
                                CORRELATION_ID: correlation,
                            },
                            ttl_s=timeout_s + EXPIRY_SLACK_S,
                        )
                    return result_of(await reply)
                finally:
                    self._waiting.pop(correlation, None)
        except TimeoutError:
            raise TimedOut(
                f"no reply to a request on {topic} came in {timeout_s:g} s: check that "
                "a consumer of the topic replies, or wait longer"
            ) from None

    async def reply(
        self,
        request: Message,
        payload: bytes | str,
        *,
        attributes: Mapping[str, str] | None,
        error: str | None,
    ) -> None:
        """Publish the reply to *request*; see ``Consumer.reply``."""
        topic, replied = address_of(request)
        replied = {**(attributes or {}), **replied}
        if error is not None:
            replied[REPLY_ERROR] = error[:ERROR_CHARACTERS_MAX]
        try:
            async with self._producers.producer(topic) as producer:
                await producer.send(payload, attributes=replied)
        except TopicNotFound:
            log.debug("the client that waited for a reply on %s has gone", topic)

    async def aclose(self) -> None:
        """Close the producers, and delete the reply topic."""
        self._fail_all(Closed("the client is closed"))
        with suppress(BrokerError, TimeoutError):
            async with self._client.closing():
                await self._producers.aclose()
        if self._opening is None:
            return
        opening, self._opening = self._opening, None
        if opening.done() and not opening.cancelled() and not opening.exception():
            opening.result()._abandon()
        opening.cancel()
        with suppress(BrokerError, TimeoutError):
            async with self._client.closing():
                from pydanube.client.operations.topics import Topics  # noqa: PLC0415

                await Topics(self._client).delete(self._topic, force=True)

    # The reply topic.

    async def _open_reply_topic(self) -> None:
        if self._opening is None:
            # In a task of the client: other requests wait for it, too.
            self._opening = self._client.tasks.start(self._open(), "reply topic")
        opening = self._opening
        try:
            await asyncio.shield(opening)
        except BrokerError:
            if self._opening is opening:
                self._opening = None
            raise

    async def _open(self) -> TopicConsumer:
        policy = TopicPolicy(dispatch=DispatchMode.NON_RELIABLE)
        await create_topic(self._client, self._topic, policy, None, exist_ok=True)
        consumer = TopicConsumer(
            self._client,
            self._topic,
            ConsumerOptions(
                subscription="replies",
                type=SubscriptionType.EXCLUSIVE,
                start=Start.LATEST,
                name=parse_or_choose_name("consumer", None),
                ack_timeout_s=None,
                prefetch_messages=self._requests_max,
                prefetch_bytes=REPLY_BYTES_MAX,
                key_filters=(),
                priority=0,
                decoding=self._decoding,
                send_reply=self.reply,
            ),
        )
        await consumer._open()
        self._client.tasks.run(consumer._keep_open(), f"consumer of {self._topic}")
        self._client.tasks.run(self._receive(consumer), f"replies of {self._topic}")
        return consumer

    async def _receive(self, consumer: TopicConsumer) -> None:
        """Hand replies to the requests that wait for them, and drop late ones."""
        try:
            async for reply in consumer:
                correlation = reply.attributes.get(CORRELATION_ID, "")
                waiting = self._waiting.pop(correlation, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        except BrokerError as error:
            # The next request opens the reply topic again.
            self._opening = None
            self._fail_all(error)

    def _fail_all(self, error: BrokerError) -> None:
        failed, self._waiting = self._waiting, {}
        for waiting in failed.values():
            if not waiting.done():
                waiting.set_exception(error)


class ProducerCache:
    """Producers that are opened on demand; unused ones are kept, up to a number."""

    def __init__(
        self, client: Requester, *, producers_max: int = PRODUCERS_KEPT_MAX
    ) -> None:
        self._client = client
        self._producers_max = producers_max
        # The least recently used one is the first.
        self._kept: OrderedDict[str, _KeptProducer] = OrderedDict()

    @async_scope
    async def producer(
        self, topic: str
    ) -> AsyncIterator[Producer | PartitionedProducer]:
        """
        Return a producer of *topic*, which stays open while the body runs.

        Raises:
            TopicNotFound: There is no such topic.
        """
        kept = self._kept.get(topic)
        if kept is None:
            kept = self._kept[topic] = _KeptProducer(self._client, topic)
        self._kept.move_to_end(topic)
        kept.user_count += 1
        try:
            producer = await self._opened(topic, kept)
            try:
                yield producer
            except (NotFound, Conflict, Closed):
                # It has failed for good: the next user opens another one.
                self._drop(topic, kept)
                raise
        finally:
            kept.user_count -= 1
            self._evict()

    async def aclose(self) -> None:
        kept, self._kept = self._kept, OrderedDict()
        await run_all([each.aclose() for each in kept.values()])

    async def _opened(
        self, topic: str, kept: _KeptProducer
    ) -> Producer | PartitionedProducer:
        try:
            return await asyncio.shield(kept.opening)
        except BrokerError:
            self._drop(topic, kept)
            raise

    def _drop(self, topic: str, kept: _KeptProducer) -> None:
        if self._kept.get(topic) is kept:
            del self._kept[topic]
            self._close_later(kept)

    def _evict(self) -> None:
        while len(self._kept) > self._producers_max:
            unused = (t for t, kept in self._kept.items() if not kept.user_count)
            topic = next(unused, None)
            if topic is None:
                return
            self._close_later(self._kept.pop(topic))

    def _close_later(self, kept: _KeptProducer) -> None:
        self._client.tasks.start(kept.aclose(), "closing a producer")


class _KeptProducer:
    """A producer that is open or being opened, and the number of its users."""

    def __init__(self, client: Requester, topic: str) -> None:
        self.user_count = 0
        self._stack = AsyncExitStack()
        options = ProducerOptions(
            name=parse_or_choose_name("producer", None), is_anonymous=True, policy=None
        )
        # In a task of the client: other users wait for it, too.
        self.opening = client.tasks.start(
            self._stack.enter_async_context(
                open_producer(client, topic, options, None)
            ),
            f"producer of {topic}",
        )

    async def aclose(self) -> None:
        self.opening.cancel()
        await self._stack.aclose()


def address_of(request: Message) -> tuple[str, dict[str, str]]:
    """
    Return the topic of the reply to *request*, and the reply's attributes.

    Raises:
        InvalidRequest: The message is not a request.
    """
    attributes = request.attributes
    topic, correlation = attributes.get(REPLY_TO), attributes.get(CORRELATION_ID)
    named = f"message {request.offset} of {request.topic}"
    if topic is None or correlation is None:
        raise InvalidRequest(
            f"{named} is not a request, so it has no reply: requests have the "
            f"attributes {REPLY_TO} and {CORRELATION_ID}, as Client.request sets them"
        )
    if not topic.startswith(REPLY_TOPIC_PREFIX):
        raise InvalidRequest(
            f"{named} asks for a reply on {topic}, but the names of reply topics begin "
            f"with {REPLY_TOPIC_PREFIX}"
        )
    return topic, {CORRELATION_ID: correlation}


def result_of(reply: Message) -> Message:
    """
    Return *reply*, if it is not an error.

    Raises:
        RequestFailed: The replier reports an error.
    """
    error = reply.attributes.get(REPLY_ERROR)
    if error is not None:
        raise RequestFailed(error)
    return reply
