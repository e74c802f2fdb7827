"""Staged parts as objects."""

import asyncio
import weakref

import pytest

from pydanube.aio.tasks import gather, task_scope
from pydanube.model.errors import CorruptStage, InvalidRequest, StagedPartNotFound
from pydanube.model.staging import PartKey
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.staging_format import (
    FileHeader,
    PartEnd,
    encode_batch,
    encode_part_end,
    encode_topic,
)
from pydanube.wire.files.staging_format import Topic as TopicEntry
from pydanube_broker.storage.journal.staged_objects import (
    AHEAD_MAX,
    ROOT,
    SMALL_READS_MAX,
    TRANSFERS_MAX,
    StagedObjects,
    name_of,
    query_prefix,
    version_of,
    version_prefix,
)
from support.fakes.batches import frame_of, payloads_of

KEY = PartKey(query="q", version=7, name="p", part_id="id")


def part_of(*payloads, key=KEY, is_finished=True):
    """The file of a part with one batch."""
    header = FileHeader(1, key, 0)
    data = bytearray(header.encode())
    data += encode_topic(TopicEntry(0, 11, "/default/a"), len(data), header.seed)
    buffers, _ = encode_batch(0, frame_of(payloads), len(data), header.seed)
    for each in buffers:
        data += each
    if is_finished:
        data += encode_part_end(PartEnd(1, len(payloads)), len(data), header.seed)
    return memoryview(bytes(data))


@pytest.fixture
def objects():
    return MemoryObjects()


async def contents(staged, names):
    """The batches of parts, opened one after the other."""
    async with task_scope() as tasks:
        openings = staged.readers(names, tasks)
        return [(await opening()).read(1 << 20) for opening in openings]


async def test_part_is_found_by_its_key(objects):
    staged = StagedObjects(objects)
    await staged.put(KEY, part_of(b"1", b"2"))
    assert (await staged.verify(KEY)).message_count == 2
    name = name_of(KEY)
    assert name.startswith(version_prefix("q", 7))
    assert version_prefix("q", 7).startswith(query_prefix("q"))
    assert query_prefix("q").startswith(ROOT)
    assert version_of(name) == 7
    assert (await staged.header(name)).key == KEY
    [[(topic_id, frame)]] = await contents(staged, [name])
    assert (topic_id, payloads_of([frame])) == (11, [b"1", b"2"])
    assert await staged.names() == [name]
    await staged.remove([name, name, "missing"])
    assert await staged.names() == []
    with pytest.raises(StagedPartNotFound, match="stage the version again"):
        await staged.verify(KEY)


async def test_part_that_was_stored_stays(objects):
    staged = StagedObjects(objects)
    await staged.put(KEY, part_of(b"1"))
    await staged.put(KEY, part_of(b"2"))
    [[(_, frame)]] = await contents(staged, [name_of(KEY)])
    assert payloads_of([frame]) == [b"1"]


async def test_damaged_part_is_refused(objects):
    staged, name = StagedObjects(objects), name_of(KEY)
    data = part_of(b"payload")
    at = bytes(data).index(b"payload")
    flipped = bytearray(data)
    flipped[at] ^= 1
    await objects.put(name, flipped)
    with pytest.raises(CorruptStage, match=name):
        await staged.verify(KEY)
    await objects.put(name, part_of(b"1", is_finished=False))
    with pytest.raises(CorruptStage, match="the end of the part is missing"):
        await staged.verify(KEY)
    other = PartKey(query="q", version=8, name="p", part_id="id")
    await objects.put(name, part_of(b"1", key=other))
    with pytest.raises(CorruptStage, match="belongs to another part"):
        await staged.verify(KEY)
    await objects.put(name, b"no part")
    assert await staged.header(name) is None


class Piece(bytearray):
    """What was read, which can be referred to weakly."""


