"""Tests of publishing at a fixed rate."""

import asyncio
import time

import pytest

from bench.pacing import due_count, ticking

SECOND = 10**9


@pytest.mark.parametrize(
    ("now_s", "due"),
    [(-0.5, 0), (0, 1), (0.0009, 1), (0.001, 2), (1, 1001), (2.5, 2501)],
)
def test_due_count_depends_on_time_alone(now_s, due):
    start = 5 * SECOND

    assert due_count(start + int(now_s * SECOND), start, 1000) == due


async def test_ticks_repeat():
    async with asyncio.timeout(30):
        with ticking(time.monotonic_ns(), 100_000) as ticks:
            for _ in range(5):
                await ticks.next()
