"""
Joining frames that follow each other, before their messages are divided by key.

A batch that is divided among consumers becomes one small delivery for each of them,
and a delivery has a cost of its own.  A joined frame becomes fewer and larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pydanube.model.batch import Column, schema_of
from pydanube.wire.batches import BatchFrame, BatchHeader, encode

JOINED_MESSAGES_MAX = 16_384
"""As many as one chunk of the dispatch machine has."""
JOINED_BYTES_MAX = 2 * 1024 * 1024


def join_frames(
    frames: Sequence[BatchFrame], messages_max: int = JOINED_MESSAGES_MAX
) -> Iterator[BatchFrame]:
    """
    Yield *frames*, those joined that follow each other and have about the same header.

    A frame is joined only with those before it that have fewer than *messages_max*
    messages together.  The publish time of each message becomes a column.
    """
    messages_max = min(messages_max, JOINED_MESSAGES_MAX)
    group: list[BatchFrame] = []
    count = byte_count = 0
    for frame in frames:
        if group and (
            count >= messages_max
            or count + frame.count > JOINED_MESSAGES_MAX
            or byte_count + frame.plain_bytes > JOINED_BYTES_MAX
            or not _follows(group[-1], frame)
        ):
            yield _join(group)
            group, count, byte_count = [], 0, 0
        group.append(frame)
        count += frame.count
        byte_count += frame.plain_bytes
    if group:
        yield _join(group)


def _follows(before: BatchFrame, frame: BatchFrame) -> bool:
    """Return whether *frame* continues *before*, from the same producer."""
    if before.has_gaps or frame.has_gaps:
        return False
    first, header = before.header, frame.header
    return _kind(first) == _kind(header) and (
        first.base_offset + first.count == header.base_offset
        and first.base_sequence + first.count == header.base_sequence
    )


def _kind(header: BatchHeader) -> tuple[object, ...]:
    return (
        *(header.producer, header.producer_id, header.producer_epoch, header.epoch),
        *(header.schema_id, header.schema_version, header.columns),
    )


def _join(frames: list[BatchFrame]) -> BatchFrame:
    if len(frames) == 1:
        return frames[0]
    columns = frames[0].header.columns | Column.PUBLISH_TIME
    batch = pa.concat_batches([_timed(each, columns) for each in frames])
    last = frames[-1].header.last_publish_time
    return encode(batch, replace(frames[0].header, last_publish_time=last))


def _timed(frame: BatchFrame, columns: int) -> pa.RecordBatch:
    """Return the messages of *frame* with *columns*, which include the publish time."""
    rows, header = frame.arrow(), frame.header
    if header.columns & Column.PUBLISH_TIME:
        return rows
    schema = schema_of(columns)
    type_ = schema.field("publish_time").type
    times = pa.repeat(pa.scalar(header.first_publish_time, type_), frame.count)
    arrays = [
        times if name == "publish_time" else rows.column(name) for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
