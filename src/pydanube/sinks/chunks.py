"""
Rows cut into chunks that fit one request, however they come.

Where each row has a size of its own, the cut depends on the rows alone and not on the
batches that they come in: the same rows in the same order make the same chunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def split_rows(
    batches: Iterable[pa.RecordBatch],
    *,
    rows_max: int,
    bytes_max: int,
    sizes: Callable[[pa.RecordBatch], Any] | None = None,
) -> Iterator[pa.Table]:
    """
    The rows of *batches*, in order, in chunks of at most so many rows and bytes.

    *sizes* gives the bytes of each row; by default a batch's rows all count as the
    mean.  A row that is larger than a chunk may be has one of its own.

    Bounds: Holds one chunk and one batch.
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
