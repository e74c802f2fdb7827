"""Journals in files that the processes of one machine share."""

import resource
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from pydanube.model.errors import CorruptJournal, ObjectsUnavailable
from pydanube.wire.files.group_format import GroupKind, encode_group
from pydanube.wire.files.journal_format import MetadataRevision
from pydanube_broker.storage.journal.group_files import GroupFiles

CLUSTER, WRITER, OTHER = b"c" * 16, b"w" * 16, b"o" * 16
PREFIX = ".journal/0000000001-77777777/"
DYING = """
import os, sys
from pathlib import Path
from pydanube_broker.storage.journal.group_files import GroupFiles
with GroupFiles(Path(sys.argv[1])).open_session(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), 9)
"""


def group(number, kind=GroupKind.ENTRIES, size=1):
    return encode_group(
        [MetadataRevision(number)] * (0 if kind is GroupKind.FENCE else size),
        number=number,
        journal_id=CLUSTER,
        writer=OTHER if kind is GroupKind.FENCE else WRITER,
        kind=kind,
        committed_end=number,
    )


def name(number):
    return f"{PREFIX}{number:020d}"


async def write(files, numbers, snapshots=(1,)):
    for number in numbers:
        kind = GroupKind.SNAPSHOT if number in snapshots else GroupKind.ENTRIES
        assert await files.put_if_absent(name(number), group(number, kind))


async def written(path, numbers, snapshots=(1,)):
    files = GroupFiles(path)
    with files.open_session(PREFIX):
        await write(files, numbers, snapshots)


def files_of(path):
    return sorted((path / PREFIX).glob("*.groups"))


async def test_groups_are_read_by_another_process_while_they_are_written(tmp_path):
    files, reader = GroupFiles(tmp_path), GroupFiles(tmp_path)
    with files.open_session(PREFIX):
        await write(files, [1, 2])
        assert await reader.read(name(2)) == group(2)
        assert await reader.read(name(3)) is None
        await write(files, [3])
        assert await reader.read(name(3), 0, 10) == group(3)[:10]
        assert await reader.names(PREFIX) == [name(1), name(2), name(3)]
        assert await files.names(PREFIX, after=name(1)) == [name(2), name(3)]


async def test_fence_waits_until_the_process_of_the_session_has_ended(tmp_path):
    reader, fence = GroupFiles(tmp_path, lock_wait_s=0), group(3, GroupKind.FENCE)
    files = GroupFiles(tmp_path)
    with files.open_session(PREFIX):
        await write(files, [1, 2])
        with pytest.raises(ObjectsUnavailable, match="has the lock"):
            await reader.put_if_absent(name(3), fence)
        # This group was written after the reader looked for the end.
        await write(files, [3])
    assert not await reader.put_if_absent(name(3), fence)
    assert await reader.read(name(3)) == group(3)
    assert await reader.put_if_absent(name(4), group(4, GroupKind.FENCE))
    assert await GroupFiles(tmp_path).read(name(4)) == group(4, GroupKind.FENCE)
    assert not await GroupFiles(tmp_path).put_if_absent(name(4), fence)


@pytest.fixture
def holder(tmp_path):
    """A process with the lock, which is killed when its input ends."""
    command = [sys.executable, "-c", DYING, str(tmp_path), PREFIX]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield process


async def test_lock_ends_with_a_killed_process(tmp_path, holder):
    fence = group(1, GroupKind.FENCE)
    files = GroupFiles(tmp_path, lock_wait_s=0)
    with pytest.raises(ObjectsUnavailable):
        await files.put_if_absent(name(1), fence)
    holder.stdin.close()
    assert holder.wait() == -signal.SIGKILL
    assert await files.put_if_absent(name(1), fence)


async def test_incomplete_last_group_does_not_exist(tmp_path):
    await written(tmp_path, [1, 2, 3])
    (path,) = files_of(tmp_path)
    complete = path.read_bytes()
    for cut in range(1, len(group(3)) + 16):
        path.write_bytes(complete[:-cut])
        reader = GroupFiles(tmp_path)
        assert await reader.names(PREFIX) == [name(1), name(2)]
        # Space that was allocated for it stays as zeros.
        path.write_bytes(complete[:-cut] + bytes(cut))
        last = await GroupFiles(tmp_path).read(name(3))
        assert last is None or last == group(3)


async def test_damaged_group_hides_no_later_one(tmp_path):
    await written(tmp_path, [1, 2, 3, 4], snapshots=(1, 4))
    path = files_of(tmp_path)[0]
    data = bytearray(path.read_bytes())
    at = data.find(group(2)[:8], 20)
    data[at + 20] ^= 1
    path.write_bytes(data)
    reader = GroupFiles(tmp_path)
    assert await reader.read(name(2)) is None
    assert await reader.names(PREFIX) == [name(1), name(3), name(4)]


async def test_a_file_is_removed_with_its_last_group(tmp_path):
    files = GroupFiles(tmp_path)
    with files.open_session(PREFIX):
        await write(files, range(1, 5), snapshots=(1, 3))
        await files.delete(name(1))
        assert len(files_of(tmp_path)) == 2
        assert await files.names(PREFIX) == [name(2), name(3), name(4)]
        await files.delete(name(2))
        assert len(files_of(tmp_path)) == 1
        # It is the one that is written.
        await files.delete(name(3))
        await files.delete(name(4))
        assert len(files_of(tmp_path)) == 1
        await write(files, [5])
        assert await GroupFiles(tmp_path).read(name(5)) == group(5)


async def test_journal_of_an_ended_session_leaves_nothing(tmp_path):
    await written(tmp_path, [1, 2])
    controller = GroupFiles(tmp_path)
    await controller.put_if_absent(name(3), group(3, GroupKind.FENCE))
    for number in (2, 1):
        await controller.delete(name(number))
    assert not (tmp_path / PREFIX).exists()
    assert await controller.names(PREFIX) == []


async def test_sessions_without_groups_are_removed(tmp_path):
    files, other = GroupFiles(tmp_path), ".journal/0000000001-88888888/"
    await written(tmp_path, [])
    with files.open_session(other):
        files.remove_empty()
        assert not (tmp_path / PREFIX).exists()
        assert (tmp_path / other).exists()


async def test_missing_directory_of_a_journal_is_reported(tmp_path):
    with pytest.raises(CorruptJournal, match="put it back"):
        await GroupFiles(tmp_path).put_if_absent(name(1), group(1, GroupKind.FENCE))


class FullDisk:
    """A limit for the length of the files of this process."""

    def __init__(self, stack):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.set = lambda limit: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, self.before[1])
        )
        stack.callback(self.set, self.before[0])


async def test_group_that_does_not_fit_is_written_again_when_there_is_room(tmp_path):
    with ExitStack() as stack:
        disk = FullDisk(stack)
        stack.callback(signal.signal, signal.SIGXFSZ, signal.getsignal(signal.SIGXFSZ))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        files = GroupFiles(tmp_path)
        stack.enter_context(files.open_session(PREFIX))
        await write(files, [1])
        disk.set(len(group(1)) + 40)
        with pytest.raises(ObjectsUnavailable, match="cannot be written"):
            await files.put_if_absent(name(2), group(2))
        assert await GroupFiles(tmp_path).names(PREFIX) == [name(1)]
        disk.set(disk.before[0])
        assert await files.put_if_absent(name(2), group(2))
        assert await GroupFiles(tmp_path).read(name(2)) == group(2)
