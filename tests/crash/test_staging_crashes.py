"""
After any crash, each version of staged batches is published once, or not yet.

The script runs once, over a journal and staged files that record, and a metadata
store that remembers every state it had.  Then, for every moment, states that a crash
could leave are built and recovered, and the client does what a client does: it asks
for whatever it was not told is committed.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from random import Random

import pytest

from pydanube.model.errors import (
    DiskFull,
    MetadataUnavailable,
    StagedPartNotFound,
    StagingClosed,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import Durability, TopicPolicy
from pydanube.model.staging import StagedPart
from pydanube_broker.storage.config import StagingConfig
from support.fakes.memory_store import MemoryStore
from support.fakes.recording_files import RecordingFiles
from support.fakes.staging import A_QUERY, PartMaker, quiet, stage_part, stored
from support.fakes.staging_timeline import Timeline, recorded_broker, recovered_broker

A, B = "/default/a", "/default/b"
STATES_MAX = 5
"""The number of disk states that are checked for each moment."""


def _batch(*numbers: int) -> list[bytes]:
    return [b"message %04d " % number * 4 for number in numbers]


PARTS = [
    [
        [(A, _batch(1, 2)), (B, _batch(101)), (A, _batch(3))],
        [(B, _batch(102, 103)), (A, _batch(4))],
    ],
    [[(A, _batch(5, 6, 7)), (A, _batch(8)), (A, _batch(9))]],
    [[(B, _batch(104))], [(B, _batch(105)), (A, _batch(10))]],
    # Only a topic with the durability WRITTEN.
    [[(B, _batch(106))]],
]
"""The parts and their batches, by version."""
EXPECTED = {
    topic: [
        payload
        for parts in PARTS
        for part in parts
        for name, payloads in part
        if name == topic
        for payload in payloads
    ]
    for topic in (A, B)
}


@dataclass
class Answers:
    """What the client of the first run got, and when."""

    finished: dict[tuple[int, int], tuple[int, StagedPart]] = field(
        default_factory=dict
    )
    """By version and number of the part: (number of events, what the client got)."""
    committed: dict[int, int] = field(default_factory=dict)
    """By version: the number of events when the client got the answer."""


async def _run() -> tuple[Timeline, Answers]:
    """Stage and commit all versions."""
    timeline, answers = Timeline(), Answers()
    async with timeline.broker() as broker:
        await _create_topics(broker)
        for version, parts in enumerate(PARTS):
            named = []
            for number, batches in enumerate(parts):
                part = await stage_part(broker, version, f"{number}-0", batches)
                answers.finished[version, number] = (timeline.now, part)
                named.append(part)
            # An attempt that no commit names.
            await PartMaker(broker, version, "lost").write(A, _batch(666))
            await broker.staging.commit(A_QUERY, version, named)
            answers.committed[version] = timeline.now
    return timeline, answers


async def _create_topics(broker) -> None:
    await broker.topics.create(TopicName.parse(A), TopicPolicy())
    written = TopicPolicy(durability=Durability.WRITTEN)
    await broker.topics.create(TopicName.parse(B), written)
    await broker.storage.journal.sync()


async def _retry(broker, answers: Answers, at: int) -> None:
    """Act as a client that got the answers of the first *at* events."""
    staging = broker.staging
    for version, parts in enumerate(PARTS):
        facts = await staging.describe(A_QUERY)
        decided = facts.committed_version
        if answers.committed.get(version, at + 1) <= at:
            assert decided is not None
            assert decided >= version
        named = []
        for number in range(len(parts)):
            told_at, part = answers.finished[version, number]
            if told_at > at or (decided is not None and decided >= version):
                part = None
            named.append(part)
        if None in named and (decided is None or decided < version):
            named = [
                part or await _go_on(broker, version, number, parts[number])
                for number, part in enumerate(named)
            ]
        named = [part for part in named if part is not None]
        first = await staging.commit(A_QUERY, version, named)
        again = await staging.commit(A_QUERY, version, named)
        assert again.is_repeat
        assert first.message_count in (0, again.message_count)


async def _go_on(broker, version, number, batches) -> StagedPart:
    """Send the missing batches, as a writer that still has all of them."""
    part = PartMaker(broker, version, f"{number}-0")
    part.batch_count = len(batches)
    seen = dict.fromkeys((A, B), 0)
    try:
        for topic in sorted({topic for topic, _ in batches}):
            await part.open(topic)
    except StagingClosed:
        # The part is finished; only the answer was lost.
        part.sequences = {A: sum(len(payloads) for _, payloads in batches)}
        return await part.finish()
    for topic, payloads in batches:
        if seen[topic] >= part.sequences[topic]:
            await part.write(topic, payloads)
            part.batch_count -= 1
        seen[topic] += len(payloads)
    return await part.finish()


async def _check(state, answers: Answers, at: int) -> None:
    """Recover, retry, and compare."""
    async with recovered_broker(state) as (broker, staged):
        await quiet(broker)
        before = {topic: await stored(broker, topic) for topic in (A, B)}
        decided = (await broker.staging.describe(A_QUERY)).committed_version
        for topic, found in before.items():
            assert found == _of_versions(topic, decided)
        await _retry(broker, answers, at)
        for topic, expected in EXPECTED.items():
            assert await stored(broker, topic) == expected
        await asyncio.sleep(0)
        assert len(broker.staging.parts) == 0
        assert broker.staging.parts.byte_count == 0
    assert not staged.contents


def _of_versions(topic: str, decided: int | None) -> list[bytes]:
    return [
        payload
        for version, parts in enumerate(PARTS)
        if decided is not None and version <= decided
        for part in parts
        for name, payloads in part
        if name == topic
        for payload in payloads
    ]


def _begin(timeline: Timeline, answers: Answers) -> int:
    """Return the first moment at which both topics exist."""
    told = min(told_at for told_at, _ in answers.finished.values())
    return min(told, timeline.events.index("staged"))


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_crash_at_any_moment_publishes_each_version_once_or_not_yet() -> None:
    timeline, answers = await _run()
    assert any(each.kind == "remove" for each in timeline.staged.operations)
    begin, checked = _begin(timeline, answers), 0
    for at, state in timeline.crash_states(begin, STATES_MAX):
        await _check(state, answers, at)
        checked += 1
    assert checked > 150


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.soak)])
async def test_commit_is_resumed_after_a_crash_during_its_resumption(step: int) -> None:
    timeline, answers = await _run()
    checked = 0
    for at in range(_begin(timeline, answers), timeline.now + 1):
        rng = Random(at)
        again = Timeline(timeline.crash_state(at, rng))
        await again.recover()
        for second in range(at % step, again.now + 1, step):
            await _check(again.crash_state(second, rng), answers, at)
            checked += 1
    assert checked > 200 // step


async def test_full_disk_ends_only_the_part() -> None:
    is_full = False

    def fail(operation):
        if is_full and operation.kind == "write":
            return OSError(errno.ENOSPC, "No space left on device")
        return None

    staged = RecordingFiles(fail=fail)
    async with recorded_broker(MemoryStore(), RecordingFiles(), staged) as broker:
        await broker.topics.create(TopicName.parse(A), TopicPolicy())
        kept = await stage_part(broker, 0, "kept", [(A, _batch(1))])
        part = PartMaker(broker, 0, "refused")
        await part.write(A, _batch(2))
        is_full = True
        with pytest.raises(DiskFull, match="No space left"):
            await part.write(A, _batch(3))
        is_full = False
        with pytest.raises(StagedPartNotFound):
            await part.finish()
        other = await stage_part(broker, 0, "other", [(A, _batch(4))])
        await broker.staging.commit(A_QUERY, 0, [kept, other])
        assert await stored(broker, A) == _batch(1, 4)
        assert broker.staging.parts.byte_count == 0
    assert not staged.contents


async def test_commit_interrupted_by_a_full_disk_is_finished_later() -> None:
    is_full = False

    def fail(operation):
        if is_full and operation.kind == "write":
            return OSError(errno.ENOSPC, "No space left on device")
        return None

    async with recorded_broker(
        MemoryStore(), RecordingFiles(fail=fail), RecordingFiles()
    ) as broker:
        await broker.topics.create(TopicName.parse(A), TopicPolicy())
        part = await stage_part(broker, 0, "only", [(A, _batch(1)), (A, _batch(2))])
        is_full = True
        with pytest.raises(DiskFull):
            await broker.staging.commit(A_QUERY, 0, [part])
        facts = await broker.staging.describe(A_QUERY)
        assert (facts.committed_version, facts.is_finished) == (0, False)
        assert await stored(broker, A) == []
        is_full = False
        commit = await broker.staging.commit(A_QUERY, 0, [part])
        assert (commit.message_count, commit.is_repeat) == (2, True)
        assert await stored(broker, A) == _batch(1, 2)
        assert (await broker.staging.describe(A_QUERY)).is_finished


# Coordinators that are gone.

GONE = {
    # It never commits its second version, and one part is not finished.
    "q-staged": [[[(A, _batch(1, 2)), (B, _batch(101))]], [[(A, _batch(3))]]],
    # Its commit is decided, and the disk is full for the first attempt to append.
    "q-full": [[[(A, _batch(11, 12)), (B, _batch(111))], [(A, _batch(13))]]],
    # It does not learn that its commit is decided.
    "q-answer": [[[(B, _batch(121)), (A, _batch(21, 22, 23))]]],
    # Its commit is not decided.
    "q-request": [[[(A, _batch(31)), (B, _batch(131))]]],
}
"""By query, the parts and their batches by version."""


async def _abandon() -> tuple[Timeline, dict]:
    """Stage and commit as ``GONE`` says; then the time of what is left passes."""
    timeline, named, is_full = Timeline(), {}, False

    def fail(operation):
        if is_full and operation.kind == "write":
            return OSError(errno.ENOSPC, "No space left on device")
        timeline.events.append("journal")
        return None

    timeline.journal.fail = fail
    async with timeline.broker() as broker:
        await _create_topics(broker)
        for query, versions in GONE.items():
            for version, parts in enumerate(versions):
                named[query, version] = [
                    await stage_part(broker, version, f"{at}", batches, query=query)
                    for at, batches in enumerate(parts)
                ]
        unfinished = PartMaker(broker, 1, "unfinished", query="q-staged")
        await unfinished.write(A, _batch(666))
        await unfinished.write(B, _batch(667))

        async def commit(query):
            await broker.staging.commit(query, 0, named[query, 0])

        await commit("q-staged")
        is_full = True
        with pytest.raises(DiskFull):
            await commit("q-full")
        is_full = False
        timeline.store.loses_answer = True
        with pytest.raises(MetadataUnavailable):
            await commit("q-answer")
        timeline.store.loses_request = True
        with pytest.raises(MetadataUnavailable):
            await commit("q-request")
        await quiet(broker)
        await _expire(broker)
    assert not timeline.staged.contents
    return timeline, named


async def _expire(broker) -> None:
    """Let the time of all parts pass that no decided commit names."""
    loop = asyncio.get_running_loop()
    broker.staging.parts.now = lambda: loop.time() + 2 * StagingConfig().expiry_s
    broker.staging.parts.expire()
    await asyncio.sleep(0)


async def _decided(broker) -> dict[str, int | None]:
    described = [await broker.staging.describe(query) for query in GONE]
    return {each.query: each.committed_version for each in described}


async def _check_gone(state, named) -> None:
    """Recover without the coordinators; then the time of what is left passes."""
    async with recovered_broker(state) as (broker, staged):
        await quiet(broker)
        decided = await _decided(broker)
        await _check_published(broker, decided)
        await _expire(broker)
        assert len(broker.staging.parts) == 0
        assert broker.staging.parts.byte_count == 0
        assert not staged.contents
        # A coordinator that comes back now is too late.
        for (query, version), parts in named.items():
            last = decided[query]
            if last is not None and version <= last:
                assert (await broker.staging.commit(query, version, parts)).is_repeat
            else:
                with pytest.raises(StagedPartNotFound):
                    await broker.staging.commit(query, version, parts)
        await _check_published(broker, decided)
        await broker.storage.journal.sync()
        for topic in broker.storage.journal.state.topics.values():
            assert not topic.producers


async def _check_published(broker, decided) -> None:
    """Check that topics have all decided versions in order, and nothing else."""
    for topic in (A, B):
        found = await stored(broker, topic)
        expected = {
            query: [
                payload
                for parts in versions[: 0 if last is None else last + 1]
                for part in parts
                for name, payloads in part
                if name == topic
                for payload in payloads
            ]
            for query, versions in GONE.items()
            for last in [decided[query]]
        }
        for payloads in expected.values():
            assert [each for each in found if each in payloads] == payloads
        assert len(found) == sum(map(len, expected.values()))


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_commits_of_coordinators_that_are_gone_are_complete_or_leave_nothing():
    timeline, named = await _abandon()
    begin, checked, outcomes = timeline.events.index("staged"), 0, set()
    for _, state in timeline.crash_states(begin, STATES_MAX):
        # The broker is killed again while it recovers and removes what is left.
        again = Timeline(state)
        async with again.broker() as broker:
            await quiet(broker)
            outcomes.add(tuple((await _decided(broker)).values()))
            await _expire(broker)
        rng = Random(checked)
        await _check_gone(again.crash_state(rng.randrange(again.now + 1), rng), named)
        checked += 1
    assert checked > 100
    assert {(None, None, None, None), (0, 0, 0, None)} <= outcomes
    # A version that nobody decided is never committed.
    assert all(found[0] in (None, 0) and found[3] is None for found in outcomes)
