"""
The columns of a batch that the dispatch machine uses: delivery windows and keys.

Most batches have neither, and their header alone says so.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from pydanube.model.arrow import pc
from pydanube.model.batch import Column
from pydanube.wire.batches import BatchFrame
from pydanube_broker.dispatch.message_spans import BatchKeys, DeliveryWindow

US_PER_S = 1_000_000
TTL_STEP_US = US_PER_S
"""Expiry times by the topic's time to live are rounded up to this."""

# The sum with any valid message time fits into 64 bits.
_FOR_EVER_US = 2**62

TIMES = Column.DELIVER_AT | Column.EXPIRES_AT
"""The columns with delivery and expiry times."""


def delivery_windows(
    frame: BatchFrame, base: int, *, ttl_s: float | None, epoch_s: float
) -> Sequence[DeliveryWindow]:
    """
    Return the delivery windows of the messages of *frame* from *base* on.

    *ttl_s* is the topic's time to live.  *epoch_s* is the beginning of 1970 on the
    clock of the result.
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
    Return the ordering keys of the messages of *frame* from *base* on.

    The key of a message without one is the name of its producer.  Missing offsets have
    arbitrary keys.
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
    return BatchKeys(encoded.dictionary.to_pylist(), view, _look_up)


def _look_up(codes: Sequence[int], table: bytes) -> bytes:
    """Return the byte of *table* for each of *codes*, which are 32-bit integers."""
    memory = pa.py_buffer(codes)
    indices = pa.Array.from_buffers(pa.int32(), len(codes), [None, memory])
    values = pa.Array.from_buffers(pa.uint8(), len(table), [None, pa.py_buffer(table)])
    found = values.take(indices)
    return found.buffers()[1].to_pybytes()[: len(codes)]  # type: ignore[no-any-return]


def _rows_from(frame: BatchFrame, base: int) -> pa.RecordBatch:
    """Return the messages of *frame* from *base* on; there must be at least one."""
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
    """Return the earliest and the latest publish time of a batch."""
    header = frame.header
    if not header.columns & Column.PUBLISH_TIME:
        return header.first_publish_time, header.first_publish_time
    # The header has the times of the first and last message, but times need not be
    # sorted: they come from producers' clocks or from users.
    bounds = pc.min_max(frame.arrow().column("publish_time").cast(pa.int64()))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _ends(published: pa.Array, ttl_s: float) -> pa.Array:
    """Return rounded expiry times, so that adjacent messages expire together."""
    steps = pc.divide(pc.add(published, TTL_STEP_US - 1), TTL_STEP_US)
    ttl_us = round(min(ttl_s * US_PER_S, _FOR_EVER_US))
    return pc.add(pc.multiply(steps, TTL_STEP_US), ttl_us)


def _runs(
    due: pa.Array, expires: pa.Array, offsets: Sequence[int], epoch_s: float
) -> Sequence[DeliveryWindow]:
    """Return one window per run of equal times; omit messages without times."""

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
            # Windows may include missing offsets.
            windows.append(DeliveryWindow(offsets[start], offsets[end - 1] + 1, *times))
    return windows
