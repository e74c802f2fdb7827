"""Messages as bits: divided by key, counted, charged and removed."""

from __future__ import annotations

import random

import pytest

from pydanube.model.range_blocks import lowest_bit
from pydanube_broker.dispatch.key_shared.batch_chunks import (
    CHUNK_MESSAGES_MAX,
    BatchChunk,
    BatchChunks,
    BatchSlice,
    Selection,
    bits_below,
    lowest_bits,
    moved_bits,
    positions,
)
from pydanube_broker.dispatch.message_spans import Batch, BatchKeys


def chunk_of(keys, base=100, byte_count=1000):
    """Return a chunk of a whole batch, whose messages have *keys*."""
    unique = sorted(set(keys))
    ranges = BatchKeys(unique, [unique.index(key) for key in keys])
    end = base + len(keys)
    chunk = BatchChunk.of_batch(Batch(base, end, byte_count, ranges), base, base, end)
    selection = Selection(chunk, (1 << len(keys)) - 1)
    chunk.ready[selection] = None
    chunk.count = len(keys)
    return chunk, selection


def bits(*numbers):
    return sum(1 << number for number in numbers)


def test_positions_are_the_set_bits_in_order():
    assert positions(0b1011000) == [3, 4, 6]
    assert positions(0) == []
    assert lowest_bit(0b1011000) == 3


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_lowest_bits_are_the_first_set_bits(count):
    some = bits(0, 3, 4, 64, 65, 200, 4000)
    assert positions(lowest_bits(some, count)) == positions(some)[:count]


@pytest.mark.parametrize("number", [-5, 0, 4, 65, 201, 10**12])
def test_bits_below_are_those_with_a_lower_number(number):
    some = bits(0, 3, 4, 64, 65, 200)
    below = positions(bits_below(some, number))
    assert below == [each for each in positions(some) if each < number]


@pytest.mark.parametrize("kinds", [1, 3, 200, 300, 900])
def test_divide_separates_bits_by_the_target_of_their_key(kinds):
    """This holds for any number of keys and targets, and for few bits."""
    rng = random.Random(kinds)
    keys = [b"%d" % rng.randrange(1000) for _ in range(2000)]
    chunk, _ = chunk_of(keys)

    def target_of(key):
        return int(key) % kinds

    for selection in (1.0, 0.5, 0.001):
        some = [at for at in range(2000) if rng.random() < selection] or [7]
        divided = chunk.divide(
            bits(*some), lambda keys: [target_of(key) for key in keys]
        )
        expected = {}
        for at in some:
            expected.setdefault(target_of(keys[at]), []).append(at)
        assert {each: positions(its) for each, its in divided.items()} == expected


def test_chunk_drops_keys_when_few_messages_are_left():
    keys = [b"%d" % number for number in range(100)]
    chunk, selection = chunk_of(keys)
    chunks = BatchChunks()
    chunks.insert(chunk)
    selection.bits = bits(3, 50, 99)
    chunks.shrink(chunk, 97)
    assert sorted(chunk.known_keys) == sorted([b"3", b"50", b"99"])
    assert chunk.batch.keys is None
    assert chunk.keys_of(bits(3, 99)) == [b"3", b"99"]
    assert chunk.divide(bits(3, 50), lambda keys: [len(key) for key in keys]) == {
        1: bits(3),
        2: bits(50),
    }
    chunk.add_keys(110, [b"10", b"11"])
    assert chunk.keys_of(bits(10, 11)) == [b"10", b"11"]


def test_chunk_keeps_keys_while_many_messages_are_left():
    chunk, selection = chunk_of([b"%d" % number for number in range(100)])
    chunks = BatchChunks()
    chunks.insert(chunk)
    selection.bits = (1 << 20) - 1
    chunks.shrink(chunk, 80)
    assert len(list(chunk.known_keys)) == 100


def test_few_distinct_keys_are_kept_longer_than_many():
    """Their memory counts, not their number."""
    for kinds, is_kept in ((1, True), (1000, False)):
        chunk, selection = chunk_of([b"%d" % (at % kinds) for at in range(1000)])
        chunks = BatchChunks()
        chunks.insert(chunk)
        selection.bits = (1 << 100) - 1
        chunks.shrink(chunk, 900)
        assert (chunk.batch.keys is not None) is is_kept
        assert chunk.keys_of(bits(99)) == [b"%d" % (99 % kinds)]


@pytest.mark.parametrize("count", [-200, -1, 0, 1, 200])
def test_moved_bits_have_other_numbers(count):
    some = bits(0, 3, 64, 250)
    expected = [each + count for each in positions(some) if each + count >= 0]
    assert positions(moved_bits(some, count)) == expected


def test_charges_add_up_to_the_batch():
    chunk, _ = chunk_of([b"a"] * 7, byte_count=100)
    charges = [chunk.charge(count) for count in (1, 2, 1, 3)]
    assert sum(charges) == 100
    assert charges == [14, 28, 15, 43]


