import re
import struct

import pytest
from crc32c import crc32c

from pydanube.model.errors import CorruptJournal, NewerJournal
from pydanube.model.failures import FailedRange
from pydanube.model.ranges import RangeSet
from pydanube.wire.files.journal_format import (
    ENTRY_HEADER_BYTES,
    FILE_HEADER_BYTES,
    Batch,
    CursorSaved,
    CursorState,
    EntryKind,
    FileHeader,
    ProducerDeleted,
    ProducerOpened,
    ProducerSaved,
    ShardForgotten,
    ShardLeft,
    SnapshotEnd,
    SubscriptionDeleted,
    TopicAdopted,
    TopicDeleted,
    TopicOpened,
    TopicSealed,
    decode_entry,
    decode_file_header,
    encode_entry,
    find_entries,
)
from support.fakes.batches import frame_of, payloads_of
from support.project import ROOT

SEED = 4711
# Every third message, and two more far away: a bit map and ranges.
SCATTERED = RangeSet((at, at + 1) for at in range(100, 60_000, 3))
SCATTERED.add(2**60, 2**60 + 1)
SCATTERED.add(2**61, 2**62)
FAILED = (
    FailedRange(5, 6, 2, 1, ""),
    FailedRange(2**50, 2**51, 2**32 - 1, 7, "cannot be parsed: ä"),
)
SMALL = [
    TopicOpened(
        topic_id=1, name="/default/ä", epoch=7, end_offset=2**40, sealed_offset=5
    ),
    CursorSaved(1, "billing", CursorState(5, RangeSet([(7, 9), (11, 2**50)]))),
    CursorSaved(1, "billing", CursorState(5, SCATTERED)),
    CursorSaved(2**63, "", CursorState(0, generation=2**63)),
    CursorSaved(1, "billing", CursorState(5, SCATTERED, 7, FAILED)),
    ProducerSaved(
        topic_id=1,
        name="web-1",
        producer_id=3,
        epoch=2,
        next_sequence=90,
        runs=((0, 0, 50), (50, 70, 40)),
    ),
    ProducerOpened(topic_id=1, name="web-1", producer_id=3, epoch=2),
    TopicAdopted(
        topic_id=1, shard=255, name="t", epoch=7, end_offset=2**40, sealed_offset=5
    ),
    ShardLeft(255, 7),
    ShardForgotten(255, 7),
    TopicSealed(1, 90),
    TopicDeleted(1),
    SubscriptionDeleted(1, "billing"),
    ProducerDeleted(1, "web-1"),
    SnapshotEnd(12),
]


def packed(entry, position=48, synced=0, seed=SEED) -> bytes:
    buffers, size = encode_entry(entry, position=position, synced=synced, seed=seed)
    joined = b"".join(bytes(buffer) for buffer in buffers)
    assert len(joined) == size
    return joined


def unpacked(data, position=48, seed=SEED):
    return decode_entry(memoryview(bytes(position) + data), position, seed)


@pytest.mark.parametrize("entry", SMALL, ids=lambda entry: type(entry).__name__)
def test_an_entry_comes_back_as_it_was(entry):
    decoded = unpacked(packed(entry, position=96, synced=88), position=96)
    assert decoded.entry == entry
    assert (decoded.position, decoded.synced) == (96, 88)
    assert decoded.end % 8 == 0


def test_scattered_acknowledgements_take_one_bit_each():
    [data] = encode_entry(
        CursorSaved(1, "s", CursorState(5, SCATTERED)), position=48, synced=0, seed=SEED
    )[0]
    assert data[12] == EntryKind.CURSOR
    assert len(data) < 60_000 / 8 + 2000


def test_bit_map_has_one_bit_for_each_offset():
    body = struct.pack("<QQQIII", 1, 5, 17, 1, 1, 0) + struct.pack("<QQ", 7, 9)
    body += struct.pack("<QI", 100, 2) + bytes([0b1000_0011, 0b1]) + b"s"
    length = len(body)
    head = struct.pack("<4sIIB3xQQ", b"DjE1", 0, length, EntryKind.CURSOR, 48, 0)
    crc = crc32c(body, crc32c(head[8:], SEED))
    data = head[:4] + struct.pack("<I", crc) + head[8:] + body + bytes(-length % 8)
    cursor = unpacked(data).entry.cursor
    assert (cursor.offset, list(cursor.done)) == (5, [(7, 9), (100, 102), (107, 109)])
    assert cursor.generation == 17


