"""The topics that exist, and those that patterns match."""

from __future__ import annotations

import asyncio
import gc

import pytest

from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube_broker.testing import memory_broker
from pydanube_kafka.pure.names import TopicNames
from pydanube_kafka.pure.patterns import BadPattern, Pattern
from pydanube_kafka.topic_facts import TopicsByName


async def test_patterns_wait_for_the_list_of_topics_and_keep_little():
    async with memory_broker() as memory:
        broker = memory.broker
        for name in ("ab", "b"):
            await broker.topics.create(
                TopicName.parse(f"/default/{name}"), TopicPolicy()
            )
        before = automata()
        topics = TopicsByName(broker, TopicNames(False), 60.0, matched_max=3)
        turns, taken = broker.lists.of(""), 0
        while not turns.locked():
            await turns.acquire()
            taken += 1
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(topics.match(".*b", ANONYMOUS, 0.0)) for _ in range(2)
            ]
            # They come as far as they can.
            for _ in range(10):
                await asyncio.sleep(0)
            for _ in range(taken):
                turns.release()
        assert [each.result() for each in tasks] == [{"ab", "b"}] * 2
        # The states of automata take more memory than what they have found.
        assert automata() <= before
        known = await topics.match(".*b", ANONYMOUS, 0.0)
        assert await topics.match(".*b", ANONYMOUS, 0.0) is known
        await topics.match("(ab|b)", Principal("other", "token"), 0.0)
        assert await topics.match(".*b", ANONYMOUS, 0.0) is not known
        with pytest.raises(BadPattern):
            await topics.match("(", ANONYMOUS, 0.0)


def automata():
    """The automata in memory, some of which are of other tests."""
    return {id(each) for each in gc.get_objects() if isinstance(each, Pattern)}
