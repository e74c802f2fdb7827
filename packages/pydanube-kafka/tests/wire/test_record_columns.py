"""Batches from columns have the same bytes as those from records."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_kafka.wire.record_batches import Records, encode_batch
from pydanube_kafka.wire.record_columns import NUMBER_END, encode_columns

BYTES = st.builds(
    lambda data, times: data * times,
    st.binary(max_size=9),
    st.sampled_from([1, 90, 999]),
)
ROWS = st.lists(
    st.tuples(st.none() | BYTES, BYTES, st.integers(0, 70_000), st.integers(1, 30_000)),
    min_size=1,
    max_size=9,
)


def expected(values, keys, times, offsets, prefix=b""):
    records = Records(
        timestamps=times,
        keys=keys or [None] * len(values),
        values=[prefix + each for each in values],
        headers=[()] * len(values),
    )
    return encode_batch(records, offsets, leader_epoch=7)


def encoded(values, keys, times, offsets, prefix=b""):
    return encode_columns(
        pa.array(values, pa.binary()),
        None if keys is None else pa.array(keys, pa.binary()),
        pa.array(times, pa.int64()),
        pa.array(offsets, pa.int64()),
        prefix=prefix,
        leader_epoch=7,
    )


@given(ROWS, st.sampled_from([b"", b"\0\0\0\x40\1"]), st.integers(0, 2**40))
def test_columns_become_the_same_bytes(rows, prefix, base):
    keys, values, times, gaps = map(list, zip(*rows, strict=True))
    offsets = [base + sum(gaps[:number]) for number in range(len(gaps))]
    found = encoded(values, keys, times, offsets, prefix)
    # A time before the first one, and large numbers, are left to records.
    if found is not None:
        assert found == expected(values, keys, times, offsets, prefix)
    else:
        deltas = [each - times[0] for each in times]
        numbers = [
            *deltas,
            offsets[-1] - base,
            *map(len, [*values, *filter(None, keys)]),
        ]
        assert min(deltas) < 0 or max(numbers) + 99 >= NUMBER_END


def test_batches_without_keys_gaps_and_times():
    values = [b"%d" % number * 30 for number in range(3000)]
    found = encode_columns(pa.array(values), None, 1000, 5, leader_epoch=7)
    assert found == expected(values, None, [1000] * 3000, range(5, 3005))


def test_columns_of_a_slice_are_taken_from_their_place():
    values = pa.array([b"a", b"bb", b"ccc"]).slice(1)
    keys = pa.array([None, b"k", None]).slice(1)
    found = encode_columns(values, keys, 1000, 5, leader_epoch=7)
    assert found == expected([b"bb", b"ccc"], [b"k", None], [1000] * 2, range(5, 7))


@pytest.mark.parametrize(
    ("values", "keys", "times", "offsets"),
    [
        ([b"v" * NUMBER_END], [None], [0], [0]),
        ([b"v" * (NUMBER_END - 5)], [None], [0], [0]),
        ([b"v"], [b"k" * NUMBER_END], [0], [0]),
        ([b"v", b"v"], [None, None], [5, 4], [0, 1]),
        ([b"v", b"v"], [None, None], [0, 0], [0, NUMBER_END]),
    ],
    ids=["value", "record", "key", "time", "offset"],
)
def test_other_numbers_are_left_to_records(values, keys, times, offsets):
    assert encoded(values, keys, times, offsets) is None
