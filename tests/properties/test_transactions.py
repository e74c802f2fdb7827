"""Each message has one result, however transactions, losses and restarts interleave."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import (
    MessageNotHeld,
    StagedPartNotFound,
    TransactionFenced,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import FailurePolicy, SubscriptionType
from pydanube.model.ranges import RangeSet
from pydanube.model.staging import TransactionAcks
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.fakes.readers import S, a_while, attach, publish, subscribe
from support.fakes.staging import stage_part, stored

RESULTS = "/default/results"
COUNT = 12
POLICY = FailurePolicy(redeliveries_max=1000, ack_timeout_s=5.0, redelivery_delay_s=0.1)
PROGRAMS = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.just("begin"), PROGRAMS, st.integers(1, COUNT)),
    st.tuples(st.sampled_from(["commit", "repeat", "release", "leave"]), PROGRAMS),
    st.tuples(st.sampled_from(["wait", "restart"])),
)


class Program:
    """A program that copies messages, one transaction after the other."""

    def __init__(self, name) -> None:
        self.name = name
        self.reader = None
        self.offsets = []
        """The messages of its open transaction."""
        self.last = None
        """What its last commit was, to be repeated."""
        self.committed = []
        """The messages of the commits that were answered."""
        self._open = None

    def connect(self, subscription) -> None:
        self.reader, _ = attach(subscription, self.name)
        self.offsets = []

    async def begin(self, broker, count) -> None:
        """Begin a transaction that copies the next messages, also known ones."""
        query = f"transaction:{self.name}"
        got, self.reader.got = self.reader.got[:count], self.reader.got[count:]
        self.offsets = sorted({each.offset for each in got})
        version = await broker.staging.begin_transaction(query)
        results = [b"%02d" % each for each in self.offsets]
        named = []
        if results:
            part = [(RESULTS, results)]
            named = [await stage_part(broker, version, "0", part, query=query)]
        acks = TransactionAcks(
            topic=str(A_TOPIC),
            subscription=S,
            consumer_id=self.reader.consumer.id,
            ranges=tuple(RangeSet((each, each + 1) for each in self.offsets)),
        )
        self._open = (query, version, named), {"is_transaction": True, "acks": [acks]}

    async def commit(self, broker) -> None:
        if self._open is not None:
            self.last, self._open = self._open, None
            if await self.repeat(broker):
                self.committed += self.offsets

    async def repeat(self, broker) -> bool:
        """Send the last commit, perhaps again; return whether it is committed now."""
        if self.last is None:
            return False
        arguments, options = self.last
        try:
            await broker.staging.commit(*arguments, **options)
        except (MessageNotHeld, TransactionFenced, StagedPartNotFound):
            return False
        return True


class World:
    """A broker that may be started again, with two programs."""

    def __init__(self, type_) -> None:
        self._type = type_
        self._world = BrokerWorld()
        self._now = 0.0
        self._stack = AsyncExitStack()
        self.programs = {name: Program(name) for name in ("a", "b")}

    async def __aenter__(self):
        await self._start()
        await self.broker.topics.create(TopicName.parse(RESULTS), RELIABLE)
        topic = await self.broker.topics.create(A_TOPIC, RELIABLE)
        await self.broker.subscriptions.change_settings(
            A_TOPIC, S, failure_policy=POLICY
        )
        keys = [b"%d" % (n % 4) for n in range(COUNT)]
        await publish(topic, *[b""] * COUNT, keys=keys)
        await self._connect()
        return self

    async def __aexit__(self, *_):
        await self._stack.aclose()

    async def step(self, action, program=None, count=0) -> None:
        found = self.programs.get(program)
        match action:
            case "begin":
                await found.begin(self.broker, count)
            case "commit":
                await found.commit(self.broker)
            case "repeat":
                await found.repeat(self.broker)
            case "release":
                ranges = [(each, each + 1) for each in found.offsets]
                self.subscription.release_messages(found.reader.consumer, ranges)
            case "leave":
                self.subscription.detach(found.reader.consumer)
                found.connect(self.subscription)
            case "wait":
                self._now += 6.0
                self.broker.wake_subscriptions()
            case "restart":
                await self._stack.aclose()
                await self._start()
                await self._connect()
        await a_while()

    async def results(self) -> list[bytes]:
        return sorted(await stored(self.broker, RESULTS))

    async def _start(self) -> None:
        opening = self._world.broker(clock=lambda: self._now)
        self.broker = await self._stack.enter_async_context(opening)

    async def _connect(self) -> None:
        self.subscription = await subscribe(self.broker, type_=self._type)
        for program in self.programs.values():
            program.connect(self.subscription)
        await a_while()


@pytest.mark.slow
@given(
    steps=st.lists(STEPS, max_size=30),
    type_=st.sampled_from(
        [
            SubscriptionType.SHARED,
            SubscriptionType.KEY_SHARED,
            SubscriptionType.FAILOVER,
        ]
    ),
)
async def test_each_message_has_one_result(steps, type_):
    async with World(type_) as world:
        for step in steps:
            await world.step(*step)
            found = await world.results()
            assert len(set(found)) == len(found)
            facts = world.subscription.describe(COUNT)
            done = RangeSet([(0, facts.cursor), *facts.done])
            assert found == [
                b"%02d" % n for n in range(COUNT) if done.count_in(n, n + 1)
            ]
            for program in world.programs.values():
                assert {b"%02d" % each for each in program.committed} <= set(found)
        # What is left is delivered again, and copied.
        for _ in range(20):
            for program in world.programs:
                await world.step("wait")
                await world.step("begin", program, 2 * COUNT)
                await world.step("commit", program)
        assert await world.results() == [b"%02d" % n for n in range(COUNT)]
        assert world.subscription.cursor_offset == COUNT
