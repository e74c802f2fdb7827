"""Suspended clients and brokers lose their connections."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import pydanube
from pydanube.model.errors import ConsumerBusy
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DRIVER = Path(__file__).parents[1] / "support" / "drivers" / "frozen_driver.py"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    settings = directory / "broker.yaml"
    settings.write_text("listen: {idle_timeout_s: 3.0}\n")
    with BrokerProcess(directory / "data", "--config", str(settings)) as broker:
        yield broker


@contextmanager
def frozen_consumer(broker, topic, subscription_type):
    """Run a consumer process that has a message, and suspend it."""
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), broker.url, topic, subscription_type],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "m\n"
        process.send_signal(signal.SIGSTOP)
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def publish(broker, topic):
    async with (
        pydanube.connect(broker.url) as client,
        client.producer(topic) as producer,
    ):
        await producer.send(b"m")


async def consume(broker, topic, subscription_type):
    """Receive the message as soon as the subscription accepts this consumer."""
    async with asyncio.timeout(60), pydanube.connect(broker.url) as client:
        while True:
            try:
                async with client.consumer(
                    topic, subscription="s", type=subscription_type
                ) as consumer:
                    return (await consumer.receive()).payload
            except ConsumerBusy:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("subscription_type", ["failover", "exclusive"])
def test_suspended_consumer_loses_its_subscription_to_another(
    broker, subscription_type
):
    topic = f"/default/{subscription_type}"
    asyncio.run(publish(broker, topic))
    with frozen_consumer(broker, topic, subscription_type):
        assert asyncio.run(consume(broker, topic, subscription_type)) == b"m"


def test_idle_client_keeps_its_connection(broker):
    async def run():
        async with pydanube.connect(broker.url) as client:
            before = await client.requester.connection()
            # Longer than the timeout.
            for _ in range(1000):
                if before.pings >= 6:
                    break
                await asyncio.sleep(0.05)
            assert await client.requester.connection() is before

    asyncio.run(run())


def test_client_reconnects_after_a_broker_was_suspended(broker):
    async def run():
        async with (
            pydanube.connect(broker.url) as client,
            client.producer("/default/publish") as producer,
        ):
            await producer.send(b"before")
            connection = await client.requester.connection()
            os.kill(broker.pid, signal.SIGSTOP)
            sending = producer.send_nowait(b"meanwhile")
            for _ in range(1200):
                if connection.is_lost:
                    break
                await asyncio.sleep(0.05)
            os.kill(broker.pid, signal.SIGCONT)
            assert (await sending).offset == 1

    asyncio.run(run())
