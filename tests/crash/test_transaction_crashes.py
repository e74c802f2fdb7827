"""
After any crash, each message is acknowledged if and only if its result is published.

A program copies messages in transactions, over a journal, staged files and a metadata
store that record.  Then, for every moment, states that a crash could leave are built
and recovered, and another run of the program copies the rest.
"""

from __future__ import annotations

from random import Random

import pytest

from pydanube.model.errors import TransactionFenced
from pydanube.model.names import TopicName
from pydanube.model.policy import Durability, TopicPolicy
from pydanube.model.ranges import RangeSet
from pydanube.model.staging import TransactionAcks
from support.fakes.brokers import A_TOPIC
from support.fakes.readers import S, attach, publish, subscribe
from support.fakes.staging import quiet, stage_part, stored
from support.fakes.staging_timeline import Timeline, recovered_broker

A, B = "/default/a", "/default/b"
QUERY = "transaction:copy"
INPUTS = [b"input %02d " % n * 3 for n in range(12)]
TRANSACTIONS = [(0, 1, 2), (4, 5), (3, 7, 9)]
"""The offsets of the messages that the transactions of the first run copy."""
ACKED = 6
"""The offset of a message that is acknowledged without a transaction."""
STATES_MAX = 8
"""The number of disk states that are checked for each moment."""


def _results(offsets) -> list[tuple[str, list[bytes]]]:
    """Two results of each message, in different topics."""
    payloads = [INPUTS[offset] for offset in offsets]
    return [(A, payloads), (B, payloads)]


async def _commit(broker, reader, version, offsets):
    """Copy messages that *reader* has."""
    part = await stage_part(broker, version, "0", _results(offsets), query=QUERY)
    acks = TransactionAcks(
        topic=str(A_TOPIC),
        subscription=S,
        consumer_id=reader.consumer.id,
        ranges=tuple(RangeSet((each, each + 1) for each in offsets)),
    )
    return await broker.staging.commit(
        QUERY, version, [part], is_transaction=True, acks=[acks]
    )


async def _run() -> tuple[Timeline, list[int], list[int]]:
    """Run the program once; return the versions and moments of its commits, too."""
    timeline, versions, committed = Timeline(), [], []
    async with timeline.broker() as broker:
        written = TopicPolicy(durability=Durability.WRITTEN)
        for name, policy in ((A, TopicPolicy()), (B, written)):
            await broker.topics.create(TopicName.parse(name), policy)
        topic = await broker.topics.create(A_TOPIC, TopicPolicy())
        await publish(topic, *INPUTS)
        subscription = await subscribe(broker)
        reader, _ = attach(subscription)
        await reader.first(len(INPUTS))
        await broker.storage.journal.sync()
        for number, offsets in enumerate(TRANSACTIONS):
            version = await broker.staging.begin_transaction(QUERY)
            versions.append(version)
            await _commit(broker, reader, version, offsets)
            committed.append(timeline.now)
            if number == 1:
                subscription.ack([(ACKED, ACKED + 1)], 0)
    return timeline, versions, committed


def _done(subscription) -> set[int]:
    cursor = subscription._machine.cursor
    return {n for n in range(len(INPUTS)) if not cursor.open_count(n, n + 1)}


async def _published(broker) -> set[int]:
    """The messages whose results are published: each once, in both topics."""
    found = [await stored(broker, topic) for topic in (A, B)]
    assert sorted(found[0]) == sorted(found[1])
    assert len(set(found[0])) == len(found[0])
    return {INPUTS.index(payload) for payload in found[0]}


async def _check(state, told: int, versions) -> None:
    """
    Recover, and run the program again.

    The first run got the answers to its first *told* commits.
    """
    async with recovered_broker(state) as (broker, staged):
        await quiet(broker)
        subscription = await subscribe(broker)
        done, published = _done(subscription), await _published(broker)
        # Without a transaction, an acknowledgement may be lost.
        assert done - {ACKED} == published
        for offsets in TRANSACTIONS[:told]:
            assert published >= set(offsets)
        # The first run repeats its commits.  It learns that the last one was decided.
        last = [each for each in TRANSACTIONS if published >= set(each)][-1:]
        for version, offsets in zip(versions, TRANSACTIONS, strict=True):
            commit = broker.staging.commit(QUERY, version, [], is_transaction=True)
            if offsets in last:
                assert (await commit).is_repeat
            else:
                with pytest.raises(TransactionFenced):
                    await commit
        rest = sorted(set(range(len(INPUTS))) - done)
        reader, _ = attach(subscription)
        assert sorted(await reader.offsets(len(rest))) == rest
        await _commit(
            broker, reader, await broker.staging.begin_transaction(QUERY), rest
        )
        assert subscription.cursor_offset == len(INPUTS)
        assert await _published(broker) >= set(range(len(INPUTS))) - {ACKED}
        assert len(broker.staging.parts) == 0
    assert not staged.contents


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_messages_are_acknowledged_exactly_if_their_results_are_published():
    timeline, versions, committed = await _run()
    begin, checked = timeline.events.index("staged"), 0
    for at, state in timeline.crash_states(begin, STATES_MAX):
        await _check(state, sum(when <= at for when in committed), versions)
        checked += 1
    assert checked > 150


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.soak)])
async def test_transaction_is_resumed_after_a_crash_during_its_resumption(step):
    timeline, versions, committed = await _run()
    checked = 0
    for at in range(timeline.events.index("staged"), timeline.now + 1):
        rng = Random(at)
        again = Timeline(timeline.crash_state(at, rng))
        await again.recover()
        told = sum(when <= at for when in committed)
        for second in range(at % step, again.now + 1, step):
            await _check(again.crash_state(second, rng), told, versions)
            checked += 1
    assert checked > 100 // step
