"""The sink elasticsearch-sink, with a real OpenSearch."""

from __future__ import annotations

import asyncio

import pytest

from pydanube_broker.testing import memory_broker
from pydanube_connect.status import State
from support.drivers.connectors import declared, running, write_messages
from support.servers.opensearch import OpensearchProcess

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

TOPIC = "/default/orders"
DEAD = "/default/dead"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with OpensearchProcess(tmp_path_factory.mktemp("server")) as found:
        yield found


def declaration(server, index, options=""):
    return f"""
connectors:
  search:
    kind: elasticsearch-sink
    topic: {TOPIC}
    dead_letters: {DEAD}
    retries: {{backoff: 50ms, backoff_max: 1s}}
    options: {{url: "{server.url}", index: "{index}"{options}}}
"""


async def write(text, *messages):
    """Write *messages*, pairs of key and payload; the dead letters."""
    status, dead = await write_messages(text, TOPIC, *messages, dead=DEAD)
    assert status.state is not State.FAILED
    return dead


async def test_each_message_is_a_document(server):
    text = declaration(server, "all-{topic}")
    messages = [(None, b'{\n"x": 1}'), ("k", b'{"x": 2}')]
    assert await write(text, *messages) == []
    # A topic that was deleted, or whose subscription begins again.
    assert await write(text, *messages) == []
    assert server.documents("all-orders") == {
        f"{TOPIC}:0": {"x": 1},
        f"{TOPIC}:1": {"x": 2},
    }


async def test_documents_are_replaced_and_deleted_by_key(server):
    text = declaration(server, "keyed", ", id: key")
    messages = [
        ("a", b'{"x": 1}'),
        ("b", b'{"x": 2}'),
        ("a", b'{"x": 3}'),
        ("b", b""),
        ("c", b""),
    ]
    assert await write(text, *messages) == []
    assert server.documents("keyed") == {"a": {"x": 3}}
    # Messages that come again do not replace newer ones.
    assert await write(text, *messages[:2]) == []
    assert server.documents("keyed") == {"a": {"x": 3}}


async def test_messages_that_cannot_be_documents_become_dead_letters(server):
    text = declaration(server, "typed", ", id: key")
    server.put("typed", {"mappings": {"properties": {"x": {"type": "integer"}}}})
    dead = await write(
        text,
        ("a", b'{"x": 1}'),
        ("b", b'{"x": "one"}'),
        ("c", b"no JSON"),
        (None, b'{"x": 4}'),
        ("k" * 513, b'{"x": 5}'),
        ("e", b'{"x": 6}'),
    )
    assert server.documents("typed") == {"a": {"x": 1}, "e": {"x": 6}}
    reasons = [each.attributes["x-failure-reason"] for each in dead]
    assert "mapper_parsing_exception" in reasons[0]
    assert reasons[1:] == [
        "the payload is not a JSON object",
        "the message has no key",
        "the key is longer than 512 bytes",
    ]


async def test_an_index_that_is_read_only_stops_the_connector(server):
    server.put("locked", {"settings": {"index.blocks.read_only": True}})
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"{}")
        text = declaration(server, "locked")
        async with running(declared(text, broker.url)) as until:
            found = await until(lambda found: found["search"].state is State.FAILED)
    assert "cluster_block_exception" in found["search"].error


async def test_nothing_is_lost_when_the_server_is_killed(server):
    count = 3000
    text = declaration(server, "many", ", id: key")
    async with (
        memory_broker() as broker,
        broker.connect() as client,
        client.producer(TOPIC) as producer,
        running(declared(text, broker.url)) as until,
    ):
        for base in range(0, count, 100):
            for number in range(base, base + 100):
                producer.send_nowait(b'{"n": %d}' % number, key=f"k{number % 1000}")
            await producer.flush()
            if base in {500, 1500}:
                await until(lambda found: found["search"].messages > 0)
                server.kill()
                # It takes long, and broker and client run in this loop.
                await asyncio.to_thread(server.start)
        await until(lambda found: found["search"].messages == count)
    assert server.documents("many") == {
        f"k{number % 1000}": {"n": number} for number in range(count - 1000, count)
    }
