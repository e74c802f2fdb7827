"""Tests of parts of keys."""

import datetime as dt
import tracemalloc
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from pydanube_spark.tables.pure.key_parts import (
    CONTENT_BYTES,
    KeyPart,
    key_hashes,
    part_count,
)

COUNT = 4096
NUMBERS = range(COUNT)
COLUMNS = [
    pa.array(NUMBERS, pa.int64()),
    pa.array(NUMBERS, pa.uint64()),
    pa.array(NUMBERS, pa.int16()),
    pa.array([f"key {n}" for n in NUMBERS]),
    pa.array(["x" * n for n in NUMBERS], pa.large_string()),
    pa.array([n.to_bytes(4, "big") for n in NUMBERS], pa.binary()),
    pa.array([Decimal(n) / 100 for n in NUMBERS], pa.decimal128(12, 2)),
    pa.array([dt.date.fromordinal(n + 1) for n in NUMBERS]),
    pa.array([dt.datetime.fromtimestamp(n, dt.UTC) for n in NUMBERS]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda each: str(each.type))
def test_parts_have_about_the_same_number_of_keys(column):
    hashes = key_hashes([column])
    assert len(np.unique(hashes)) == COUNT
    counts = [np.count_nonzero(KeyPart(n, 16).mask(hashes)) for n in range(16)]
    assert sum(counts) == COUNT
    assert min(counts) > COUNT / 32
    assert max(counts) < COUNT / 8


@pytest.mark.parametrize("column", COLUMNS, ids=lambda each: str(each.type))
def test_hash_depends_on_the_values_alone(column):
    for start in (0, 1, 1000):
        part = column.slice(start, 50)
        again = pa.array(part.to_pylist(), column.type)
        assert (key_hashes([part]) == key_hashes([again])).all()


def test_hash_of_several_columns_depends_on_their_order():
    ours, theirs = pa.array(["a", ""]), pa.array(["", "a"])
    assert len(np.unique(key_hashes([ours, theirs]))) == 2
    assert key_hashes([pa.array([""]), pa.array([True])]).dtype == np.uint64


def test_part_of_a_coarse_division_has_whole_parts_of_a_fine_one():
    hashes = key_hashes([COLUMNS[0]])
    for coarse in (KeyPart(0, 1), KeyPart(1, 2), KeyPart(3, 4)):
        within = [KeyPart(n, 8) for n in range(8) if coarse.contains(KeyPart(n, 8))]
        assert len(within) == 8 // coarse.count
        assert sum(each.mask(hashes).sum() for each in within) == (
            coarse.mask(hashes).sum()
        )
        assert all(each.may_share(coarse) and coarse.may_share(each) for each in within)
        assert not any(
            coarse.may_share(KeyPart(n, 8))
            for n in range(8)
            if KeyPart(n, 8) not in within
        )


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 1), (100, 1), (101, 2), (201, 4), (400, 4)]
)
def test_count_of_parts_is_a_power_of_two(size, count):
    assert part_count(size, 100) == count


def test_hashes_of_large_keys_take_little_memory():
    column = pa.array(["x" * 1024] * 4096 + ["y" * (CONTENT_BYTES * 2), "", "x"])
    tracemalloc.start()
    try:
        hashes = key_hashes([column])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80 * CONTENT_BYTES
    few = [0, len(column) - 3, len(column) - 2, len(column) - 1]
    assert list(hashes[few]) == [key_hashes([column.slice(n, 1)])[0] for n in few]
    assert len(np.unique(hashes)) == 4
