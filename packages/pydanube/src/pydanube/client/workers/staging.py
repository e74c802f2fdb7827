"""
Staged batches: many tasks write parts, and one commit publishes them together.

A query, such as a stream in Spark, writes one *version* of its output after the
other.  Each of many tasks stages a *part* of the version: the broker stores it, but
does not deliver it.  When all tasks are done, one commit publishes all parts together,
and exactly once even if it is repeated.

A part writer keeps batches until the broker has written them.  When the connection
breaks, the next call opens the part again and sends the missing batches; there is no
background task.

In a cluster, a part consists of pieces.  Each piece has messages of one topic, is
staged at the broker that serves the topic, and is safe when it is finished.  The writer
keeps its batches until then, and stages it again if it is lost with its broker.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydanube.aio.tasks import run_all
from pydanube.client.connections.channel import Channel
from pydanube.client.connections.connection import BrokerConnection
from pydanube.client.connections.partitions import existing_partitions
from pydanube.client.connections.requester import Requester, retry
from pydanube.client.messages.options import parse_codec
from pydanube.client.pure.batching import cut
from pydanube.client.pure.outgoing import OutgoingBatch, arrow_batches
from pydanube.client.pure.routing import Router, fnv1a_64
from pydanube.model.arguments import checks_arguments
from pydanube.model.choices import CompressionName
from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    Draining,
    InvalidRequest,
    Refused,
    Remedy,
    StagedPartNotFound,
    StagingClosed,
    Unavailable,
)
from pydanube.model.names import parse_client_name
from pydanube.model.schemas import SchemaReference
from pydanube.model.staging import (
    PartKey,
    StagedCommit,
    StagedPart,
    StagingDescription,
    TransactionAcks,
    is_repeat,
)
from pydanube.wire.batches import INT64_MAX, BatchFrame, BatchHeader, Codec
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa

INFLIGHT_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes of a part that may be in flight."""
PIECES_BYTES_MAX = 32 * 1024 * 1024
"""In a cluster, the largest piece of a part is finished when all have this size."""
COMMIT_RETRY_S = 120.0
"""The shortest time for which a commit is repeated if no broker answers."""


