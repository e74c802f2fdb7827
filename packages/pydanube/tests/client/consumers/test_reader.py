import asyncio
from collections import defaultdict
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.client import Client
from pydanube.client.connections.requester import Requester
from pydanube.client.consumers import reader
from pydanube.client.messages.messages import arrow_schema
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.servers.native.in_process import dial_in_process
from support.drivers.running import TOPIC, published
from support.fakes.corrupt_objects import seal_and_damage
from support.fakes.storages import until


async def test_range_is_read_exactly(client):
    await published(client, *[str(n).encode() for n in range(100)])
    batches = [b async for b in client.read(TOPIC, start=10, end=20)]
    assert [o for b in batches for o in b.offsets] == list(range(10, 20))


async def test_reader_without_an_end_stops_at_the_present_end(client):
    await published(client, b"a", b"b")
    assert [p async for b in client.read(TOPIC) for p in b.payloads] == [b"a", b"b"]
    assert [b async for b in client.read(TOPIC, start="latest")] == []
    assert [b async for b in client.read(TOPIC, start=2, end=9)] == []


async def test_reader_that_follows_gets_what_is_published_later(client):
    await published(client, b"0")
    got = []

    async def follow():
        async for batch in client.read(TOPIC, end=3, follow=True):
            got.extend(batch.payloads)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        await published(client, b"1")
        await published(client, b"2")
    assert got == [b"0", b"1", b"2"]


async def test_batch_has_all_columns_whatever_was_sent(client):
    await published(client, b"a", b"b")
    [batch] = [b async for b in client.read(TOPIC)]
    arrow = batch.to_arrow()
    assert arrow.schema == arrow_schema()
    assert arrow.column("key").null_count == 2
    assert arrow.column("schema_id").to_pylist() == [0, 0]


async def test_non_reliable_topic_cannot_be_read(client):
    await client.topics.create(TOPIC, reliable=False)
    with pytest.raises(pydanube.InvalidRequest, match="not reliable"):
        [b async for b in client.read(TOPIC, start=0, end=1, follow=True)]


async def test_all_partitions_are_read_one_after_the_other(client):
    await client.topics.create(TOPIC, partitions=3)
    async with client.producer(TOPIC) as producer:
        for n in range(9):
            await producer.send(str(n))
    topics, payloads = [], []
    async for batch in client.read(TOPIC):
        topics += [message.topic for message in batch]
        payloads += batch.payloads
    assert sorted(map(int, payloads)) == list(range(9))
    assert topics == sorted(topics)
    for options in ({"start": 3}, {"end": 3, "follow": True}):
        with pytest.raises(pydanube.InvalidRequest, match="read one of them"):
            await anext(client.read(TOPIC, **options))


async def test_partitions_are_followed_together_each_in_its_order(client, monkeypatch):
    monkeypatch.setattr(reader, "PARTITIONS_LOOKUP_INTERVAL_S", 0.01)
    # The deletion of the topic ends no request that waits.
    monkeypatch.setattr(reader, "FETCH_WAIT_S", 0.01)
    await client.topics.create(TOPIC, partitions=2)
    found, count = defaultdict(list), 0
    async with (
        client.producer(TOPIC) as producer,
        aclosing(client.read(TOPIC, follow=True)) as batches,
    ):
        for goal in (10, 20):
            for n in range(count, goal):
                await producer.send(str(n))
            while count < goal:
                batch = await anext(batches)
                found[batch.topic] += map(int, batch.payloads)
                count += len(batch)
        assert {topic: sorted(numbers) for topic, numbers in found.items()} == found
        await client.topics.add_partitions(TOPIC, 3)
        added = f"{TOPIC}-part-2"
        await published(client, b"early", topic=added)
        batch = await anext(batches)
        assert (batch.topic, batch.payloads) == (added, [b"early"])
        await client.topics.delete(TOPIC, force=True)
        with pytest.raises(pydanube.TopicNotFound):
            await anext(batches)


@pytest.mark.parametrize("partitions", [None, 3])
async def test_readers_end_when_their_client_stops_following(client, partitions):
    await client.topics.create(TOPIC, partitions=partitions)
    async with client.producer(TOPIC) as producer:
        await producer.send(b"0")
    batches = client.read(TOPIC, follow=True)
    assert (await anext(batches)).payloads == [b"0"]
    client.requester.stop_following()
    client.requester.stop_following()
    assert [batch async for batch in batches] == []
    assert [batch async for batch in client.read(TOPIC, follow=True)] == []
    assert sum([len(batch) async for batch in client.read(TOPIC)]) == 1


async def test_reader_follows_a_limited_number_of_partitions(client, monkeypatch):
    monkeypatch.setattr(reader, "PARTITIONS_LOOKUP_INTERVAL_S", 0.01)
    monkeypatch.setattr(reader, "FOLLOWED_PARTITIONS_MAX", 1)
    await client.topics.create(TOPIC, partitions=1)
    async with aclosing(client.read(TOPIC, follow=True)) as batches:
        await client.topics.add_partitions(TOPIC, 2)
        with pytest.raises(pydanube.InvalidRequest, match="at most 1 together"):
            await anext(batches)


