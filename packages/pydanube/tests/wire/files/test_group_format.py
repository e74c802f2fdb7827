import pytest

from pydanube.model.errors import CorruptJournal, NewerJournal
from pydanube.wire.files.group_format import (
    HEADER_BYTES,
    GroupHeader,
    GroupKind,
    committed_end_of,
    decode_entries,
    decode_group_header,
    encode_group,
)
from pydanube.wire.files.journal_format import (
    Batch,
    SubscriptionDeleted,
    TopicDeleted,
)
from support.fakes.batches import frame_of

JOURNAL, WRITER = b"journal id 16 by", b"session id 16 by"
ENTRIES = [
    SubscriptionDeleted(3, "s"),
    Batch(3, frame_of([b"a", b"bc"])),
    TopicDeleted(3),
]


def group(entries=ENTRIES, kind=GroupKind.ENTRIES, number=7):
    return encode_group(
        entries,
        number=number,
        journal_id=JOURNAL,
        writer=WRITER,
        kind=kind,
        committed_end=7,
    )


def decoded(data):
    header = decode_group_header(data)
    return header, [each.entry for each in decode_entries(memoryview(data), header)]


def test_a_group_is_decoded_as_it_was_encoded():
    header, entries = decoded(group())
    assert header == GroupHeader(
        number=7,
        journal_id=JOURNAL,
        writer=WRITER,
        kind=GroupKind.ENTRIES,
        count=3,
    )
    assert [entries[0], entries[2]] == [ENTRIES[0], ENTRIES[2]]
    assert entries[1].topic_id == 3
    assert bytes(entries[1].frame.buffer) == bytes(ENTRIES[1].frame.buffer)


@pytest.mark.parametrize(
    ("number", "written", "read"),
    [(7, 7, 7), (7, 1, 1), (1, 1, 1), (900, 829, 829), (900, 828, 0)],
)
def test_group_says_what_was_committed_when_it_was_begun(number, written, read):
    data = encode_group(
        ENTRIES,
        number=number,
        journal_id=JOURNAL,
        writer=WRITER,
        kind=GroupKind.ENTRIES,
        committed_end=written,
    )
    header = decode_group_header(data)
    assert committed_end_of(memoryview(data), header) == read
    assert len(list(decode_entries(memoryview(data), header))) == 3


def test_all_groups_before_a_fence_exist():
    data = group([], GroupKind.FENCE)
    assert committed_end_of(memoryview(data), decode_group_header(data)) == 7


def test_a_fence_is_a_header():
    data = group([], GroupKind.FENCE)
    assert len(data) == HEADER_BYTES
    header, entries = decoded(data)
    assert header.kind is GroupKind.FENCE
    assert entries == []


def test_the_header_is_decoded_from_the_beginning_of_an_object():
    assert decode_group_header(group()[:HEADER_BYTES]).number == 7


def test_the_format_is_as_documented():
    data = group([], GroupKind.FENCE)
    assert data[:12] == b"DANUBEG\0\x01\0\0\0"
    assert data[16:] == b"".join(
        [(7).to_bytes(8, "little"), JOURNAL, WRITER, bytes(8), b"\x02", bytes(7)]
    )


def test_every_truncated_object_is_damage():
    data = group()
    for end in range(len(data)):
        with pytest.raises(CorruptJournal):
            decoded(data[:end])


def test_bytes_after_the_last_entry_are_damage():
    with pytest.raises(CorruptJournal, match="3 entries"):
        decoded(group() + bytes(8))


def test_every_flipped_bit_is_damage_or_padding():
    data = group()
    expected = decoded(data)[1]
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            header, entries = decoded(bytes(damaged))
        except CorruptJournal:
            continue
        assert bit // 8 >= HEADER_BYTES
        assert header.count == 3
        assert [type(each) for each in entries] == [type(each) for each in expected]
        assert bytes(entries[1].frame.buffer) == bytes(expected[1].frame.buffer)


def test_a_group_of_another_number_has_other_checksums():
    """An object that was copied to another name is not taken for that group."""
    header = decode_group_header(group())
    other = group(number=8)
    with pytest.raises(CorruptJournal, match="checksum"):
        list(decode_entries(memoryview(header.encode() + other[HEADER_BYTES:]), header))


def test_a_newer_version_is_refused():
    data = bytearray(group())
    data[8] = 2
    with pytest.raises(NewerJournal, match="format version 2"):
        decode_group_header(bytes(data))
