"""Segments with gaps, written as maintenance does, in any object store."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from pydanube.wire.files.segment_format import (
    SCHEMA,
    Run,
    SegmentIdentity,
    rewritten_name,
    writer_arguments,
)
from pydanube_broker.storage.segments.replacement import Replacement

_NUMBERS = count(1)


async def offer(objects, log, entries, keep, *, rows_max=3, base=None, end=None):
    """Write the offsets of *entries* that *keep* accepts; return the replacement."""
    tables = [pq.read_table(objects.open(entry.object_name)) for entry in entries]
    rows = pa.concat_tables(tables)
    mask = [bool(keep(offset)) for offset in rows.column("offset").to_pylist()]
    rows = rows.filter(pa.array(mask, pa.bool_()))
    base = entries[0].base if base is None else base
    end = entries[-1].end if end is None else end
    identity = SegmentIdentity(topic=log.name, topic_id=log.topic_id, epoch=log.epoch)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, **writer_arguments()) as writer:
        for at in range(0, rows.num_rows, rows_max):
            writer.write_table(rows.slice(at, rows_max).cast(SCHEMA))
        said = identity.metadata(base, end, rows.num_rows, None)
        writer.add_key_value_metadata(said)
    data = sink.getvalue()
    prefix = entries[0].object_name.rpartition("/")[0] + "/"
    run = Run(next(_NUMBERS), 1_700_000_000)
    name = rewritten_name(prefix, base, end, log.epoch, run)
    await objects.put(name, data)
    return Replacement(object_name=name, byte_count=data.size, checksum=crc32c(data))


async def compact(storage, objects, log, keep, *, rows_max=3):
    """Replace all segments of *log* by one with the offsets that *keep* names."""
    old = log.segments
    offered = await offer(objects, log, old, keep, rows_max=rows_max)
    names = [entry.object_name for entry in old]
    return await storage.replace_segments(log.topic_id, names, [offered])
