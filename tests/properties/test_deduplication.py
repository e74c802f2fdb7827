"""
A topic that deduplicates stores each id once within its window, also after restarts.

A model, a list of stored ids with their times, says which messages are duplicates.
"""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from support.fakes.brokers import A_NOW_US, A_TOPIC, BrokerWorld
from support.fakes.identified import (
    AGE_S,
    MESSAGES_MAX,
    offsets,
    opened,
    publish,
    stored_ids,
)

IDS = [f"id-{number}" for number in range(12)]
ADVANCE = "advance"
RESTART = "restart"
SEAL = "seal"

SENDS = st.tuples(
    st.sampled_from(["p", "q"]), st.lists(st.sampled_from(IDS), min_size=1, max_size=5)
)
STEPS = st.lists(
    SENDS | SENDS | st.sampled_from([ADVANCE, RESTART, SEAL]), min_size=1, max_size=25
)


class Model:
    """The messages that a topic should have."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, int]] = []

    def send(self, ids, now: int) -> list[int]:
        """Return the offset of each message of a batch; store the new ones."""
        end = len(self.stored)
        first = max(0, end - MESSAGES_MAX)
        known = {
            each: offset
            for offset, (each, time) in enumerate(self.stored)
            if offset >= first and time >= now - AGE_S * 1_000_000
        }
        found = []
        for each in ids:
            if each not in known:
                known[each] = len(self.stored)
                self.stored.append((each, now))
            found.append(known[each])
        return found


@given(STEPS)
def test_each_id_is_stored_once_in_its_window(steps) -> None:
    asyncio.run(_play(steps))


async def _play(steps) -> None:
    world, model = BrokerWorld(), Model()
    world.now_us = A_NOW_US
    at = 0
    while at < len(steps):
        async with world.broker() as broker:
            while at < len(steps):
                step, at = steps[at], at + 1
                if step == RESTART:
                    break
                if step == ADVANCE:
                    world.now_us += int(AGE_S * 400_000)
                elif step == SEAL:
                    await broker.storage.sealer.seal_now()
                else:
                    name, ids = step
                    topic, session = await opened(broker, name)
                    outcome = publish(topic, session, ids, world.now_us)
                    expected = model.send(ids, world.now_us)
                    assert await offsets(outcome, len(ids)) == expected
    async with world.broker() as broker:
        if model.stored:
            topic = await broker.topics.get(A_TOPIC)
            assert await stored_ids(topic) == [each for each, _ in model.stored]
