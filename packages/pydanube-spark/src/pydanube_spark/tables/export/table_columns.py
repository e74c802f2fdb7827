"""
The columns of a topic's table, and the conversion of messages to its rows.

A typed table has a column for each field of the values, and the metadata of messages in
columns whose names begin with an underscore.  A raw table has the columns of a segment.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidRequest
from pydanube.wire.files import segment_format
from pydanube_spark.reader.decoding import ERROR, VALUE
from pydanube_spark.reader.scan_reader import SCHEMA
from pydanube_spark.tables.pure.table_options import UndecodablePolicy


class TableLayout(Enum):
    """How a table holds the messages of a topic."""

    TYPED = "typed"
    """As values that are decoded with the topic's schema."""
    RAW = "raw"
    """As payloads."""
    ZERO_COPY = "zero-copy"
    """As the topic's own segments."""


PARTITION = "partition"
PAYLOAD = "payload"

_METADATA_COLUMNS = (
    "offset",
    "publish_time",
    "key",
    "attributes",
    "producer",
    "schema_version",
)
"""The metadata of a message in a typed table."""

RAW_COLUMNS = tuple(segment_format.SCHEMA.names)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table, and how messages become its rows."""

    layout: TableLayout
    is_partitioned: bool
    """True if the topic is partitioned; then the table has a column for the number."""
    value_type: Any = None
    """The Spark type of the values in a typed table."""
    undecodable: UndecodablePolicy = UndecodablePolicy.FAIL

    def read_schema(self) -> pa.Schema:
        """Return the columns to read from the topic."""
        names = self._metadata_columns()
        if (
            self.layout is TableLayout.TYPED
            and self.undecodable is not UndecodablePolicy.FAIL
        ):
            names = list(dict.fromkeys([*names, *self._dead_letter_columns()]))
        fields = [SCHEMA.field(name) for name in names]
        if self.layout is TableLayout.TYPED:
            fields.append(pa.field(VALUE, self.value_type))
            if self.undecodable is not UndecodablePolicy.FAIL:
                fields.append(pa.field(ERROR, pa.string()))
        return pa.schema(fields)

    def table_schema(self) -> pa.Schema:
        """
        Return the columns of the table.

        Raises:
            InvalidRequest: A field of the values has the name of another column.
        """
        if self.layout is not TableLayout.TYPED:
            return pa.schema([SCHEMA.field(name) for name in self._metadata_columns()])
        fields = [
            pa.field(f"_{name}", SCHEMA.field(name).type)
            for name in self._metadata_columns()
        ]
        if self.undecodable is UndecodablePolicy.NULL:
            fields += [
                pa.field(ERROR, pa.string()),
                pa.field(f"_{PAYLOAD}", pa.binary()),
            ]
        names = {field.name.lower() for field in fields}
        for field in self._value_fields():
            if field.name.lower() in names:
                raise InvalidRequest(
                    f"the values have a field {field.name!r}, which the table uses for "
                    "another column; export the topic with --raw"
                )
            names.add(field.name.lower())
        return pa.schema([*self._value_fields(), *fields])

    def dead_letter_schema(self) -> pa.Schema:
        """Return the columns of the table for dead letters."""
        return pa.schema(
            [
                *(SCHEMA.field(name) for name in self._dead_letter_columns()),
                pa.field("error", pa.string()),
            ]
        )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert messages to rows of the table."""
        if self.layout is not TableLayout.TYPED:
            return batch
        columns: dict[str, Any] = {
            f"_{name}": batch.column(name) for name in self._metadata_columns()
        }
        if self.undecodable is UndecodablePolicy.NULL:
            errors = batch.column(ERROR)
            columns[ERROR] = errors
            # The payload of a message that cannot be decoded is kept.
            columns[f"_{PAYLOAD}"] = pc.if_else(
                errors.is_valid(), batch.column(PAYLOAD), pa.scalar(None, pa.binary())
            )
        value = batch.column(VALUE)
        if types.is_struct(self.value_type):
            names = [field.name for field in value.type]
            columns.update(zip(names, value.flatten(), strict=True))
        else:
            columns[VALUE] = value
        schema = self.table_schema()
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in schema.names], schema=schema
        )

    def split_dead_letters(
        self, batch: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Convert messages to rows of the table and rows of the dead-letter table."""
        if self.undecodable is not UndecodablePolicy.DEAD_LETTER:
            return self.rows(batch), None
        errors = batch.column(ERROR)
        if errors.null_count == batch.num_rows:
            return self.rows(batch), None
        schema = self.dead_letter_schema()
        bad = batch.filter(errors.is_valid())
        dead = [bad.column(ERROR if name == "error" else name) for name in schema.names]
        return (
            self.rows(batch.filter(errors.is_null())),
            pa.RecordBatch.from_arrays(dead, schema=schema),
        )

    def _metadata_columns(self) -> list[str]:
        is_typed = self.layout is TableLayout.TYPED
        return self._partition_and(_METADATA_COLUMNS if is_typed else RAW_COLUMNS)

    def _dead_letter_columns(self) -> list[str]:
        return self._partition_and(RAW_COLUMNS)

    def _partition_and(self, names: Sequence[str]) -> list[str]:
        return [PARTITION, *names] if self.is_partitioned else list(names)

    def _value_fields(self) -> list[Any]:
        if types.is_struct(self.value_type):
            return list(self.value_type)
        return [pa.field(VALUE, self.value_type)]
