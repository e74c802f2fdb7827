"""Tests of the division of rows into chunks."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube_spark.sinks.pure.chunks import split_rows


def sizes_of(batch):
    return batch.column("size").to_numpy()


def batches(sizes, cuts):
    """Rows of *sizes* in batches that end at *cuts*."""
    rows = pa.record_batch(
        {"at": pa.array(np.arange(len(sizes))), "size": pa.array(sizes, pa.int64())}
    )
    ends = sorted({min(each, len(sizes)) for each in cuts} | {len(sizes)})
    bases = [0, *ends[:-1]]
    return [rows.slice(a, b - a) for a, b in zip(bases, ends, strict=True)]


row_sizes = st.lists(st.integers(0, 30), max_size=40)
places = st.lists(st.integers(0, 40), max_size=6)
limits = st.integers(1, 12), st.integers(1, 60)


@settings(deadline=None)
@given(row_sizes, places, *limits)
def test_chunks_hold_every_row_within_their_bounds(sizes, cuts, rows_max, bytes_max):
    found = list(
        split_rows(
            batches(sizes, cuts), rows_max=rows_max, bytes_max=bytes_max, sizes=sizes_of
        )
    )
    rows = [at for chunk in found for at in chunk["at"].to_pylist()]
    assert rows == list(range(len(sizes)))
    for chunk in found:
        assert 0 < chunk.num_rows <= rows_max
        assert chunk.num_rows == 1 or sum(chunk["size"].to_pylist()) <= bytes_max


@settings(deadline=None)
@given(row_sizes, places, places, *limits)
def test_chunks_do_not_depend_on_the_batches(sizes, cuts, others, rows_max, bytes_max):
    limits = {"rows_max": rows_max, "bytes_max": bytes_max, "sizes": sizes_of}
    counts = [
        [chunk.num_rows for chunk in split_rows(batches(sizes, each), **limits)]
        for each in (cuts, others)
    ]
    assert counts[0] == counts[1]


def test_rows_without_sizes_count_as_the_mean():
    rows = pa.record_batch({"x": pa.array(range(100), pa.int64())})
    found = list(split_rows([rows], rows_max=1000, bytes_max=80))
    assert [chunk.num_rows for chunk in found] == [10] * 10
