"""The client without await, against a broker in another thread's loop."""

import asyncio
import inspect
import signal
import threading
import typing
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib import import_module

import pyarrow as pa
import pytest

import pydanube
from pydanube import sync
from pydanube.client.blocking import Facade, loop_thread
from pydanube_broker.servers.native.connection import listen
from support.fakes.scripted_broker import ScriptedBroker
from support.worlds.current import memory_broker

TOPIC = "/default/orders"


@contextmanager
def running_broker():
    """Run a memory broker that listens on a port, in a thread of its own."""
    ready, stop = threading.Event(), None
    found = {}

    async def serve():
        nonlocal stop
        stop = asyncio.Event()
        async with (
            memory_broker() as broker,
            listen(broker.server, "127.0.0.1", 0) as p,
        ):
            found.update(port=p, loop=asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(60)
    try:
        yield f"danube://127.0.0.1:{found['port']}"
    finally:
        found["loop"].call_soon_threadsafe(stop.set)
        thread.join()


@pytest.fixture(scope="module")
def url():
    with running_broker() as url:
        yield url


@pytest.fixture
def client(url):
    with sync.connect(url) as client:
        yield client
        for name in {topic.partition("-part-")[0] for topic in client.topics.list()}:
            client.topics.delete(name, force=True)


def test_all_send_methods_publish(client):
    with client.producer(TOPIC, name="web-1") as producer:
        assert producer.send("a", key="k").offset == 0
        pending = [producer.send_nowait(str(n)) for n in range(100)]
        assert [each.result().offset for each in pending] == list(range(1, 101))
        assert producer.send_batch(pa.table({"payload": ["x", "y"]})).offsets == range(
            101, 103
        )
    assert sum(len(batch) for batch in client.read(TOPIC)) == 103


def test_mistakes_of_send_nowait_are_raised_by_result(client):
    with client.producer(TOPIC) as producer:
        unknown = producer.send_nowait("x", headers={})
        wrong = producer.send_nowait("x", attributes=5)
        with pytest.raises(pydanube.InvalidRequest, match="headers is not an option"):
            unknown.result()
        with pytest.raises(pydanube.InvalidRequest, match="attributes must be"):
            wrong.result()
        assert producer.send_nowait("x").result().offset == 0


def test_all_send_methods_take_ids(client):
    client.topics.create(TOPIC, deduplication=pydanube.Deduplication(age_s=60))
    with client.producer(TOPIC) as producer:
        first = producer.send("0", id="a")
        pending = producer.send_nowait("0", id="a", attributes={"n": "1"})
        assert pending.result() == first
        assert list(producer.send_batch(["0", "1"], ids=["a", "b"]).offsets) == [0, 1]
    client.topics.configure(TOPIC, deduplication=None)


def test_order_is_kept_between_send_methods(client):
    with client.producer(TOPIC) as producer:
        producer.send_nowait("0")
        producer.send("1")
        producer.send_nowait("2")
        producer.send_batch(["3", "4"])
        producer.send_nowait("5")
    payloads = [p for batch in client.read(TOPIC) for p in batch.payloads]
    assert payloads == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_more_is_sent_than_fits_at_once(client):
    with client.producer(TOPIC) as producer:
        for _ in range(100):
            producer.send_nowait(bytes(1_000_000))
        producer.flush()
    assert client.topics.describe(TOPIC).end_offset == 100
    assert client.topics.find_offsets(TOPIC, [0, 1e11]) == [0, None]


def test_messages_are_iterated_and_acknowledged(client):
    with client.producer(TOPIC) as producer:
        producer.send_batch([str(n) for n in range(2500)])
    got = []
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        assert consumer.topics == [TOPIC]
        for message in consumer:
            got.append(message.payload)
            consumer.ack(message)
            if len(got) == 2500:
                break
    assert got == [str(n).encode() for n in range(2500)]
    assert client.subscriptions.describe(TOPIC, "s").cursor == 2500


def test_ack_of_a_foreign_message_is_refused_at_once(client):
    for topic in (TOPIC, "/default/other"):
        with client.producer(topic) as producer:
            producer.send_batch([b"a", b"b"])
    with (
        client.consumer(TOPIC, subscription="s", start="earliest") as mine,
        client.consumer("/default/other", subscription="t", start="earliest") as other,
    ):
        foreign = other.receive(timeout_s=60)
        for answer in (mine.ack, mine.nack, mine.ack_cumulative):
            with pytest.raises(pydanube.InvalidRequest, match="use the consumer that"):
                answer(foreign)
        mine.ack(iter([mine.receive(timeout_s=60)]))
    with pytest.raises(pydanube.Closed):
        mine.ack(foreign)
    assert client.subscriptions.describe(TOPIC, "s").cursor == 1
    assert client.subscriptions.describe("/default/other", "t").cursor == 0


def test_receive_batch_continues_after_iteration(client):
    with client.producer(TOPIC) as producer:
        producer.send_batch([str(n) for n in range(10)])
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        assert consumer.receive(timeout_s=60).offset == 0
        batch = consumer.receive_batch(max_messages=4, timeout_s=60)
        assert list(batch.offsets) == [1, 2, 3, 4]
        assert batch.to_arrow().column("offset").to_pylist() == [1, 2, 3, 4]
        consumer.ack(batch)
        consumer.seek(0)
        assert consumer.receive(timeout_s=60).offset == 0


def test_receive_times_out(client):
    client.topics.create(TOPIC)
    with client.consumer(TOPIC, subscription="s") as consumer:
        assert len(consumer.receive_batch(timeout_s=0.01)) == 0
        with pytest.raises(pydanube.TimedOut):
            consumer.receive(timeout_s=0.01)


def test_errors_are_those_of_the_asynchronous_client(client):
    with pytest.raises(pydanube.TopicNotFound):
        client.topics.describe(TOPIC)
    with client.producer(TOPIC) as producer:
        with pytest.raises(pydanube.MessageTooLarge):
            producer.send(bytes(9_000_000))
        with pytest.raises(pydanube.MessageTooLarge):
            producer.send_nowait(bytes(9_000_000)).result()


def test_error_of_the_body_is_raised_unchanged(client):
    with pytest.raises(ZeroDivisionError), client.producer(TOPIC):
        raise ZeroDivisionError


def test_interrupted_thread_closes_its_producer_and_client(url):
    """An interrupt must not stop the loop before everything is closed."""
    with (
        pytest.raises(KeyboardInterrupt),
        sync.connect(url) as client,
        client.producer(TOPIC),
    ):
        raise KeyboardInterrupt
    with sync.connect(url) as client:
        assert client.topics.describe(TOPIC).producers == ()
        client.topics.delete(TOPIC)


def test_several_threads_share_a_client(client):
    def send(number):
        with client.producer(TOPIC, name=f"p-{number}") as producer:
            for n in range(20):
                producer.send(str(n))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.topics.describe(TOPIC).end_offset == 80


def test_reader_may_be_abandoned(client):
    with client.producer(TOPIC) as producer:
        for _ in range(5):
            producer.send_batch([bytes(1_000_000)] * 3)
    for batch in client.read(TOPIC):
        assert len(batch)
        break
    assert client.topics.list() == [TOPIC]


def test_partitions_delivery_windows_and_dead_letters_work_without_await(client):
    policy = pydanube.FailurePolicy(
        redeliveries_max=0,
        poison=pydanube.PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
    )
    client.topics.create(TOPIC, partitions=2)
    client.topics.create("/default/dead")
    client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
    assert client.subscriptions.settings(TOPIC, "s").failure_policy == policy
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        with client.producer(TOPIC) as producer:
            producer.send(b"0", key="k", ttl_s=3600)
            producer.send_nowait(b"1", deliver_after_s=3600)
            producer.send_batch([b"2"], ttl_s=3600)
        got = [consumer.receive(timeout_s=60) for _ in range(2)]
        assert sorted(message.payload for message in got) == [b"0", b"2"]
        consumer.ack(got[0])
        consumer.nack(got[1], reason="no")
        dead = client.dead_letters(TOPIC, "s")
        while not (letters := list(dead.messages())):
            pass
        assert [letter.reason for letter in letters] == ["no"]
        assert dead.replay(letters) == 1
        assert consumer.receive(timeout_s=60).payload == got[1].payload
    assert dead.drop(dead.messages()) == 0


def test_batch_after_iteration_is_of_one_partition(client):
    client.topics.create(TOPIC, partitions=2)
    with client.producer(TOPIC) as producer:
        for n in range(20):
            producer.send(str(n))
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        seen = [next(iter(consumer)).payload]
        while len(seen) < 20:
            batch = consumer.receive_batch(max_messages=100, timeout_s=60)
            assert {message.topic for message in batch} == {batch.topic}
            consumer.ack(batch)
            seen += batch.payloads
        assert sorted(map(int, seen)) == list(range(20))


def test_settings_can_be_changed_without_await(client):
    client.namespaces.create("shop")
    client.namespaces.configure("shop", policy=pydanube.NamespacePolicy())
    client.namespaces.configure("shop", retention=pydanube.Retention(age_s=60.0))
    assert client.namespaces.plan_retention("shop") == []
    assert client.namespaces.apply_retention("shop") == []
    assert client.namespaces.describe("shop").topic_count == 0
    assert "shop" in client.namespaces.list()
    client.namespaces.delete("shop")
    client.topics.create(TOPIC, partitions=1)
    client.topics.add_partitions(TOPIC, 2)
    assert len(client.topics.partitions(TOPIC)) == 2
    client.topics.configure(TOPIC, limits=None)
    client.topics.configure(TOPIC, on_corruption="skip")
    client.topics.configure(
        TOPIC, retention=pydanube.Retention(drops_acknowledged=True)
    )
    assert (
        len(client.topics.plan_retention(TOPIC))
        == len(client.topics.apply_retention(TOPIC))
        == 2
    )
    client.topics.configure(TOPIC, seal_age_s=60.0)
    client.subscriptions.create(TOPIC, "s")
    client.subscriptions.configure(TOPIC, "s", limits=pydanube.DispatchLimits())
    client.subscriptions.configure(TOPIC, "s", is_paused=True)
    client.subscriptions.configure(TOPIC, "s", is_paused=False)
    client.subscriptions.seek(TOPIC, "s", "earliest")
    client.subscriptions.mark_done(TOPIC, "s", [])
    with pytest.raises(pydanube.InvalidRequest):
        client.subscriptions.skip(TOPIC, "s", 1)


def test_batches_are_staged_without_await(client):
    client.topics.create(TOPIC)
    staging = client.staging("sync", 0)
    assert not staging.is_committed()
    parts = []
    for name in ("0", "1"):
        part = staging.part(name, compression="lz4")
        part.write(TOPIC, pa.table({"payload": [name]}))
        parts.append(part.finish())
    dropped = staging.part("2")
    dropped.write(TOPIC, pa.table({"payload": ["2"]}))
    dropped.abort()
    assert (staging.query, staging.version) == ("sync", 0)
    assert staging.describe().part_count == 2
    assert staging.commit(parts).message_count == 2
    assert staging.is_committed()
    staging.abort()
    found = [m.payload for batch in client.read(TOPIC) for m in batch]
    assert found == [b"0", b"1"]


def test_closing_times_out_if_the_broker_does_not_answer():
    with (
        loop_thread() as loop,
        loop.entered(
            ScriptedBroker().connect(close_timeout_s=0.01), partial(sync.Client, loop)
        ) as client,
        pytest.raises(pydanube.TimedOut, match="did not acknowledge 3 messages"),
        client.producer(TOPIC) as producer,
    ):
        _ = [producer.send_nowait(b"m") for _ in range(3)]


def test_requests_and_replies_work_without_await(client):
    client.topics.create(TOPIC)

    def reply():
        message = consumer.receive(timeout_s=60)
        message.reply(message.payload.upper())
        message.ack()

    with (
        client.consumer(TOPIC, subscription="s", type="shared") as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        replying = pool.submit(reply)
        assert client.request(TOPIC, "hello", timeout_s=60).payload == b"HELLO"
        replying.result()


def sync_operations(cls):
    name = cls.__name__
    module = import_module(f"pydanube.client.sync_operations.{name.lower()}")
    return getattr(module, name)


FACADES = [
    (sync.Client, pydanube.Client),
    (sync.Producer, pydanube.Producer),
    (sync.TypedProducer, pydanube.TypedProducer),
    (sync.Consumer, pydanube.Consumer),
    *(
        (sync_operations(each), each)
        for each in (
            *(pydanube.Topics, pydanube.Subscriptions, pydanube.Namespaces),
            *(pydanube.Schemas, pydanube.Storage, pydanube.Security, pydanube.Cluster),
            pydanube.Connectors,
        )
    ),
    (sync.DeadLetters, pydanube.DeadLetters),
    (sync.Staging, pydanube.Staging),
    (sync.PartWriter, pydanube.PartWriter),
]
# These are for the other modules of the client, which run on its loop.
INTERNAL = {
    *("aclose", "opened", "commit_transaction", "wait_for_capacity"),
    # Workers have an event loop, which calls their functions in threads.
    *("worker", "run_workers", "running_workers"),
}


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default, each.annotation) for each in found]


