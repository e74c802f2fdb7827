"""Frames for tests: what a producer would have sent."""

from __future__ import annotations

import pyarrow as pa

from pydanube.client.messages.messages import MessageBatch, ReceivedBatch
from pydanube.model.batch import Column, batch_of, schema_of
from pydanube.model.ids import Epoch, Offset
from pydanube.wire.batches import BatchFrame, BatchHeader, Codec, encode

A_TIME = 1_700_000_000_000_000


def frame_of(
    payloads,
    *,
    keys=None,
    attributes=None,
    publish_times=None,
    producers=None,
    deliver_at=None,
    expires_at=None,
    producer="",
    producer_id=0,
    producer_epoch=0,
    base_sequence=0,
    time=A_TIME,
    schema_id=0,
    schema_version=0,
    codec=Codec.NONE,
) -> BatchFrame:
    """Return an unpublished frame with one message for each of *payloads*."""
    times = publish_times or [time]
    return encode(
        batch_of(
            payloads,
            keys=keys,
            attributes=attributes,
            publish_times=publish_times,
            producers=producers,
            deliver_at=deliver_at,
            expires_at=expires_at,
        ),
        BatchHeader(
            count=len(payloads),
            columns=Column.PAYLOAD,
            producer=producer,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            first_publish_time=times[0],
            last_publish_time=times[-1],
            schema_id=schema_id,
            schema_version=schema_version,
        ),
        codec,
    )


def messages_of(payloads, *, base, topic="/default/orders", **options) -> MessageBatch:
    """Return messages as a consumer receives them, from offset *base* on."""
    frame = frame_of(payloads, **options)
    frame.stamp(Offset(base), Epoch(1))
    received = ReceivedBatch(frame, topic, attempt=1)
    return MessageBatch(topic, [(received, 0, len(payloads))])


def empty_messages(count, codec=Codec.NONE, **fields) -> BatchFrame:
    """Return a frame of *count* empty messages; compressed, it is tiny."""
    offsets = pa.py_buffer(bytes(4 * (count + 1)))
    payloads = pa.Array.from_buffers(
        pa.binary(), count, [None, offsets, pa.py_buffer(b"")]
    )
    header = BatchHeader(
        count=count,
        columns=Column.PAYLOAD,
        first_publish_time=A_TIME,
        last_publish_time=A_TIME,
        **fields,
    )
    rows = pa.RecordBatch.from_arrays([payloads], schema=schema_of(Column.PAYLOAD))
    return encode(rows, header, codec)


def payloads_of(frames) -> list[bytes]:
    """All payloads of *frames*, in order."""
    return [
        payload
        for frame in frames
        for payload in frame.check().column("payload").to_pylist()
    ]


def offsets_of(frames) -> list[int]:
    """All offsets of *frames*, in order."""
    return [offset for frame in frames for offset in range(frame.base, frame.end)]
