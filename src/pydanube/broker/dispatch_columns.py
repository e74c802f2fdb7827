"""
What a batch tells a dispatch machine besides its offsets: times and keys.

Most batches have neither, and then their header alone says so.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.dispatch.delivery_window import DeliveryWindow
from pydanube.dispatch.message_spans import BatchKeys
from pydanube.model.batch import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.wire.batches import BatchFrame

US_PER_S = 1_000_000
TTL_STEP_US = US_PER_S
"""Messages of one batch expire by the topic's time to live in steps of this."""

# So long that it can be added to any time that a message may have.
_FOR_EVER_US = 2**62

TIMES = Column.DELIVER_AT | Column.EXPIRES_AT
"""The columns that say when a message may be delivered."""


def delivery_windows(
    frame: BatchFrame, base: int, *, ttl_s: float | None, epoch_s: float
) -> Sequence[DeliveryWindow]:
    """
    When the messages of *frame* from *base* on may be delivered.

    *ttl_s* is the topic's time to live.  *epoch_s* is what the clock of the result
    showed at the beginning of 1970.
    """
    header = frame.header
    if not header.columns & TIMES:
        if ttl_s is None:
            return ()
        first, last = _publish_bounds(frame)
        if last - first <= TTL_STEP_US:
            expires = epoch_s + last / US_PER_S + ttl_s
            return (DeliveryWindow(base, frame.end, None, expires),)
    rows = _rows_from(frame, base)
    due = _times(rows, header.columns, Column.DELIVER_AT)
    expires_at = _times(rows, header.columns, Column.EXPIRES_AT)
    if ttl_s is not None:
        own = _publish_times(frame, rows)
        expires_at = pc.min_element_wise(expires_at, _ends(own, ttl_s))
    if not frame.has_gaps:
        return _runs(due, expires_at, range(base, frame.end), epoch_s)
    return _runs(due, expires_at, rows.column("offset").to_pylist(), epoch_s)


def ordering_keys(frame: BatchFrame, base: int) -> BatchKeys:
    """
    The keys by which the messages of *frame* from *base* on are kept in order.

    A message without a key has the name of its producer instead.  Offsets without a
    message have any key.
    """
    header = frame.header
    count = frame.end - base
    if not header.columns & (Column.KEY | Column.PRODUCER):
        return BatchKeys([header.producer.encode()], bytes(count))
    rows = _rows_from(frame, base)
    otherwise: pa.Array | pa.Scalar = pa.scalar(header.producer.encode(), pa.binary())
    if header.columns & Column.PRODUCER:
        names = rows.column("producer").cast(pa.binary())
        otherwise = pc.fill_null(names, pa.scalar(b"", pa.binary()))
    keys = rows.column("key") if header.columns & Column.KEY else otherwise
    encoded = pc.coalesce(keys, otherwise).dictionary_encode()
    codes = encoded.indices
    view = memoryview(codes.buffers()[1]).cast("i")
    view = view[codes.offset : codes.offset + len(codes)]
    if frame.has_gaps:
        spread = array("i", bytes(4 * count))
        for offset, code in zip(rows.column("offset").to_pylist(), view, strict=True):
            spread[offset - base] = code
        view = memoryview(spread)
    return BatchKeys(encoded.dictionary.to_pylist(), view)


def _rows_from(frame: BatchFrame, base: int) -> pa.RecordBatch:
    """The messages of *frame* from the offset *base* on; there is one at least."""
    rows = frame.arrow()
    if not frame.has_gaps:
        return rows.slice(base - frame.base)
    at = pc.index(pc.greater_equal(rows.column("offset"), base), True).as_py()
    return rows.slice(at)


def _times(rows: pa.RecordBatch, columns: int, column: Column) -> pa.Array:
    if not columns & column:
        return pa.nulls(rows.num_rows, pa.int64())
    name = "deliver_at" if column is Column.DELIVER_AT else "expires_at"
    return rows.column(name).cast(pa.int64())


def _publish_times(frame: BatchFrame, rows: pa.RecordBatch) -> pa.Array:
    if frame.header.columns & Column.PUBLISH_TIME:
        return rows.column("publish_time").cast(pa.int64())
    first = pa.scalar(frame.header.first_publish_time, pa.int64())
    return pa.repeat(first, rows.num_rows)


def _publish_bounds(frame: BatchFrame) -> tuple[int, int]:
    """The earliest and the latest publish time of a batch."""
    header = frame.header
    if not header.columns & Column.PUBLISH_TIME:
        return header.first_publish_time, header.first_publish_time
    # The header's times are of the first and last message, and producers' clocks,
    # or a user's own times, need not be in order.
    bounds = pc.min_max(frame.arrow().column("publish_time").cast(pa.int64()))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _ends(published: pa.Array, ttl_s: float) -> pa.Array:
    """When messages expire, in steps, so that neighbours expire together."""
    steps = pc.divide(pc.add(published, TTL_STEP_US - 1), TTL_STEP_US)
    ttl_us = round(min(ttl_s * US_PER_S, _FOR_EVER_US))
    return pc.add(pc.multiply(steps, TTL_STEP_US), ttl_us)


def _runs(
    due: pa.Array, expires: pa.Array, offsets: Sequence[int], epoch_s: float
) -> Sequence[DeliveryWindow]:
    """Neighbours with the same times together; those without any left out."""

    def clock(time: int | None) -> float | None:
        return None if time is None else epoch_s + time / US_PER_S

    starts = {0}
    for column in (due, expires):
        if column.null_count < len(column):
            ends = pc.run_end_encode(column).run_ends.to_pylist()
            starts.update(ends[:-1])
    bounds = [*sorted(starts), len(due)]
    windows = []
    for start, end in pairwise(bounds):
        times = clock(due[start].as_py()), clock(expires[start].as_py())
        if times != (None, None):
            # Of what is missing in between it does not matter what is said.
            windows.append(DeliveryWindow(offsets[start], offsets[end - 1] + 1, *times))
    return windows