class CountedObjects(MemoryObjects):
    """Objects whose reads wait for *together* others, if so many come."""

    def __init__(self, together):
        super().__init__()
        self.reading = self.reading_max = self.read_count = self.kept_max = 0
        self._pieces = []
        self._together = together
        self._come = asyncio.Event()

    async def read(self, name, begin=0, end=None):
        self.read_count += 1
        self.reading += 1
        self.reading_max = max(self.reading_max, self.reading)
        if self.reading >= self._together:
            self._come.set()
        await self._come.wait()
        # Others may begin.
        for _ in range(3):
            await asyncio.sleep(0)
        self.reading -= 1
        piece = Piece(await super().read(name, begin, end))
        self._pieces.append(weakref.ref(piece))
        self._pieces = [each for each in self._pieces if each() is not None]
        self.kept_max = max(self.kept_max, len(self._pieces))
        return piece


def keys(count):
    names = [f"p{number}" for number in range(count)]
    return [PartKey(query="q", version=7, name=each, part_id="id") for each in names]


async def test_many_small_parts_are_verified_at_a_time_and_few_large_ones():
    for small_bytes, together, requests in (
        (1 << 20, SMALL_READS_MAX, 1),
        (10, TRANSFERS_MAX, 2),
    ):
        objects = CountedObjects(together)
        staged = StagedObjects(objects, small_bytes=small_bytes)
        wanted = keys(3 * SMALL_READS_MAX)
        for each in wanted:
            await staged.put(each, part_of(b"1", key=each))
        found = await gather(map(staged.verify, wanted))
        assert [each.header.key for each in found] == wanted
        assert objects.reading_max <= SMALL_READS_MAX + TRANSFERS_MAX
        # Threads may keep some for a moment.
        assert objects.kept_max <= 2 * SMALL_READS_MAX < len(wanted)
        assert objects.read_count == requests * len(wanted)


@pytest.mark.parametrize("small_bytes", [1 << 20, 10])
async def test_parts_are_opened_in_their_order_while_the_next_ones_are_read(
    small_bytes,
):
    objects = CountedObjects(AHEAD_MAX)
    staged = StagedObjects(objects, small_bytes=small_bytes)
    wanted = keys(3 * AHEAD_MAX)
    for number, each in enumerate(wanted):
        await staged.put(each, part_of(b"%d" % number, key=each))
    found = await contents(staged, [name_of(each) for each in wanted])
    expected = [[b"%d" % number] for number in range(len(wanted))]
    assert [payloads_of(frame for _, frame in part) for part in found] == expected
    assert objects.reading_max <= AHEAD_MAX + 1


async def test_parts_that_are_missing_fail_when_they_are_opened(objects):
    staged = StagedObjects(objects)
    await staged.put(KEY, part_of(b"1"))
    async with task_scope() as tasks:
        first, second = staged.readers([name_of(KEY), "missing"], tasks)
        assert (await first()).header.key == KEY
        with pytest.raises(StagedPartNotFound, match="missing"):
            await second()


async def test_part_that_is_too_long_is_refused(objects):
    data = part_of(bytes(100))
    staged = StagedObjects(objects, bytes_max=len(data) - 1)
    with pytest.raises(InvalidRequest, match="divide it into several parts"):
        await staged.put(KEY, data)
    assert await staged.names() == []


async def test_store_that_lists_nothing_has_no_names(objects):
    objects.supports_listing = False
    await objects.put(name_of(KEY), part_of(b"1"))
    assert await StagedObjects(objects).names() == []


async def test_topics_of_a_query_are_those_of_its_parts(objects):
    staged = StagedObjects(objects)
    assert await staged.topics_of("q") == set()
    await staged.put(KEY, part_of(b"1"))
    await objects.put(name_of(KEY) + "-damaged", b"no part")
    assert await staged.topics_of("q") == {"/default/a"}
    assert await staged.topics_of("other") == set()
    # They are not read again, and forgotten with the part.
    objects.read = None
    await objects.delete(name_of(KEY) + "-damaged")
    assert await staged.topics_of("q") == {"/default/a"}
    await staged.remove([name_of(KEY)])
    assert await staged.topics_of("q") == set()
