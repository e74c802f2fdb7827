"""What users see of a client: its counters, its log and its callbacks."""

import logging

import pytest

import pydanube
from pydanube.client.client import Client
from pydanube.client.connections.requester import Requester
from pydanube_broker.servers.native.in_process import dial_in_process
from support.drivers.running import TOPIC, published, received
from support.fakes.scripted_broker import ScriptedBroker

SECRET = "hunter2"


@pytest.fixture
def log(caplog):
    """Return the log of the client, at all levels."""
    caplog.set_level(logging.DEBUG, logger="pydanube.client")
    return caplog


def lines(log, level):
    return [each.getMessage() for each in log.records if each.levelno == level]


# Counters.


async def test_messages_are_counted_by_what_happened_to_them(client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"1")
        await producer.send_batch([b"2", b"3"])
        pending = [producer.send_nowait(b"%d" % n, key="k") for n in range(4, 8)]
        await pending[-1]
    assert client.counters().published == 7
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        messages = [await consumer.receive(timeout_s=60) for _ in range(7)]
        await consumer.ack(messages[0])
        await consumer.ack(messages[3:5])
        # These include the first one, and count once.
        await consumer.ack_cumulative(messages[1])
        await consumer.nack(messages[5:])
        assert await received(consumer, 2) == [b"6", b"7"]
        await consumer.flush()
        assert client.counters() == pydanube.ClientCounters(
            published=7, received=9, redelivered=2, acked=4, nacked=2
        )


async def test_counters_are_a_copy(client):
    before = client.counters()
    await published(client, b"m")
    assert (before.published, client.counters().published) == (0, 1)


async def test_messages_that_are_never_acknowledged_are_failures(log):
    async with ScriptedBroker().connect(close_timeout_s=0.01) as client:
        with pytest.raises(pydanube.TimedOut):
            async with client.producer(TOPIC, name="p") as producer:
                _ = [producer.send_nowait(b"private") for _ in range(3)]
        assert client.counters().publish_failures == 3
    assert (
        f"Producer p of {TOPIC}: 3 unacknowledged messages failed: "
        "the producer is closed"
    ) in lines(log, logging.WARNING)
    assert "private" not in log.text


# The log and the callbacks.


async def test_life_of_a_connection_is_logged_and_reported(broker, log):
    seen = []
    async with pydanube.connect(
        broker.url,
        on_connected=lambda: seen.append("connected"),
        on_disconnected=lambda reason: seen.append(str(reason)),
    ) as client:
        async with client.producer(TOPIC, name="p") as producer:
            await producer.send(b"private", key="secret", attributes={"a": "hidden"})
            broker.disconnect_all()
            await producer.send(b"private")
        assert client.counters().reconnects == 1
    lost = "the broker closed the connection (end)"
    assert seen == ["connected", lost, "connected", "the client was closed"]
    assert lines(log, logging.INFO) == [
        f"connected to the broker at {broker.url}",
        f"Producer p of {TOPIC} lost its channel: {lost}",
        f"connected again to the broker at {broker.url}",
        f"Producer p of {TOPIC} is open again",
        f"disconnected from the broker at {broker.url}",
    ]
    assert lines(log, logging.WARNING) == [
        f"lost the connection to the broker at {broker.url}: {lost}"
    ]
    assert {each.name for each in log.records} == {
        "pydanube.client.connections.broker_pool",
        "pydanube.client.producers.producer",
    }
    assert not {"private", "secret", "hidden"} & set(log.text.split())


async def test_outage_is_logged_once(broker, log):
    failures = iter([OSError("down")] * 3)

    async def dial(factory):
        if broker.server.connections_total:
            for error in failures:
                raise error
        return await dial_in_process(broker.server)(factory)

    async with Client(Requester(dial, url=broker.url)).opened() as client:
        broker.disconnect_all()
        assert await client.topics.list() == []
    assert next(failures, None) is None
    _, failed = lines(log, logging.WARNING)
    assert failed.startswith("cannot connect again: no broker answers at")


async def test_fenced_producer_is_logged(client, log):
    async with client.producer(TOPIC, name="p") as producer:
        await producer.send(b"m")
        async with client.producer(TOPIC, name="p"):
            with pytest.raises(pydanube.ProducerFenced):
                await producer.send(b"m")
    reasons = [
        line.partition(f"Producer p of {TOPIC} failed: ")[2]
        for line in lines(log, logging.WARNING)
    ]
    assert [*filter(None, reasons)] == ["another producer named p is open"]


async def test_failing_callback_ends_nothing(broker, log):
    def fail():
        raise ValueError("a mistake")

    async with pydanube.connect(broker.url, on_connected=fail) as client:
        assert await client.topics.list() == []
    assert "ValueError: a mistake" in log.text


async def test_log_has_no_credentials(broker, log):
    url = f"danube://user:{SECRET}word@orders.example"
    with broker.redirect(url):
        async with pydanube.connect(url, token=SECRET) as client:
            broker.disconnect_all()
            assert await client.topics.list() == []
            assert client.requester.shown(f"two\nlines: {SECRET}") == "two lines: ***"
    assert "danube://user:***@orders.example" in log.text
    assert SECRET not in log.text
