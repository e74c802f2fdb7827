"""One copy of a segment is read in pieces and compared with the manifest."""

import random
import struct
from dataclasses import replace

import pyarrow as pa
import pytest
from crc32c import crc32c

from pydanube.model.errors import ObjectsUnavailable
from pydanube.model.segments import SegmentEntry
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.segment_checksums import (
    PieceVerifier,
    SegmentDamaged,
    SegmentIndex,
    part_checksums_of,
)
from pydanube.wire.files.segment_format import SegmentIdentity
from pydanube_broker.storage.remote import segment_copies
from pydanube_broker.storage.remote.segment_copies import find_damage
from pydanube_broker.storage.segments.segments import encode_segment
from support.fakes.batches import A_TIME, frame_of

NAME = "default/a/one.parquet"


def encoded():
    frame = frame_of([b"payload %d" % at for at in range(50)])
    frame.stamp(0, 1)
    identity = SegmentIdentity(topic="/default/a", topic_id=7, epoch=1)
    return bytes(encode_segment([frame], identity, row_group_bytes=400))


@pytest.fixture
def data():
    return encoded()


@pytest.fixture
def entry(data):
    return SegmentEntry(
        base=0,
        end=50,
        epoch=1,
        count=50,
        byte_count=len(data),
        object_name=NAME,
        first_publish_time=A_TIME,
        last_publish_time=A_TIME,
        sealed_at=A_TIME,
        checksum=crc32c(data),
        part_checksums=part_checksums_of(pa.BufferReader(data)),
    )


async def damage_of(entry, data):
    objects = MemoryObjects()
    if data is not None:
        await objects.put(NAME, data)
    return await find_damage(objects, entry)


async def test_intact_copy_has_no_damage(entry, data):
    assert await damage_of(entry, data) is None
    assert await damage_of(replace(entry, part_checksums=None), data) is None


async def test_missing_shorter_and_longer_copies_are_found(entry, data):
    assert await damage_of(entry, None) == "is missing"
    for other in (data[:-1], data + b"x"):
        damage = await damage_of(entry, other)
        assert damage == f"has {len(other)} bytes, the manifest says {len(data)}"


async def test_every_flipped_bit_is_found(entry, data):
    for at in range(0, len(data), 13):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        damage = await damage_of(entry, damaged)
        assert damage is not None
        assert damage.startswith("is damaged: "), at


async def test_wrong_part_checksum_is_found_although_the_file_is_right(entry, data):
    parts = bytearray(entry.part_checksums)
    parts[-1] ^= 1
    damage = await damage_of(replace(entry, part_checksums=bytes(parts)), data)
    assert "the column " in damage
    # Readers compare only the parts, so such a segment could not be read.
    damage = await damage_of(replace(entry, part_checksums=b"odd"), data)
    assert "3 bytes of checksums" in damage


async def test_segment_without_checksums_is_compared_by_its_length(entry, data):
    bare = replace(entry, checksum=None, part_checksums=None)
    assert await damage_of(bare, bytes(len(data))) is None
    assert await damage_of(bare, data[1:]) is not None


async def test_footer_that_claims_to_be_long_is_damaged(entry, data):
    # The length of the footer is 8 bytes before the end.
    at = len(data) - 8
    damaged = data[:at] + struct.pack("<I", len(data)) + data[at + 4 :]
    assert "Parquet footer" in await damage_of(entry, damaged)


async def test_copy_is_read_in_pieces_at_a_pace(entry, data):
    large = random.Random(1).randbytes(2 * segment_copies.PIECE_BYTES + 5)
    big = replace(
        entry, byte_count=len(large), checksum=crc32c(large), part_checksums=None
    )
    objects = MemoryObjects()
    await objects.put(NAME, large)
    paced = []

    async def pace(byte_count):
        paced.append(byte_count)

    assert await find_damage(objects, big, pace) is None
    assert paced == [segment_copies.PIECE_BYTES, segment_copies.PIECE_BYTES, 5]


async def test_store_that_does_not_answer_is_not_damage(entry):
    class AwayObjects(MemoryObjects):
        async def stat(self, name):
            raise ObjectsUnavailable("away")

    with pytest.raises(ObjectsUnavailable):
        await find_damage(AwayObjects(), entry)


@pytest.mark.parametrize("seed", range(5))
def test_pieces_may_have_any_size(entry, data, seed):
    chance = random.Random(seed)
    index = SegmentIndex(pa.BufferReader(data), entry)

    def verify(content):
        verifier, at = PieceVerifier(entry, index), 0
        while at < len(content):
            size = chance.randrange(1, 60)
            verifier.update(content[at : at + size])
            at += size
        verifier.finish()

    verify(data)
    damaged = bytearray(data)
    damaged[chance.randrange(len(data))] ^= 4
    with pytest.raises(SegmentDamaged):
        verify(bytes(damaged))
    with pytest.raises(SegmentDamaged, match="bytes, the manifest says"):
        verify(data[:-1])
