import asyncio
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import pydanube
from pydanube.model import arrow
from pydanube.model.policy import NamespacePolicy
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.servers.native import producers
from pydanube_broker.servers.settings.config import ListenConfig
from support.drivers.running import TOPIC, using
from support.fakes.scripted_broker import ScriptedBroker
from support.fakes.storages import until


async def payloads_of(client, topic=TOPIC):
    return [p async for batch in client.read(topic) for p in batch.payloads]


async def test_message_is_read_with_all_its_fields(client):
    before = datetime.now(UTC)  # noqa: TID251
    async with client.producer(TOPIC, name="web-1") as producer:
        sent = await producer.send(b"hi", key="user-7", attributes={"a": "1"})
    [batch] = [batch async for batch in client.read(TOPIC)]
    [message] = batch
    assert message.id == sent == (TOPIC, 0)
    assert (message.payload, message.key) == (b"hi", "user-7")
    assert (message.attributes, message.producer) == ({"a": "1"}, "web-1")
    assert abs((message.publish_time - before).total_seconds()) < 60


async def test_messages_sent_without_waiting_are_batched_and_keep_their_order(client):
    async with client.producer(TOPIC) as producer:
        pending = [producer.send_nowait(str(n)) for n in range(1000)]
        ids = [await each for each in pending]
    assert [each.offset for each in ids] == list(range(1000))
    batches = [batch async for batch in client.read(TOPIC)]
    assert len(batches) < 10
    assert [p for b in batches for p in b.payloads] == [
        str(n).encode() for n in range(1000)
    ]


async def test_messages_of_one_turn_of_the_loop_have_one_publish_time(client):
    async with client.producer(TOPIC) as producer:
        for _ in range(3):
            await asyncio.sleep(0)
            for number in range(300):
                producer.send_nowait(b"%d" % number, key="k" if number % 2 else None)
    times = [m.publish_time async for batch in client.read(TOPIC) for m in batch]
    assert times == sorted(times)
    assert len(times) == 900
    for turn in range(0, 900, 300):
        assert len(set(times[turn : turn + 300])) == 1


async def test_only_some_messages_of_a_batch_may_have_keys_and_attributes(client):
    async with client.producer(TOPIC) as producer:
        producer.send_nowait(b"0")
        producer.send_nowait(b"1", key=b"k")
        producer.send_nowait(b"2", attributes={"x": "y"})
        producer.send_nowait(b"3")
    [batch] = [batch async for batch in client.read(TOPIC)]
    assert [m.key for m in batch] == [None, "k", None, None]
    assert [m.attributes for m in batch] == [{}, {}, {"x": "y"}, {}]


async def test_list_of_payloads_is_one_batch(client):
    async with client.producer(TOPIC) as producer:
        ids = await producer.send_batch([b"a", "b"])
    assert list(ids) == [(TOPIC, 0), (TOPIC, 1)]
    assert await payloads_of(client) == [b"a", b"b"]


@pytest.mark.parametrize("count", [1, 2, 128, 129, 500])
async def test_batch_of_any_size_keeps_its_place_among_single_messages(client, count):
    bodies = [str(n).encode() for n in range(count)]
    async with client.producer(TOPIC) as producer:
        producer.send_nowait(b"first")
        ids = await producer.send_batch(bodies)
        last = await producer.send(b"last")
    assert list(ids.offsets) == list(range(1, count + 1))
    assert last.offset == count + 1
    assert await payloads_of(client) == [b"first", *bodies, b"last"]


async def test_small_batch_may_be_of_bytes_and_text(client):
    async with client.producer(TOPIC) as producer:
        await producer.send_batch([b"bytes", "text"])
    assert await payloads_of(client) == [b"bytes", b"text"]


