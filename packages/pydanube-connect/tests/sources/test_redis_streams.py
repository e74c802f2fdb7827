"""Tests of how many entries of streams are read together."""

from pydanube_connect.sources.redis_streams import (
    BATCH_BYTES,
    BATCH_ENTRIES_MAX,
    next_count,
)


def listed(*sizes):
    return {str(size): [(b"1-0", {b"a": b"x" * size})] for size in sizes}


def test_large_entries_are_read_in_smaller_numbers():
    assert next_count(16, {}) == 16
    assert next_count(16, listed(100)) == 32
    assert next_count(BATCH_ENTRIES_MAX, listed(0, 100)) == BATCH_ENTRIES_MAX
    assert next_count(1000, listed(10, BATCH_BYTES // 4)) == 4
    assert next_count(4, listed(2 * BATCH_BYTES)) == 1
    entries = [(b"1-0", {b"a": b"x" * 80_000, b"b": b""}), (b"2-0", {b"a": b""})]
    assert next_count(1000, {"orders": entries}) == BATCH_BYTES // 40_000
