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
from support.brokers import A_TOPIC
from support.readers import S, attach, publish, subscribe
from support.recording_files import RecordingFiles
from support.staging import quiet, stage_part, stored
from support.staging_timeline import (
    RecordingStore,
    Timeline,
    copy_of,
    identity_of,
    recorded_broker,
    store_at,
)

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


async def _script(timeline: Timeline) -> tuple[RecordingFiles, RecordingFiles, list]:
    """Run the program once; return the versions of its transactions, too."""
    journal = RecordingFiles(fail=timeline.recorder("journal"))
    staged = RecordingFiles(fail=timeline.recorder("staged"))
    versions = []
    async with recorded_broker(RecordingStore(timeline), journal, staged) as broker:
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
            timeline.committed[number] = timeline.now
            if number == 1:
                subscription.ack([(ACKED, ACKED + 1)], 0)
    return journal, staged, versions


def _done(subscription) -> set[int]:
    cursor = subscription._machine.cursor
    return {n for n in range(len(INPUTS)) if not cursor.open_count(n, n + 1)}


async def _published(broker) -> set[int]:
    """The messages whose results are published: each once, in both topics."""
    found = [await stored(broker, topic) for topic in (A, B)]
    assert sorted(found[0]) == sorted(found[1])
    assert len(set(found[0])) == len(found[0])
    return {INPUTS.index(payload) for payload in found[0]}


async def _check(store, journal, staged, told: int, versions) -> None:
    """
    Recover, and run the program again.

    The first run got the answers to its first *told* commits.
    """
    disks = RecordingFiles(journal), RecordingFiles(staged)
    async with recorded_broker(copy_of(store), *disks) as broker:
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
    assert not disks[1].contents


def _moments(timeline: Timeline):
    """Every moment from the first transaction on, with the counts of operations."""
    for at in range(timeline.events.index("staged"), timeline.now + 1):
        events = timeline.events[:at]
        told = sum(when <= at for when in timeline.committed.values())
        yield at, events.count("journal"), events.count("staged"), told


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_messages_are_acknowledged_exactly_if_their_results_are_published():
    timeline = Timeline()
    journal, staged, versions = await _script(timeline)
    seen = set()
    for at, journal_count, staged_count, told in _moments(timeline):
        rng, store = Random(at), store_at(timeline, at)
        journals = list(journal.crash_states(journal_count))
        parts = list(staged.crash_states(staged_count))
        pairs = [(each, rng.choice(parts)) for each in journals]
        pairs += [(rng.choice(journals), each) for each in parts]
        for log, stage in rng.sample(pairs, min(len(pairs), STATES_MAX)):
            key = identity_of(log, stage, store)
            if key not in seen:
                seen.add(key)
                await _check(store, log, stage, told, versions)
    assert len(seen) > 150


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_transaction_is_resumed_after_a_crash_during_its_resumption():
    timeline = Timeline()
    journal, staged, versions = await _script(timeline)
    checked = 0
    for at, journal_count, staged_count, told in _moments(timeline):
        rng = Random(at)
        again = Timeline()
        logs = RecordingFiles(
            rng.choice(list(journal.crash_states(journal_count))),
            fail=again.recorder("journal"),
        )
        stages = RecordingFiles(
            rng.choice(list(staged.crash_states(staged_count))),
            fail=again.recorder("staged"),
        )
        store = RecordingStore(again)
        store.copy_from(store_at(timeline, at))
        again.stores.append((0, copy_of(store)))
        async with recorded_broker(store, logs, stages) as broker:
            await quiet(broker)
        for second in range(0, again.now + 1, 2):
            events = again.events[:second]
            await _check(
                store_at(again, second),
                rng.choice(list(logs.crash_states(events.count("journal")))),
                rng.choice(list(stages.crash_states(events.count("staged")))),
                told,
                versions,
            )
            checked += 1
    assert checked > 50
