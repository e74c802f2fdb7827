"""Clients without await: running loops, garbage, other threads, and calls too late."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import pydanube
from pydanube import sync
from pydanube.client.blocking import loop_thread
from support.worlds.current import sync_memory_broker

TOPIC = "/default/orders"


@pytest.fixture
def url():
    with sync_memory_broker() as broker:
        yield broker.url


async def test_clients_work_in_a_thread_whose_loop_is_running(url):
    with sync.connect(url) as client, client.producer(TOPIC) as producer:
        assert producer.send("a").offset == 0
    with pytest.raises(ZeroDivisionError), sync.connect(url) as client:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "call",
    [
        lambda client, producer, consumer: client.topics.list(),
        lambda client, producer, consumer: client.schemas.subjects(),
        lambda client, producer, consumer: next(client.read(TOPIC)),
        lambda client, producer, consumer: client.producer(TOPIC).__enter__(),
        lambda client, producer, consumer: producer.send("a"),
        lambda client, producer, consumer: producer.send_nowait("a"),
        lambda client, producer, consumer: producer.flush(),
        lambda client, producer, consumer: consumer.receive(),
        lambda client, producer, consumer: consumer.receive_batch(),
        lambda client, producer, consumer: consumer.seek(0),
    ],
)
def test_calls_after_closing_raise_closed(url, call):
    with (
        sync.connect(url) as client,
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s") as consumer,
    ):
        pass
    with pytest.raises(pydanube.Closed, match="closed"):
        call(client, producer, consumer)


def test_iteration_ends_when_the_client_is_closed(url):
    with sync.connect(url) as client:
        client.topics.create(TOPIC)
        with client.consumer(TOPIC, subscription="s") as consumer:
            pass
    assert list(consumer) == []


def test_calls_that_wait_in_other_threads_end_when_the_client_is_closed(url):
    with ThreadPoolExecutor() as threads:
        with sync.connect(url) as client:
            client.topics.create(TOPIC)
            reading = client.read(TOPIC, follow=True)
            found = threads.submit(next, reading)
            client.topics.list()
        assert isinstance(found.exception(60), pydanube.Closed)


def test_a_loop_that_stops_cancels_its_work_and_says_closed():
    began = threading.Event()

    async def endless():
        began.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor() as threads:
        with loop_thread() as loop:
            waiting = threads.submit(loop.wait, endless())
            assert began.wait(60)
        assert isinstance(waiting.exception(60), pydanube.Closed)
    with pytest.raises(pydanube.Closed, match="client is closed"):
        loop.wait(endless())


def generated(url):
    with sync.connect(url) as client, client.producer(TOPIC) as producer:
        yield client, producer


def test_a_generator_that_is_never_finished_closes_its_client(url):
    generator = generated(url)
    client, producer = next(generator)
    producer.send("a")
    with sync.connect(url) as other:
        assert len(other.topics.describe(TOPIC).producers) == 1
        del generator
        gc.collect()
        assert other.topics.describe(TOPIC).producers == ()
    with pytest.raises(pydanube.Closed):
        client.topics.list()


class Node:
    """Part of a cycle."""


def test_a_client_that_is_collected_in_its_own_thread_closes(url):
    node = Node()
    node.itself, node.generator = node, generated(url)
    client, producer = next(node.generator)
    loop, thread = client._loop, client._loop._thread
    gc.disable()
    try:
        del node
        loop.call_soon(gc.collect)
        thread.join(60)
    finally:
        gc.enable()
    assert not thread.is_alive()
    with pytest.raises(pydanube.Closed):
        producer.send("a")


def test_an_iterator_that_is_collected_in_the_loops_thread_closes(url):
    with sync.connect(url) as client:
        client.topics.create(TOPIC)
        with client.producer(TOPIC) as producer:
            producer.send("a")
        node = Node()
        node.itself, node.batches = node, client.read(TOPIC, follow=True)
        assert next(node.batches).payloads == [b"a"]
        gc.disable()
        try:
            del node
            client._loop.call_soon(gc.collect)
            assert client.topics.list() == [TOPIC]
        finally:
            gc.enable()


def test_a_callback_that_calls_its_own_client_is_refused(url):
    refused = []

    def on_disconnected(_):
        try:
            client.topics.list()
        except pydanube.InvalidRequest as error:
            refused.append(str(error))

    with sync.connect(url, on_disconnected=on_disconnected) as client:
        client.topics.list()
    assert len(refused) == 1
    assert "in another thread" in refused[0]
