"""The ids of messages, as a producer sends them with Arrow data.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.model.arrow import envelope, pa
from pydanube.model.batch import Column, columns_of, schema_of
from pydanube.model.deduplication import DEDUPLICATION_ID
from pydanube.model.errors import InvalidRequest


def with_ids(
    batches: Sequence[pa.RecordBatch], ids: Sequence[str]
) -> list[pa.RecordBatch]:
    """
    Return *batches* with the id of each message in its attributes.

    Raises:
        InvalidRequest: There are more or fewer ids than messages.
    """
    count = sum(batch.num_rows for batch in batches)
    if len(ids) != count:
        raise InvalidRequest(f"{len(ids)} ids for {count} messages")
    found, base = [], 0
    for batch in batches:
        found.append(_with_ids(batch, ids[base : base + batch.num_rows]))
        base += batch.num_rows
    return found


def _with_ids(batch: pa.RecordBatch, ids: Sequence[str]) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    own: list[list[tuple[str, str]] | None] = [None] * len(ids)
    if "attributes" in columns:
        own = columns["attributes"].to_pylist()
    columns["attributes"] = pa.array(
        [
            list({**dict(attributes or ()), DEDUPLICATION_ID: id_}.items())
            for attributes, id_ in zip(own, ids, strict=True)
        ],
        envelope.ATTRIBUTES_TYPE,
    )
    schema = schema_of(columns_of(batch) | Column.ATTRIBUTES)
    arrays = [columns[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