@checks_arguments
class Staging:
    """
    One version of a query's output; made by ``Client.staging``, which sends no request.

    The query identifies the writer across restarts.  The version is the number of the
    batch; the numbers of a query only rise.
    """

    def __init__(self, client: Requester, query: str, version: int) -> None:
        if not 0 <= version <= INT64_MAX:
            raise InvalidRequest(f"version is {version}: it must be at least 0")
        self.query = parse_client_name("query", query)
        self.version = version
        self._client = client

    async def is_committed(self) -> bool:
        """
        Return whether the query has committed this version, or a later one.

        Raises:
            VersionBehind: It has committed a version that is more than 100 above this
                one, so its writer is another one.
            PermissionDenied: The query belongs to another principal.
        """
        facts = await self._describe(is_progress_only=True)
        return is_repeat(self.query, self.version, facts.committed_version)

    async def describe(self) -> StagingDescription:
        """Return the progress of the query, and what is staged for it."""
        return await self._describe(is_progress_only=False)

    async def _describe(self, *, is_progress_only: bool) -> StagingDescription:
        request = pb.DescribeStaging(
            query=self.query, is_progress_only=is_progress_only
        )
        answer = await self._client.send_request(request)
        return from_wire(StagingDescription, answer, query=self.query)

    def part(
        self, name: str, *, compression: CompressionName | None = None
    ) -> PartWriter:
        """
        Return the writer of one part; this sends no request to the broker yet.

        Args:
            name: Identifies the writer, such as ``"3-17"`` for attempt 17 of partition
                3.  Two parts of the same name are still different parts.
            compression: ``"lz4"``, ``"zstd"`` or None.
        """
        key = PartKey(
            query=self.query,
            version=self.version,
            name=parse_client_name("part", name),
            part_id=uuid.uuid4().hex,
        )
        return PartWriter(self._client, key, parse_codec(compression))

    async def commit(self, parts: Sequence[StagedPart]) -> StagedCommit:
        """
        Publish all of *parts*, in their order, and drop all other parts.

        If the version, or a later one, is already committed, this does nothing.

        Durability: On return every message is on disk in its topic.  Once the
            broker has started to publish, it finishes, even after a crash.

        Ordering: In each topic, the parts follow each other in the given order, and
            the messages of a part in the order in which they were written.  A reader
            may see the first messages before the last ones are published.

        Cancellation: The version may or may not be committed; repeating is safe.

        Raises:
            StagedPartNotFound: A part has expired, was dropped, or was never
                finished.  Nothing is published: stage the version again.
            TopicNotFound: A topic was deleted since.  Nothing is published.
            CorruptStage: A part is damaged.  Nothing is published.
            VersionBehind: The query has committed a version that is more than 100 above
                this one.  Nothing is published.
            ProducerBusy, QuotaExceeded: A topic has an exclusive producer, or as
                many as it may.  Nothing is published.
            DiskFull, Unavailable: Repeat; the version may be committed already.
        """
        return await self._commit(self._commit_request(parts))

    async def commit_transaction(
        self, parts: Sequence[StagedPart], acks: Sequence[TransactionAcks]
    ) -> StagedCommit:
        """Commit as ``commit`` does, and acknowledge messages; for ``Transaction``."""
        request = self._commit_request(parts)
        request.is_transaction = True
        request.acks.extend(to_wire(pb.TransactionAcks, each) for each in acks)
        return await self._commit(request)

    def _commit_request(self, parts: Sequence[StagedPart]) -> pb.CommitStaged:
        return pb.CommitStaged(
            query=self.query,
            version=self.version,
            parts=[
                to_wire(pb.StagedPart, piece)
                for part in parts
                if part.batch_count
                for piece in part.pieces or (part,)
            ],
        )

    async def _commit(self, request: pb.CommitStaged) -> StagedCommit:
        # In a cluster, the broker that has the messages to acknowledge commits.
        topic = request.acks[0].topic if request.acks else ""

        async def attempt() -> Any:
            connection = await self._client.connection(topic)
            try:
                return await self._client.request_at(connection, request)
            except BrokerError as error:
                self._client.on_error(topic, connection.url, error)
                raise

        answer = await retry(attempt, max(COMMIT_RETRY_S, self._client.retry_s))
        return from_wire(StagedCommit, answer)

    async def abort(self) -> None:
        """
        Drop everything that is staged for the version, unless it is committed.

        The version may be staged again.
        """
        request = pb.DropStaged(query=self.query, version=self.version)
        await self._client.send_request(request)


