"""
Watches that continue at another member.

A member that hangs is as silent as a member without changes.  A watch therefore asks a
silent member for its progress.  Without an answer, it continues at another member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import MetadataUnavailable
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.client import WATCH, EtcdClient, Stream
from pydanube_broker.metadata.etcd.failures import Compacted, NoAnswer
from pydanube_broker.metadata.etcd.keyspace import Keyspace, stored_in
from pydanube_broker.metadata.store import Changes, RawChanges, Revision, Stored
from pydanube_broker.metadata.watches import difference, revisions_of

log = logging.getLogger(__name__)

SILENCE_S = 0.5
"""How long a member may be silent until it is asked."""

ANSWER_S = 0.7
"""How long the member may then take to answer."""

RETRY_S = 0.2
"""The least time between the beginnings of two attempts to watch."""

Load = Callable[[], Awaitable[RawChanges]]


async def watch_prefix(
    client: EtcdClient, keyspace: Keyspace, prefix: str, load: Load
) -> AsyncGenerator[RawChanges, None]:
    """
    Yield what *load* returns, which is everything below *prefix*, and later changes.

    If etcd has compacted changes that were not read yet, *load* is called again, and
    what differs is yielded.
    """
    begin, end = keyspace.range_of(prefix)
    first = await load()
    yield first
    revision = first.revision
    known = revisions_of(first.values)
    now = asyncio.get_running_loop().time
    while True:
        began_at = now()
        try:
            events = events_since(client, begin, end, revision + 1)
            async with aclosing(events) as batches:
                async for batch in batches:
                    changes = _changes_of(batch, keyspace)
                    revision = changes.revision
                    _remember(known, changes.values)
                    yield changes
        except Compacted:
            log.info("etcd has compacted changes below %s; reading all of them", prefix)
            try:
                present = await load()
            except MetadataUnavailable as error:
                log.warning("the watch of %s waits: %s", prefix, error)
                await asyncio.sleep(RETRY_S)
                continue
            revision = present.revision
            missed = difference(known, present.values)
            known = revisions_of(present.values)
            if missed:
                yield Changes(revision, missed)
        except (NoAnswer, MetadataUnavailable) as error:
            log.debug("the watch of %s continues at another member: %s", prefix, error)
            await asyncio.sleep(began_at + RETRY_S - now())


async def events_since(
    client: EtcdClient, begin: bytes, end: bytes, revision: int
) -> AsyncGenerator[list[pb.Event], None]:
    """
    Yield the events of *revision* and later ones; those of one revision at once.

    Raises:
        NoAnswer: The member does not answer; *client* goes on to another one.
        Compacted: etcd does not have this revision any more.
    """
    create = pb.WatchRequest()
    create.create_request.CopyFrom(
        pb.WatchCreateRequest(
            key=begin, range_end=end, start_revision=revision, fragment=True
        )
    )
    events: list[pb.Event] = []
    async with client.streaming(WATCH) as stream, _answers(stream, create) as answers:
        while True:
            answer = await answers.next()
            if answer.canceled:
                if answer.compact_revision:
                    raise Compacted(f"revision {revision} is compacted")
                raise NoAnswer(answer.cancel_reason or "etcd has ended the watch")
            events += answer.events
            if events and not answer.fragment:
                yield events
                events = []


class _Answers:
    """The answers of a stream, with a limit for silence."""

    def __init__(self, client_stream: Stream[pb.WatchResponse]) -> None:
        self._stream = client_stream
        # One at a time: a reader that is slow makes etcd wait.
        self._queue: asyncio.Queue[pb.WatchResponse | Exception] = asyncio.Queue(1)

    async def follow(self) -> None:
        """Read the answers; runs beside the reader of ``next``."""
        try:
            async for answer in self._stream.answers():
                await self._queue.put(answer)
            await self._queue.put(NoAnswer("etcd has ended the stream"))
        except Exception as error:  # noqa: BLE001  # The reader gets it.
            await self._queue.put(error)

    async def next(self) -> pb.WatchResponse:
        """
        Return the next answer, however long it takes.

        Raises:
            NoAnswer: The member does not even answer a request for its progress.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                return await self._take()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._stream.write(_PROGRESS)
                return await self._take()
        except TimeoutError as error:
            reason = f"silent for {SILENCE_S + ANSWER_S:.1f} s"
            self._stream.give_up(reason)
            raise NoAnswer(reason) from error

    async def _take(self) -> pb.WatchResponse:
        item = await self._queue.get()
        if isinstance(item, Exception):
            raise item
        return item


_PROGRESS = pb.WatchRequest()
_PROGRESS.progress_request.SetInParent()


@asynccontextmanager
async def _answers(
    stream: Stream[pb.WatchResponse], request: pb.WatchRequest
) -> AsyncIterator[_Answers]:
    answers = _Answers(stream)
    async with task_scope() as tasks:
        tasks.run(answers.follow(), "read a watch of etcd")
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                await stream.write(request)
        except TimeoutError as error:
            stream.give_up("it does not accept a watch")
            raise NoAnswer("etcd does not accept a watch") from error
        yield answers


def _changes_of(events: list[pb.Event], keyspace: Keyspace) -> RawChanges:
    values: dict[str, Stored[bytes] | None] = {}
    for event in events:
        entry = event.kv
        is_put = event.type == pb.Event.PUT
        values[keyspace.path(entry.key)] = stored_in(entry) if is_put else None
    return Changes(Revision(events[-1].kv.mod_revision), values)


def _remember(
    known: dict[str, Revision], values: Mapping[str, Stored[bytes] | None]
) -> None:
    for path, stored in values.items():
        if stored is None:
            known.pop(path, None)
        else:
            known[path] = stored.revision