async def test_cancelled_sender_does_not_withdraw_its_message(client):
    async with client.producer(TOPIC) as producer:
        for work in (producer.send(b"a"), producer.send_batch([b"b", b"c"])):
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(work)
                await asyncio.sleep(0)
                sending.cancel()
            assert sending.cancelled()
            await producer.flush()
            assert producer.pending_count == 0
        await producer.send(b"d")
    assert await payloads_of(client) == [b"a", b"b", b"c", b"d"]


async def test_arrow_data_is_published_with_its_columns(client):
    table = pa.table({"payload": ["a", "b"], "key": pa.array([None, b"k"])})
    async with client.producer(TOPIC) as producer:
        ids = await producer.send_batch(table)
    [batch] = [batch async for batch in client.read(TOPIC)]
    assert ids.offsets == range(2)
    assert [(m.payload, m.key) for m in batch] == [(b"a", None), (b"b", "k")]


async def test_arrow_data_with_wrong_columns_is_refused(client):
    async with client.producer(TOPIC) as producer:
        with pytest.raises(pydanube.InvalidRequest, match="payload is required"):
            await producer.send_batch(pa.table({"value": ["a"]}))


async def test_empty_batch_publishes_nothing(client):
    async with client.producer(TOPIC) as producer:
        assert list(await producer.send_batch([])) == []


async def test_many_messages_are_cut_into_batches_that_fit(client):
    payloads = [bytes([n % 256]) * 100_000 for n in range(300)]
    async with client.producer(TOPIC) as producer:
        ids = await producer.send_batch(payloads)
    assert ids.offsets == range(300)
    assert await payloads_of(client) == payloads


async def test_compressed_batches_are_read_without_arrow(broker, monkeypatch):
    async with (
        broker.connect() as client,
        client.producer(TOPIC, compression="zstd") as producer,
    ):
        await producer.send_batch([b"x" * 1000] * 200, keys=["k"] * 200)
    monkeypatch.setattr(arrow, "is_installed", lambda: False)
    async with broker.connect() as client:
        [batch] = [batch async for batch in client.read(TOPIC)]
        assert batch.payloads == [b"x" * 1000] * 200
        assert {message.key for message in batch} == {"k"}
        with pytest.raises(pydanube.InvalidRequest, match="'lz4' needs pyarrow"):
            client.producer(TOPIC, compression="lz4")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
async def test_compressed_batches_are_decompressed_by_readers(client, compression):
    async with client.producer(TOPIC, compression=compression) as producer:
        await producer.send_batch([b"x" * 1000] * 50)
    assert await payloads_of(client) == [b"x" * 1000] * 50
    assert (await client.topics.describe(TOPIC)).tail_bytes < 10_000


async def test_message_that_is_too_large_is_refused_before_it_is_sent(client):
    async with client.producer(TOPIC) as producer:
        with pytest.raises(pydanube.MessageTooLarge):
            await producer.send(bytes(9_000_000))
        with pytest.raises(pydanube.MessageTooLarge):
            await producer.send_batch([bytes(9_000_000)])
        assert (await producer.send(b"fits")).offset == 0


async def test_large_message_gets_a_batch_of_its_own(client):
    async with client.producer(TOPIC) as producer:
        small = producer.send_nowait(b"small")
        large = producer.send_nowait(bytes(5_000_000))
        after = producer.send_nowait(b"after")
        offsets = [(await each).offset for each in (small, large, after)]
    assert offsets == [0, 1, 2]


async def test_values_that_are_no_messages_are_refused(client):
    async with client.producer(TOPIC) as producer:
        with pytest.raises(pydanube.InvalidRequest, match="bytes or str, not int"):
            producer.send_nowait(7)
        with pytest.raises(pydanube.InvalidRequest, match="str to str"):
            producer.send_nowait(b"", attributes={"n": 1})


async def test_newer_producer_of_the_same_name_fences_the_older_one(broker, client):
    async with broker.connect() as two:
        async with client.producer(TOPIC, name="web-1") as older:
            await older.send(b"1")
            async with two.producer(TOPIC, name="web-1") as newer:
                await newer.send(b"2")
                with pytest.raises(pydanube.ProducerFenced):
                    await older.send(b"lost")
        assert await payloads_of(two) == [b"1", b"2"]


