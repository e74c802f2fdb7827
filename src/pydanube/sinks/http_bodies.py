"""
Rows as the bodies of requests: as JSON or as Arrow, one by one or many at once.

A row has the same bytes whatever it is sent with, so that the body of a request
follows from its rows alone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import InvalidConfig
from pydanube.sinks import json_text
from pydanube.sinks.chunks import split_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydanube.spark.sink import TaskKey

_TEXT = "text"


class Format(Protocol):
    """How rows are written."""

    content_type: str

    def problems(self, schema: pa.Schema) -> list[str]:
        """Which columns cannot be written so."""
        ...

    def chunks(
        self, batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int
    ) -> Iterator[pa.Table]:
        """Rows in what will be requests."""
        ...

    def body(self, chunk: pa.Table) -> bytes:
        """The request for *chunk*, or for a slice of it."""
        ...

    def rows(self, chunk: pa.Table) -> Any:
        """Each row of *chunk* for itself, as an array of binary."""
        ...


class JsonFormat:
    """Rows as JSON objects: in an array, or one in each line."""

    def __init__(self, *, is_lines: bool) -> None:
        self.content_type = "application/x-ndjson" if is_lines else "application/json"
        self._separator = b"\n" if is_lines else b","
        self._around = (b"", b"\n") if is_lines else (b"[", b"]")

    def problems(self, schema: pa.Schema) -> list[str]:
        return [
            f"the column {field.name!r} has the type {field.type}, which JSON cannot "
            "have; cast it, to a string for example"
            for field in schema
            if not json_text.is_writable(field.type)
        ]

    def chunks(
        self, batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int
    ) -> Iterator[pa.Table]:
        texts = (
            pa.record_batch([json_text.row_texts(batch).cast(pa.binary())], [_TEXT])
            for batch in batches
        )
        # Each row with what separates it from the next.
        return split_rows(
            texts,
            rows_max=rows_max,
            bytes_max=bytes_max,
            sizes=lambda batch: pc.add(pc.binary_length(batch.column(0)), 1),
        )

    def body(self, chunk: pa.Table) -> bytes:
        rows = self.rows(chunk)
        joined = pc.binary_join(
            pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows),
            self._separator,
        )
        opening, closing = self._around
        return opening + bytes(joined[0].as_buffer()) + closing

    def rows(self, chunk: pa.Table) -> Any:
        return _single(chunk.column(_TEXT))


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
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, chunk.schema) as stream:
            # One batch, however many the rows came in.
            stream.write_table(chunk.combine_chunks())
        found: bytes = sink.getvalue().to_pybytes()
        return found

    def rows(self, chunk: pa.Table) -> Any:
        return pa.array(
            [self.body(chunk.slice(at, 1)) for at in range(chunk.num_rows)], pa.binary()
        )


def format_named(name: str) -> Format:
    """The format ``json``, ``ndjson`` or ``arrow``."""
    if name == "arrow":
        return ArrowFormat()
    return JsonFormat(is_lines=name == "ndjson")


def idempotency_key(key: TaskKey, number: int, body: bytes) -> str:
    """
    What a request is recognised by when it comes again.

    It has the place of the rows in the batch and what they are: when a batch is run
    again its rows may be spread over other tasks, and a key of the place alone would
    have a server take new rows for old ones.

    Raises:
        InvalidConfig: The ``appId`` cannot stand in a header.
    """
    app = key.batch.app
    if not app.isascii() or not app.isprintable():
        raise InvalidConfig(
            "appId: must be of printable ASCII, since it is in a header"
        )
    content = hashlib.sha256(body).hexdigest()[:16]
    return f"{app}:{key.batch.number}:{key.partition}:{number}:{content}"


def _single(column: Any) -> Any:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return pa.concat_arrays(combined.chunks)
    return combined
