"""Tests of the sink that sends messages to a web server."""

import asyncio
import json

import pytest

from pydanube_connect.sinks.http import HttpOptions, HttpSink
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.servers.http_server import Answer, Broken, LocalServer
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/orders"
COUNT = 5


async def send(server, until_condition, *, fields="", **options):
    """Write messages to *server*; the status, and what is left in the subscription."""
    chosen = json.dumps({"url": f"{server.url}/orders", **options})
    text = f"""
connectors:
  out:
    kind: http-sink
    topic: {TOPIC}
    retries: {{backoff: 1ms}}
    options: {chosen}
{fields}"""
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_batch([f"{number}" for number in range(COUNT)])
        async with running(declared(text, broker.url)) as until:
            await until(until_condition)
        statuses = await until(lambda _: True)
        facts = await client.subscriptions.describe(TOPIC, "out")
        dead = []
        if "/default/dead" in await client.topics.list("default"):
            dead = [m async for b in client.read("/default/dead") for m in b]
        return statuses["out"], facts.backlog, dead


def all_written(statuses):
    out = statuses["out"]
    return out.messages + out.dead_letters == COUNT or out.state.is_over


def test_messages_are_sent_in_order_with_idempotency_keys():
    with LocalServer(lambda _: Answer(204)) as server:
        headers = {"Authorization": "Bearer sesame"}
        status, backlog, _ = asyncio.run(send(server, all_written, headers=headers))
    assert (status.messages, backlog) == (COUNT, 0)
    assert [each.body for each in server.requests] == [b"0", b"1", b"2", b"3", b"4"]
    assert server.requests[2].headers["idempotency-key"] == f"{TOPIC}:2"
    assert server.requests[2].headers["authorization"] == "Bearer sesame"
    assert server.requests[2].path == "/orders"


async def test_requests_continue_the_trace_of_their_message():
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    with LocalServer(lambda _: Answer(204)) as server:
        sink = HttpSink(HttpOptions(url=server.url))
        async with memory_broker() as broker, broker.connect() as client, sink:
            async with client.producer(TOPIC) as producer:
                for each in (trace, "a\r\nhost: b"):
                    await producer.send(b"", attributes={"traceparent": each})
            async for batch in client.read(TOPIC):
                await sink.write(list(batch))
    found = [each.headers.get("traceparent") for each in server.requests]
    assert found == [trace, None]


@pytest.mark.parametrize("fault", [Answer(503), Answer(429), Broken.BEFORE])
def test_request_that_fails_is_repeated_without_the_others(fault):
    with LocalServer(lambda _: Answer(200)) as server:
        server.faults.extend([None, None, fault, fault])
        status, backlog, _ = asyncio.run(send(server, all_written))
    assert (status.messages, status.retries, backlog) == (COUNT, 2, 0)
    assert [each.body for each in server.requests] == [b"0", b"1", b"2", b"3", b"4"]


def test_rejected_messages_become_dead_letters():
    def answer(request):
        return Answer(422, b"no threes") if request.body == b"3" else Answer(200)

    with LocalServer(answer) as server:
        fields = "    dead_letters: /default/dead"
        status, backlog, dead = asyncio.run(send(server, all_written, fields=fields))
    assert (status.messages, status.dead_letters, backlog) == (COUNT - 1, 1, 0)
    [letter] = dead
    assert letter.payload == b"3"
    assert letter.attributes["x-original-topic-offset"] == "3"
    assert letter.attributes["x-failure-reason"] == (
        "the server answers 422: no threes"
    )


@pytest.mark.parametrize("status_code", [401, 422])
def test_sink_fails_if_messages_cannot_be_written(status_code):
    with LocalServer(lambda _: Answer(status_code)) as server:
        status, backlog, _ = asyncio.run(send(server, all_written))
    assert status.state is State.FAILED
    assert str(status_code) in status.error
    assert backlog == COUNT