async def test_producer_continues_after_a_broken_connection(broker, client):
    async with client.producer(TOPIC, name="web-1") as producer:
        await producer.send(b"0")
        for number in range(1, 20):
            pending = producer.send_nowait(str(number))
            broker.disconnect_all()
            assert (await pending).offset == number
    assert await payloads_of(client) == [str(n).encode() for n in range(20)]


async def test_nothing_is_stored_twice_when_receipts_are_lost(broker, client):
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


async def _send(producer, number):
    return await producer.send(str(number))


async def test_closing_waits_for_acknowledgements(client):
    async with client.producer(TOPIC) as producer:
        for number in range(100):
            producer.send_nowait(str(number))
    assert len(await payloads_of(client)) == 100


async def test_closed_producer_sends_nothing(client):
    async with client.producer(TOPIC) as producer:
        pass
    with pytest.raises(pydanube.Closed):
        await producer.send(b"late")


async def test_error_of_the_body_is_raised_unchanged(broker):
    async def fail():
        async with broker.connect() as client, client.producer(TOPIC):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_send_waits_when_too_much_is_in_flight(client):
    async with client.producer(TOPIC) as producer:
        with pytest.raises(pydanube.Overloaded, match="not acknowledged"):
            [producer.send_nowait(bytes(1_000_000)) for _ in range(1000)]
        await producer.flush()
        await producer.send(b"there is room again")


async def test_waiting_senders_are_served_in_order(client):
    # Far more than may be in flight, from tasks that start and end.
    async with client.producer(TOPIC) as producer, asyncio.TaskGroup() as tasks:
        free = asyncio.Semaphore(40)

        async def send(number):
            payload = number.to_bytes(4) + bytes(700_000)
            if number % 5:
                await producer.send_batch([payload])
            else:
                await producer.send(payload)
            free.release()

        for number in range(120):
            await free.acquire()
            tasks.create_task(send(number))
    payloads = await payloads_of(client)
    assert [int.from_bytes(each[:4]) for each in payloads] == list(range(120))


async def test_topic_of_another_kind_is_refused(client):
    await client.topics.create(TOPIC, reliable=False)
    with pytest.raises(pydanube.AlreadyExists, match="non_reliable"):
        async with client.producer(TOPIC, reliable=True):
            pass
    async with client.producer(TOPIC):
        pass


@using(broker_options={"auto_create_topics": False})
async def test_topic_is_created_only_if_the_broker_allows_it(client):
    with pytest.raises(pydanube.TopicNotFound):
        async with client.producer(TOPIC):
            pass


async def test_deleted_topic_fails_its_producers(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"1")
        await client.topics.delete(TOPIC, force=True)
        with pytest.raises(pydanube.TopicNotFound):
            await producer.send(b"2")


async def test_flush_raises_errors_of_messages_that_nobody_awaited(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"1")
        await client.topics.configure(TOPIC, limits=NamespacePolicy(max_message_size=1))
        producer.send_nowait(b"too large")
        with pytest.raises(pydanube.MessageTooLarge):
            await producer.flush()


async def test_producer_whose_message_was_refused_is_closed_at_the_broker(client):
    async def send_what_is_too_large():
        async with client.producer(TOPIC, access="exclusive") as producer:
            await producer.send(b"1")
            limits = NamespacePolicy(max_message_size=1)
            await client.topics.configure(TOPIC, limits=limits)
            producer.send_nowait(b"too large")
            # It is open again when it is closed.
            await until(lambda: not producer.pending_count)
            await until(lambda: producer.is_connected)

    with pytest.raises(pydanube.MessageTooLarge):
        await send_what_is_too_large()
    assert not (await client.topics.describe(TOPIC)).producers