class PartWriter:
    """
    The writer of one part; made by ``Staging.part``.

    Only one task may use it at a time.

    Bounds: At most 16 MiB are in flight; ``write`` waits.  In a cluster, it keeps up to
        32 MiB and a batch.
    """

    def __init__(self, client: Requester, key: PartKey, codec: Codec) -> None:
        self.key = key
        self._client = client
        self._codec = codec
        # By topic: its partitions, and the router of messages to them.
        self._routes: dict[str, tuple[Sequence[str], Router]] = {}
        self._stages: dict[str, _Stage] = {}
        # Whether the brokers are a cluster, as soon as it is known.
        self._has_pieces: bool | None = None
        self._pieces: list[StagedPart] = []
        self._changed = asyncio.Event()
        self._failure: BrokerError | None = None
        self._batch_count = 0
        self._message_count = 0
        self.inflight_bytes = 0
        """The bytes that the broker has not written yet."""

    async def write(
        self,
        topic: str,
        batch: pa.RecordBatch | pa.Table,
        *,
        schema: SchemaReference | None = None,
    ) -> None:
        """
        Stage messages for *topic*.

        Args:
            topic: ``/{namespace}/{topic}``, which must exist.  Messages to a
                partitioned topic are routed as by a producer.
            batch: The column ``payload`` and optionally ``key``, ``attributes``,
                ``publish_time``, ``deliver_at`` and ``expires_at``.
            schema: The writer schema of the payloads; one for each topic.

        Durability: None yet; see ``finish``.

        Ordering: In each topic, in the order of the calls.

        Cancellation: The part cannot be used after it.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: The topic is not reliable, or the batch has wrong columns.
            MessageTooLarge, InvalidPayload, SchemaMismatch: The topic does not accept
                the messages.
            OtherSchema, SchemaNotFound: The topic does not accept the schema.
            QuotaExceeded, DiskFull: The broker has no space for it.
            StagingClosed: The version is committed, or was dropped.
            StagedPartNotFound: The broker has lost earlier batches of the part.
            ProducerBusy: In a cluster: a topic has an exclusive producer.

        After any of these errors the broker drops the part: stage it again.
        """
        self._check()
        try:
            batches = arrow_batches(batch)
        except BaseException as error:
            self._fail(error)
            raise
        await self._write_batches(topic, batches, schema)

    async def _write_batches(
        self,
        topic: str,
        batches: Iterable[OutgoingBatch],
        schema: SchemaReference | None,
    ) -> None:
        """Stage the messages of *batches*, as ``write`` does."""
        self._check()
        try:
            for batch in batches:
                await self._write(topic, batch, schema)
        except BaseException as error:
            self._fail(error)
            raise

    async def finish(self) -> StagedPart:
        """
        Finish the part, and return it for the commit.

        Durability: On return the part is on the broker's disk, in a cluster in the
            object store, and stays there until the version is committed or dropped, or
            the part expires.

        Raises: As ``write``.
        """
        self._check()
        byte_count = 0
        try:
            await self._wait_until(lambda: not self.inflight_bytes)
            if self._has_pieces:
                await self._finish_pieces(list(self._stages.values()))
                byte_count = sum(each.byte_count for each in self._pieces)
            elif self._batch_count:
                request = to_wire(
                    pb.FinishPart,
                    self.key,
                    batch_count=self._batch_count,
                    message_count=self._message_count,
                )
                byte_count = (await self._client.send_request(request)).byte_count
        except BaseException as error:
            self._fail(error)
            raise
        self._close(StagingClosed("the part is finished"))
        return StagedPart(
            name=self.key.name,
            part_id=self.key.part_id,
            batch_count=self._batch_count,
            message_count=self._message_count,
            byte_count=byte_count,
            pieces=tuple(self._pieces),
        )

    async def abort(self) -> None:
        """
        Drop the part; if the broker cannot be reached or refuses it, the part expires.

        In a cluster, finished pieces stay until the version is committed or dropped.
        """
        keys = [stage.key for stage in self._stages.values()]
        topics = list(self._stages) if self._has_pieces else [""]
        self._close(StagingClosed("the part was aborted"))
        for topic, key in zip(topics, keys, strict=False):
            with suppress(Unavailable, Refused):
                connection = await self._client.connection(topic)
                await self._client.request_at(connection, to_wire(pb.DropPart, key))

    def _on_changed(self) -> None:
        """Note that the broker has written a batch, or that a channel has ended."""
        self._changed.set()

    # Stages.

    async def _write(
        self, topic: str, batch: OutgoingBatch, schema: SchemaReference | None
    ) -> None:
        if topic not in self._routes:
            self._routes[topic] = await self._find_route(topic)
        partitions, router = self._routes[topic]
        is_partitioned = len(partitions) > 1
        pieces = batch.split(router) if is_partitioned else [(0, None, batch)]
        for number, _, piece in pieces:
            name = partitions[number]
            stage = self._stages.get(name)
            if stage is None:
                stage = _Stage(self, self._client, name, schema, await self._new_key())
                await stage._open()
                self._stages[name] = stage
            elif stage.schema != schema:
                raise InvalidRequest(f"a part has one schema for {name}")
            for fitting in cut(piece, stage.batch_bytes_max):
                await self._wait_until(lambda: self.inflight_bytes < INFLIGHT_BYTES_MAX)
                stage.ship(fitting, self._codec)
                self._batch_count += 1
                self._message_count += fitting.count
                if self._has_pieces:
                    await self._finish_large_pieces()

    async def _new_key(self) -> PartKey:
        """Return the key of the next stage; in a cluster, each has its own."""
        if self._has_pieces is None:
            connection = await retry(self._client.connection, self._client.retry_s)
            self._has_pieces = connection.welcome.is_clustered
        return _renewed(self.key) if self._has_pieces else self.key

    async def _finish_large_pieces(self) -> None:
        stages = self._stages.values()
        while sum(stage.kept_bytes for stage in stages) >= PIECES_BYTES_MAX:
            await self._finish_pieces([max(stages, key=lambda each: each.kept_bytes)])

    async def _finish_pieces(self, stages: Sequence[_Stage]) -> None:
        """Finish the pieces of *stages*, and stage those again that are lost."""

        async def attempt() -> None:
            await self._wait_until(lambda: not any(s.has_unwritten for s in stages))
            waiting = [each for each in stages if each.topic in self._stages]
            await run_all(self._finish_piece(each) for each in waiting)

        await retry(attempt, self._client.retry_s)

    async def _finish_piece(self, stage: _Stage) -> None:
        self._pieces.append(await stage.finish())
        del self._stages[stage.topic]
        stage.close()

    async def _find_route(self, topic: str) -> tuple[Sequence[str], Router]:
        partitions = await existing_partitions(self._client, topic)
        router = Router(len(partitions))
        # Writers start with different partitions.
        router.current = fnv1a_64(self.key.name.encode()) % len(partitions)
        return partitions, router

    async def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait until *is_reached*, and open broken channels again."""
        while True:
            while broken := [s for s in self._stages.values() if not s.is_connected]:
                for stage in broken:
                    await stage._open()
            if is_reached():
                return
            self._changed.clear()
            await self._changed.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, BrokerError):
            self._close(error)
        else:
            self._close(StagingClosed("writing the part failed; stage it again"))

    def _close(self, reason: BrokerError) -> None:
        self._failure = reason
        for stage in self._stages.values():
            stage.close()
        self._stages.clear()


class _Stage(Channel):
    """One topic of a part: its channel, and the batches in flight."""

    _CLOSE_REQUEST = pb.CloseStage()

    def __init__(
        self,
        part: PartWriter,
        client: Requester,
        topic: str,
        schema: SchemaReference | None,
        key: PartKey,
    ) -> None:
        super().__init__(client, topic)
        self.schema = schema
        self.key = key
        # The batches of a piece, which are sent again if the broker has lost them.
        self._kept: list[BatchFrame] | None = [] if part._has_pieces else None
        self.kept_bytes = 0
        self.batch_bytes_max = 0
        self._part = part
        self._producer = ""
        self._written_with = (0, 0)
        self._next_sequence = 0
        self._outgoing: deque[BatchFrame] = deque()
        self._ending: BrokerError | None = None
        # Since when the channel is opened again and again without a further written
        # message.
        self._reopening_since: float | None = None
        self._written_max = 0
        self._backoff = client.backoff()

    async def _open(self) -> None:
        """
        Open the channel, and send the batches that the broker does not have.

        A channel that opens and ends again, for example because the broker's disk is
        full, is opened again for ``retry_s``, with pauses.

        Raises: Why the channel cannot be opened, or has ended.
        """
        ending, now = self._ending, self._loop.time()
        if ending is not None:
            # A writer may be busy with other things for long before it writes again.
            if self._reopening_since is None:
                self._reopening_since = now
            is_over = now - self._reopening_since > self._client.retry_s
            if is_over or not self._may_continue_after(ending):
                # The broker has refused the part, or batches for too long.
                raise ending.with_traceback(None)
            if not isinstance(ending, ConnectionLost | Draining):
                await self._backoff.wait()
        await super()._open()

    def _may_continue_after(self, ending: BrokerError) -> bool:
        if self._kept is None:
            return isinstance(ending, ConnectionLost | Draining)
        return ending.remedy is not Remedy.GIVE_UP

    def _open_request(self) -> pb.OpenStage:
        schema = to_wire(pb.SchemaReference, self.schema)
        return to_wire(pb.OpenStage, self.key, topic=self.topic, schema=schema)

    def _on_opened(self, connection: BrokerConnection, answer: Any) -> None:
        self._producer = answer.producer
        self._written_with = (answer.schema_id, answer.schema_version)
        self.batch_bytes_max = min(answer.batch_bytes_max, connection.batch_bytes_max)
        self._resume(connection, answer.next_sequence)
        if not self._outgoing:
            self._note_progress()

    def ship(self, batch: OutgoingBatch, codec: Codec) -> None:
        """Send *batch*, and keep it until the broker has written it."""
        now = self._client.wall_clock_ns() // 1000
        first, last = batch.times(now)
        schema_id, schema_version = self._written_with
        header = BatchHeader(
            producer_id=1,
            producer_epoch=1,
            base_sequence=self._next_sequence,
            first_publish_time=first,
            last_publish_time=last,
            schema_id=schema_id,
            schema_version=schema_version,
            producer=self._producer,
        )
        frame = batch.encode(header, codec)
        self._next_sequence += frame.count
        self._outgoing.append(frame)
        if self._kept is not None:
            self._kept.append(frame)
            self.kept_bytes += frame.byte_count
        self._part.inflight_bytes += frame.byte_count
        if self._connection is not None:
            self._connection.send_batch(Kind.STAGE, frame, self._channel)

    def _on_frame(self, frame: ReceivedFrame) -> None:
        message: Any = frame.message
        if frame.kind is Kind.STAGED:
            self._drop_written(message.next_sequence)
            if message.next_sequence > self._written_max or not self._outgoing:
                self._note_progress()
            self._written_max = max(self._written_max, message.next_sequence)
            self._part._on_changed()

    def _note_progress(self) -> None:
        self._reopening_since = None
        self._backoff.reset()

    def _on_closed(self, reason: BrokerError) -> None:
        super()._on_closed(reason)
        self._ending = reason
        self._part._on_changed()

    @property
    def has_unwritten(self) -> bool:
        """Whether the broker has not written all batches yet."""
        return bool(self._outgoing)

    async def finish(self) -> StagedPart:
        """
        Finish the piece, all of which the broker has written, and return it.

        After an error, it is staged again as another one, because its outcome is
        unknown.
        """
        assert self._kept is not None
        part = StagedPart(
            name=self.key.name,
            part_id=self.key.part_id,
            batch_count=len(self._kept),
            message_count=self._next_sequence,
            byte_count=0,
        )
        request = to_wire(
            pb.FinishPart,
            self.key,
            batch_count=part.batch_count,
            message_count=part.message_count,
        )
        if self._connection is None:
            raise ConnectionLost(f"the stage of {self.topic} is not open")
        try:
            answer = await self._client.request_at(self._connection, request)
        except BaseException:
            self.close()
            self.key = _renewed(self.key)
            self._ending = None
            raise
        return replace(part, byte_count=answer.byte_count)

    def close(self) -> None:
        """Close the channel without waiting."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_lost:
            connection.abandon_channel(self._CLOSE_REQUEST, self._channel)
        self._drop_written(self._next_sequence)

    def _resume(self, connection: BrokerConnection, next_sequence: int) -> None:
        self._drop_written(next_sequence)
        if self._kept is not None:
            # Another broker has nothing of the piece.
            self._drop_written(self._next_sequence)
            for frame in self._kept:
                if frame.header.base_sequence >= next_sequence:
                    self._outgoing.append(frame)
                    self._part.inflight_bytes += frame.byte_count
        expected = (
            self._outgoing[0].header.base_sequence
            if self._outgoing
            else self._next_sequence
        )
        if expected != next_sequence:
            raise StagedPartNotFound(
                f"the broker has {next_sequence} messages of the part "
                f"{self._part.key.name} for {self.topic}, and {expected} were written "
                "there; stage the part again"
            )
        for frame in self._outgoing:
            connection.send_batch(Kind.STAGE, frame, self._channel)

    def _drop_written(self, next_sequence: int) -> None:
        outgoing = self._outgoing
        while outgoing:
            header = outgoing[0].header
            if header.base_sequence + header.count > next_sequence:
                return
            self._part.inflight_bytes -= outgoing.popleft().byte_count


def _renewed(key: PartKey) -> PartKey:
    return replace(key, part_id=uuid.uuid4().hex)
