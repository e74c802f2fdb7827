"""
The publishing of a source's messages, with or without positions.

With positions, each publication is one version of a query of staged batches: the
messages, and the position in a topic of its own.  The versions follow each other, and
the broker commits each of them once.  A run of a connector that is killed at any moment
therefore leaves the messages and the position of a version, or neither.  If another run
of the connector has committed a version meanwhile, the commit does nothing, and the
source starts again at the stored position.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol

import msgspec

from pydanube.client.client import Client
from pydanube.model.batch import batch_of
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    ConnectionLost,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    Refused,
    StagingClosed,
)
from pydanube.model.policy import Deduplication, Retention
from pydanube.model.schemas import SchemaReference
from pydanube.model.staging import StagedPart
from pydanube_connect.encoding import MessageGroup
from pydanube_connect.pure.failures import TakenOver

QUERY_PREFIX = "connector:"
"""The query of a connector is this and its name."""
POSITION_RETENTION_BYTES = 1024 * 1024
"""The newest position is always kept."""
PRODUCERS_MAX = 256
"""How many topics have an open producer; the least recently used is closed."""

REFUSALS = (InvalidRequest, Refused, NotFound)
"""The errors that a message may cause; others of the same batch may be accepted."""

_COMMIT_POLL_S = 0.02


class StoredPosition(msgspec.Struct, frozen=True):
    """A message of the topic with the positions of a connector."""

    version: int
    run: str
    """Random; different for each run of the connector."""
    position: Any


class Publisher(Protocol):
    """Publishes messages durably."""

    position: Any
    """Where the source continues; None: at its beginning."""

    async def publish(self, groups: Sequence[MessageGroup], position: Any) -> None:
        """Publish *groups* and store *position*; on return both are on disk."""


class StagedPublisher:
    """Publishes messages and positions together; made by ``open_staged``."""

    def __init__(self, client: Client, name: str, positions_topic: str) -> None:
        self.position: Any = None
        self._client = client
        self._query = QUERY_PREFIX + name
        self._topic = positions_topic
        self._run = uuid.uuid4().hex
        self._version = -1

    async def load(self) -> None:
        """
        Load the stored position, after all commits that have begun.

        Raises:
            InvalidRequest: The topic was trimmed, so that the position is lost.
        """
        staging = self._client.staging(self._query, 0)
        facts = await staging.describe()
        while facts.committed_version is not None and not facts.is_finished:
            # The broker completes a commit.
            await asyncio.sleep(_COMMIT_POLL_S)
            facts = await staging.describe()
        found = await self._last()
        # Without the topic, which a user may delete, the source begins anew.
        stored = -1 if found is None else found.version
        committed = facts.committed_version
        self._version = max(stored, -1 if committed is None else committed)
        self.position = None if found is None else found.position

    async def publish(self, groups: Sequence[MessageGroup], position: Any) -> None:
        """
        Publish *groups* and store *position*, both or neither.

        Raises:
            TakenOver: Another run has published since.
            BrokerError: As ``Staging.commit``; both may be stored.
        """
        version = self._version + 1
        stored = StoredPosition(version=version, run=self._run, position=position)
        staging = self._client.staging(self._query, version)
        writers = [staging.part(self._run)]
        parts = list[StagedPart]()
        # A part has one schema for each topic.
        schemas = dict[str, SchemaReference | None]()
        try:
            for group in groups:
                if schemas.setdefault(group.topic, group.schema) != group.schema:
                    parts.append(await writers[-1].finish())
                    writers.append(staging.part(f"{self._run}-{len(parts)}"))
                    schemas = {group.topic: group.schema}
                await writers[-1].write(group.topic, group.batch, schema=group.schema)
            position_batch = batch_of([msgspec.json.encode(stored)])
            await writers[-1].write(self._topic, position_batch)
            parts.append(await writers[-1].finish())
            commit = await staging.commit(parts)
        except StagingClosed as error:
            raise TakenOver(f"another run has published: {error}") from error
        except BaseException:
            for writer in writers:
                await writer.abort()
            raise
        if commit.is_repeat or not commit.message_count:
            found = await self._last()
            if found is None or (found.version, found.run) != (version, self._run):
                raise TakenOver("another run of the connector has published")
        self._version = version
        self.position = position

    async def _last(self) -> StoredPosition | None:
        payload = await last_payload(self._client, self._topic)
        if payload is None:
            return None
        return msgspec.json.decode(payload, type=StoredPosition)


async def last_payload(client: Client, topic: str) -> bytes | None:
    """
    Return the last message of a topic that keeps a state; None: it never had one.

    Raises:
        InvalidRequest: Somebody has removed the messages, but not the topic.
    """
    offsets = (await client.topics.list_offsets([topic])).get(topic)
    if offsets is None or not offsets.end_offset:
        return None
    end, payload = offsets.end_offset, None
    if end == offsets.base_offset:
        raise InvalidRequest(
            f"{topic} is empty, although it had {end} messages: somebody has trimmed "
            "it, and what it said is lost. Delete the topic to begin anew, which "
            "publishes again what was published before"
        )
    async for batch in client.read(topic, start=end - 1, end=end):
        payload = batch.payloads[-1]
    return payload


@asynccontextmanager
async def open_staged(
    client: Client, name: str, positions_topic: str
) -> AsyncIterator[Publisher]:
    """Open the publisher of a source with positions, and load its position."""
    await ensure_topic(
        client, positions_topic, retention=Retention(bytes_max=POSITION_RETENTION_BYTES)
    )
    publisher = StagedPublisher(client, name, positions_topic)
    await publisher.load()
    yield publisher


class DirectPublisher:
    """Publishes messages by producers; made by ``open_direct``."""

    def __init__(self, client: Client) -> None:
        self.position: Any = None
        self._client = client
        self._producers: OrderedDict[
            tuple[str, SchemaReference | None], tuple[AsyncExitStack, Any]
        ] = OrderedDict()

    async def publish(self, groups: Sequence[MessageGroup], position: Any) -> None:
        """
        Publish *groups*, in their order in each topic.

        Raises:
            BrokerError: As ``Producer.send_batch``; some may be published.
        """
        del position
        for group in groups:
            try:
                producer = await self._producer(group)
                if group.schema is None:
                    await producer.send_batch(group.batch, ids=group.ids)
                else:
                    await producer.send_encoded(group.batch, ids=group.ids)
            except BrokerError:
                # The topic may have been created anew, or have other rules.
                await self._forget(group)
                raise

    async def _forget(self, group: MessageGroup) -> None:
        stack, _ = self._producers.pop((group.topic, group.schema), (None, None))
        if stack is not None:
            with suppress(BrokerError):
                await stack.aclose()

    async def _producer(self, group: MessageGroup) -> Any:
        key = (group.topic, group.schema)
        if key in self._producers:
            self._producers.move_to_end(key)
            return self._producers[key][1]
        if len(self._producers) >= PRODUCERS_MAX:
            _, (oldest, _) = self._producers.popitem(last=False)
            await oldest.aclose()
        stack = AsyncExitStack()
        options: dict[str, Any] = {}
        if group.schema is not None:
            options["subject"] = group.schema.subject
            options["schema_version"] = group.schema.version
        opening = self._client.producer(group.topic, **options)
        producer = await stack.enter_async_context(opening)
        self._producers[key] = (stack, producer)
        return producer

    async def close(self) -> None:
        """Close all producers."""
        async with AsyncExitStack() as all_stacks:
            for stack, _ in self._producers.values():
                all_stacks.push_async_callback(stack.aclose)


@asynccontextmanager
async def open_direct(client: Client) -> AsyncIterator[Publisher]:
    """Open the publisher of a source without positions."""
    publisher = DirectPublisher(client)
    try:
        yield publisher
    finally:
        await publisher.close()


def is_of_message(error: BrokerError, topic: str, own_topic: str) -> bool:
    """
    Return whether a message for *topic* has caused *error*.

    *own_topic* is that of the connector: what may not be done there, or is missing, is
    not due to a message.  Another topic is one that the message has chosen.
    """
    if topic == own_topic:
        return isinstance(error, InvalidRequest)
    return isinstance(error, REFUSALS)


async def find_refused(
    client: Client, name: str, groups: Sequence[MessageGroup], own_topic: str
) -> dict[int, str]:
    """
    Return which messages of *groups* the broker refuses, and why, by their numbers.

    Messages are staged together, and those of which the broker refuses one in two
    halves: to find one of a million takes forty requests.  Nothing is published.
    *own_topic* is that of the connector; see ``is_of_message``.
    """
    refused = {}
    staging = client.staging(f"{QUERY_PREFIX}{name}:trial", 0)
    for group in groups:
        count = len(group.numbers)
        ranges = [(0, count)] if count else []
        while ranges:
            start, end = ranges.pop()
            messages = group.batch.slice(start, end - start)
            part = staging.part("trial")
            try:
                await part.write(group.topic, messages, schema=group.schema)
                await part.finish()
            except REFUSALS as error:
                await part.abort()
                if isinstance(error, QuotaExceeded) or not is_of_message(
                    error, group.topic, own_topic
                ):
                    # The connector may not publish there at all, or not now.
                    break
                if end - start == 1:
                    refused[group.numbers[start]] = str(error)
                    continue
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
    # What the broker does not drop expires.
    with suppress(Refused):
        await staging.abort()
    return refused


async def ensure_topic(
    client: Client,
    topic: str,
    *,
    partitions: int | None = None,
    deduplication_age_s: float | None = None,
    retention: Retention | None = None,
) -> None:
    """
    Create *topic* unless it exists.

    An existing topic without deduplication gets it if *deduplication_age_s* is given.
    """
    window = None
    if deduplication_age_s is not None:
        window = Deduplication(age_s=deduplication_age_s)
    names = await client.topics.partitions(topic)
    while not names:
        try:
            await client.topics.create(
                topic, partitions=partitions, retention=retention, deduplication=window
            )
        except AlreadyExists:
            # Somebody else was faster.
            names = await client.topics.partitions(topic) or [topic]
        except ConnectionLost:
            # Whether it was created is not known.
            names = await client.topics.partitions(topic)
        else:
            return
    if window is not None:
        facts = await client.topics.describe(names[0])
        if facts.policy.deduplication is None:
            await client.topics.configure(topic, deduplication=window)