async def test_producer_of_a_deleted_topic_fails(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"1")
        await client.topics.delete(TOPIC, force=True)
        with pytest.raises(pydanube.TopicNotFound):
            await producer.send(b"2")


@using(broker_options={"listen": ListenConfig(frame_bytes_max=40_000_000)})
async def test_larger_messages_are_accepted_by_a_broker_with_a_larger_limit(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(bytes(30_000_000))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        message = await consumer.receive(timeout_s=60)
        assert len(message.payload) == 30_000_000


async def test_exclusive_producer_is_refused_while_there_is_another(client):
    async with client.producer(TOPIC), client.producer(TOPIC, name="second"):
        with pytest.raises(pydanube.ProducerBusy):
            async with client.producer(TOPIC, access="exclusive"):
                pass
    async with client.producer(TOPIC, access="exclusive") as producer:
        with pytest.raises(pydanube.ProducerBusy):
            async with client.producer(TOPIC):
                pass
        await producer.send(b"m")


async def test_exclusive_wait_producer_waits_until_the_others_have_gone(client):
    sent = []

    async def wait_and_send(name):
        async with client.producer(
            TOPIC, name=name, access="exclusive_wait"
        ) as producer:
            sent.append((await producer.send(name)).offset)

    async with (
        asyncio.TaskGroup() as waiting,
        client.producer(TOPIC, access="exclusive") as first,
    ):
        for name in ("one", "two", "three"):
            waiting.create_task(wait_and_send(name))
            # They are served in the order of their requests.
            await client.topics.describe(TOPIC)
        await first.send(b"first")
        assert sent == []
    assert sent == [1, 2, 3]


async def test_cancelled_exclusive_wait_leaves_no_registration(client):
    async with client.producer(TOPIC, name="first") as first:
        with pytest.raises(TimeoutError):
            async with (
                asyncio.timeout(0.05),
                client.producer(TOPIC, name="late", access="exclusive-wait"),
            ):
                pass
        await first.send(b"m")
    async with client.producer(TOPIC, name="next", access="exclusive"):
        facts = await client.topics.describe(TOPIC)
        assert facts.producers == ("next",)


async def test_connection_that_breaks_during_exclusive_wait_leaves_no_registration(
    broker, client
):
    async with client.producer(TOPIC, name="first"):
        with pytest.raises(TimeoutError):
            async with (
                broker.connect() as two,
                asyncio.timeout(0.05),
                two.producer(TOPIC, access="exclusive_wait"),
            ):
                pass
    async with client.producer(TOPIC, access="exclusive"):
        pass


@pytest.mark.slow
async def test_more_producers_may_wait_on_a_connection_than_it_may_have_requests(
    client,
):
    async def wait():
        async with client.producer(TOPIC, access="exclusive_wait") as producer:
            await producer.send(b"m")

    async with asyncio.TaskGroup() as waiting, client.producer(TOPIC):
        for _ in range(300):
            waiting.create_task(wait())
        await client.topics.describe(TOPIC)
    assert (await client.topics.describe(TOPIC)).end_offset == 300


async def test_exclusive_fence_producer_fences_the_others(client):
    async with client.producer(TOPIC, name="first") as first:
        await first.send(b"m")
        async with client.producer(TOPIC, access="exclusive_fence") as second:
            # One that is away at this moment is refused when it connects again.
            with pytest.raises((pydanube.ProducerFenced, pydanube.ProducerBusy)):
                await first.send(b"m")
            await second.send(b"m")
    assert (await client.topics.describe(TOPIC)).end_offset == 2


async def test_the_holder_keeps_its_access_before_a_standby_when_connections_break(
    broker, client
):
    has_access = asyncio.Event()

    async def stand_by():
        async with (
            broker.connect() as other,
            other.producer(TOPIC, name="standby", access="exclusive_wait"),
        ):
            has_access.set()

    async with asyncio.TaskGroup() as tasks:
        async with client.producer(TOPIC, name="me", access="exclusive_wait") as mine:
            await mine.send(b"1")
            tasks.create_task(stand_by())
            [topic] = broker.broker.topics.opened.values()
            await until(lambda: topic.registrations.queued_count)
            for connection in list(broker.server.connections):
                connection.abort()
            assert (await mine.send(b"2")).offset == 1
            assert not has_access.is_set()
        await has_access.wait()


async def test_exclusive_producer_keeps_its_access_when_its_connection_breaks(
    broker, client
):
    async with client.producer(TOPIC, name="me", access="exclusive") as mine:
        await mine.send(b"1")
        for connection in list(broker.server.connections):
            connection.abort()
        assert (await mine.send(b"2")).offset == 1


async def test_unknown_access_mode_is_refused(client):
    with pytest.raises(pydanube.InvalidRequest, match="access must be 'shared'"):
        client.producer(TOPIC, access="alone")


async def test_delayed_message_is_delivered_at_its_time_and_others_before_it(
    broker, client
):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"late", deliver_after_s=600)
        await producer.send(b"later", deliver_after_s=3600)
        await producer.send(b"now", deliver_at=datetime(2000, 1, 1, tzinfo=UTC))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        first = await c.receive(timeout_s=60)
        assert first.payload == b"now"
        assert first.deliver_at == datetime(2000, 1, 1, tzinfo=UTC)
        assert (await client.subscriptions.describe(TOPIC, "s")).delayed == 2
        broker.advance(601)
        second = await c.receive(timeout_s=60)
        assert second.payload == b"late"
        assert second.deliver_at - second.publish_time > timedelta(seconds=599)
        await c.ack([first, second])
        with pytest.raises(pydanube.TimedOut):
            await c.receive(timeout_s=0.05)


