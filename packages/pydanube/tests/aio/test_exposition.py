"""Metrics in the formats of Prometheus."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import choose_encoder

from pydanube.aio.exposition import PART, expose, registry_of
from pydanube.model.histograms import Histogram
from pydanube.model.metrics import (
    BACKLOG,
    LAG_SECONDS,
    REQUEST_SECONDS,
    TOPIC_MESSAGES_IN,
    Sample,
)


def samples_of(count: int) -> list[Sample]:
    observed = Histogram()
    observed.observe(0.5)
    names = [f"t-{number}" for number in range(count)]
    return [
        *((TOPIC_MESSAGES_IN, (name,), number) for number, name in enumerate(names)),
        *((LAG_SECONDS, (name, "s"), 0.5) for name in names),
        *((BACKLOG, (name, "#\n"), 1) for name in names),
        *((REQUEST_SECONDS, (name,), observed) for name in names),
    ]


def of_broker(body: bytes) -> list[bytes]:
    """Return the lines that are not about this process, whose values change."""
    return [line for line in body.splitlines() if b"process_" not in line]


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
@pytest.mark.parametrize("count", [0, 1, PART, 2 * PART + 1])
async def test_body_of_many_parts_is_that_of_the_whole(accept: str, count: int) -> None:
    samples = samples_of(count)
    encode, wanted_type = choose_encoder(accept)
    body, content_type = await expose(samples, accept, count + 1)
    assert content_type == wanted_type
    whole = encode(registry_of(lambda: samples, count + 1))
    assert sorted(of_broker(body)) == sorted(of_broker(whole))
    own = [line for line in of_broker(body) if b"danube_" in line]
    assert own == [line for line in of_broker(whole) if b"danube_" in line]
    assert body.endswith(b"# EOF\n") == bool(accept)
