"""
Values that changed rows do not have, and where they are found.  Pure.

A database does not send a large value that a change leaves as it is.  The row then has
null in this column, and names the column.  The value is that of an earlier row of the
batch with the same key, or else that of the table's row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import InvalidPayload
from pydanube_spark.pure.upserts import UpsertColumns, in_order
from pydanube_spark.tables.pure.merging import KeyIndex

POSITION = "_danube_position"
"""The column of ``StoredValues.found`` with the positions of changes."""

Read = Callable[[str], Any]
"""A function that returns a column of all rows of a batch."""


def with_earlier_values(
    latest: pa.Table, is_latest: Any, rows: pa.Table, columns: UpsertColumns, read: Read
) -> pa.Table:
    """
    Return *latest* with the values that earlier rows of the same batch have.

    *rows* are all rows, with the columns for the upsert, and *is_latest* marks those of
    *latest*.  A row before the deletion of its key is no source of values.
    """
    assert columns.unavailable is not None
    index = np.cumsum(is_latest) - 1
    # By column: the rows of *latest*, and the rows with their values.
    found: dict[str, tuple[list[int], list[int]]] = {}
    lacking = _names(latest, columns)
    for positions in _histories(rows, is_latest, columns):
        at = int(index[positions[-1]])
        for position in reversed(positions[:-1]):
            if not lacking[at] or _is_deletion(rows, position, columns):
                break
            has = lacking[at] - _names_at(rows, position, columns)
            for name in has:
                ours, theirs = found.setdefault(name, ([], []))
                ours.append(at)
                theirs.append(position)
            lacking[at] -= has
    for name, (ours, theirs) in found.items():
        values = read(name).take(pa.array(theirs))
        latest = _replaced(latest, name, ours, values)
    return _with_names(latest, lacking, columns)


class StoredValues:
    """The values of a table's rows that changed rows do not have."""

    def __init__(
        self,
        changes: pa.Table,
        columns: UpsertColumns,
        known: Iterable[str] | None = None,
    ) -> None:
        """
        *changes* have one row for each key.

        *known* are the columns that can lack values; None: those of *changes*, which
        may be the columns for the upsert alone if the values are filled in elsewhere.
        """
        self._changes = changes
        self._columns = columns
        lacking = _names(changes, columns, known)
        self._lacking = {
            at: names
            for at, names in enumerate(lacking)
            if names and not _is_deletion(changes, at, columns)
        }
        self._rows = np.array(sorted(self._lacking), np.int64)
        keys = changes.select(list(columns.keys)).take(pa.array(self._rows))
        self._index = KeyIndex([_whole(keys.column(name)) for name in columns.keys])
        self._found: list[tuple[Any, Any]] = []

    @property
    def names(self) -> list[str]:
        """Return the columns of the table that are needed, beside those of the key."""
        found = {name for names in self._lacking.values() for name in names}
        return sorted(found - set(self._columns.keys))

    def add(self, batch: pa.RecordBatch) -> None:
        """Take what is needed of *batch*, which has the key and ``names``."""
        if not self._lacking:
            return
        at = self._index.find([_whole(batch.column(n)) for n in self._columns.keys])
        matched = np.flatnonzero(at >= 0)
        if len(matched):
            rows = batch.select(self.names).take(pa.array(matched))
            self._found.append((self._rows[at[matched]], rows))

    @property
    def found(self) -> pa.Table | None:
        """Return the values found so far, with the positions of their changes."""
        if not self._found:
            return None
        at = pa.array(np.concatenate([at for at, _ in self._found]), pa.int64())
        rows = pa.Table.from_batches([rows for _, rows in self._found])
        return rows.append_column(POSITION, at)

    def add_found(self, found: pa.Table) -> None:
        """Take what another process has found for the same changes."""
        at = found.column(POSITION).to_numpy()
        for rows in found.drop_columns([POSITION]).combine_chunks().to_batches():
            self._found.append((at, rows))

    def filled(self) -> pa.Table:
        """
        Return the changes, all with values, without the column that names them.

        Raises:
            InvalidPayload: The table has no row for a change that lacks a value.
        """
        changes, columns = self._changes, self._columns
        if columns.unavailable is None:
            return changes
        if self._found:
            rows = pa.Table.from_batches([rows for _, rows in self._found])
            at = np.concatenate([at for at, _ in self._found]).tolist()
            for name in rows.column_names:
                source = [i for i, row in enumerate(at) if name in self._lacking[row]]
                ours = [at[i] for i in source]
                values = rows.column(name).take(pa.array(source, pa.int64()))
                changes = _replaced(changes, name, ours, values)
            for row in at:
                self._lacking.pop(row, None)
        if self._lacking and not columns.is_null_allowed:
            self._refuse()
        return changes.drop_columns([columns.unavailable])

    def _refuse(self) -> None:
        at, names = next(iter(self._lacking.items()))
        key = self._changes.select(list(self._columns.keys)).slice(at, 1).to_pylist()[0]
        raise InvalidPayload(
            f"the row {key} has no value for the column {min(names)}, because it did "
            "not change, and the table has no row with this key: read the changes from "
            "their beginning, or set unavailableAsNull=true (in a pipeline, "
            "unavailable_as_null of the source)"
        )


def _histories(
    rows: pa.Table, is_latest: Any, columns: UpsertColumns
) -> list[list[int]]:
    """Return the positions, in order, of the rows of each key that lacks values."""
    lengths = pc.fill_null(pc.list_value_length(rows.column(columns.unavailable)), 0)
    wanted = np.flatnonzero(is_latest & (lengths.to_numpy() > 0))
    if not len(wanted):
        return []
    keys = rows.select(list(columns.keys))
    index = KeyIndex(
        [_whole(keys.column(n).take(pa.array(wanted))) for n in columns.keys]
    )
    group = index.find([_whole(keys.column(name)) for name in columns.keys])
    found: list[list[int]] = [[] for _ in wanted]
    for position in in_order(rows, columns.order):
        if group[position] >= 0:
            found[group[position]].append(int(position))
    return found


def _names(
    table: pa.Table, columns: UpsertColumns, known: Iterable[str] | None = None
) -> list[set[str]]:
    lists = table.column(columns.unavailable).to_pylist()
    can_lack = set(table.column_names if known is None else known)
    can_lack -= columns.not_written
    return [set(each or ()) & can_lack for each in lists]


def _names_at(rows: pa.Table, at: int, columns: UpsertColumns) -> set[str]:
    return set(rows.column(columns.unavailable)[at].as_py() or ())


def _is_deletion(rows: pa.Table, at: int, columns: UpsertColumns) -> bool:
    delete = columns.delete
    return delete is not None and rows.column(delete)[at].as_py() is True


def _with_names(
    table: pa.Table, names: Sequence[set[str]], columns: UpsertColumns
) -> pa.Table:
    assert columns.unavailable is not None
    at = table.schema.get_field_index(columns.unavailable)
    kind = table.schema.field(at)
    return table.set_column(at, kind, pa.array(map(sorted, names), kind.type))


def _replaced(table: pa.Table, name: str, rows: Sequence[int], values: Any) -> pa.Table:
    """Return *table* with *values* in the column *name* of *rows*."""
    if not len(rows):
        return table
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    chunks = [*table.column(at).chunks, *_chunks(values.cast(field.type))]
    take = np.arange(table.num_rows)
    take[list(rows)] = table.num_rows + np.arange(len(rows))
    column = pa.chunked_array(chunks, field.type).take(pa.array(take))
    return table.set_column(at, field, column)


def _chunks(values: Any) -> list[Any]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
