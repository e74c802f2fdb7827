import asyncio
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydanube
from support.running import TOPIC, with_broker, with_client


async def payloads_of(client, topic=TOPIC):
    return [p async for batch in client.read(topic) for p in batch.payloads]


def test_a_message_comes_back_with_everything_it_was_sent_with():
    async def test(client):
        before = datetime.now(UTC)  # noqa: TID251
        async with client.producer(TOPIC, name="web-1") as producer:
            sent = await producer.send(b"hi", key="user-7", attributes={"a": "1"})
        [batch] = [batch async for batch in client.read(TOPIC)]
        [message] = batch
        assert message.id == sent == (TOPIC, 0)
        assert (message.payload, message.key) == (b"hi", "user-7")
        assert (message.attributes, message.producer) == ({"a": "1"}, "web-1")
        assert abs((message.publish_time - before).total_seconds()) < 60

    with_client(test)


def test_messages_sent_without_waiting_are_batched_and_keep_their_order():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            pending = [producer.send_nowait(str(n)) for n in range(1000)]
            ids = [await each for each in pending]
        assert [each.offset for each in ids] == list(range(1000))
        batches = [batch async for batch in client.read(TOPIC)]
        assert len(batches) < 10
        assert [p for b in batches for p in b.payloads] == [
            str(n).encode() for n in range(1000)
        ]

    with_client(test)


def test_only_some_messages_of_a_batch_may_have_keys_and_attributes():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            producer.send_nowait(b"0")
            producer.send_nowait(b"1", key=b"k")
            producer.send_nowait(b"2", attributes={"x": "y"})
            producer.send_nowait(b"3")
        [batch] = [batch async for batch in client.read(TOPIC)]
        assert [m.key for m in batch] == [None, "k", None, None]
        assert [m.attributes for m in batch] == [{}, {}, {"x": "y"}, {}]

    with_client(test)


def test_a_list_of_payloads_is_one_batch():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            ids = await producer.send_batch([b"a", "b"])
        assert list(ids) == [(TOPIC, 0), (TOPIC, 1)]
        assert await payloads_of(client) == [b"a", b"b"]

    with_client(test)


def test_arrow_data_is_published_with_its_columns():
    table = pa.table({"payload": ["a", "b"], "key": pa.array([None, b"k"])})

    async def test(client):
        async with client.producer(TOPIC) as producer:
            ids = await producer.send_batch(table)
        [batch] = [batch async for batch in client.read(TOPIC)]
        assert ids.offsets == range(2)
        assert [(m.payload, m.key) for m in batch] == [(b"a", None), (b"b", "k")]

    with_client(test)


def test_arrow_data_of_another_shape_is_refused():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            with pytest.raises(pydanube.InvalidRequest, match="payload is required"):
                await producer.send_batch(pa.table({"value": ["a"]}))

    with_client(test)


def test_an_empty_batch_publishes_nothing():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            assert list(await producer.send_batch([])) == []

    with_client(test)


def test_many_messages_are_cut_into_batches_that_fit():
    async def test(client):
        payloads = [bytes([n % 256]) * 100_000 for n in range(300)]
        async with client.producer(TOPIC) as producer:
            ids = await producer.send_batch(payloads)
        assert ids.offsets == range(300)
        assert await payloads_of(client) == payloads

    with_client(test)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batches_come_back_plain(compression):
    async def test(client):
        async with client.producer(TOPIC, compression=compression) as producer:
            await producer.send_batch([b"x" * 1000] * 50)
        assert await payloads_of(client) == [b"x" * 1000] * 50
        assert (await client.describe_topic(TOPIC)).tail_bytes < 10_000

    with_client(test)


def test_a_message_that_is_too_large_is_refused_before_it_is_sent():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            with pytest.raises(pydanube.MessageTooLarge):
                await producer.send(bytes(9_000_000))
            with pytest.raises(pydanube.MessageTooLarge):
                await producer.send_batch([bytes(9_000_000)])
            assert (await producer.send(b"fits")).offset == 0

    with_client(test)


def test_a_large_message_travels_alone():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            small = producer.send_nowait(b"small")
            large = producer.send_nowait(bytes(5_000_000))
            after = producer.send_nowait(b"after")
            offsets = [(await each).offset for each in (small, large, after)]
        assert offsets == [0, 1, 2]

    with_client(test)


