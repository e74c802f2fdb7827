"""Tests of publishing with and without positions."""

import asyncio
from contextlib import nullcontext

import pytest

import pydanube
from pydanube.model.batch import batch_of
from pydanube.model.errors import (
    AlreadyExists,
    ConnectionLost,
    InvalidRequest,
    QuotaExceeded,
    TopicNotFound,
)
from pydanube.model.policy import NamespacePolicy
from pydanube.model.schemas import SchemaReference
from pydanube.security.quotas import Quota
from pydanube_connect.encoding import MessageGroup
from pydanube_connect.publishing import (
    StagedPublisher,
    ensure_topic,
    find_refused,
    open_direct,
    open_staged,
)
from pydanube_connect.pure.failures import TakenOver
from support.worlds.current import memory_broker

TOPIC = "/default/numbers"
POSITIONS = "/default/c.positions"


def group(*payloads, topic=TOPIC, ids=None, schema=None):
    batch = batch_of([each.encode() for each in payloads])
    return MessageGroup(topic, batch, ids, schema)


async def payloads_of(client, topic=TOPIC):
    return [
        each.decode() async for batch in client.read(topic) for each in batch.payloads
    ]


def test_position_is_stored_with_the_messages():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            await ensure_topic(client, TOPIC)
            async with open_staged(client, "c", POSITIONS) as publisher:
                assert publisher.position is None
                await publisher.publish([group("1", "2")], {"at": 2})
                await publisher.publish([group("3")], {"at": 3})
            async with open_staged(client, "c", POSITIONS) as publisher:
                assert publisher.position == {"at": 3}
                await publisher.publish([], {"at": 4})
            async with open_staged(client, "c", POSITIONS) as publisher:
                assert publisher.position == {"at": 4}
            assert await payloads_of(client) == ["1", "2", "3"]

    asyncio.run(run())


def test_groups_with_other_schemas_keep_their_order():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            await ensure_topic(client, TOPIC)
            for text in ("{}", '{"title": "numbers"}'):
                schema = pydanube.Schema.json_schema(text)
                await client.schemas.register("numbers", schema)
            one = SchemaReference(subject="numbers", version=1)
            two = SchemaReference(subject="numbers", version=2)
            groups = [
                group("1", schema=one),
                group("2", "3", schema=two),
                group("4"),
                group("5", schema=one),
                group("6", schema=one),
            ]
            async with open_staged(client, "c", POSITIONS) as publisher:
                # Those that cannot be committed leave nothing.
                for topic, error in (("/default/none", TopicNotFound), (TOPIC, None)):
                    last = group("7", topic=topic)
                    with nullcontext() if error is None else pytest.raises(error):
                        await publisher.publish([*groups, last], 1)
            assert await payloads_of(client) == list("1234567")
            versions = [
                each.schema_version
                async for batch in client.read(TOPIC)
                for each in batch
            ]
            assert versions == [1, 2, 2, 0, 1, 1, 0]

    asyncio.run(run())


def test_only_one_of_two_runs_publishes_a_version():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            await ensure_topic(client, TOPIC)
            await ensure_topic(client, POSITIONS)
            first = StagedPublisher(client, "c", POSITIONS)
            second = StagedPublisher(client, "c", POSITIONS)
            await first.load()
            await second.load()
            await first.publish([group("first")], 1)
            with pytest.raises(TakenOver):
                await second.publish([group("second")], 1)
            await second.load()
            await second.publish([group("second")], 2)
            with pytest.raises(TakenOver):
                await first.publish([group("first")], 2)
            assert await payloads_of(client) == ["first", "second"]

    asyncio.run(run())


def test_deleted_positions_begin_anew():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            await ensure_topic(client, TOPIC)
            async with open_staged(client, "c", POSITIONS) as publisher:
                await publisher.publish([group("1")], 1)
            await client.topics.delete(POSITIONS)
            async with open_staged(client, "c", POSITIONS) as publisher:
                assert publisher.position is None
                await publisher.publish([group("1")], 1)
            assert await payloads_of(client) == ["1", "1"]

    asyncio.run(run())


