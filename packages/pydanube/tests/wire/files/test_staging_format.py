"""The file of a staged part is read as it was written, and damage is detected."""

import pytest

from pydanube.model.errors import CorruptStage
from pydanube.model.staging import PartKey
from pydanube.wire.files.staging_format import (
    FileHeader,
    PartEnd,
    Topic,
    decode_file_header,
    encode_batch,
    encode_part_end,
    encode_topic,
    read_part,
)
from support.fakes.batches import frame_of, payloads_of

KEY = PartKey(query="q ü", version=7, name="3-17", part_id="0123")
HEADER = FileHeader(5, KEY, 1_700_000_000_000_000)


def file_of(*entries, header=HEADER):
    """Return the bytes of a part with these topics, batches and end."""
    data, counts = bytearray(header.encode()), {}
    for entry in entries:
        at = len(data)
        if isinstance(entry, Topic):
            data += encode_topic(entry, at, header.seed)
        elif isinstance(entry, PartEnd):
            data += encode_part_end(entry, at, header.seed)
        else:
            number, payloads = entry
            frame = frame_of(payloads, base_sequence=counts.get(number, 0))
            counts[number] = counts.get(number, 0) + len(payloads)
            buffers, size = encode_batch(number, frame, at, header.seed)
            assert sum(map(len, buffers)) == size
            for buffer in buffers:
                data += buffer
    return data


A, B = Topic(0, 11, "/default/a"), Topic(1, 12, "/default/b")
WHOLE = file_of(A, (0, [b"1", b"2"]), B, (1, [b"x" * 9]), (0, [b"3"]), PartEnd(3, 4))


def read(data):
    return read_part(memoryview(data), verifies=True)


def test_a_part_is_read_as_it_was_written():
    content = read(WHOLE)
    assert content.header == HEADER
    assert content.topics == [A, B]
    assert content.message_counts == [3, 1]
    assert (content.batch_count, content.message_count) == (3, 4)
    assert content.is_finished
    assert content.damage is None
    assert content.end == len(WHOLE)


def test_every_entry_begins_at_a_multiple_of_eight():
    for length in range(1, 20):
        assert len(file_of(Topic(0, 1, "t" * length), (0, [b"p" * length]))) % 8 == 0


def test_truncated_file_is_read_up_to_its_torn_end():
    header = len(HEADER.encode())
    for length in range(header, len(WHOLE)):
        content = read(WHOLE[:length])
        assert not content.is_finished
        assert content.end <= length
        assert (content.damage is None) == (content.end == length)
    for length in range(header):
        with pytest.raises(CorruptStage):
            read(WHOLE[:length])


def test_every_flipped_bit_is_detected():
    for at in range(len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[at] ^= 0x10
        if at < len(HEADER.encode()):
            with pytest.raises(CorruptStage):
                read(changed)
        elif is_stamp_or_padding(at):
            # No checksum covers the broker's stamp and padding.
            assert read(changed).is_finished
        else:
            assert read(changed).damage is not None, at


def is_stamp_or_padding(at):
    """Return whether no checksum covers the byte at *at*."""
    return bytes(WHOLE[at : at + 1]) == b"\x00" and at in _unsummed()


def _unsummed():
    found, position = set(), len(HEADER.encode())
    while position < len(WHOLE):
        length = int.from_bytes(WHOLE[position + 8 : position + 12], "little")
        end = position + 24 + length
        padded = (end + 7) & ~7
        found.update(range(end, padded))
        position = padded
    return found


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(0, [b"1"])], "unknown topic"),
        ([B], "out of order"),
        ([A, PartEnd(1, 1)], "does not have"),
        ([A, PartEnd(0, 0), B], "follows the end"),
    ],
)
def test_entries_in_an_invalid_order_are_damage(entries, reason):
    assert reason in read(file_of(*entries)).damage


def test_a_batch_that_does_not_continue_its_topic_is_damage():
    data = file_of(A, (0, [b"1"]))
    frame = frame_of([b"2"], base_sequence=5)
    for buffer in encode_batch(0, frame, len(data), HEADER.seed)[0]:
        data += buffer
    assert "continue" in read(data).damage


def test_a_file_of_another_version_is_refused():
    data = bytearray(HEADER.encode())
    data[8] = 2
    with pytest.raises(CorruptStage, match="version 2"):
        decode_file_header(data)


def test_entry_of_another_file_is_refused():
    other = file_of(A, header=FileHeader(6, KEY, 0))
    mixed = bytes(HEADER.encode()) + bytes(other[len(HEADER.encode()) :])
    assert "checksum" in read(mixed).damage


def test_batches_are_read_as_they_were_written():
    from pydanube.wire.files.staging_format import Batch, read_entries

    header, begin = decode_file_header(WHOLE)
    entries = read_entries(memoryview(WHOLE), begin, header.seed)
    frames = [entry.frame for entry, _ in entries if isinstance(entry, Batch)]
    assert payloads_of(frames) == [b"1", b"2", b"x" * 9, b"3"]
