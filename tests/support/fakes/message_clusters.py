"""Brokers of a cluster with messages, but without storage and network, and a ledger."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pydanube.aio.futures import completion
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, NotOwner, ObjectsUnavailable
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.wire.files.journal_format import Batch, TopicSealed
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.cluster.controller import Controller
from pydanube_broker.cluster.journal_host import JournalHost
from pydanube_broker.cluster.journal_removal import JournalRemoval
from pydanube_broker.cluster.pure.directions import Director
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.cluster.session_journals import OwnSessionJournal
from pydanube_broker.cluster.shard_owners import ShardOwners
from pydanube_broker.cluster.takeover import Takeovers
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.metadata.store import HasValue, Put
from pydanube_broker.storage.config import JournalConfig, ObjectJournalConfig
from pydanube_broker.storage.journal.object_journal import open_object_journal
from support.fakes.batches import frame_of, payloads_of
from support.fakes.clusters import TTL_S, LateStore
from support.fakes.object_journals import JOURNAL_ID, Link

if TYPE_CHECKING:
    from random import Random

    from pydanube.objects.memory import MemoryObjects
    from support.fakes.memory_store import MemoryStore

RETRIES = RetryPolicy(first_s=0.01, max_s=0.1)


class Ledger:
    """
    What producers and readers were told.

    A message that a reader has seen is there for good, with its offset, so only those
    after it are compared again.
    """

    def __init__(self) -> None:
        self.acked: dict[int, dict[int, bytes]] = {}
        """The acknowledged messages by topic and offset."""
        self.acked_ends: dict[int, int] = {}
        """The end of the acknowledged messages, by topic."""
        self.seen: dict[int, list[bytes]] = {}
        """The messages that any reader has seen, by topic."""
        self.seen_ends: dict[int, int] = {}
        """The highest end that a reader has seen, by topic."""
        self.sent: set[bytes] = set()
        """The payloads that were ever sent."""
        self.refused: set[bytes] = set()
        """The payloads that were never appended, as their producers were told."""
        self._payloads: set[bytes] = set()
        # The next number of each producer of a topic, after the messages of `seen`.
        self._sequences: dict[tuple[int, bytes], int] = {}

    def ack(self, topic_id: int, offset: int, payload: bytes) -> None:
        acked, seen = self.acked.setdefault(topic_id, {}), self.seen.get(topic_id, ())
        assert acked.setdefault(offset, payload) == payload, "forked"
        assert offset >= len(seen) or seen[offset] == payload, f"forked at {offset}"
        self.acked_ends[topic_id] = max(self.acked_ends.get(topic_id, 0), offset + 1)

    def refuse(self, payload: bytes) -> None:
        assert payload not in self._payloads, f"refused, but there: {payload!r}"
        self.refused.add(payload)

    def read(
        self, topic_id: int, payloads: list[bytes], *, is_stale: bool = False
    ) -> None:
        """
        Compare all messages of a topic, as a reader sees them.

        A broker that is cut off may be *stale*: the end may be missing.
        """
        acked, seen = self.acked.get(topic_id, {}), self.seen.setdefault(topic_id, [])
        if not is_stale:
            for offset in range(len(payloads), self.acked_ends.get(topic_id, 0)):
                assert offset not in acked, f"lost: {acked[offset]!r} at {offset}"
        common = min(len(seen), len(payloads))
        if payloads[:common] != seen[:common]:
            offset = next(at for at in range(common) if payloads[at] != seen[at])
            raise AssertionError(f"forked at {offset}, which a reader has seen")
        for offset in range(common, len(payloads)):
            payload = payloads[offset]
            assert acked.get(offset, payload) == payload, f"forked at {offset}"
            self._see(topic_id, payload)
        if is_stale:
            return
        assert len(payloads) >= self.seen_ends.get(topic_id, 0), "offsets go back"
        self.seen_ends[topic_id] = len(payloads)

    def _see(self, topic_id: int, payload: bytes) -> None:
        assert payload not in self._payloads, "duplicated"
        assert payload in self.sent, f"invented: {payload!r}"
        assert payload not in self.refused, f"refused, but there: {payload!r}"
        producer, sequence, _ = payload.split(b":")
        expected = self._sequences.get((topic_id, producer), 0)
        assert int(sequence) == expected, f"out of order: {payload!r}"
        self._sequences[topic_id, producer] = expected + 1
        self._payloads.add(payload)
        self.seen[topic_id].append(payload)


class SlowLink(Link):
    """The way to an object store whose requests take their time."""

    latency_s = 0.01

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.random() * self.latency_s)
        if self.is_cut:
            raise ObjectsUnavailable("the process is dead")


class TopicServer:
    """The messages of one topic at one broker."""

    def __init__(self, journal, topic_id: int, shard: int, sealed: list[bytes]) -> None:
        state, frames = journal.state.topics[topic_id], journal.recovered.pop(topic_id)
        recovered = payloads_of(frames)
        base = frames[0].base if frames else len(sealed)
        assert base <= len(sealed), f"a gap between segments and {base}"
        # If this session is over already, the next owner has perhaps sealed more.
        for payload, other in zip(sealed[base:], recovered, strict=False):
            assert payload == other, f"forked: {payload!r} and {other!r}"
        self.payloads = [*sealed, *recovered[len(sealed) - base :]]
        self.end = len(self.payloads)
        """The end of what is committed."""
        self.sealed_end = len(sealed)
        self.is_open = True
        self.epoch = state.epoch
        self.shard = shard
        assert self.end == max(state.end_offset, len(sealed))
        self._topic_id = topic_id
        self._journal = journal
        self._sequences = {
            each.name: each.next_sequence for each in state.producers.values()
        }

    async def seal(self, store) -> None:
        """Store what is committed as a segment, if this is still the owner."""
        base, end = self.sealed_end, self.end
        if base == end:
            return
        segment = SegmentEntry(
            base=base,
            end=end,
            epoch=self.epoch,
            count=end - base,
            byte_count=1,
            # The messages are in the name, in place of an object.
            object_name=b",".join(self.payloads[base:end]).decode(),
            first_publish_time=0,
            last_publish_time=0,
            sealed_at=0,
            is_uploaded=True,
        )
        await store.transaction(
            [HasValue(keys.SHARD_EPOCHS.key(self.shard), self.epoch)],
            [Put(keys.segment(self._topic_id, base), segment)],
        )
        self.sealed_end = end
        self._journal.append(TopicSealed(self._topic_id, end), None, sync=False)

    async def publish(self, producer: str, sequence: int, payload: bytes) -> int:
        """Append a message, or wait for the one that was appended before."""
        if sequence < self._sequences.get(producer, 0):
            await self._journal.sync()
            return self.payloads.index(payload)
        if not self.is_open:
            raise NotOwner("the shard is leaving")
        frame = frame_of(
            [payload], producer=producer, producer_id=1, base_sequence=sequence
        )
        offset = len(self.payloads)
        frame.stamp(offset, self.epoch)
        batch = Batch(self._topic_id, frame)

        def append(done):
            self._journal.append(batch, partial(self._on_done, done))
            self.payloads.append(payload)
            self._sequences[producer] = sequence + 1

        await completion(append)
        return offset

    def _on_done(self, done, error) -> None:
        if error is None:
            self.end += 1
        done(error)


class MessageServer:
    """The messages of all shards at one broker; implements ``ShardServer``."""

    def __init__(self, session, journal, store) -> None:
        self.topics: dict[int, TopicServer] = {}
        self._store = store
        self._session = session
        self._journal = journal
        self._shards: dict[int, list[int]] = {}
        self._violation: AssertionError | None = None

    async def serve(self, shard, epoch, topics):
        try:
            await self._serve(shard, topics)
        except AssertionError as error:
            # ``Takeovers`` tries again after any error; see ``seal_forever``.
            self._violation = error
            raise

    async def _serve(self, shard, topics):
        manifest = MetadataManifest(self._store)
        sealed = {topic_id: await manifest.load(topic_id) for topic_id in topics}
        opened = {}
        for topic_id, segments in sealed.items():
            payloads = [
                payload
                for segment in segments
                for payload in segment.object_name.encode().split(b",")
            ]
            opened[topic_id] = TopicServer(self._journal, topic_id, shard, payloads)
        self._shards[shard] = list(topics)
        self.topics |= opened

    async def seal_forever(self, rng: Random) -> None:
        """Seal topics and trim the journal; raise what serving has violated."""
        while True:
            await asyncio.sleep(rng.random() * 2.0)
            if self._violation is not None:
                raise self._violation
            for topic in list(self.topics.values()):
                if topic.is_open and rng.random() < 0.5:
                    with suppress(BrokerError):
                        await topic.seal(self._store)
            await self._journal.trim(self._sealed_offset_of, None)

    def _sealed_offset_of(self, topic_id):
        if topic_id in self.topics:
            return self.topics[topic_id].sealed_end
        state = self._journal.state.topics.get(topic_id)
        return None if state is None else state.sealed_offset

    def refuse_messages(self, shard):
        for topic_id in self._shards[shard]:
            self.topics[topic_id].is_open = False

    def stop(self, shard):
        for topic_id in self._shards.pop(shard, ()):
            del self.topics[topic_id]

    def find(self, topic_id: int) -> TopicServer:
        self._session.check()
        if topic_id not in self.topics:
            raise NotOwner("the topic is elsewhere")
        return self.topics[topic_id]


class MessageBroker:
    """One run of a broker."""

    def __init__(
        self,
        store: MemoryStore,
        objects: MemoryObjects,
        broker_id: str,
        rng: Random,
    ) -> None:
        self.broker_id = broker_id
        self.metadata = LateStore(store, rng)
        self.objects = SlowLink(objects, rng)
        self.server: MessageServer | None = None
        self.session = None
        self.takeovers: Takeovers | None = None
        self.removal: JournalRemoval | None = None
        self._rng = rng

    async def run(self) -> None:
        """Serve until cancelled, or until the session is over."""
        loop, rng = asyncio.get_running_loop(), self._rng
        record = SessionRecord(
            broker_id=self.broker_id,
            addresses={},
            started_at=int(loop.time() * 1e6),
        )
        session_id = rng.randbytes(16).hex()
        async with (
            open_cluster_session(
                self.metadata, record, ttl_s=TTL_S, new_id=lambda: session_id
            ) as self.session,
            open_object_journal(
                self.objects,
                OwnSessionJournal(self.session, self.metadata, kind="object"),
                JournalConfig(file_bytes_max=rng.choice([2000, 20_000])),
                ObjectJournalConfig(
                    linger_ms=rng.choice([0, 20]),
                    group_bytes_max=rng.choice([1024, 100_000]),
                ),
                journal_id=JOURNAL_ID,
                new_session_id=lambda: bytes.fromhex(session_id),
                clock=loop.time,
                retries=RETRIES,
                close_s=0.0,
            ) as journal,
            task_scope() as tasks,
        ):
            self.server = MessageServer(self.session, journal, self.metadata)
            owners = ShardOwners(self.session)
            host = JournalHost(
                session_id,
                self.metadata,
                self.server,
                journal=journal,
                journal_id=JOURNAL_ID,
                objects=self.objects,
                manifest=MetadataManifest(self.metadata),
                counts=owners.counts,
            )
            self.metadata.has_session = True
            controller = Controller(
                self.session,
                self.metadata,
                Director(rest_s=5.0),
                clock=loop.time,
                wall_clock_us=lambda: 0,
            )
            tasks.run(controller.run(), "control")
            self.removal = JournalRemoval(
                self.metadata,
                self.objects,
                lambda: controller.is_controller,
                interval_s=1.0,
            )
            tasks.run(self.removal.run(), "remove journals")
            tasks.run(self.server.seal_forever(rng), "seal")
            self.takeovers = Takeovers(
                self.session, self.metadata, host, owners, retries=RETRIES
            )
            await self.takeovers.run()
            # What was in flight may still be stored, until another session fences it.
            await asyncio.sleep(rng.random() * 3.0)
