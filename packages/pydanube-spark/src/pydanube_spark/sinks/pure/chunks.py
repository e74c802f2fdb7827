"""
Chunks of rows that fit one request, and Arrow streams of them.

With *sizes* the chunks depend on the rows alone and not on their batches: the same rows
in the same order make the same chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa


def split_rows(
    batches: Iterable[pa.RecordBatch],
    *,
    rows_max: int,
    bytes_max: int,
    sizes: Callable[[pa.RecordBatch], Any] | None = None,
) -> Iterator[pa.Table]:
    """
    Yield the rows of *batches*, in order, in chunks within both limits.

    *sizes* returns the size of each row; by default each row counts as its batch's
    mean.  A row that is larger than *bytes_max* gets its own chunk.

    Bounds: One chunk and one batch are in memory.
    """
    held: list[pa.RecordBatch] = []
    rows = byte_count = 0
    for batch in batches:
        ends = np.cumsum((sizes or _mean_sizes)(batch), dtype=np.int64)
        at = 0
        while at < batch.num_rows:
            before = int(ends[at - 1]) if at else 0
            fits = int(
                np.searchsorted(ends, before + bytes_max - byte_count, side="right")
            )
            end = min(fits, at + rows_max - rows, batch.num_rows)
            if end <= at and held:
                yield pa.Table.from_batches(held)
                held, rows, byte_count = [], 0, 0
                continue
            end = max(end, at + 1)
            held.append(batch.slice(at, end - at))
            rows += end - at
            byte_count += int(ends[end - 1]) - before
            at = end
    if held:
        yield pa.Table.from_batches(held)


def _mean_sizes(batch: pa.RecordBatch) -> Any:
    return np.full(batch.num_rows, -(-batch.nbytes // max(batch.num_rows, 1)))


def arrow_stream(table: pa.Table) -> bytes:
    """Return the rows of *table* as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