@pytest.mark.parametrize(("facade", "original"), FACADES)
def test_facade_methods_have_the_parameters_of_the_original(facade, original):
    for name, method in inspect.getmembers(original, inspect.isfunction):
        if name.startswith("_") or name in INTERNAL:
            continue
        ours = getattr(facade, name)
        assert ours.__doc__, name
        assert not inspect.iscoroutinefunction(ours), name
        if overloads := typing.get_overloads(method):
            ours = typing.get_overloads(ours)
            assert [*map(parameters, ours)] == [*map(parameters, overloads)]
        else:
            assert parameters(ours) == parameters(method), name


@pytest.mark.parametrize(("facade", "original"), FACADES)
def test_facade_methods_that_only_wait_have_the_docstring_of_the_original(
    facade, original
):
    for name, method in vars(facade).items():
        if hasattr(method, "__wrapped__"):
            wrapped = inspect.unwrap(method)
            assert method.__doc__ == wrapped.__doc__, name
            if not typing.get_overloads(method):
                assert wrapped is inspect.unwrap(getattr(original, name)), name


@pytest.fixture
def handled_interrupts():
    """Handle SIGINT, which a process in the background of a shell may ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handled_interrupts")
def test_interrupt_while_a_scope_is_entered_cancels_it():
    was_cancelled = threading.Event()

    @asynccontextmanager
    async def endless():
        try:
            while True:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                # Python misses a signal that comes just before the thread waits.
                await asyncio.sleep(1)
        finally:
            was_cancelled.set()
        yield

    with (
        pytest.raises(KeyboardInterrupt),
        loop_thread() as loop,
        loop.entered(endless(), partial(Facade, loop)),
    ):
        pass
    assert was_cancelled.is_set()


def test_a_message_acknowledges_itself(client):
    with client.producer(TOPIC) as producer:
        producer.send_batch(["0", "1", "2"])
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        first, second, third = [consumer.receive() for _ in range(3)]
        first.ack()
        second.nack(reason="not now")
        third.ack()
        again = consumer.receive(timeout_s=60)
        assert (again.offset, again.attempt) == (1, 2)
        again.ack()
    assert client.subscriptions.describe(TOPIC, "s").cursor == 3
    with pytest.raises(pydanube.Closed):
        third.ack()


def test_a_transaction_publishes_and_acknowledges_together(client):
    with client.producer(TOPIC) as producer:
        producer.send_batch(["0", "1", "2"])
    client.topics.create("/default/results")
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        batch = consumer.receive_batch(max_messages=2, timeout_s=60)
        with client.transaction("copy") as transaction:
            transaction.send_batch("/default/results", batch.payloads[:1])
            transaction.send("/default/results", batch.payloads[1])
            transaction.ack(batch)
        [third] = consumer.receive_batch(timeout_s=60)
        with suppress(ZeroDivisionError), client.transaction("copy") as transaction:
            transaction.send("/default/results", third.payload)
            transaction.ack(third)
            1 / 0  # noqa: B018
    assert client.subscriptions.describe(TOPIC, "s").cursor == 2
    results = [m.payload for found in client.read("/default/results") for m in found]
    assert results == [b"0", b"1"]
