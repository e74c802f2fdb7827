"""
One run of a source: a task reads it, and another one maps, encodes and publishes.

The channel between them is bounded, so a source is read as fast as the broker stores.
What has been read meanwhile is published together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from typing import Any

from pydanube.aio.tasks import task_scope
from pydanube.client.client import Client
from pydanube.client.connections.telemetry import Telemetry
from pydanube.declarations.pure.sections import parse_duration
from pydanube.model.dead_letters import ORIGINAL_TOPIC
from pydanube.model.errors import (
    BrokerError,
    IncompatibleSchema,
    InvalidName,
    InvalidSchema,
)
from pydanube.model.names import TopicName
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube.model.schemas import SchemaReference
from pydanube_connect.channel import Channel
from pydanube_connect.connector import Source
from pydanube_connect.dead_letters import DeadLetters
from pydanube_connect.encoding import (
    MessageGroup,
    RegisteredSchemas,
    TopicEncoder,
    open_encoder,
)
from pydanube_connect.loading import DeclaredConnector
from pydanube_connect.publishing import (
    REFUSALS,
    Publisher,
    ensure_topic,
    find_refused,
    is_of_message,
    open_direct,
    open_staged,
)
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.pure.mapping import (
    Draft,
    InvalidRecord,
    RecordMapping,
    to_payload,
)
from pydanube_connect.pure.records import (
    Batch,
    Record,
    RecordSchema,
    size_of_value,
)
from pydanube_connect.pure.transforms import Transform
from pydanube_connect.status import ConnectorStatus, State

BATCH_MESSAGES_MAX = 10_000
"""How many messages are published together by default."""
WITH_SCHEMAS_MAX = 5000
"""How many messages are published together if each may have another schema."""
TOPICS_MAX = 10_000
"""To how many topics a source publishes at most."""


class SourceRun:
    """A run of a source until it ends, fails or is stopped."""

    def __init__(
        self,
        client: Client,
        declared: DeclaredConnector,
        source: Source,
        status: ConnectorStatus,
        change: Callable[[State], None],
        *,
        telemetry: Telemetry | None = None,
    ) -> None:
        """*change* is called with the new state of the connector."""
        spec = declared.spec
        self._telemetry = telemetry
        self._client = client
        self._declared = declared
        self._source = source
        self._status = status
        self._change = change
        self._mapping = RecordMapping(
            spec.mapping,
            spec.topic,
            has_schema=spec.schema is not None,
            uses_ids=spec.deduplicate is not None,
            keeps_schemas=not declared.transform,
        )
        self._encoders: dict[str, TopicEncoder] = {}
        self._schemas = RegisteredSchemas(client)
        self._messages_max = spec.batch.messages or BATCH_MESSAGES_MAX
        if source.finds_schemas(source.options):
            # A commit has at most 10,000 parts, each with one schema for a topic.
            self._messages_max = min(self._messages_max, WITH_SCHEMAS_MAX)
        self._bytes_max = parse_quantity(spec.batch.bytes, BYTE_UNITS) or 0
        wait = spec.batch.wait
        self._wait_s = 0.0 if wait is None else parse_duration(wait)

    async def run(self, stop: asyncio.Event) -> None:
        """
        Publish what the source yields, until its end or until *stop* is set.

        After *stop*, what has been read is published and acknowledged before the source
        is closed.
        """
        spec = self._declared.spec
        await self._encoder(spec.topic)
        if spec.dead_letters is not None:
            await ensure_topic(self._client, spec.dead_letters)
        async with self._open_publisher() as publisher:
            self._status.position = publisher.position
            channel: Channel[Batch] = Channel(self._messages_max, self._bytes_max)
            async with task_scope() as tasks:
                reading = tasks.start(self._read(publisher.position, channel))
                tasks.run(_close_after(stop, channel))
                self._change(State.RUNNING)
                try:
                    while batches := await channel.take(self._wait_s):
                        with self._sending(batches) as context:
                            await self._publish(publisher, batches, context)
                except Exception as error:
                    for batch in channel.take_nowait():
                        batch.on_failed(error)
                    raise
                if stop.is_set():
                    reading.cancel()
                else:
                    await reading

    def _open_publisher(self) -> AbstractAsyncContextManager[Publisher]:
        declared = self._declared
        if not self._source.has_positions:
            return open_direct(self._client)
        return open_staged(self._client, declared.name, declared.positions_topic)

    # Reading.

    async def _read(self, position: Any, channel: Channel[Batch]) -> None:
        batches: Any = self._source.batches(position)
        try:
            async with aclosing(batches):
                async for batch in batches:
                    try:
                        count = len(batch.records)
                        await channel.put(batch, max(count, 1), _size_of(batch))
                    except asyncio.CancelledError:
                        batch.on_failed(Transient("the connector is stopping"))
                        raise
                    except Transient as error:
                        batch.on_failed(error)
                        # The source stays open for the acknowledgements of others.
                        await asyncio.get_running_loop().create_future()
        finally:
            channel.close()

    # Publishing.

    @contextmanager
    def _sending(self, batches: Sequence[Batch]) -> Iterator[Mapping[str, str]]:
        """Trace the body; yield the attributes of its messages that say so."""
        if self._telemetry is None:
            yield {}
            return
        count = sum(len(each.records) for each in batches)
        span = self._telemetry.begin_send(self._declared.spec.topic, count, None)
        try:
            yield span.attributes
        except BaseException as error:
            span.end(error)
            raise
        span.end(None)

    async def _publish(
        self,
        publisher: Publisher,
        batches: Sequence[Batch],
        context: Mapping[str, str],
    ) -> None:
        try:
            position = self._position_of(batches[-1])
            work = await self._transform(batches)
            if context:
                work.outputs = [_in_trace(each, context) for each in work.outputs]
            groups, refused = await self._encode(work)
            try:
                await publisher.publish(groups, position)
            except REFUSALS:
                groups, refused = await self._without_refused(work)
                await publisher.publish(groups, position)
        except Exception as error:
            for batch in batches:
                batch.on_failed(error)
            raise
        status = self._status
        status.count_batch()
        status.dropped += work.dropped
        status.position = position
        status.lag = self._source.lag()
        for group in groups:
            if group.topic == self._declared.spec.dead_letters:
                status.dead_letters += group.batch.num_rows
            else:
                status.messages += group.batch.num_rows
                status.bytes += group.batch.column("payload").nbytes
        base = 0
        for batch in batches:
            end = base + len(batch.records)
            mine = {at - base: refused[at] for at in refused if base <= at < end}
            status.refused += len(mine)
            batch.on_stored(mine)
            base = end

    async def _without_refused(
        self, work: _Work
    ) -> tuple[list[MessageGroup], dict[int, str]]:
        """Return as ``_encode``, without the messages that the broker refuses."""
        # Topics and schemas may have changed since they were looked up.
        self._encoders.clear()
        self._schemas.forget()
        groups, refused = await self._encode(work)
        name, topic = self._declared.name, self._declared.spec.topic
        found = await find_refused(self._client, name, groups, topic)
        if found:
            work.invalid |= found
            groups, refused = await self._encode(work)
        return groups, refused

    def _position_of(self, batch: Batch) -> Any:
        if self._source.has_positions and batch.position is None:
            raise ConnectorFailed("the source has yielded a batch without position")
        return batch.position

    async def _transform(self, batches: Sequence[Batch]) -> _Work:
        """Return the records of *batches* with what the transform makes of them."""
        work = _Work([record for batch in batches for record in batch.records])
        transform = self._declared.transform
        if transform:
            # Functions of users may take long; other connectors continue meanwhile.
            await asyncio.to_thread(work.apply, transform)
        return work

    async def _encode(self, work: _Work) -> tuple[list[MessageGroup], dict[int, str]]:
        """
        Return the messages to publish, and the records to refuse with the reasons.

        A record of which one message is invalid is invalid as a whole, and is added to
        those of *work*.

        Raises:
            ConnectorFailed: A record is invalid, and there are no dead letters.
        """
        groups, refused = await self._encode_valid(work)
        if refused and self._declared.spec.schema is not None:
            # The schema may have a newer version, by which they are valid.
            self._encoders.clear()
            groups, refused = await self._encode_valid(work)
        while refused:
            work.invalid |= refused
            if not work.has_several:
                break
            # The other messages of these records are left out.
            groups, refused = await self._encode_valid(work)
        invalid = dict(work.invalid)
        has_dead_letters = self._declared.spec.dead_letters is not None
        if not invalid or (self._source.refuses and not has_dead_letters):
            return groups, invalid
        first = min(invalid)
        if not has_dead_letters:
            raise ConnectorFailed(
                f"a message cannot be published: {invalid[first]}; declare "
                "'dead_letters: /default/…' to publish such messages there"
            )
        groups.append(self._dead_letters(work.records, invalid))
        return groups, {}

    async def _encode_valid(
        self, work: _Work
    ) -> tuple[list[MessageGroup], dict[int, str]]:
        """Return the messages of valid records, and further invalid records."""
        invalid: dict[int, str] = {}
        drafts: dict[str, list[Draft]] = {}
        for number, record in zip(work.numbers, work.outputs, strict=True):
            if number in work.invalid:
                continue
            try:
                draft = self._mapping.draft(record, number)
                if draft.topic not in self._encoders:
                    TopicName.parse(draft.topic)
            except (InvalidRecord, InvalidName) as error:
                invalid[number] = str(error)
            else:
                drafts.setdefault(draft.topic, []).append(draft)
        groups = []
        for topic, each in drafts.items():
            try:
                encoder = await self._encoder(topic)
            except (InvalidRecord, BrokerError) as error:
                own_topic = self._declared.spec.topic
                if isinstance(error, BrokerError) and not is_of_message(
                    error, topic, own_topic
                ):
                    raise
                invalid |= {draft.number: f"{topic}: {error}" for draft in each}
                continue
            references, problems = await self._register(topic, each)
            for draft in each:
                if draft.schema in problems:
                    invalid[draft.number] = problems[draft.schema]
            valid = [draft for draft in each if draft.schema not in problems]
            encoded, refused = encoder.encode(valid, references)
            groups += encoded
            invalid |= refused
        return groups, invalid

    async def _register(
        self, topic: str, drafts: Sequence[Draft]
    ) -> tuple[dict[RecordSchema, SchemaReference], dict[RecordSchema | None, str]]:
        """Return the schemas of *drafts*, and why some cannot be registered."""
        schemas = dict.fromkeys(each.schema for each in drafts)
        schemas.pop(None, None)
        found: dict[RecordSchema, SchemaReference] = {}
        problems: dict[RecordSchema | None, str] = {}
        for schema in schemas:
            assert schema is not None
            try:
                found[schema] = await self._schemas.reference(topic, schema)
            except (InvalidSchema, IncompatibleSchema) as error:
                problems[schema] = str(error)
        return found, problems

    def _dead_letters(
        self, records: Sequence[Record], invalid: dict[int, str]
    ) -> MessageGroup:
        spec = self._declared.spec
        found = DeadLetters()
        for number, reason in sorted(invalid.items()):
            record = records[number]
            key = record.key
            found.add(
                _shown_payload(record.value),
                reason,
                key=key if isinstance(key, bytes) else None,
                attributes=record.attributes,
                origin={ORIGINAL_TOPIC: record.topic or spec.topic},
            )
        return MessageGroup(spec.dead_letters or "", found.batch(), None, None)

    async def _encoder(self, topic: str) -> TopicEncoder:
        """Return the encoder of *topic*, which is created if it does not exist."""
        spec, permit = self._declared.spec, self._declared.permit
        encoder = self._encoders.get(topic)
        if encoder is None and len(self._encoders) >= TOPICS_MAX:
            raise InvalidRecord(
                f"the source publishes to more than {TOPICS_MAX} topics; use fewer "
                "topics, and attributes to tell the messages apart"
            )
        if permit is not None and topic != spec.topic:
            # Also for a known topic: what was permitted may not be any more.
            await permit(topic)
        if encoder is None:
            age = spec.deduplicate
            await ensure_topic(
                self._client,
                topic,
                partitions=spec.partitions,
                deduplication_age_s=None if age is None else parse_duration(age),
            )
            directory = self._declared.file.parent
            encoder = await open_encoder(self._client, topic, spec.schema, directory)
            self._encoders[topic] = encoder
        return encoder


class _Work:
    """The records of some batches, by number, and the records to publish."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.outputs = records
        """The records to publish."""
        self.numbers: Sequence[int] = range(len(records))
        """The number of the record that each of them is made of."""
        self.invalid: dict[int, str] = {}
        """The reasons why records cannot be published, by number."""
        self.dropped = 0
        """How many records the transform has dropped."""
        self.has_several = False
        """Whether the transform has made several records of one."""

    def apply(self, transform: Transform) -> None:
        """Transform all records."""
        outputs: list[Record] = []
        numbers: list[int] = []
        for number, record in enumerate(self.records):
            if record.problem is not None:
                self.invalid[number] = record.problem
                continue
            try:
                found = transform.apply(record)
            except InvalidRecord as error:
                self.invalid[number] = str(error)
                continue
            self.dropped += not found
            self.has_several |= len(found) > 1
            outputs += found
            numbers += [number] * len(found)
        self.outputs, self.numbers = outputs, numbers


def _shown_payload(value: Any) -> bytes:
    """Return the payload of *value*, or a text that shows it if it has none."""
    try:
        return to_payload(value)
    except InvalidRecord:
        try:
            return repr(value).encode(errors="replace")
        except Exception as error:  # noqa: BLE001  # A class of the user may raise any.
            return f"a {type(value).__name__}: {type(error).__name__}".encode()


def _in_trace(record: Record, context: Mapping[str, str]) -> Record:
    """Return *record* with *context*, unless it belongs to a trace already."""
    if context.keys() & record.attributes.keys():
        return record
    return record.replace(attributes={**record.attributes, **context})


async def _close_after(stop: asyncio.Event, channel: Channel[Batch]) -> None:
    await stop.wait()
    channel.close()


def _size_of(batch: Batch) -> int:
    """Return about how large the values of *batch* are."""
    if batch.byte_count:
        return batch.byte_count
    return sum(size_of_value(each.value) for each in batch.records)
