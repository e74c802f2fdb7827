"""
OpenTelemetry traces and metrics of clients, with the extra ``pydanube[otel]``.

    telemetry = OpenTelemetry()
    async with pydanube.connect(telemetry=telemetry) as client:
        async with client.consumer("/default/orders", subscription="s") as consumer:
            async for message in consumer:
                with telemetry.processing(message):
                    ...

The context of a producer's span travels in the attributes of its messages, in the
format of the configured propagator, by default as ``traceparent`` of W3C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from pydanube.client.connections.telemetry import Counted, Injected, SendSpan, Telemetry
from pydanube.client.connections.urls import parse_url
from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.extras import require
from pydanube.model.names import TopicName
from pydanube.model.version import __version__

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import (
        Link,
        Span,
        SpanKind,
        Status,
        StatusCode,
        TracerProvider,
    )
except ImportError:
    require("otel", "pydanube.otel")
    raise

INSTRUMENTS = {
    "published": ("messaging.client.sent.messages", "Messages that were acknowledged"),
    "received": ("messaging.client.consumed.messages", "Messages that were received"),
    "publish_failures": ("danube.client.publish_failures", "Messages that failed"),
    "redelivered": ("danube.client.redelivered", "Messages that were received again"),
    "late": ("danube.client.late", "Messages dropped after their ack timeout"),
    "acked": ("danube.client.acked", "Messages that the program acknowledged"),
    "nacked": ("danube.client.nacked", "Messages that the program rejected"),
    "reconnects": ("danube.client.reconnects", "Connections that replaced a lost one"),
}
"""The name and the description of the metric of each counter."""

LINKS_MAX = 128
"""The span of a batch links to the contexts of this many messages at most."""

_SYSTEM = {"messaging.system": "danube"}


class OpenTelemetry(Telemetry):
    """
    Traces and measures the clients that are connected with it.

    Clients may share it.  The metrics are the sums of all of them.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Use the providers that are given, or the global ones."""
        self._tracer = trace.get_tracer("pydanube", __version__, tracer_provider)
        self._clients: set[Counted] = set()
        # What the clients that are closed have counted.
        self._closed: dict[str, Counter[str]] = {}
        meter = metrics.get_meter("pydanube", __version__, meter_provider)
        for counter, (name, description) in INSTRUMENTS.items():
            unit = "{connection}" if counter == "reconnects" else "{message}"
            meter.create_observable_counter(
                name, [self._observer_of(counter)], unit, description
            )

    @contextmanager
    def watching(self, client: Counted) -> Iterator[None]:
        self._clients.add(client)
        try:
            yield
        finally:
            self._clients.remove(client)
            closed = self._closed.setdefault(client.url, Counter())
            closed.update(asdict(client.counters()))

    def begin_send(
        self, topic: str, count: int, attributes: Mapping[str, str] | None
    ) -> SendSpan:
        name, described = _describe("send", topic, count)
        span = self._tracer.start_span(
            name, kind=SpanKind.PRODUCER, attributes=described
        )
        return _SendSpan(span, attributes)

    @contextmanager
    def processing(self, messages: Message | MessageBatch) -> Iterator[Span]:
        """
        Trace the body, which processes *messages*; an error in it fails the span.

        The span of a single message belongs to the trace of its producer.  That of a
        batch links to the spans of the producers.
        """
        if isinstance(messages, Message):
            name, described = _describe("process", messages.topic, 1)
            described["messaging.message.id"] = str(messages.offset)
            options: dict[str, Any]
            options = {"context": propagate.extract(messages.attributes)}
        else:
            name, described = _describe("process", messages.topic, len(messages))
            options = {"links": _links_of(messages)}
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.CONSUMER, attributes=described, **options
        ) as span:
            yield span

    def _observer_of(self, counter: str) -> Any:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            totals = Counter({url: c[counter] for url, c in self._closed.items()})
            for client in tuple(self._clients):
                totals[client.url] += getattr(client.counters(), counter)
            for url, value in totals.items():
                yield Observation(value, _server_of(url))

        return observe


class _SendSpan(SendSpan):
    def __init__(self, span: Span, attributes: Mapping[str, str] | None) -> None:
        self.attributes = Injected(attributes or {})
        self._span = span
        propagate.inject(self.attributes, trace.set_span_in_context(span))

    def end(self, error: BaseException | None) -> None:
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()


def _describe(
    operation: str, topic: str, count: int
) -> tuple[str, dict[str, str | int]]:
    """Return the name and the attributes of a span."""
    base, partition = _split(topic)
    found: dict[str, str | int] = {
        **_SYSTEM,
        "messaging.destination.name": base,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if partition is not None:
        found["messaging.destination.partition.id"] = partition
    if count != 1:
        found["messaging.batch.message_count"] = count
    return f"{operation} {base}", found


@lru_cache
def _split(topic: str) -> tuple[str, str | None]:
    """Return the topic and, if it is a partition, its number."""
    found = TopicName.parse(topic).split_partition()
    return (topic, None) if found is None else (str(found[0]), str(found[1]))


def _links_of(messages: Iterable[Message]) -> list[Link]:
    """Return links to the different contexts of *messages*."""
    found: dict[Any, Link] = {}
    for message in messages:
        context = propagate.extract(message.attributes)
        span = trace.get_current_span(context).get_span_context()
        if span.is_valid and len(found) < LINKS_MAX:
            found.setdefault((span.trace_id, span.span_id), Link(span))
    return list(found.values())


def _server_of(url: str) -> dict[str, str | int]:
    host, port = parse_url(url)
    return {**_SYSTEM, "server.address": host, "server.port": port}
