"""
Traces of the broker by OpenTelemetry, with the extra ``pydanube[otel]``.

A batch that is traced has a span for its way into the topic, until it is stored, and
one for each delivery, from its publish time until it is sent.  They belong to the trace
of the message that carries a context, as clients with telemetry send it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydanube.aio.span_export import open_span_export
from pydanube.model.errors import BrokerError
from pydanube.model.histograms import Exemplar, bucket_of
from pydanube.model.names import TopicName
from pydanube.model.version import __version__
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.pure.producer_session import OnPublished
from pydanube_broker.servers.settings.config import TracesConfig

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider  # An extra.

DECODED_BYTES_MAX = 1024 * 1024
"""Larger batches are traced without the contexts of their messages."""
CONTEXTS_MAX = 32
"""The number of messages of a batch whose contexts are looked at."""

NOTHING: Mapping[str, Any] = {}

_HASH = 2_654_435_761
_RANGE = 2**32
_NS_PER_S = 1_000_000_000


class BrokerTraces:
    """
    Traces a part of the batches; implements ``broker.tracing.Tracing``.

    The base offset decides, so a batch is traced on its whole way or not at all.
    """

    def __init__(self, sample_ratio: float, provider: TracerProvider) -> None:
        self._limit = sample_ratio * _RANGE
        self._tracer = provider.get_tracer("pydanube_broker.broker", __version__)
        self.published: dict[int, Exemplar] = {}
        """The last batch whose storing was traced, for each bucket of a histogram."""
        self.delivered: dict[int, Exemplar] = {}
        """The last batch whose first delivery was traced, for each bucket."""

    def samples(self, base: int) -> bool:
        """Return whether the batch at the offset *base* is traced."""
        return base * _HASH % _RANGE < self._limit

    def publishing(
        self, topic: TopicName, frame: BatchFrame, done: OnPublished
    ) -> OnPublished:
        """See Tracing."""
        began_ns = time.time_ns()

        def finish(offsets: int | Sequence[int], error: BrokerError | None) -> None:
            base = offsets if isinstance(offsets, int) else offsets[0]
            if error is None and self.samples(base):
                self._add(
                    "publish",
                    topic,
                    frame,
                    self.published,
                    began_ns=began_ns,
                    base=base,
                )
            done(offsets, error)

        return finish

    def deliver(
        self, topic: TopicName, subscription: str, frame: BatchFrame, attempt: int
    ) -> None:
        """See Tracing."""
        if self.samples(frame.base):
            self._add(
                "deliver",
                topic,
                frame,
                self.delivered if attempt == 1 else {},
                began_ns=frame.header.first_publish_time * 1000,
                base=frame.base,
                more={
                    "messaging.consumer.group.name": subscription,
                    "danube.attempt": attempt,
                },
            )

    def _add(
        self,
        operation: str,
        topic: TopicName,
        frame: BatchFrame,
        exemplars: dict[int, Exemplar],
        *,
        began_ns: int,
        base: int,
        more: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Add a span that ends now, and its exemplar."""
        from opentelemetry.trace import Link, SpanKind  # noqa: PLC0415

        attributes: dict[str, Any] = {
            "messaging.system": "danube",
            "messaging.destination.name": str(topic),
            "messaging.operation.name": operation,
            "messaging.batch.message_count": frame.count,
            "messaging.message.body.size": frame.plain_bytes,
            "danube.offset": base,
            **more,
        }
        context, spans = _contexts_of(frame)
        now_ns = time.time_ns()
        # A clock may have been set back.
        began_ns = min(began_ns, now_ns)
        span = self._tracer.start_span(
            f"{operation} {topic}",
            context,
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=[Link(each) for each in spans[1:]],
            start_time=began_ns,
        )
        span.end(now_ns)
        own = span.get_span_context()
        if own.trace_flags.sampled:
            duration_s = (now_ns - began_ns) / _NS_PER_S
            exemplars[bucket_of(duration_s)] = Exemplar(
                f"{own.trace_id:032x}",
                f"{own.span_id:016x}",
                duration_s,
                now_ns / _NS_PER_S,
            )


def _contexts_of(frame: BatchFrame) -> tuple[Any, list[Any]]:
    """Return the first context of the messages, and all spans that they name."""
    from opentelemetry import propagate, trace  # noqa: PLC0415

    first: Any = None
    found: dict[tuple[int, int], Any] = {}
    for carrier in _attributes_of(frame):
        context = propagate.extract(carrier)
        span = trace.get_current_span(context).get_span_context()
        if span.is_valid:
            first = context if first is None else first
            found.setdefault((span.trace_id, span.span_id), span)
    # Without a context, the span begins a trace of its own.
    return first, list(found.values())


def _attributes_of(frame: BatchFrame) -> list[dict[str, str]]:
    """Return the attributes of the first messages."""
    if frame.plain_bytes > DECODED_BYTES_MAX:
        return []
    batch = frame.arrow()
    if "attributes" not in batch.schema.names:
        return []
    column = batch.column("attributes").slice(0, CONTEXTS_MAX)
    return [dict(each) for each in column.to_pylist() if each]


@asynccontextmanager
async def open_traces(
    config: TracesConfig, broker_id: str
) -> AsyncIterator[BrokerTraces | None]:
    """
    Export spans during the body, if any batches are traced.

    Raises:
        MissingExtra: The packages of the extra are not installed.
    """
    if not config.sample_ratio:
        yield None
        return
    async with open_span_export(
        config.endpoint,
        service="danube-broker",
        instance=broker_id,
        feature="traces of the broker (traces.sample_ratio)",
    ) as provider:
        yield BrokerTraces(config.sample_ratio, provider)
