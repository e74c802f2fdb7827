"""Tests of the sink that sends messages to a web server."""

import asyncio
import json
from datetime import UTC, datetime
from email.utils import format_datetime
from types import SimpleNamespace

import pytest

from pydanube_connect.pure.failures import Transient
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


async def test_a_server_says_how_long_to_wait():
    """The one that does not say it is asked again and again."""
    wait = Answer(429, b"", {"retry-after": "500"})
    with (
        LocalServer(lambda _: wait) as patient,
        LocalServer(lambda _: Answer(429)) as other,
    ):
        text = "connectors:\n" + "".join(
            f"""
  {name}:
    kind: http-sink
    topic: {TOPIC}
    retries: {{backoff: 1ms, backoff_max: 1ms}}
    options: {{url: "{server.url}"}}
"""
            for name, server in (("patient", patient), ("other", other))
        )
        async with memory_broker() as broker, broker.connect() as client:
            async with client.producer(TOPIC) as producer:
                await producer.send(b"x")
            async with running(declared(text, broker.url)) as until:
                await until(lambda found: found["patient"].retries)
                found = await until(lambda found: found["other"].retries > 50)
                assert found["patient"].retries == 1
                assert len(patient.requests) == 1


@pytest.mark.parametrize(
    ("text", "least_s"),
    [("7", 7), ("1.5", 1.5), ("soon", 0), ("nan", 0), ("inf", 0), ("-5", 0)],
)
async def test_retry_after_is_a_number_of_seconds(text, least_s):
    with LocalServer(lambda _: Answer(503, b"", {"retry-after": text})) as server:
        async with HttpSink(HttpOptions(url=server.url)) as sink:
            message = SimpleNamespace(id=("t", 0), payload=b"", attributes={})
            with pytest.raises(Transient) as raised:
                await sink.write([message])
    assert raised.value.retry_after_s == least_s


async def test_retry_after_may_be_a_time():
    when = format_datetime(datetime(2999, 1, 2, tzinfo=UTC), usegmt=True)
    with LocalServer(lambda _: Answer(503, b"", {"retry-after": when})) as server:
        async with HttpSink(HttpOptions(url=server.url)) as sink:
            message = SimpleNamespace(id=("t", 0), payload=b"", attributes={})
            with pytest.raises(Transient) as raised:
                await sink.write([message])
    assert raised.value.retry_after_s > 3600