def test_what_is_no_message_is_refused():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            with pytest.raises(pydanube.InvalidRequest, match="bytes or str, not int"):
                producer.send_nowait(7)
            with pytest.raises(pydanube.InvalidRequest, match="str to str"):
                producer.send_nowait(b"", attributes={"n": 1})

    with_client(test)


def test_a_newer_producer_of_the_same_name_fences_the_older_one():
    async def test(broker):
        async with broker.connect() as one, broker.connect() as two:
            async with one.producer(TOPIC, name="web-1") as older:
                await older.send(b"1")
                async with two.producer(TOPIC, name="web-1") as newer:
                    await newer.send(b"2")
                    with pytest.raises(pydanube.ProducerFenced):
                        await older.send(b"lost")
            assert await payloads_of(two) == [b"1", b"2"]

    with_broker(test)


def test_a_producer_goes_on_after_its_connection_broke():
    async def test(broker):
        async with broker.connect() as client:
            async with client.producer(TOPIC, name="web-1") as producer:
                await producer.send(b"0")
                for number in range(1, 20):
                    pending = producer.send_nowait(str(number))
                    broker.disconnect_all()
                    assert (await pending).offset == number
            assert await payloads_of(client) == [str(n).encode() for n in range(20)]

    with_broker(test)


def test_nothing_is_stored_twice_when_receipts_are_lost():
    async def test(broker):
        async with broker.connect() as client:
            async with client.producer(TOPIC) as producer:
                sending = [
                    asyncio.ensure_future(_send(producer, n))  # noqa: TID251
                    for n in range(200)
                ]
                for _ in range(50):
                    await asyncio.sleep(0)
                    broker.disconnect_all()
                await asyncio.wait(sending)
                offsets = [each.result().offset for each in sending]
            assert sorted(offsets) == list(range(200))
            stored = await payloads_of(client)
            assert sorted(stored) == sorted(str(n).encode() for n in range(200))
            assert [stored[offset] for offset in offsets] == [
                str(n).encode() for n in range(200)
            ]

    with_broker(test)


async def _send(producer, number):
    return await producer.send(str(number))


def test_leaving_the_producer_waits_for_what_was_sent():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            for number in range(100):
                producer.send_nowait(str(number))
        assert len(await payloads_of(client)) == 100

    with_client(test)


def test_a_closed_producer_sends_nothing():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            pass
        with pytest.raises(pydanube.Closed):
            await producer.send(b"late")

    with_client(test)


def test_an_error_of_the_body_comes_out_as_it_is():
    async def test(client):
        async with client.producer(TOPIC):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        with_client(test)


def test_a_producer_waits_when_too_much_is_on_its_way():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            with pytest.raises(pydanube.Overloaded, match="not acknowledged"):
                [producer.send_nowait(bytes(1_000_000)) for _ in range(1000)]
            await producer.flush()
            await producer.send(b"there is room again")

    with_client(test)


def test_a_topic_of_another_kind_is_refused():
    async def test(client):
        await client.create_topic(TOPIC, reliable=False)
        with pytest.raises(pydanube.AlreadyExists, match="non_reliable"):
            async with client.producer(TOPIC, reliable=True):
                pass
        async with client.producer(TOPIC):
            pass

    with_client(test)


def test_a_topic_is_created_only_where_the_broker_may():
    async def test(broker):
        async with broker.connect() as client:
            with pytest.raises(pydanube.TopicNotFound):
                async with client.producer(TOPIC):
                    pass

    with_broker(test, auto_create_topics=False)


def test_a_deleted_topic_fails_its_producers():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            await producer.send(b"1")
            await client.delete_topic(TOPIC, force=True)
            with pytest.raises(pydanube.TopicNotFound):
                await producer.send(b"2")

    with_client(test)


def test_fire_and_forget_errors_come_out_of_flush():
    async def test(client):
        async with client.producer(TOPIC) as producer:
            await producer.send(b"1")
            await client.delete_topic(TOPIC, force=True)
            producer.send_nowait(b"2")
            with pytest.raises(pydanube.TopicNotFound):
                await producer.flush()

    with_client(test)


def test_a_broker_may_be_told_to_take_larger_messages():
    async def test(broker):
        broker.server.frame_bytes_max = 40_000_000
        async with broker.connect() as client:
            async with client.producer(TOPIC) as producer:
                await producer.send(bytes(30_000_000))
            async with client.consumer(
                TOPIC, subscription="s", start="earliest"
            ) as consumer:
                message = await consumer.receive(timeout_s=10)
                assert len(message.payload) == 30_000_000

    with_broker(test)
