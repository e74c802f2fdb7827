import asyncio

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from pydanube.model.errors import CorruptJournal, CorruptSegment
from pydanube.objects.directory import DirectoryObjects
from pydanube.wire.files.journal_format import CursorSaved, CursorState
from pydanube_broker.storage.files import DirectoryFiles
from pydanube_broker.storage.inspect import describe_segment, inspect_journal
from support.fakes.storages import World, open_topic, publish, seal


@pytest.fixture
def data(tmp_path):
    """A journal file and a segment."""
    world = World(
        files=DirectoryFiles(tmp_path / "journal"),
        objects=DirectoryObjects(tmp_path / "objects"),
    )

    async def run():
        async with world.storage() as storage:
            log = await open_topic(storage)
            await publish(log, b"a", b"b", producer="p", producer_id=1)
            storage.save(CursorSaved(1, "billing", CursorState(1)))
            await seal(storage, 1)
            await publish(log, b"c")

    asyncio.run(run())
    (journal,) = (tmp_path / "journal").iterdir()
    (segment,) = (tmp_path / "objects").rglob("*.parquet")
    return journal, segment


def test_a_journal_is_described_entry_by_entry(data):
    entries = list(inspect_journal(data[0]))
    assert [entry.kind for entry in entries] == [
        "file_header",
        "snapshot_end",
        "topic_opened",
        "batch",
        "cursor",
        "sealed",
        "batch",
    ]
    assert entries[3].details["producer"] == "p"
    assert (entries[3].details["base"], entries[3].details["end"]) == (0, 2)
    assert entries[4].details["cursor"] == {"offset": 1, "ranges": ()}
    positions = [entry.position for entry in entries]
    ends = [entry.position + entry.byte_count for entry in entries]
    assert positions == [0, *ends[:-1]]
    assert ends[-1] == data[0].stat().st_size


def test_damaged_range_is_described_and_the_search_continues(data):
    batch = list(inspect_journal(data[0]))[3]
    content = bytearray(data[0].read_bytes())
    content[batch.position + 100] ^= 1
    data[0].write_bytes(content)
    entries = list(inspect_journal(data[0]))
    assert [entry.kind for entry in entries[3:]] == [
        "damaged",
        "cursor",
        "sealed",
        "batch",
    ]
    assert (entries[3].position, entries[3].byte_count) == (
        batch.position,
        batch.byte_count,
    )
    assert "checksum" in entries[3].details["reason"]
    assert entries[3].details["was_synced"]


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "one").write_bytes(b"x" * 100)
    with pytest.raises(CorruptJournal, match="magic"):
        list(inspect_journal(tmp_path / "one"))


def test_a_segment_is_described(data):
    described = describe_segment(data[1])
    assert described.count == 2
    assert described.byte_count == data[1].stat().st_size
    assert described.metadata["danube.topic"] == "/default/t1"
    assert list(described.columns)[:2] == ["offset", "publish_time"]
    (group,) = described.row_groups
    assert (group.base, group.end, group.count) == (0, 2, 2)
    assert group.problem is None


def test_a_damaged_page_of_a_segment_is_named(data):
    content = bytearray(data[1].read_bytes())
    with pq.ParquetFile(data[1]) as file:
        chunk = file.metadata.row_group(0).column(3)
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    data[1].write_bytes(content)
    described = describe_segment(data[1])
    assert described.checksum == crc32c(content)
    (group,) = described.row_groups
    assert group.problem.startswith("column payload: ")


def test_a_file_that_is_no_segment_is_refused(tmp_path):
    (tmp_path / "one").write_bytes(b"x" * 100)
    with pytest.raises(CorruptSegment):
        describe_segment(tmp_path / "one")
