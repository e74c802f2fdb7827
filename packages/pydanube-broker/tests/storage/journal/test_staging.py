"""Files of staged parts: group writes, recovery, failures."""

import asyncio
import errno

import pytest

from pydanube.model.errors import CorruptStage, DiskFull, StagingClosed, Unavailable
from pydanube.model.staging import PartKey
from pydanube.wire.files.staging_format import FileHeader, PartEnd
from pydanube_broker.storage.files import DirectoryFiles, MemoryFiles
from pydanube_broker.storage.journal.staging import (
    PENDING_BYTES_MAX,
    file_name,
    number_of,
    open_staged_files,
)
from support.fakes.batches import frame_of, payloads_of
from support.fakes.recording_files import RecordingFiles
from support.fakes.storages import until

KEY = PartKey(query="q", version=0, name="p", part_id="id")


def begin(parts):
    return parts.create(lambda number: FileHeader(number, KEY, 0))


async def append(file, payloads, sequence=0):
    told = asyncio.get_running_loop().create_future()
    frame = frame_of(payloads, base_sequence=sequence)
    file.append_batch(0, frame, told.set_result)
    return await told


async def write_part(parts, *batches):
    """Write a finished part with these batches; return its number."""
    file, count = begin(parts), 0
    file.append_topic(0, 11, "/default/a")
    for payloads in batches:
        assert await append(file, payloads, count) is None
        count += len(payloads)
    await file.finish(PartEnd(len(batches), count))
    return file.header.number


async def read_all(parts, number, bytes_max=1):
    reader = await parts.reader(number)
    found = []
    while piece := await parts.do(reader.read, bytes_max):
        assert {topic_id for topic_id, _ in piece} == {11}
        found += payloads_of([frame for _, frame in piece])
    return found


@pytest.fixture(params=["memory", "directory"])
def files(request, tmp_path):
    return MemoryFiles() if request.param == "memory" else DirectoryFiles(tmp_path)


async def test_a_part_is_found_again_and_read_piece_by_piece(files):
    async with open_staged_files(files) as parts:
        assert await parts.recover() == []
        numbers = [
            await write_part(parts, [b"1", b"2"], [b"3"]),
            await write_part(parts, [b"x" * 1000]),
        ]
    async with open_staged_files(files) as parts:
        found = await parts.recover()
        assert [part.content.header.number for part in found] == numbers
        assert all(part.content.is_finished for part in found)
        assert (await parts.verify(numbers[0])).message_count == 3
        assert await read_all(parts, numbers[0]) == [b"1", b"2", b"3"]
        assert await read_all(parts, numbers[1]) == [b"x" * 1000]
        # A number is not reused while its file exists.
        assert begin(parts).header.number == max(numbers) + 1
        await parts.remove([*numbers, 99])
        assert files.names() == []


async def test_unfinished_part_continues_after_its_last_complete_entry(files):
    async with open_staged_files(files) as parts:
        await parts.recover()
        file = begin(parts)
        file.append_topic(0, 11, "/default/a")
        await append(file, [b"1"])
        await file.close()
    torn = files.append(file_name(1))
    torn.write([b"torn"])
    torn.close()
    async with open_staged_files(files) as parts:
        [found] = await parts.recover()
        assert found.content.message_counts == [1]
        assert found.content.damage is not None
        file = parts.reopen(found)
        await append(file, [b"2"], 1)
        await file.finish(PartEnd(2, 2))
        number = file.header.number
        assert (await parts.verify(number)).damage is None
        assert await read_all(parts, number) == [b"1", b"2"]


async def test_files_without_a_header_and_other_files_are_no_parts():
    files = MemoryFiles()
    files.create(file_name(7)).write([b"DANUBES"])
    files.create("README").write([b"hello"])

    async with open_staged_files(files) as parts:
        assert await parts.recover() == []
        assert files.names() == ["README"]


async def test_what_is_appended_together_is_written_in_one_call():
    files = RecordingFiles()

    async with open_staged_files(files) as parts:
        file = begin(parts)
        file.append_topic(0, 11, "/default/a")
        told = []
        for sequence in range(10):
            frame = frame_of([b"m"], base_sequence=sequence)
            file.append_batch(0, frame, told.append)
        assert parts.pending_bytes == file.byte_count
        await file.finish(PartEnd(10, 10))
        assert told == [None] * 10
        kinds = [each.kind for each in files.operations]
        assert kinds == ["create", "write", "sync", "sync_directory"]
        assert parts.pending_bytes == 0


@pytest.mark.parametrize(
    ("kind", "number", "error"),
    [
        ("create", errno.EACCES, Unavailable),
        ("write", errno.ENOSPC, DiskFull),
        ("write", errno.EIO, Unavailable),
        ("sync", errno.EIO, Unavailable),
        ("sync", errno.ENOSPC, DiskFull),
    ],
)
async def test_a_failure_ends_the_file_and_its_removal_frees_the_disk(
    kind, number, error
):
    is_failing = True

    def fail(operation):
        if is_failing and operation.kind == kind:
            return OSError(number, "on purpose")
        return None

    files = RecordingFiles(fail=fail)

    async with open_staged_files(files) as parts:
        file = begin(parts)
        file.append_topic(0, 11, "/default/a")
        said = await append(file, [b"1"])
        assert type(said) is (type(None) if kind == "sync" else error)
        with pytest.raises(error):
            await file.finish(PartEnd(1, 1))
        is_failing = False
        assert type(await append(file, [b"2"], 1)) is error
        await file.drop()
        assert files.names() == []
        assert parts.pending_bytes == 0


async def test_dropped_part_accepts_no_batches():
    async with open_staged_files(MemoryFiles()) as parts:
        file = begin(parts)
        file.append_topic(0, 11, "/default/a")
        await file.drop()
        assert parts.pending_bytes == 0
        assert isinstance(await append(file, [b"1"]), StagingClosed)


async def test_missing_or_incomplete_part_is_corrupt():
    files = RecordingFiles()

    async with open_staged_files(files) as parts:
        with pytest.raises(CorruptStage, match="cannot be read"):
            await parts.verify(1)
        number = await write_part(parts, [b"1"], [b"2"])
        content = files.contents[file_name(number)]
        del content[-1]
        with pytest.raises(CorruptStage):
            await parts.verify(number)
        reader = await parts.reader(number)
        reader.read(1)
        with pytest.raises(CorruptStage):
            reader.read(10_000)
        file = begin(parts)
        file.append_topic(0, 11, "/default/a")
        await append(file, [b"1"])
        with pytest.raises(CorruptStage, match="end of the part"):
            await parts.verify(file.header.number)


async def test_staging_a_lot_waits_for_the_disk():
    async with open_staged_files(MemoryFiles()) as parts:
        assert parts.has_room
        parts.count_pending(PENDING_BYTES_MAX)
        assert not parts.has_room
        waiting = asyncio.ensure_future(parts.wait_for_room())  # noqa: TID251  # One line of it.
        await until(lambda: True)
        assert not waiting.done()
        parts.count_pending(-1)
        await waiting


def test_names_are_of_numbers():
    assert number_of(file_name(42)) == 42
    assert number_of("00000000000000000001.journal") is None
