"""The export of spans to a collector of OpenTelemetry, with ``pydanube[otel]``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from pydanube.model.extras import require
from pydanube.model.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider  # An extra.

CLOSE_S = 5.0
"""How long the end waits until the last spans are exported."""


@asynccontextmanager
async def open_span_export(
    endpoint: str, *, service: str, instance: str, feature: str
) -> AsyncIterator[TracerProvider]:
    """
    Export spans during the body, by OTLP over HTTP.

    *endpoint* is the address of the collector; empty: that of the environment.
    *feature* is what needs the export, for the error.

    Raises:
        MissingExtra: The packages of the extra are not installed.
    """
    require("otel", feature)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    resource = Resource.create(
        {
            "service.name": service,
            "service.version": __version__,
            "service.instance.id": instance,
        }
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url)))
    try:
        yield provider
    finally:
        # It sends what is left, and waits for the collector.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.to_thread(provider.shutdown)