async def test_delayed_message_of_a_deleted_topic_is_not_delivered_by_the_next_one(
    broker, client
):
    await client.topics.create(TOPIC)
    await client.subscriptions.create(TOPIC, "s", start="earliest")
    async with client.producer(TOPIC) as producer:
        await producer.send(b"old", deliver_after_s=600)
    await client.topics.delete(TOPIC, force=True)
    await client.topics.create(TOPIC)
    async with (
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        await producer.send(b"new", deliver_after_s=700)
        broker.advance(701)
        message = await consumer.receive(timeout_s=60)
        assert (message.payload, message.id.offset) == (b"new", 0)
        await consumer.ack(message)
        with pytest.raises(pydanube.TimedOut):
            await consumer.receive(timeout_s=0.05)


async def test_expired_message_is_not_delivered(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"stale", ttl_s=1e-6)
        await producer.send(b"fresh", ttl_s=3600)
        await producer.send_batch([b"stale", b"too"], ttl_s=1e-6)
    async with client.consumer(TOPIC, subscription="s", start="earliest") as c:
        message = await c.receive(timeout_s=60)
        assert message.payload == b"fresh"
        left_s = (message.expires_at - message.publish_time).total_seconds()
        assert left_s == pytest.approx(3600, abs=1)
        await c.ack(message)
        with pytest.raises(pydanube.TimedOut):
            await c.receive(timeout_s=0.05)
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert (facts.counts.expired, facts.backlog) == (3, 0)


async def test_delivery_window_of_one_message_keeps_those_of_others(client):
    async with client.producer(TOPIC) as producer:
        producer.send_nowait(b"plain")
        producer.send_nowait(b"expiring", ttl_s=3600)
        producer.send_nowait(b"key", key="k")
        await producer.flush()
    [batch] = [batch async for batch in client.read(TOPIC)]
    assert [m.expires_at is None for m in batch] == [True, False, True]
    assert [m.deliver_at for m in batch] == [None] * 3


async def test_delay_on_a_non_reliable_topic_is_refused(client):
    async with client.producer(TOPIC, reliable=False) as producer:
        with pytest.raises(pydanube.InvalidRequest, match="not reliable"):
            await producer.send(b"m", deliver_after_s=1)
        with pytest.raises(pydanube.InvalidRequest, match="not reliable"):
            await producer.send_batch([b"m"], deliver_after_s=1)
        await producer.send(b"m", ttl_s=1)


async def test_exclusive_producer_that_lost_its_access_fails(broker, client):
    options = {"access": "exclusive_fence"}
    async with (
        broker.connect() as two,
        client.producer(TOPIC, name="first", **options) as first,
    ):
        await first.send(b"1")
        for connection in list(broker.server.connections):
            connection.abort()
        async with two.producer(TOPIC, name="second", **options) as second:
            with pytest.raises(pydanube.ProducerFenced):
                await first.send(b"2")
            await second.send(b"3")


async def test_receipts_of_a_throttling_broker_restart_the_close_timeout(
    broker, monkeypatch
):
    monkeypatch.setattr(producers, "KEEPALIVE_INTERVAL_S", 0.01)
    async with broker.connect(close_timeout_s=0.7) as client:
        await client.topics.create(TOPIC)
        await client.topics.configure(TOPIC, limits=NamespacePolicy(max_publish_rate=1))
        async with client.producer(TOPIC) as producer:
            for _ in range(2):
                producer.send_nowait(b"m")
                await asyncio.sleep(0)
        assert (await client.topics.describe(TOPIC)).end_offset == 2


async def test_receipt_with_unequal_lists_breaks_the_connection():
    broker = ScriptedBroker()
    async with broker.connect() as client, client.producer(TOPIC) as producer:
        pending = producer.send_nowait(b"message")
        await asyncio.sleep(0)
        receipt = pb.Receipt(base_sequence=[0, 1], base_offset=[0])
        broker.connections[0].send(Kind.RECEIPT, receipt, 1)
        with pytest.raises(pydanube.ProtocolViolation, match="2 sequences and 1"):
            await pending


async def test_senders_that_were_acknowledged_together_send_one_batch():
    broker = ScriptedBroker()
    broker.answers[Kind.CLOSE_PRODUCER] = lambda _: (Kind.OK, pb.Ok())
    # It acknowledges all that is in flight.
    receipt = pb.Receipt(base_sequence=[100], base_offset=[100])

    async def send_twice(producer):
        return [(await producer.send(b"m")).offset for _ in range(2)]

    async with (
        broker.connect() as client,
        client.producer(TOPIC) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        sent = [tasks.create_task(send_twice(producer)) for _ in range(10)]
        received, publishes = broker.connections[0].received, 0
        while not all(each.done() for each in sent):
            if received.count(Kind.PUBLISH) > publishes:
                publishes = received.count(Kind.PUBLISH)
                broker.connections[0].send(Kind.RECEIPT, receipt, 1)
            await asyncio.sleep(0)
    # One message alone, the other first messages with the next one, and the rest.
    assert publishes == 3
    assert sorted(n for each in sent for n in each.result()) == list(range(20))


async def test_sender_that_stops_waiting_does_not_delay_the_others():
    broker = ScriptedBroker()
    broker.answers[Kind.CLOSE_PRODUCER] = lambda _: (Kind.OK, pb.Ok())
    receipt = pb.Receipt(base_sequence=[100], base_offset=[100])
    async with broker.connect() as client, client.producer(TOPIC) as producer:
        async with asyncio.TaskGroup() as tasks:
            first, second, third = (
                tasks.create_task(producer.send(b"%d" % number)) for number in range(3)
            )
            received = broker.connections[0].received
            await until(lambda: received.count(Kind.PUBLISH) == 1)
            second.cancel()
            broker.connections[0].send(Kind.RECEIPT, receipt, 1)
            await until(lambda: received.count(Kind.PUBLISH) == 2)
            broker.connections[0].send(Kind.RECEIPT, receipt, 1)
        assert (first.result().offset, third.result().offset) == (0, 2)
        assert second.cancelled()
