"""A broker exports spans to a collector, in the traces of its clients."""

from __future__ import annotations

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import pydanube
from pydanube.otel import OpenTelemetry
from support.drivers.commands import danube
from support.servers.http_server import Answer, LocalServer
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e]

TOPIC = "/default/orders"


def spans_of(collector):
    found = {}
    for each in collector.requests:
        assert each.path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(each.body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                found |= {span.name: span for span in scope.spans}
    return found


def exemplars_of(broker):
    accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = httpx.get(f"{broker.http_url}/metrics", headers=accepted)
    return {
        family.name: sample.exemplar.labels["span_id"]
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.exemplar is not None
    }


def test_spans_of_the_broker_belong_to_those_of_clients(tmp_path):
    own = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(own))

    async def work(url):
        telemetry = OpenTelemetry(tracer_provider=provider)
        async with pydanube.connect(url, telemetry=telemetry) as client:
            async with client.producer(TOPIC) as producer:
                await producer.send(b"1")
            async with client.consumer(
                TOPIC, subscription="display", start="earliest"
            ) as consumer:
                await consumer.ack(await consumer.receive())

    with LocalServer(lambda _: Answer(200)) as collector:
        config = tmp_path / "broker.yaml"
        config.write_text(f"traces: {{sample_ratio: 1, endpoint: '{collector.url}'}}")
        with BrokerProcess(tmp_path / "data", "--config", str(config)) as broker:
            pydanube.run(work(broker.url))
            exemplars = exemplars_of(broker)
            broker.stop()
        found = spans_of(collector)
    [send] = own.get_finished_spans()
    assert exemplars == {
        "danube_publish_seconds": found[f"publish {TOPIC}"].span_id.hex(),
        "danube_delivery_age_seconds": found[f"deliver {TOPIC}"].span_id.hex(),
    }
    for name in (f"publish {TOPIC}", f"deliver {TOPIC}"):
        assert found[name].trace_id.hex() == f"{send.context.trace_id:032x}"
        assert found[name].parent_span_id.hex() == f"{send.context.span_id:016x}"


def test_spans_of_connectors_are_exported(tmp_path):
    file = tmp_path / "numbers.yaml"
    file.write_text(
        "connectors:\n"
        f"  numbers: {{kind: generator-source, topic: {TOPIC},\n"
        "    options: {count: 3}}\n"
    )
    with (
        LocalServer(lambda _: Answer(200)) as collector,
        BrokerProcess(tmp_path / "data") as broker,
    ):
        done = danube(
            *("connect", "run", str(file), "--traces", collector.url), url=broker.url
        )
        found = spans_of(collector)
    assert done.returncode == 0, done.stderr
    assert found.keys() == {f"send {TOPIC}"}
