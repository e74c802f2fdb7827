import asyncio
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.messages import ARROW_SCHEMA
from support.corrupt_objects import seal_and_damage
from support.running import TOPIC, published


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
    assert arrow.schema == ARROW_SCHEMA
    assert arrow.column("key").null_count == 2
    assert arrow.column("schema_id").to_pylist() == [0, 0]


async def test_non_reliable_topic_cannot_be_read(client):
    await client.create_topic(TOPIC, reliable=False)
    with pytest.raises(pydanube.InvalidRequest, match="not reliable"):
        [b async for b in client.read(TOPIC, start=0, end=1, follow=True)]


async def test_all_partitions_are_read_one_after_the_other(client):
    await client.create_topic(TOPIC, partitions=3)
    async with client.producer(TOPIC) as producer:
        for n in range(9):
            await producer.send(str(n))
    topics, payloads = [], []
    async for batch in client.read(TOPIC):
        topics += [message.topic for message in batch]
        payloads += batch.payloads
    assert sorted(map(int, payloads)) == list(range(9))
    assert topics == sorted(topics)
    for options in ({"start": 3}, {"end": 3}, {"follow": True}):
        with pytest.raises(pydanube.InvalidRequest, match="read one of them"):
            await anext(client.read(TOPIC, **options))


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
