"""Nothing that an object journal has acknowledged is lost, whatever fails."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, CorruptJournal
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.group_format import committed_end_of, decode_group_header
from pydanube.wire.files.journal_format import Batch, TopicOpened
from pydanube_broker.storage.config import JournalConfig, ObjectJournalConfig
from support.fakes.batches import frame_of, payloads_of
from support.fakes.object_journals import Link, MemorySessions, object_journal

OPENED = TopicOpened(topic_id=1, name="t", epoch=1, end_offset=0, sealed_offset=0)
LIVES = 6


class World:
    """The objects and sessions, and everything that was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.objects = MemoryObjects()
        self.sessions = MemorySessions()
        self.acked: dict[int, bytes] = {}
        """The payload of each offset that a session has acknowledged."""
        self.sealed_end = 0
        self.count = 0
        self.lost_count = 0

    def options(self):
        rng = self.rng
        config = JournalConfig(file_bytes_max=rng.choice([1024, 4096]))
        limits = ObjectJournalConfig(
            linger_ms=0,
            group_bytes_max=rng.choice([1024, 3000, 100_000]),
            in_flight_max=rng.choice([1, 2, 5]),
        )
        return {"config": config, "limits": limits, "close_s": 0.0}


async def live(world, link, started):
    """Run a session, which appends, seals and trims until it fails or is cancelled."""
    rng = world.rng
    with suppress(BrokerError), ThreadPoolExecutor(1) as executor:
        async with object_journal(link, world.sessions, **world.options()) as journal:
            end = check_recovered(world, journal)
            started.set()
            if not journal.state.topics:
                journal.append(OPENED, None)
            while True:
                for _ in range(rng.randrange(1, 4)):
                    append(world, journal, end)
                    end += 1
                if rng.random() < 0.1:
                    committed = journal.state.topics.get(1)
                    if committed is not None:
                        world.sealed_end = max(world.sealed_end, committed.end_offset)
                    await journal.trim(lambda topic: world.sealed_end, executor)
                for _ in range(rng.randrange(8)):
                    await asyncio.sleep(0)
                await link.execute_late()


def append(world, journal, offset):
    world.count += 1
    payload = b"%d,%d" % (offset, world.count)
    frame = frame_of([payload])
    frame.stamp(offset, 1)

    def done(error):
        if error is None:
            assert world.acked.setdefault(offset, payload) == payload
            world.acked[offset] = payload

    journal.append(Batch(1, frame), done)


def check_recovered(world, journal):
    """Compare what is recovered with what was acknowledged; return the end."""
    frames = journal.recovered.get(1, [])
    payloads = payloads_of(frames)
    base = frames[0].base if frames else None
    offsets = [int(payload.split(b",")[0]) for payload in payloads]
    assert offsets == list(range(base, base + len(offsets))) if offsets else True
    recovered = dict(zip(offsets, payloads, strict=True))
    for offset, payload in world.acked.items():
        if offset >= world.sealed_end:
            assert recovered.get(offset) == payload
        elif offset in recovered:
            assert recovered[offset] == payload
    topic = journal.state.topics.get(1)
    end = 0 if topic is None else topic.end_offset
    # Even what nobody was told stays as it was recovered.
    world.acked.update(recovered)
    assert end >= max(world.acked, default=-1) + 1
    return end


async def check_lost_object(world):
    """Remove an object that was there when the last one was begun, and restore it."""
    session = world.sessions.sessions[-1]
    names = await world.objects.names(session.prefix)
    names = [each for each in names if session.number_of(each) >= session.first]
    if not names:
        return
    data = memoryview(await world.objects.read(names[-1]))
    end = committed_end_of(data, decode_group_header(data))
    lost = [each for each in names if session.number_of(each) < end]
    if lost:
        name = world.rng.choice(lost)
        data = bytes(await world.objects.read(name))
        await world.objects.delete(name)
        with pytest.raises(CorruptJournal, match=name):
            async with object_journal(world.objects, world.sessions):
                pass
        assert await world.objects.read(name) is None
        await world.objects.put(name, data)
        world.lost_count += 1


async def run_lives(seed):
    world = World(seed)
    rng = world.rng
    async with task_scope() as tasks:
        links = []
        for _ in range(LIVES):
            link = Link(world.objects, rng, error_rate=rng.choice([0.0, 0.1, 0.3]))
            links.append(link)
            started = asyncio.Event()
            running = tasks.run(live(world, link, started))
            for _ in range(rng.randrange(10, 600)):
                await asyncio.sleep(0)
            match rng.randrange(3):
                case 0:
                    # It is killed, and its last requests may be executed later.
                    link.is_cut = True
                    running.cancel()
                case 1:
                    # It cannot reach the store for a while, and then goes on.
                    link.error_rate = 1.0
            for each in links:
                await each.execute_late()
                if not each.is_cut and rng.random() < 0.5:
                    each.error_rate = 0.1
        for each in links:
            each.is_cut = True
    calm = Link(world.objects, rng)
    await check_lost_object(world)
    async with object_journal(calm, world.sessions) as journal:
        check_recovered(world, journal)
    return len(world.acked), world.lost_count


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost():
    counts = [await run_lives(seed) for seed in range(25)]
    acked, lost = map(sum, zip(*counts, strict=True))
    assert acked > 3000
    assert lost > 10


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_nothing_acknowledged_is_lost_with_many_seeds():
    for seed in range(1000, 2000):
        await run_lives(seed)
