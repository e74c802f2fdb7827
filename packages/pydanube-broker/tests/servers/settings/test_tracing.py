"""The broker traces a part of the batches, in the traces of their messages."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pydanube.model.errors import Draining
from pydanube.model.histograms import bucket_of
from pydanube.model.names import TopicName
from pydanube_broker.servers.settings.tracing import (
    DECODED_BYTES_MAX,
    BrokerTraces,
)
from support.fakes.batches import frame_of

TOPIC = TopicName.parse("/default/orders")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.traces = lambda ratio: BrokerTraces(ratio, provider)
    return exporter


def frame(*contexts, base=7, payload=b"x"):
    attributes = [each and {"traceparent": each} for each in contexts]
    found = frame_of([payload] * len(contexts), attributes=attributes)
    found.buffer = bytearray(found.buffer)
    found.stamp(base, 1)
    return found


def publish(traces, found, outcome=7, error=None):
    calls = []
    done = traces.publishing(TOPIC, found, lambda *given: calls.append(given))
    done(outcome, error)
    assert calls == [(outcome, error)]


def test_a_batch_is_traced_on_its_way(spans):
    traces = spans.traces(1)
    found = frame(PARENT, None, OTHER)
    publish(traces, found)
    traces.deliver(TOPIC, "display", found, 2)
    into, out = spans.get_finished_spans()
    assert (into.name, out.name) == (
        "publish /default/orders",
        "deliver /default/orders",
    )
    for each in (into, out):
        assert f"{each.context.trace_id:032x}" == PARENT.split("-")[1]
        assert f"{each.parent.span_id:016x}" == PARENT.split("-")[2]
        [link] = each.links
        assert f"{link.context.trace_id:032x}" == OTHER.split("-")[1]
        assert each.attributes["danube.offset"] == 7
        assert each.attributes["messaging.batch.message_count"] == 3
        assert each.start_time <= each.end_time
    assert out.attributes["messaging.consumer.group.name"] == "display"
    assert out.attributes["danube.attempt"] == 2


def test_spans_are_exemplars_of_the_buckets_of_their_durations(spans):
    traces, found = spans.traces(1), frame(PARENT)
    publish(traces, found)
    traces.deliver(TOPIC, "display", found, 1)
    traces.deliver(TOPIC, "display", found, 2)
    into, out, _ = spans.get_finished_spans()
    for span, exemplars in ((into, traces.published), (out, traces.delivered)):
        [(bucket, exemplar)] = exemplars.items()
        assert exemplar.trace_id == PARENT.split("-")[1]
        assert exemplar.span_id == f"{span.context.span_id:016x}"
        assert exemplar.time_s == pytest.approx(span.end_time / 1e9)
        duration_ns = span.end_time - span.start_time
        assert exemplar.duration_s == pytest.approx(duration_ns / 1e9)
        assert bucket == bucket_of(exemplar.duration_s)


def test_spans_that_are_not_exported_are_no_exemplars(spans):
    traces = spans.traces(1)
    publish(traces, frame(PARENT.removesuffix("1") + "0"))
    assert not spans.get_finished_spans()
    assert not traces.published


def test_batches_without_a_context_begin_a_trace(spans):
    publish(spans.traces(1), frame(None))
    publish(spans.traces(1), frame("no context"))
    for each in spans.get_finished_spans():
        assert each.parent is None


def test_large_batches_are_not_decoded(spans):
    publish(spans.traces(1), frame(PARENT, payload=bytes(DECODED_BYTES_MAX)))
    [span] = spans.get_finished_spans()
    assert span.parent is None


def test_repeated_batches_have_the_first_offset(spans):
    publish(spans.traces(1), frame(PARENT), outcome=[3, 4])
    [span] = spans.get_finished_spans()
    assert span.attributes["danube.offset"] == 3


def test_failures_are_passed_on_and_not_traced(spans):
    publish(spans.traces(1), frame(PARENT), error=Draining("the broker is stopping"))
    assert not spans.get_finished_spans()


@pytest.mark.parametrize("ratio", [0.001, 0.1, 0.5, 1])
def test_the_part_of_batches_is_as_wanted(spans, ratio):
    traces = spans.traces(ratio)
    for step in (1, 7, 1000):
        count = sum(traces.samples(base * step) for base in range(100_000))
        assert count == pytest.approx(ratio * 100_000, rel=0.05)
