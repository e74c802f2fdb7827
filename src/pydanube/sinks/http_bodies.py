"""
The bodies of requests: rows as JSON or as Arrow.

The body of a request depends on its rows alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import InvalidConfig
from pydanube.schemas import json_text
from pydanube.schemas.value_limits import checked_batches, years_limits
from pydanube.sinks.chunks import arrow_stream, split_rows
from pydanube.sinks.staging import unsupported_columns
from pydanube.spark.sink import TaskKey

_TEXT = "text"

_LIMITS = years_limits("JSON")
"""NaN and the infinities become null, so they are none of these limits."""


class JsonFormat:
    """Rows as JSON objects: in an array, or one in each line."""

    def __init__(self, *, is_lines: bool) -> None:
        self.content_type = "application/x-ndjson" if is_lines else "application/json"
        self._separator = b"\n" if is_lines else b","
        self._around = (b"", b"\n") if is_lines else (b"[", b"]")

    def problems(self, schema: pa.Schema) -> list[str]:
        """Return the problems with columns that the format does not support."""
        return unsupported_columns(schema, "JSON", json_text.is_writable)

    def chunks(
        self, batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int
    ) -> Iterator[pa.Table]:
        """Divide rows into requests."""
        texts = (
            pa.record_batch([json_text.row_texts(batch).cast(pa.binary())], [_TEXT])
            for batch in checked_batches(batches, _LIMITS)
        )
        # The size of a row includes its separator.
        return split_rows(
            texts,
            rows_max=rows_max,
            bytes_max=bytes_max,
            sizes=lambda batch: pc.add(pc.binary_length(batch.column(0)), 1),
        )

    def body(self, chunk: pa.Table) -> bytes:
        """Return the request body for *chunk*, or for a slice of it."""
        rows = self.rows(chunk)
        joined = pc.binary_join(
            pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows),
            self._separator,
        )
        opening, closing = self._around
        return opening + bytes(joined[0].as_buffer()) + closing

    def rows(self, chunk: pa.Table) -> Any:
        """Return each row of *chunk* by itself, as a binary array."""
        return pa.concat_arrays(chunk.column(_TEXT).chunks)


class ArrowFormat:
    """Rows as one Arrow stream."""

    content_type = "application/vnd.apache.arrow.stream"

    def problems(self, schema: pa.Schema) -> list[str]:
        return []

    def chunks(
        self, batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int
    ) -> Iterator[pa.Table]:
        return split_rows(batches, rows_max=rows_max, bytes_max=bytes_max)

    def body(self, chunk: pa.Table) -> bytes:
        # Always one batch, so that the body depends on the rows alone.
        return arrow_stream(chunk.combine_chunks())

    def rows(self, chunk: pa.Table) -> Any:
        return pa.array(
            [self.body(chunk.slice(at, 1)) for at in range(chunk.num_rows)], pa.binary()
        )


Format = JsonFormat | ArrowFormat
"""A format of request bodies."""

FORMATS: Mapping[str, Format] = {
    "json": JsonFormat(is_lines=False),
    "ndjson": JsonFormat(is_lines=True),
    "arrow": ArrowFormat(),
}
"""The formats by name."""


def idempotency_key(key: TaskKey, number: int, body: bytes) -> str:
    """
    Return the key that identifies repetitions of a request.

    It contains the position of the rows in the batch and a hash of their content: a
    repeated batch may distribute its rows over other tasks, and with the position
    alone a server would take new rows for repeated ones.

    Raises:
        InvalidConfig: The ``appId`` is not valid in a header.
    """
    app = key.batch.app
    if not app.isascii() or not app.isprintable():
        raise InvalidConfig(
            "appId: must be printable ASCII, because it is sent in a header"
        )
    content = hashlib.sha256(body).hexdigest()[:16]
    return f"{app}:{key.batch.number}:{key.partition}:{number}:{content}"