async def test_closed_reader_of_partitions_leaves_no_task(client):
    await client.topics.create(TOPIC, partitions=2)
    await published(client, b"m", topic=f"{TOPIC}-part-1")
    before = asyncio.all_tasks()
    async with aclosing(client.read(TOPIC, follow=True)) as batches:
        await anext(batches)
        left = asyncio.all_tasks() - before
    assert left
    await asyncio.wait(left)


async def test_reader_starts_at_a_time(client):
    times = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(4)]
    async with client.producer(TOPIC) as producer:
        table = pa.table({"payload": ["0", "1", "2", "3"], "publish_time": times})
        await producer.send_batch(table)
    found = [b.payloads async for b in client.read(TOPIC, start=times[2])]
    assert found == [[b"2", b"3"]]
    late = datetime(2027, 1, 1, tzinfo=UTC)
    assert [b async for b in client.read(TOPIC, start=late)] == []


async def test_corrupt_segment_is_an_error_that_names_it(broker, client):
    await published(client, b"a", b"b")
    name = await seal_and_damage(broker, TOPIC)
    await published(client, b"c")
    with pytest.raises(pydanube.CorruptSegment, match=name):
        [batch async for batch in client.read(TOPIC)]
    batches = [batch async for batch in client.read(TOPIC, start=2)]
    assert [each for batch in batches for each in batch.payloads] == [b"c"]


class NotingRequester(Requester):
    """Notes the requests for messages, and can repeat them as after a lost answer."""

    def __init__(self, broker, *, repeats=False):
        super().__init__(dial_in_process(broker.server), url="danube://in-process")
        self.fetched = []
        self.cancelled = asyncio.Event()
        self._repeats = repeats

    async def send_request(self, message, *, on_batch=None):
        if isinstance(message, pb.Fetch):
            self.fetched.append(message.base_offset)
            if self._repeats:
                await super().send_request(message, on_batch=on_batch)
        try:
            return await super().send_request(message, on_batch=on_batch)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@asynccontextmanager
async def noting_client(broker, **options):
    async with Client(NotingRequester(broker, **options)).opened() as client:
        yield client


async def published_in_mebibytes(client, count):
    async with client.producer(TOPIC) as producer:
        for _ in range(count):
            await producer.send_batch([bytes(512 * 1024)] * 2)


async def test_reader_requests_more_while_the_second_answer_is_iterated(client, broker):
    await published_in_mebibytes(client, 17)
    async with noting_client(broker) as noting:
        batches = noting.read(TOPIC)
        read = [await anext(batches)]
        assert noting.requester.fetched == [0]
        while read[-1].offsets[0] < 8:
            read.append(await anext(batches))
        await asyncio.sleep(0)
        assert noting.requester.fetched == [0, 8, 16]
        read += [batch async for batch in batches]
        assert noting.requester.fetched == [0, 8, 16, 24, 32]
    assert [o for batch in read for o in batch.offsets] == list(range(34))


async def test_reader_that_stops_cancels_the_request_that_is_ahead(client, broker):
    await published_in_mebibytes(client, 17)
    async with noting_client(broker) as noting:
        batches = noting.read(TOPIC)
        while (await anext(batches)).offsets[0] < 8:
            pass
        await batches.aclose()
        await noting.requester.cancelled.wait()
    assert noting.requester.fetched == [0, 8, 16]


async def test_messages_of_a_repeated_request_are_read_once(client, broker):
    await published_in_mebibytes(client, 6)
    async with noting_client(broker, repeats=True) as noting:
        read = [o async for batch in noting.read(TOPIC) for o in batch.offsets]
    assert read == list(range(12))


async def test_a_read_goes_on_after_its_connection_broke(client, broker):
    await published_in_mebibytes(client, 40)
    batches = client.read(TOPIC)
    read = list((await anext(batches)).offsets)
    async for batch in batches:
        read += batch.offsets
        if len(read) % 8 == 0:
            broker.disconnect_all()
    assert read == list(range(80))


async def test_a_follower_that_waits_goes_on_after_its_connection_broke(client, broker):
    read = []

    async def follow():
        async for batch in client.read(TOPIC, end=3, follow=True):
            read.extend(batch.payloads)

    async with client.producer(TOPIC) as producer, asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        for payload in (b"0", b"1", b"2"):
            broker.disconnect_all()
            await producer.send(payload)
            await until(lambda wanted=payload: wanted in read)
    assert read == [b"0", b"1", b"2"]


async def test_prefetch_is_bounded_in_bytes(client, broker):
    await published_in_mebibytes(client, 6)
    async with noting_client(broker) as noting:
        batches = noting.read(TOPIC, prefetch_bytes=2 * 1024 * 1024)
        for _ in range(3):
            await anext(batches)
        await asyncio.sleep(0)
        assert noting.requester.fetched == [0, 2, 4, 6]
    with pytest.raises(pydanube.InvalidRequest, match="prefetch_bytes is 0"):
        await anext(client.read(TOPIC, prefetch_bytes=0))


async def test_reader_notices_that_its_topic_was_created_again(client):
    await published_in_mebibytes(client, 2)
    async with aclosing(client.read(TOPIC, prefetch_bytes=1)) as batches:
        await anext(batches)
        await client.topics.delete(TOPIC)
        await published(client, b"new")
        with pytest.raises(pydanube.TopicNotFound, match="now ends at offset 1"):
            await anext(batches)