def test_a_batch_comes_back_with_its_frame():
    frame = frame_of([b"a", b"bc"], producer="web-1")
    frame.stamp(77, 3)
    decoded = unpacked(packed(Batch(9, frame)))
    assert decoded.entry.topic_id == 9
    assert (decoded.entry.frame.base, decoded.entry.frame.end) == (77, 79)
    assert payloads_of([decoded.entry.frame]) == [b"a", b"bc"]


def test_a_batch_is_not_copied():
    frame = frame_of([b"a" * 1000])
    buffers, _ = encode_entry(Batch(9, frame), position=48, synced=0, seed=SEED)
    assert any(buffer is frame.buffer for buffer in buffers)
    view = memoryview(bytes(48) + packed(Batch(9, frame)))
    assert decode_entry(view, 48, SEED).entry.frame.buffer.obj is view.obj


def test_frame_begins_at_a_multiple_of_eight():
    frame = frame_of([b"a"])
    assert (ENTRY_HEADER_BYTES + packed(Batch(1, frame)).index(b"\x01\0\0\0")) % 8 == 0
    assert len(packed(TopicDeleted(1))) == ENTRY_HEADER_BYTES + 8


@pytest.mark.parametrize("at", [4, 8, 12, 13, 16, 24, 32, 40, 48, 56])
def test_a_changed_byte_of_a_batch_entry_is_noticed(at):
    frame = frame_of([b"a" * 100])
    frame.stamp(77, 3)
    data = bytearray(packed(Batch(9, frame)))
    data[at] ^= 1
    with pytest.raises(CorruptJournal):
        unpacked(bytes(data))


def test_a_changed_byte_of_a_message_is_noticed():
    data = bytearray(packed(Batch(9, frame_of([b"a" * 100]))))
    data[data.index(b"aaaa")] ^= 1
    with pytest.raises(CorruptJournal, match="checksum"):
        unpacked(bytes(data))


def test_entry_of_another_position_or_file_is_refused():
    data = packed(TopicSealed(1, 90))
    with pytest.raises(CorruptJournal, match="position"):
        unpacked(data, position=56)
    with pytest.raises(CorruptJournal, match="checksum"):
        unpacked(data, seed=SEED + 1)


def test_impossible_entry_length_is_refused():
    data = bytearray(packed(TopicSealed(1, 90)))
    struct.pack_into("<I", data, 8, 2**32 - 1)
    with pytest.raises(CorruptJournal, match="impossible"):
        unpacked(bytes(data))


def test_truncated_entry_is_reported():
    data = packed(TopicSealed(1, 90))
    for length in range(len(data)):
        with pytest.raises(CorruptJournal):
            unpacked(data[:length])


def test_entries_are_found_after_damage():
    first = packed(TopicSealed(1, 90), position=48)
    payload = packed(TopicSealed(7, 7), position=48)
    second = packed(Batch(1, frame_of([payload])), position=48 + len(first), synced=56)
    third_at = 48 + len(first) + len(second)
    third = packed(TopicSealed(2, 8), position=third_at, synced=third_at)
    data = bytearray(bytes(48) + first + second + third)
    data[60] ^= 1
    # The entry inside of the message was never an entry of this file.
    found = list(find_entries(memoryview(data), 48, SEED))
    assert found == [(48 + len(first), 56), (third_at, third_at)]


def test_a_file_header_comes_back_as_it_was():
    header = FileHeader(7, b"0123456789abcdef")
    encoded = header.encode()
    assert len(encoded) == FILE_HEADER_BYTES
    assert decode_file_header(encoded) == header


def test_a_changed_byte_of_a_file_header_is_noticed():
    encoded = FileHeader(7, b"0123456789abcdef").encode()
    for at in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[at] ^= 1
        with pytest.raises(CorruptJournal):
            decode_file_header(bytes(damaged))


def test_newer_version_is_distinguished_from_damage():
    encoded = FileHeader(7, b"0123456789abcdef", version=2).encode()
    with pytest.raises(NewerJournal, match="version 2, this program reads 1"):
        decode_file_header(encoded)


def test_entry_kinds_are_documented():
    page = ROOT / "docs" / "format" / "journal.md"
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page.read_text(), re.MULTILINE)
    assert rows == [(str(kind.value), kind.name) for kind in EntryKind]


def test_files_have_seeds_of_their_own():
    one = FileHeader(7, b"0123456789abcdef").seed
    assert one != FileHeader(8, b"0123456789abcdef").seed
    assert one != FileHeader(7, b"0123456789abcdeg").seed
