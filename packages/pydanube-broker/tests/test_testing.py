"""Brokers for tests: their clock, and how clients reach them."""

import asyncio

import pytest

import pydanube
from pydanube import sync
from pydanube.client.client import Client
from pydanube.client.connections.redirects import find_redirect
from pydanube.client.connections.requester import Requester
from pydanube.model.policy import FailurePolicy, PoisonPolicy
from pydanube_broker.testing import memory_broker, sync_memory_broker
from support.drivers.running import TOPIC, nothing_comes, published, received

DAY_S = 24 * 3600.0
ORDERS = "danube://orders.example:7000"


# The clock.


async def test_delayed_message_comes_when_the_clock_reaches_its_time(broker, client):
    async with (
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        await producer.send(b"later", deliver_after_s=DAY_S)
        await producer.send(b"now")
        message = await consumer.receive(timeout_s=60)
        assert message.payload == b"now"
        await consumer.ack(message)
        await consumer.flush()
        broker.advance(DAY_S - 60)
        assert await nothing_comes(consumer)
        broker.advance(60)
        assert await received(consumer, 1) == [b"later"]


async def test_unacknowledged_message_comes_again_after_its_timeout(broker, client):
    await published(client, b"m")
    async with client.consumer(
        TOPIC, subscription="s", start="earliest", ack_timeout_s=DAY_S
    ) as consumer:
        for attempt in (1, 2):
            message = await consumer.receive(timeout_s=60)
            assert (message.payload, message.attempt) == (b"m", attempt)
            # The first redelivery has no delay.
            broker.advance(DAY_S)
        assert (await consumer.receive(timeout_s=60)).attempt == 3


async def test_message_expires_and_becomes_a_dead_letter(broker, client):
    policy = FailurePolicy(
        poison=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic="/default/dead",
        dead_letter_expired=True,
    )
    await client.topics.create(TOPIC)
    await client.subscriptions.create(TOPIC, "s", start="earliest")
    await client.subscriptions.configure(TOPIC, "s", failure_policy=policy)
    async with client.producer(TOPIC) as producer:
        await producer.send(b"short", ttl_s=DAY_S)
        broker.advance(2 * DAY_S)
        await producer.send(b"long", ttl_s=DAY_S)
    async with (
        client.consumer(TOPIC, subscription="s") as consumer,
        client.producer("/default/dead"),
        client.consumer("/default/dead", subscription="d", start="earliest") as dead,
    ):
        message = await consumer.receive(timeout_s=60)
        assert message.payload == b"long"
        expired = await dead.receive(timeout_s=60)
        assert expired.payload == b"short"
    published_after_s = (message.publish_time - expired.publish_time).total_seconds()
    assert published_after_s >= 2 * DAY_S


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
async def test_the_clock_advances_by_a_finite_time(broker, seconds):
    with pytest.raises(pydanube.InvalidRequest, match="seconds is"):
        broker.advance(seconds)


# Reaching the broker.


async def test_connect_reaches_a_broker_by_its_url_or_by_a_redirect(broker, client):
    await published(client, b"m")
    async with memory_broker() as other:
        with broker.redirect(ORDERS), other.redirect():
            assert await topics_at(ORDERS) == []
        with other.redirect(), broker.redirect(ORDERS):
            assert await topics_at(ORDERS) == [TOPIC]
            assert await topics_at("danube://orders.example") == []
        assert await topics_at(broker.url) == [TOPIC]
        assert await topics_at(other.url) == []
    assert find_redirect(("orders.example", 7000)) is None


async def topics_at(url):
    async with pydanube.connect(url) as client:
        return await client.topics.list()


async def test_malformed_url_is_not_redirected(broker):
    with pytest.raises(pydanube.InvalidRequest, match="orders"):
        broker.redirect("http://orders")


async def test_closed_broker_refuses_connections():
    async with memory_broker() as broker:
        redirect = find_redirect((broker.url.removeprefix("danube://"), 6651))
    requester = Requester(redirect.dial, url=broker.url)
    with pytest.raises(pydanube.ConnectionLost, match="no broker answers"):
        async with Client(requester).opened():
            pass


def test_broker_in_a_thread_has_clients_in_any_loop():
    with sync_memory_broker() as broker:
        with broker.connect() as client, client.producer(TOPIC) as producer:
            producer.send(b"soon", deliver_after_s=DAY_S)
        # Another thread, and after it the loop of this one.
        with (
            sync.connect(broker.url) as client,
            client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
        ):
            broker.disconnect_all()
            broker.advance(DAY_S)
            message = consumer.receive(timeout_s=60)
            assert message.payload == b"soon"
            with client.producer(TOPIC) as producer:
                producer.send(b"a day later")
            later = consumer.receive(timeout_s=60)
            assert (later.publish_time - message.publish_time).total_seconds() >= DAY_S
        assert asyncio.run(topics_at(broker.url)) == [TOPIC]
        with broker.redirect(), sync.connect(ORDERS) as client:
            assert client.topics.list() == [TOPIC]


def test_options_of_the_broker_in_a_thread_are_those_of_the_other():
    with (
        sync_memory_broker(auto_create_topics=False) as broker,
        broker.connect() as client,
        pytest.raises(pydanube.TopicNotFound),
        client.producer(TOPIC),
    ):
        pass