def test_spans_carry_keys_and_state_of_their_selection():
    chunk, selection = chunk_of([b"a", b"b", b"a", b"c", b"a"])
    selection.attempt, selection.failures, selection.reason, selection.consumer = (
        3,
        2,
        "bad",
        7,
    )
    one, other = chunk.spans(selection, bits(0, 1, 3))
    assert (one.base, one.end, one.open_count) == (100, 102, 2)
    assert (other.base, other.end, other.open_count) == (103, 104, 1)
    ranges = one.attempt, one.failures, one.reason, one.consumer
    assert ranges == (3, 2, "bad", 7)
    assert isinstance(one.batch, BatchSlice)
    assert one.batch.keys_of(100, 102) == (b"a", b"b")
    assert other.batch.keys_of(103, 104) == (b"c",)
    assert (one.batch.base, one.batch.end, one.batch.byte_count) == (100, 105, 1000)


def test_spans_end_where_the_expiry_time_changes():
    chunk, selection = chunk_of([b"a"] * 10)
    chunk.expire_at(102, 104, 5.0)
    chunk.expire_at(107, 109, 6.0)
    chunk.expire_at(104, 105, 7.0)
    # It was returned and is known already.
    chunk.expire_at(103, 104, 5.0)
    assert chunk.has_expiring
    assert [
        (each.base, each.end, each.expires)
        for each in chunk.spans(selection, selection.bits)
    ] == [
        (100, 102, None),
        (102, 104, 5.0),
        (104, 105, 7.0),
        (105, 107, None),
        (107, 109, 6.0),
        (109, 110, None),
    ]
    assert [
        (each.base, each.end, each.expires)
        for each in chunk.spans(selection, bits(3, 8))
    ] == [(103, 104, 5.0), (108, 109, 6.0)]


def test_chunks_are_found_by_offset():
    chunks = BatchChunks()
    first, _ = chunk_of([b"a"] * 10, base=0)
    second, _ = chunk_of([b"a"] * 10, base=10)
    third, _ = chunk_of([b"a"] * 10, base=30)
    for each in (first, third, second):
        chunks.insert(each)
    assert chunks.last is third
    found = [
        chunks.find_containing(offset, offset + 1)
        for offset in (0, 9, 10, 20, 30, 39, 40)
    ]
    assert found == [first, first, second, None, third, third, None]
    assert chunks.overlapping(5, 31) == [first, second, third]
    assert chunks.overlapping(20, 30) == []
    chunks.shrink(second, 10)
    assert chunks.find_containing(10, 11) is None
    assert chunks.overlapping(0, 100) == [first, third]
    assert len(chunks) == 2


def test_ranges_become_bits_of_chunks():
    chunks = BatchChunks()
    first, _ = chunk_of([b"a"] * 10, base=0)
    second, _ = chunk_of([b"a"] * 10, base=10)
    chunks.insert(first)
    chunks.insert(second)
    ranges = [(1, 3), (4, 5), (8, 12), (11, 14), (3, 4), (40, 50), (5, 5), (0, 99)]
    found = {0: set(), 10: set()}
    for chunk, its in chunks.bits_of(ranges):
        found[chunk.origin] |= set(positions(its))
    assert found == {0: set(range(10)), 10: set(range(10))}
    (ranges, its), *rest = chunks.bits_of(ranges[:2])
    assert (ranges, positions(its), rest) == (first, [1, 2, 4], [])


def test_removed_chunk_may_be_replaced_by_smaller_ones():
    """They hold messages that are returned when all others are done."""
    chunks = BatchChunks()
    chunk, _ = chunk_of([b"a"] * 10, base=0)
    chunks.insert(chunk)
    chunks.shrink(chunk, 10)
    batch = BatchSlice(0, 10, 100, first=3, slice_keys=(b"a", b"b"))
    part = BatchChunk.of_slice(batch, 3, 5)
    part.add_keys(3, batch.keys_of(3, 5))
    chunks.insert(part)
    assert chunks.find_containing(4, 5) is part
    assert chunks.find_containing(2, 2 + 1) is None
    assert part.keys_of(part.mask(0, 10)) == [b"a", b"b"]


def test_long_batch_becomes_several_chunks():
    count = CHUNK_MESSAGES_MAX + 10
    keys = BatchKeys([b"a", b"b"], [at % 2 for at in range(count)])
    batch = Batch(0, count, 100, keys)
    rest = BatchChunk.of_batch(batch, CHUNK_MESSAGES_MAX, CHUNK_MESSAGES_MAX, count)
    assert rest.keys_of(0b11) == [b"a", b"b"]
    assert rest.mask(0, count).bit_count() == 10
    whole = BatchChunk.of_batch(batch, 0, 0, CHUNK_MESSAGES_MAX)
    assert whole.charge(CHUNK_MESSAGES_MAX) + rest.charge(4) + rest.charge(6) == 100
