"""The search of messages is bounded, and can be stopped and continued."""

import json

import pytest

from pydanube_cli.messages.pure.conditions import parse_conditions
from pydanube_console.message_search import FoundMessage, MessageFilter, Search, sample
from support.worlds.current import memory_broker

TOPIC = "/default/t"
NOTHING = MessageFilter(text="nothing has this")


@pytest.fixture
async def client():
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            for number in range(20):
                text = f"order {number}".encode()
                await producer.send(text, key=f"user-{number % 2}")
        yield client


async def search(client, **options):
    found = Search()
    start = options.pop("start", "earliest")
    count = options.pop("count", 50)
    wanted = MessageFilter(**options)
    await found.run(client, TOPIC, start=start, count=count, wanted=wanted)
    return found


def offsets(found):
    return [each.message.offset for each in found.found]


async def test_messages_are_found_by_key_and_text(client):
    assert offsets(await search(client, key="user-1", text="ORDER 1")) == [
        *(1, 11, 13, 15, 17, 19)
    ]
    nothing = await search(client, key="user-1", text="order 4")
    assert (offsets(nothing), nothing.message_count) == ([], 20)
    assert nothing.next_offset is None


async def test_messages_are_found_by_conditions(client):
    async with client.producer(TOPIC) as producer:
        for number in range(4):
            payload = json.dumps({"user": {"id": number}}).encode()
            await producer.send(payload, attributes={"source": f"web-{number % 2}"})
    wanted = parse_conditions(["value.user.id >= 1", "attributes.source = 'web-1'"])
    found = await search(client, conditions=wanted)
    assert offsets(found) == [21, 23]


async def test_search_continues_where_it_stopped(client):
    first = await search(client, count=5)
    assert (offsets(first), first.next_offset) == ([0, 1, 2, 3, 4], 5)
    assert offsets(await search(client, start=5, count=2)) == [5, 6]


async def test_cancelled_search_stops_after_a_batch(client):
    found = Search(is_cancelled=True)
    await found.run(client, TOPIC, start="earliest", wanted=NOTHING)
    assert 0 < found.message_count < 20
    assert found.next_offset == found.message_count


async def test_search_reads_a_bounded_number_of_bytes(client):
    found = Search(bytes_max=30)
    await found.run(client, TOPIC, start="earliest", wanted=NOTHING)
    assert (found.message_count, found.next_offset) == (5, 5)


def test_sample_is_spread_over_all_messages():
    messages = [FoundMessage(number, None) for number in range(100)]
    assert [each.message for each in sample(messages, 4)] == [0, 25, 50, 75]
    assert sample(messages[:3], 4) == messages[:3]
