"""Acknowledgements gather, and are kept until the broker confirms them."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.client.messages.messages import ReceivedBatch, ranges_of_slice
from pydanube.client.pure.acks import Acks
from pydanube.client.pure.offsets import merge_ranges
from pydanube.model.ids import Epoch, Offset
from pydanube.wire.native.messages import RANGES_MAX, ranges_from_wire
from support.fakes.batches import empty_messages


def pairs(taken):
    return [pair for ranges in taken for pair in ranges_from_wire(ranges)]


def test_acks_in_order_are_one_range():
    acks = Acks()
    for offset in (3, 4, 5, 9, 1, 2):
        acks.add(offset, offset + 1)
    assert pairs(acks.take()) == [(1, 6), (9, 10)]
    assert pairs(acks.take()) == []


@given(st.sets(st.integers(0, 20_000), max_size=300), st.integers(0, 5))
def test_scattered_acks_are_sent_as_bit_maps_or_ranges(offsets, divisor):
    acks = Acks()
    for offset in offsets:
        acks.add(offset >> divisor, (offset >> divisor) + 1)
    found = {at for base, end in pairs(acks.take()) for at in range(base, end)}
    assert found == {offset >> divisor for offset in offsets}


def test_many_acks_close_together_are_one_bit_map():
    acks = Acks()
    for offset in range(0, 3000, 3):
        acks.add(offset, offset + 1)
    acks.add_bits(10_000, 0b1011)
    whole, later = acks.take(), acks.take_unconfirmed()
    assert [len(each.bits) for each in whole] == [1, 375]
    assert not any(each.base for each in whole)
    assert later == whole


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 2**70))))
def test_bits_that_lie_close_together_become_few_bit_maps(added):
    acks, offsets = Acks(), set()
    for origin, bits in added:
        acks.add_bits(origin, bits)
        offsets |= {origin + i for i in range(bits.bit_length()) if bits >> i & 1}
    taken = acks.take()
    assert {at for base, end in pairs(taken) for at in range(base, end)} == offsets
    acks.add_bits(100, 0b11)
    acks.add_bits(103, 0b101)
    acks.add_bits(90, 1)
    assert [each.origin for each in acks.take()] == [100, 90]


SPANS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=30
)
PARTS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0, 1), st.floats(0, 1)), max_size=12
)


@settings(max_examples=25)
@given(st.lists(SPANS, min_size=3, max_size=3), st.integers(0, 70_000), PARTS)
def test_parts_of_deliveries_are_acknowledged_and_no_others(all_spans, far, parts):
    # The deliveries overlap, as after messages were delivered again, or are far apart.
    batches = [
        delivery_of(base, spans)
        for base, spans in zip((5, 60, far), all_spans, strict=True)
    ]
    acks, sent, expected = Acks(), [], set()
    for number, one, other in parts:
        batch = batches[number]
        base, end = sorted(round(each * batch.count) for each in (one, other))
        if base == end:
            # As before a message is rejected.
            sent += acks.take()
            continue
        expected |= {*batch.offsets[base:end]}
        found = batch.bits_of(base, end)
        if found is not None:
            acks.add_bits(*found)
        else:
            for span in ranges_of_slice(batch, base, end):
                acks.add(*span)
    sent += acks.take()
    assert {at for base, end in pairs(sent) for at in range(base, end)} == expected


def delivery_of(base, spans):
    """Return the messages of *spans*, each the length of a gap and of what follows."""
    ranges, at = [], base
    for gap, length in spans:
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    frame = empty_messages(at - base)
    frame.stamp(Offset(base), Epoch(1))
    return ReceivedBatch(frame.take(merge_ranges(ranges)), "/default/t", attempt=1)


def test_sent_acks_are_unconfirmed_until_the_broker_confirms_them():
    acks = Acks()
    assert not acks.has_unconfirmed
    acks.add(0, 1)
    assert acks.has_unconfirmed
    acks.take()
    assert acks.has_unconfirmed
    sent = acks.take_unconfirmed()
    assert not acks.has_unconfirmed
    acks.restore_unconfirmed(sent)
    assert pairs(acks.take_unconfirmed()) == [(0, 1)]


def test_acks_of_another_generation_are_forgotten():
    acks = Acks()
    acks.add(0, 1)
    # The generation was not known, so it is the same.
    assert acks.of(5) is acks
    assert acks.of(5) is acks
    moved = acks.of(6)
    assert not moved.has_unconfirmed
    moved.add(2, 3)
    assert pairs(moved.of(6).take()) == [(2, 3)]


def test_acks_with_many_gaps_need_several_messages():
    acks = Acks()
    count = RANGES_MAX + 5
    for n in range(count):
        acks.add(1000 * n, 1000 * n + 1)
    taken = acks.take()
    assert [len(each.base) for each in taken] == [RANGES_MAX, 5]
    assert pairs(taken) == [(1000 * n, 1000 * n + 1) for n in range(count)]


def test_range_count_excludes_the_growing_range():
    acks = Acks()
    acks.add(0, 100)
    assert acks.range_count == 0
    acks.add(200, 201)
    assert acks.range_count == 1


ranges = st.tuples(st.integers(0, 60), st.integers(1, 5)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(st.lists(ranges))
def test_merging_keeps_every_offset_and_leaves_gaps_between_ranges(given):
    found = merge_ranges(given)
    assert {o for b, e in found for o in range(b, e)} == {
        o for b, e in given for o in range(b, e)
    }
    for (_, end), (base, _) in pairwise(found):
        assert end < base


@given(st.lists(st.one_of(ranges, st.none())))
def test_every_acknowledged_offset_is_sent(given):
    acks = Acks()
    sent = []
    for each in given:
        if each is None:
            sent += acks.take()
        else:
            acks.add(*each)
    sent += acks.take()
    assert {o for b, e in pairs(sent) for o in range(b, e)} == {
        o for each in given if each for o in range(*each)
    }
    assert pairs(acks.take_unconfirmed()) == pairs(sent)
