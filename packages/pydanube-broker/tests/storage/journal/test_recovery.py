import pytest

from pydanube.model.errors import CorruptJournal, NewerJournal
from pydanube.wire.files.journal_format import (
    Batch,
    FileHeader,
    SnapshotEnd,
    TopicOpened,
    TopicSealed,
    encode_entry,
)
from pydanube_broker.storage.journal.recovery import file_name, recover
from pydanube_broker.storage.journal.state import JournalState
from support.fakes.batches import frame_of

OURS = b"0123456789abcdef"


class Files:
    """Journal files, written as the journal writes them."""

    def __init__(self):
        self.state = JournalState()
        self.data = {}
        self.number = 0
        self.journal_id = OURS

    def begin(self, number=None):
        self.number = number or self.number + 1
        self.header = FileHeader(self.number, self.journal_id)
        self.data[self.number] = bytearray(self.header.encode())
        snapshot = list(self.state.snapshot())
        for entry in [*snapshot, SnapshotEnd(len(snapshot))]:
            self._write(entry, synced=0)

    def _write(self, entry, synced=None):
        data = self.data[self.number]
        synced = len(data) if synced is None else synced
        buffers, _ = encode_entry(
            entry, position=len(data), synced=synced, seed=self.header.seed
        )
        data += b"".join(bytes(buffer) for buffer in buffers)

    def add(self, entry):
        self._write(entry)
        self.state.apply(entry)

    def open_topic(self, end=0):
        self.add(
            TopicOpened(
                topic_id=1, name="t", epoch=1, end_offset=end, sealed_offset=end
            )
        )

    def batch(self, count=2):
        frame = frame_of([b"x" * 20] * count)
        frame.stamp(self.state.topics[1].end_offset, 1)
        self.add(Batch(1, frame))

    def recover(self):
        return recover({file_name(n): memoryview(d) for n, d in self.data.items()})


def three_files():
    files = Files()
    files.begin()
    files.open_topic()
    for _ in range(3):
        files.batch()
        files.batch()
        files.begin()
    return files


def test_no_files_are_an_empty_journal():
    recovery = recover({})
    assert recovery.journal_id is None
    assert not recovery.files


def test_batches_of_all_files_come_back_in_order():
    recovery = three_files().recover()
    assert [frame.base for frame in recovery.frames[1]] == [0, 2, 4, 6, 8, 10]
    assert [file.ends.get(1) for file in recovery.files] == [4, 8, 12, None]


def test_any_suffix_of_the_files_is_a_journal():
    files = three_files()
    files.add(TopicSealed(1, 8))
    del files.data[1], files.data[2]
    recovery = files.recover()
    assert recovery.state == files.state
    assert [frame.base for frame in recovery.frames[1]] == [8, 10]


def test_torn_end_of_the_last_file_is_returned():
    files = three_files()
    whole = len(files.data[4])
    files.batch()
    del files.data[4][-9:]
    recovery = files.recover()
    assert recovery.torn.position == whole
    assert recovery.torn.byte_count == len(files.data[4]) - whole
    assert recovery.files[-1].byte_count == whole
    assert recovery.state.topics[1].end_offset == 12


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_torn_end_of_an_older_file_is_damage(number):
    files = three_files()
    del files.data[number][-9:]
    with pytest.raises(CorruptJournal, match=rf"{file_name(number)}, position \d+"):
        files.recover()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_older_file_that_ends_too_early_is_damage(number):
    files = three_files()
    last = recover({file_name(number): memoryview(bytes(files.data[number]))})
    size = len(last.frames[1][-1].buffer) + 40
    del files.data[number][-size:]
    with pytest.raises(CorruptJournal, match="replaced or truncated"):
        files.recover()


def test_a_missing_file_is_damage():
    files = three_files()
    del files.data[2]
    with pytest.raises(CorruptJournal, match=f"{file_name(2)}: expected this file"):
        files.recover()


def test_damage_before_what_was_synced_is_not_taken_for_a_torn_end():
    files = three_files()
    files.batch()
    at = len(files.data[4]) - 5
    files.batch()
    files.data[4][at - 20] ^= 1
    with pytest.raises(CorruptJournal, match="checksum"):
        files.recover()


@pytest.mark.parametrize("length", [0, 10, 47, 48, 60, 100])
def test_a_last_file_without_a_head_is_to_be_removed(length):
    files = three_files()
    del files.data[4][length:]
    recovery = files.recover()
    assert recovery.headless_file == file_name(4)
    assert [file.number for file in recovery.files] == [1, 2, 3]
    assert recovery.state.topics[1].end_offset == 12


@pytest.mark.parametrize("at", [0, 20, 60, 100])
def test_bad_head_with_entries_after_it_is_damage(at):
    files = three_files()
    files.batch()
    files.data[4][at] ^= 1
    with pytest.raises(CorruptJournal, match=file_name(4)):
        files.recover()


@pytest.mark.parametrize("length", [0, 10, 47, 48, 87])
def test_first_file_with_an_incomplete_head_is_removed(length):
    files = Files()
    files.begin()
    del files.data[1][length:]
    recovery = files.recover()
    assert recovery.headless_file == file_name(1)
    assert recovery.journal_id is None
    assert not recovery.files


def test_single_later_file_without_a_head_is_damage():
    files = three_files()
    last = files.data[4][:50]
    with pytest.raises(CorruptJournal, match="the file before it is missing"):
        recover({file_name(4): memoryview(last)})


def test_a_file_of_another_journal_is_damage():
    files = three_files()
    files.journal_id = b"fedcba9876543210"
    files.begin()
    with pytest.raises(CorruptJournal, match="belongs to journal 66656463"):
        files.recover()


def test_a_file_under_another_number_is_damage():
    files = three_files()
    files.data[5] = files.data[4]
    with pytest.raises(CorruptJournal, match="expected file number 5"):
        files.recover()


def test_invalid_journal_file_name_is_damage():
    with pytest.raises(CorruptJournal, match=r"7\.journal: expected a name"):
        recover({"7.journal": memoryview(b"")})


def test_other_files_do_not_matter():
    assert not recover({"lock": memoryview(b"1234")}).files


def test_a_newer_version_is_reported_whichever_file_has_it():
    for number in (1, 4):
        files = three_files()
        header = FileHeader(number, OURS, version=2)
        files.data[number][:48] = header.encode()
        with pytest.raises(NewerJournal, match="version 2"):
            files.recover()


def test_a_batch_that_does_not_continue_its_topic_is_damage_even_at_the_end():
    files = three_files()
    frame = frame_of([b"x"])
    frame.stamp(99, 1)
    files._write(Batch(1, frame))
    with pytest.raises(CorruptJournal, match="it has 99"):
        files.recover()


def test_a_gap_before_the_first_batch_is_left_to_the_manifest():
    files = three_files()
    del files.data[1]
    recovery = files.recover()
    assert recovery.state.topics[1].sealed_offset == 0
    assert recovery.frames[1][0].base == 4
