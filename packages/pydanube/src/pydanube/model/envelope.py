"""The columns of a batch as Arrow types and fields; importing it imports PyArrow."""

from __future__ import annotations

import pyarrow as pa

from pydanube.model.batch import NAMES, Column

ATTRIBUTES_TYPE = pa.map_(pa.string(), pa.string())
TIME_TYPE = pa.timestamp("us", tz="UTC")

_TYPES: dict[Column, pa.DataType] = {
    Column.PUBLISH_TIME: TIME_TYPE,
    Column.KEY: pa.binary(),
    Column.PAYLOAD: pa.binary(),
    Column.ATTRIBUTES: ATTRIBUTES_TYPE,
    Column.OFFSET: pa.int64(),
    Column.PRODUCER: pa.string(),
    Column.DELIVER_AT: TIME_TYPE,
    Column.EXPIRES_AT: TIME_TYPE,
}

_REQUIRED = frozenset({Column.PUBLISH_TIME, Column.PAYLOAD, Column.OFFSET})

FIELDS: dict[Column, pa.Field] = {
    column: pa.field(NAMES[column], kind, nullable=column not in _REQUIRED)
    for column, kind in _TYPES.items()
}
"""The columns of the envelope, in their order in a batch."""
