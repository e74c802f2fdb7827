"""Traces from producers to consumers, and metrics of clients."""

import asyncio

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import pydanube
from pydanube import sync
from pydanube.client.producers.producer import Producer
from pydanube.otel import OpenTelemetry
from support.drivers.running import TOPIC
from support.worlds.current import sync_memory_broker


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracer_provider(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def tracer(tracer_provider):
    return tracer_provider.get_tracer("the program")


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def telemetry(tracer_provider, reader):
    meters = MeterProvider([reader])
    return OpenTelemetry(tracer_provider=tracer_provider, meter_provider=meters)


@pytest.fixture
async def traced(broker, telemetry):
    async with pydanube.connect(broker.url, telemetry=telemetry) as client:
        yield client


def spans_of(exporter, name):
    return [each for each in exporter.get_finished_spans() if each.name == name]


def parent_of(message):
    """Return the trace and the span in a message's attribute ``traceparent``."""
    _, trace_id, span_id, _ = message.attributes["traceparent"].split("-")
    return int(trace_id, 16), int(span_id, 16)


def ids_of(span):
    return span.context.trace_id, span.context.span_id


async def test_trace_leads_from_the_producer_to_the_consumer(
    traced, telemetry, tracer, exporter
):
    async with (
        traced.producer(TOPIC) as producer,
        traced.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        with tracer.start_as_current_span("order") as order:
            await producer.send(b"m", attributes={"own": "1"})
        message = await consumer.receive(timeout_s=60)
        with telemetry.processing(message) as inner:
            assert trace.get_current_span() is inner
    [send] = spans_of(exporter, f"send {TOPIC}")
    [process] = spans_of(exporter, f"process {TOPIC}")
    assert ids_of(send) == parent_of(message)
    assert message.attributes["own"] == "1"
    assert send.parent.span_id == order.get_span_context().span_id
    assert process.parent.span_id == send.context.span_id
    assert {order.get_span_context().trace_id} == {
        send.context.trace_id,
        process.context.trace_id,
    }
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(send.attributes) == {
        "messaging.system": "danube",
        "messaging.destination.name": TOPIC,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert process.attributes["messaging.message.id"] == "0"


async def test_forwarded_message_has_the_context_of_its_new_producer(
    traced, telemetry, exporter
):
    async with (
        traced.producer(TOPIC) as producer,
        traced.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        await producer.send(b"m")
        first = await consumer.receive(timeout_s=60)
        with telemetry.processing(first):
            await producer.send_nowait(first.payload, attributes=first.attributes)
        second = await consumer.receive(timeout_s=60)
    _, send = spans_of(exporter, f"send {TOPIC}")
    [process] = spans_of(exporter, f"process {TOPIC}")
    assert ids_of(send) == parent_of(second) != parent_of(first)
    assert send.parent.span_id == process.context.span_id


async def test_batch_is_one_span_to_which_its_consumer_links(
    traced, telemetry, exporter
):
    rows = pa.table(
        {
            "payload": [b"2", b"3"],
            "attributes": pa.array([{"own": "1"}, None], pa.map_("string", "string")),
        }
    )
    async with (
        traced.producer(TOPIC) as producer,
        traced.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        await producer.send_batch([b"0", b"1"])
        await producer.send_batch(rows)
        await producer.send_batch([])
        await producer.flush()
        received = []
        while len(received) < 4:
            batch = await consumer.receive_batch(timeout_s=60)
            with telemetry.processing(batch):
                received += batch
    plain, own = spans_of(exporter, f"send {TOPIC}")
    links = [
        link.context.span_id
        for each in spans_of(exporter, f"process {TOPIC}")
        for link in each.links
    ]
    assert set(links) == {plain.context.span_id, own.context.span_id}
    assert plain.attributes["messaging.batch.message_count"] == 2
    contexts = [parent_of(each) for each in received]
    assert contexts == [ids_of(plain)] * 2 + [ids_of(own)] * 2
    assert received[2].attributes["own"] == "1"


async def test_partition_is_an_attribute_of_its_topic(traced, exporter):
    await traced.topics.create("/default/orders.eu", partitions=2)
    async with traced.producer("/default/orders.eu") as producer:
        await producer.send(b"m", key="k")
        await producer.send_batch([b"m"])
    for send in spans_of(exporter, "send /default/orders.eu"):
        assert send.attributes["messaging.destination.name"] == "/default/orders.eu"
        assert send.attributes["messaging.destination.partition.id"] in {"0", "1"}
    assert len(exporter.get_finished_spans()) == 2


async def test_errors_fail_their_spans(traced, telemetry, exporter):
    async with (
        traced.producer(TOPIC, name="p") as producer,
        traced.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        await producer.send(b"m")
        message = await consumer.receive(timeout_s=60)
        with pytest.raises(ValueError, match="bad"), telemetry.processing(message):
            raise ValueError("bad order")
        async with traced.producer(TOPIC, name="p"):
            with pytest.raises(pydanube.ProducerFenced):
                await producer.send(b"m")
        with pytest.raises(pydanube.ProducerFenced):
            producer.send_nowait(b"m")
        with pytest.raises(pydanube.ProducerFenced):
            await producer.send_batch([b"m"])
    good, *failed = spans_of(exporter, f"send {TOPIC}")
    assert good.status.status_code is StatusCode.UNSET
    assert [each.status.status_code for each in failed] == [StatusCode.ERROR] * 3
    assert "is open" in failed[0].status.description
    [process] = spans_of(exporter, f"process {TOPIC}")
    assert process.status.status_code is StatusCode.ERROR


def test_context_of_the_calling_thread_is_that_of_its_messages(
    telemetry, tracer, exporter
):
    with (
        sync_memory_broker() as broker,
        sync.connect(broker.url, telemetry=telemetry) as client,
        client.producer(TOPIC) as producer,
    ):
        orders = []
        for _ in range(3):
            with tracer.start_as_current_span("order") as order:
                orders.append(order.get_span_context().span_id)
                producer.send_nowait(b"m")
        with tracer.start_as_current_span("order") as order:
            orders.append(order.get_span_context().span_id)
            producer.send(b"m")
    sent = spans_of(exporter, f"send {TOPIC}")
    assert [each.parent.span_id for each in sent] == orders


def metrics_of(reader):
    """Return each metric's value, and the attributes of the last one."""
    values, attributes = {}, {}
    [resource] = reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            [point] = metric.data.data_points
            values[metric.name], attributes = point.value, dict(point.attributes)
    return values, attributes


async def test_metrics_are_the_sums_of_open_and_closed_clients(
    broker, telemetry, reader
):
    for count in (1, 2):
        async with pydanube.connect(broker.url, telemetry=telemetry) as client:
            async with client.producer(TOPIC) as producer:
                await producer.send_batch([b"m"] * count)
            before, attributes = metrics_of(reader)
            assert before["messaging.client.sent.messages"] == [1, 3][count - 1]
    async with (
        pydanube.connect(broker.url, telemetry=telemetry) as client,
        client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        await consumer.ack(await consumer.receive(timeout_s=60))
    after, _ = metrics_of(reader)
    assert after["messaging.client.sent.messages"] == 3
    assert after["messaging.client.consumed.messages"] >= 1
    assert after["danube.client.acked"] == 1
    assert set(after) == {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        *(
            f"danube.client.{name}"
            for name in ("acked", "late", "nacked", "redelivered", "reconnects")
        ),
        "danube.client.publish_failures",
    }
    host = broker.url.removeprefix("danube://")
    assert attributes == {
        "messaging.system": "danube",
        "server.address": host,
        "server.port": 6651,
    }


async def test_nothing_is_added_without_telemetry(client):
    async with (
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s", start="earliest") as consumer,
    ):
        assert type(producer) is Producer
        await producer.send(b"m")
        assert (await consumer.receive(timeout_s=60)).attributes == {}


@pytest.mark.parametrize("batch", [None, 10])
async def test_calls_of_workers_are_traced(traced, exporter, batch):
    async with traced.producer(TOPIC) as producer:
        await producer.send(b"m")
    called = asyncio.Event()

    @traced.worker(TOPIC, subscription="s", start="earliest", batch=batch)
    async def bill(_):
        called.set()
        raise ValueError("bad order")

    async with traced.running_workers():
        await called.wait()
    [send] = spans_of(exporter, f"send {TOPIC}")
    process = spans_of(exporter, f"process {TOPIC}")[0]
    producers = [process.parent, *(link.context for link in process.links)]
    assert send.context.span_id in {each.span_id for each in producers if each}
    assert process.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_results_of_workers_belong_to_the_trace_of_their_message(
    traced, exporter, exactly_once
):
    results = "/default/results"
    await traced.topics.create(results)
    async with traced.producer(TOPIC) as producer:
        await producer.send(b"m")

    @traced.worker(
        TOPIC,
        subscription="s",
        start="earliest",
        publish=results,
        exactly_once=exactly_once,
    )
    def bill(message: pydanube.Message) -> bytes:
        return message.payload

    async with traced.running_workers():
        async for batch in traced.read(results, follow=True):
            [message] = batch
            break
    [process] = spans_of(exporter, f"process {TOPIC}")
    [send] = spans_of(exporter, f"send {results}")
    assert send.parent.span_id == process.context.span_id
    assert f"{send.context.span_id:016x}" in message.attributes["traceparent"]
