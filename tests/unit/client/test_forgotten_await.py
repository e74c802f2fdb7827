from dataclasses import dataclass

import pytest

from support.running import TOPIC


@dataclass
class Order:
    number: int


@pytest.mark.parametrize(
    ("options", "value"),
    [({}, b"x"), ({"partitions": 2}, b"x"), ({"schema": Order}, Order(1))],
)
async def test_forgotten_await_of_send_is_reported_with_the_topic(
    client, options, value
):
    async with client.producer(TOPIC, **options) as producer:
        with pytest.warns(RuntimeWarning, match=r"await producer\.send") as warnings:
            producer.send(value)
        assert f"send to {TOPIC} " in str(warnings[0].message)
        assert (await producer.send(value)).offset == 0