def test_trimmed_position_does_not_publish_everything_again():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            await ensure_topic(client, TOPIC)
            async with open_staged(client, "c", POSITIONS) as publisher:
                await publisher.publish([group("1")], 1)
                await client.topics.trim(POSITIONS, "latest")
                await publisher.publish([group("2")], 2)
            async with open_staged(client, "c", POSITIONS) as publisher:
                assert publisher.position == 2
            await client.topics.trim(POSITIONS, "latest")
            with pytest.raises(InvalidRequest, match="trimmed"):
                async with open_staged(client, "c", POSITIONS):
                    pass

    asyncio.run(run())


def test_messages_without_positions_are_deduplicated_by_their_ids():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            await client.topics.create(TOPIC)
            await ensure_topic(client, TOPIC, deduplication_age_s=60)
            other = "/default/others"
            async with open_direct(client) as publisher:
                for _ in range(2):
                    await publisher.publish([group("1", ids=["a"])], None)
                await publisher.publish([group("2", topic=other)], None)
            assert await payloads_of(client) == ["1"]
            assert await payloads_of(client, other) == ["2"]

    asyncio.run(run())


def test_refused_messages_among_many_are_found_in_few_requests():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            await ensure_topic(client, TOPIC)
            await client.namespaces.configure(
                "default", policy=NamespacePolicy(max_message_size=10)
            )
            payloads = [b"x"] * 1000
            payloads[7] = payloads[998] = payloads[999] = b"x" * 11
            numbers = range(100, 1100)
            many = MessageGroup(TOPIC, batch_of(payloads), None, None, numbers)
            await ensure_topic(client, POSITIONS)
            counted = CountedParts(client)
            found = await find_refused(counted, "c", [many, group("1")], TOPIC)
            assert sorted(found) == [107, 1098, 1099]
            assert all("10" in reason for reason in found.values())
            assert counted.parts < 60
            assert await payloads_of(client) == []

    asyncio.run(run())


def test_nothing_is_searched_in_a_topic_that_is_missing():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            batch = batch_of([b"x"] * 1000)
            many = MessageGroup("/default/none", batch, None, None, range(1000))
            counted = CountedParts(client)
            assert await find_refused(counted, "c", [many], "/default/none") == {}
            assert counted.parts == 1

    asyncio.run(run())


def test_full_storage_is_not_due_to_the_messages_for_another_topic():
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            other = "/default/others"
            async with open_direct(client) as publisher:
                await publisher.publish([group("1", topic=other)], None)
            await client.security.set_quota("/default", Quota(storage_bytes=1))
            groups = [MessageGroup(other, batch_of([b"2"]), None, None, range(1))]
            async with open_direct(client) as publisher:
                with pytest.raises(QuotaExceeded):
                    await publisher.publish(groups, None)
            assert await find_refused(client, "c", groups, TOPIC) == {}

    asyncio.run(run())


@pytest.mark.parametrize("partitions", [None, 2])
@pytest.mark.parametrize(
    ("error", "is_created"),
    [(ConnectionLost, False), (ConnectionLost, True), (AlreadyExists, True)],
)
def test_topic_is_created_although_the_first_attempt_fails(
    error, is_created, partitions
):
    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            failing = FailingCreation(client, error, is_created)
            await ensure_topic(
                failing, TOPIC, partitions=partitions, deduplication_age_s=60
            )
            assert failing.count == 1
            names = await client.topics.partitions(TOPIC)
            assert len(names) == (partitions or 1)
            for name in names:
                facts = await client.topics.describe(name)
                assert facts.policy.deduplication.age_s == 60

    asyncio.run(run())


class FailingCreation:
    """A client, and its topics, of which the first creation fails."""

    def __init__(self, client, error, is_created):
        self.count = 0
        self.topics = self
        self.partitions = client.topics.partitions
        self.describe = client.topics.describe
        self.configure = client.topics.configure
        self._create = client.topics.create
        self._error = error
        self._is_created = is_created

    async def create(self, topic, **options):
        is_first, self.count = not self.count, 1
        if self._is_created or not is_first:
            await self._create(topic, **options)
        if is_first:
            raise self._error("the first attempt")


class CountedParts:
    """A client, and a staging of it, that count the parts that are staged."""

    def __init__(self, client):
        self.parts = 0
        self._client = client

    def staging(self, query, version):
        self._staging = self._client.staging(query, version)
        self.abort = self._staging.abort
        return self

    def part(self, name):
        self.parts += 1
        return self._staging.part(name)
