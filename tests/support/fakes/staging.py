"""Parts that are staged at a broker without servers."""

from __future__ import annotations

import asyncio

from pydanube.model.names import TopicName
from pydanube.model.staging import PartKey, StagedPart
from pydanube_broker.broker.staging.staged_parts import producer_of
from support.fakes.batches import frame_of, payloads_of
from support.fakes.storages import until

A_QUERY = "q-1"


class StagePort:
    """A stage's client that records what it receives."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self.reason = None
        self._changed = asyncio.Event()

    def staged(self, next_sequence) -> None:
        """See StagePort."""
        self.next_sequence = next_sequence
        self._changed.set()

    def close(self, reason) -> None:
        """See StagePort."""
        self.reason = reason
        self._changed.set()

    async def reached(self, next_sequence) -> None:
        """Return when all before *next_sequence* is written; raise if it fails."""
        while self.next_sequence < next_sequence:
            if self.reason is not None:
                raise self.reason
            self._changed.clear()
            await self._changed.wait()

    async def closed(self):
        """Why the stage was closed, when it is."""
        while self.reason is None:
            self._changed.clear()
            await self._changed.wait()
        return self.reason


class PartMaker:
    """Stages one part, through one stage for each topic."""

    def __init__(self, broker, version, name, *, query=A_QUERY, part_id=None) -> None:
        self.key = PartKey(
            query=query, version=version, name=name, part_id=part_id or f"id of {name}"
        )
        self.ports = {}
        self.stages = {}
        self.sequences = {}
        self.batch_count = 0
        self._broker = broker

    async def open(self, topic, schema=None):
        """Open, or open again, the part's stage for *topic*."""
        port = self.ports[topic] = StagePort()
        stage = await self._broker.staging.open_stage(
            self.key, TopicName.parse(topic), schema, port
        )
        self.stages[topic] = stage
        self.sequences.setdefault(topic, stage.next_sequence)
        return stage

    def send(self, topic, payloads, **options) -> None:
        """Stage a batch without waiting."""
        frame = frame_of(
            payloads,
            producer=producer_of(self.key.query),
            base_sequence=self.sequences[topic],
            **options,
        )
        self.sequences[topic] += len(payloads)
        self.batch_count += 1
        self.stages[topic].take(frame)

    async def write(self, topic, payloads, **options) -> None:
        """Stage a batch, and wait until it is written."""
        if topic not in self.stages:
            await self.open(topic)
        self.send(topic, payloads, **options)
        await self.ports[topic].reached(self.sequences[topic])

    async def finish(self) -> StagedPart:
        """The part, as a commit names it."""
        count = sum(self.sequences.values())
        byte_count = await self._broker.staging.finish_part(
            self.key, self.batch_count, count
        )
        return StagedPart(
            name=self.key.name,
            part_id=self.key.part_id,
            batch_count=self.batch_count,
            message_count=count,
            byte_count=byte_count,
        )


async def stage_part(broker, version, name, topic_payloads, **options) -> StagedPart:
    """A finished part with these batches: pairs of a topic and payloads."""
    part = PartMaker(broker, version, name, **options)
    for topic, payloads in topic_payloads:
        await part.write(topic, payloads)
    return await part.finish()


async def stored(broker, topic) -> list[bytes]:
    """Every payload of a topic, in order."""
    log = (await broker.topics.get_reliable(TopicName.parse(topic))).log
    frames, at = [], log.base_offset
    while at < log.end_offset:
        frames += await log.read(at, bytes_max=1 << 20)
        at = frames[-1].end
    return payloads_of(frames)


async def quiet(broker) -> None:
    """Return when all decided commits are done."""
    await until(lambda: not broker.staging.pending_count)
