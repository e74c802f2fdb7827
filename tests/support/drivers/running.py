"""Tests with a broker in this process."""

from typing import Any

import pytest

from pydanube.client.client import Client

TOPIC = "/default/orders"


def using(**values: Any) -> Any:
    """Give some fixtures of a test other values than usual."""
    parameters = pytest.param(*values.values(), id=pytest.HIDDEN_PARAM)
    return pytest.mark.parametrize(list(values), [parameters])


async def published(client: Client, *payloads: bytes, topic: str = TOPIC) -> None:
    """Publish *payloads* to *topic*, which is created if needed."""
    async with client.producer(topic) as producer:
        await producer.send_batch(payloads)


async def received(consumer: Any, count: int) -> list[bytes]:
    """The next *count* payloads."""
    payloads: list[bytes] = []
    while len(payloads) < count:
        batch = await consumer.receive_batch(
            max_messages=count - len(payloads), timeout_s=60
        )
        assert batch, f"only {len(payloads)} of {count} messages came"
        payloads += batch.payloads
    return payloads


async def nothing_comes(consumer: Any) -> bool:
    """Whether no message is there, nor comes in the next turns of the loop."""
    return len(await consumer.receive_batch(timeout_s=0.05)) == 0
