"""Staged parts as objects."""

import pytest

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
    ROOT,
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
    [(topic_id, frame)] = (await staged.reader(name)).read(1 << 20)
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
    [(_, frame)] = (await staged.reader(name_of(KEY))).read(1 << 20)
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
