"""The recording of the rates and the lag of all open topics, every ten seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydanube.aio.long_work import LongWork
from pydanube.aio.tasks import task_scope
from pydanube.model.activity_history import SHORT_STEP_S
from pydanube.model.names import TopicName
from pydanube_broker.broker.broker import Broker

TOPICS_PER_STEP = 5000
"""With more open topics, measurements are rarer in proportion, and so is their cost."""


@asynccontextmanager
async def recording_activity(broker: Broker) -> AsyncIterator[None]:
    """Record the activity of the topics of *broker* while the body runs."""
    async with task_scope() as scope:
        scope.run(_record_regularly(broker), "activity")
        try:
            yield
        finally:
            scope.cancel()


async def _record_regularly(broker: Broker) -> None:
    measured_at = time.monotonic()
    while True:
        steps = 1 + len(broker.topics.opened) // TOPICS_PER_STEP
        now_s = broker.wall_clock_us() / 1e6
        # Just after a step is over.
        await asyncio.sleep(steps * SHORT_STEP_S - now_s % SHORT_STEP_S + 0.01)
        before, measured_at = measured_at, time.monotonic()
        await record_activity(broker, measured_at - before)


async def record_activity(broker: Broker, elapsed_s: float) -> None:
    """
    Add what happened in *elapsed_s*, since the measurement before, to the rings.

    Bounds: The work is proportional to the number of open topics and subscriptions,
        and nothing is read.  Other tasks run in between.
    """
    work, measured = LongWork(), broker.activity.begin()
    now_us = broker.wall_clock_us()
    for topic in list(broker.topics.opened.values()):
        counts, end_offset = topic.counts, topic.end_offset
        number = topic.topic_id
        new = measured.count(number, "", counts.published, counts.delivered)
        # Most of many topics are idle, and need no name.
        if any(new):
            measured.add((_base_name(topic.name), ""), number, new)
        await work.did()
        for each in list(topic.subscriptions.values()):
            lag = each.backlog(end_offset)
            new = measured.count(number, str(each.name), 0, each.counts.delivered)
            if lag or any(new):
                age_s = each.lag_s(now_us) if lag else 0.0
                key = _base_name(topic.name), str(each.name)
                measured.add(key, number, new, lag, age_s)
            await work.did()
    broker.activity.end(measured, now_us / 1e6, max(elapsed_s, 1e-3))


def _base_name(name: TopicName) -> str:
    split = name.split_partition()
    return str(name if split is None else split[0])
