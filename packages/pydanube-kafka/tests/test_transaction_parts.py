"""The records of a transaction are a part of a staged version."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pydanube.model.errors import OutOfSequence, StagedPartNotFound, StagingClosed
from pydanube.model.names import TopicName
from pydanube_kafka.pure.transactions import ProducerState
from pydanube_kafka.transaction_parts import (
    ALONE_CLAIM,
    TransactionParts,
    part_key,
    query_of,
    transactional_id_of,
)

TOPIC = SimpleNamespace(name=TopicName.parse("/default/orders"))


def test_the_query_of_a_transactional_id_leads_back_to_it():
    for transactional_id in ("tx", "a/b%", "é ü"):
        assert transactional_id_of(query_of(transactional_id)) == transactional_id
    assert transactional_id_of("spark-7") is None


def test_a_part_belongs_to_one_epoch_of_its_producer():
    state = ProducerState(producer_id=7, epoch=1, timeout_s=10.0, version=100)
    key = part_key("tx/1", state, "p")
    assert (key.query, key.version) == ("kafka-tx%2F1", 100)
    assert (key.name, key.part_id) == ("p", "7-1")


class World:
    """The parts of a broker that remembers one producer, and what they need."""

    def __init__(self):
        self.stages = []
        self._states = {}
        staging = SimpleNamespace(open_stage=self._open_stage)
        topics = SimpleNamespace(find_open=lambda name: None)
        broker = SimpleNamespace(shards=None, staging=staging, topics=topics)
        self.parts = TransactionParts(broker, self, 1)

    async def writer(self, transactional_id):
        found, _ = await self.parts.open_writer(transactional_id, (7, 0), TOPIC)
        return found

    async def _open_stage(self, key, name, schema, port):
        self.stages.append(key)
        return SimpleNamespace(next_sequence=0)

    def known(self, transactional_id):
        return self._states.get(transactional_id)

    async def get(self, transactional_id):
        state = ProducerState(producer_id=7, epoch=0, timeout_s=10.0, version=1)
        opened = state.opened(1, 0).with_partitions({str(TOPIC.name): ALONE_CLAIM})
        return self._states.setdefault(transactional_id, opened)

    async def add_part(self, transactional_id, state, part):
        self._states[transactional_id] = state.with_part(part, "b")
        return self._states[transactional_id]


async def test_parts_with_records_are_remembered_beyond_the_bound():
    world = World()
    a, b = await world.writer("a"), await world.writer("b")
    assert await world.writer("b") is b
    assert await world.writer("a") is a
    assert len(world.stages) == 2


async def test_a_part_that_was_lost_and_forgotten_does_not_begin_again():
    world = World()
    (await world.writer("a")).close(StagingClosed("the disk was full"))
    await world.writer("b")
    with pytest.raises(StagedPartNotFound, match="abort it"):
        await world.writer("a")
    assert len(world.stages) == 2


async def test_no_batch_overtakes_the_first_one_that_was_refused():
    world = World()
    # The broker does not know the producer yet, and does not serve the topic.
    for sequence in (0, 5):
        world.parts.refuse("a", (7, 0), TOPIC.name, sequence, 2)
    state = await world.get("a")
    with pytest.raises(OutOfSequence, match="sequence 5; 0 was expected"):
        world.parts.place("a", state, TOPIC, 5, 5)
    assert world.parts.place("a", state, TOPIC, 0, 5)
    assert world.parts.place("a", state, TOPIC, 5, 5)


async def test_refused_batches_of_others_push_nothing_out():
    world = World()
    state = await world.get("a")
    assert world.parts.place("a", state, TOPIC, 0, 5)
    for number in range(10):
        world.parts.refuse(f"other-{number}", (8, 0), TOPIC.name, 0, 2)
    assert not world.parts.place("a", state, TOPIC, 0, 5)
