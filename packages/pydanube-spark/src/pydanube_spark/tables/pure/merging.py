"""
The merge of changed rows into the files of a table.  Pure.

A file is rewritten if it has a row whose key has a change; the row is left out of the
new file.  Then the changes that are no deletions are inserted.  A row of the table that
is later than its change stays, and the change is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.upserts import UpsertColumns, is_later


def check_upsert(schema: pa.Schema, columns: UpsertColumns) -> None:
    """
    Check that rows of *schema* can be upserted by *columns*.

    Raises:
        InvalidConfig: A column is missing or has an unsuitable type.
    """
    wrong = columns.problems(schema)
    for option in ("key", "order"):
        names = columns.keys if option == "key" else columns.order
        wrong += [
            f"{option}Columns: the column {name!r} is {schema.field(name).type}, which "
            "cannot be compared exactly; cast it, for example to a string or a decimal"
            for name in names
            if name in schema.names and not _is_comparable(schema.field(name).type)
        ]
        if columns.delete in names:
            wrong.append(f"deleteColumn: cannot be in {option}Columns")
    if wrong:
        raise InvalidConfig("; ".join(wrong))


def _is_comparable(kind: pa.DataType) -> bool:
    return not (types.is_floating(kind) or types.is_nested(kind) or types.is_null(kind))


class Merge:
    """The merge of *changes*, which have one row for each key, into rows of a table."""

    def __init__(self, changes: pa.Table, columns: UpsertColumns) -> None:
        self._changes = changes.combine_chunks()
        self._columns = columns
        self._index = KeyIndex([self._column(name) for name in columns.keys])
        self.is_outdated = np.zeros(changes.num_rows, np.bool_)
        """A mask of the changes that are earlier than a row of the table."""

    def rows_to_keep(self, batch: pa.RecordBatch) -> Any:
        """
        Return a mask of the rows of *batch* that no change replaces or deletes.

        *batch*, which is of the table, has at least the key and order columns.
        """
        at = self._index.find([batch.column(name) for name in self._columns.keys])
        matched = np.flatnonzero(at >= 0)
        changes = at[matched]
        stays = is_later(
            [batch.column(name).take(matched) for name in self._columns.order],
            [self._column(name).take(changes) for name in self._columns.order],
            len(matched),
        )
        self.is_outdated[changes[stays]] = True
        keep = np.ones(batch.num_rows, np.bool_)
        keep[matched[~stays]] = False
        return keep

    def rows_to_insert(self, complete: pa.Table | None = None) -> pa.Table:
        """
        Return the rows that the table lacks, after all its rows were compared.

        *complete* are the changes with all their values, if they lack any.
        """
        changes = self._changes if complete is None else complete
        return rows_to_insert(changes, self.is_outdated, self._columns)

    def _column(self, name: str) -> Any:
        return _whole(self._changes.column(name))


def rows_to_insert(
    changes: pa.Table, is_outdated: Any, columns: UpsertColumns
) -> pa.Table:
    """Return the rows of *changes* that are not outdated and delete nothing."""
    rows = changes.filter(pa.array(~is_outdated))
    delete = columns.delete
    if delete is None:
        return rows
    is_deleted = pc.fill_null(rows.column(delete), False)
    return rows.filter(pc.invert(is_deleted)).drop_columns([delete])


class KeyIndex:
    """
    The positions of rows by their keys.

    Each level numbers the distinct combinations of the first columns, so the numbers
    stay below the square of the number of rows.
    """

    def __init__(self, columns: Sequence[Any]) -> None:
        """*columns* are the columns of the key, which has no nulls and is unique."""
        codes = np.zeros(len(columns[0]), np.int64)
        self._levels = []
        for column in columns:
            values = pc.unique(column)
            part = pc.index_in(column, value_set=values).to_numpy(zero_copy_only=False)
            known, codes = np.unique(codes * len(values) + part, return_inverse=True)
            self._levels.append((values, known))
        self._rows = np.argsort(codes)

    def find(self, columns: Sequence[Any]) -> Any:
        """Return the position of the row with each key of *columns*, or -1."""
        count = len(columns[0])
        if not len(self._rows):
            return np.full(count, -1)
        codes = np.zeros(count, np.int64)
        is_known = np.ones(count, np.bool_)
        for level, ((values, known), column) in enumerate(
            zip(self._levels, columns, strict=True)
        ):
            part = pc.fill_null(pc.index_in(column, value_set=values), -1)
            part = part.to_numpy(zero_copy_only=False)
            if level == 0:
                # The first column alone has all combinations: they are its values.
                is_known &= part >= 0
                codes = np.maximum(part, 0).astype(np.int64)
                continue
            wanted = codes * len(values) + part
            codes = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            is_known &= (part >= 0) & (known[codes] == wanted)
        return np.where(is_known, self._rows[codes], -1)


def _whole(column: Any) -> Any:
    """Return *column* as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
