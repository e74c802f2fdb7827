"""
Upserts: rows that replace or delete the row with the same key.  Pure.

If several rows of a batch have the same key, only the latest one is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import InvalidConfig, InvalidPayload
from pydanube_spark.pure.sink_options import missing_columns
from pydanube_spark.reader.pure.option_parsing import ParsedOptions

_POSITION = "_danube_position"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertColumns:
    """The columns that identify, order and delete the rows of a table."""

    keys: tuple[str, ...] = ()
    """Empty: rows are inserted."""
    order: tuple[str, ...] = ()
    delete: str | None = None
    """A boolean column that is not written; if it is true, the row is deleted."""
    truncate: str | None = None
    """
    A boolean column that is not written; if it is true, all earlier rows are deleted.

    The rows of the batch are earlier by ``order``, and those of the table always are.
    """
    unavailable: str | None = None
    """A column, not written, with the names of the columns that keep their values."""
    is_null_allowed: bool = False
    """Whether such a column of a new row is null; otherwise it is an error."""

    @property
    def not_written(self) -> frozenset[str]:
        """Return the columns of rows that the table does not have."""
        names = (self.delete, self.truncate, self.unavailable)
        return frozenset(filter(None, names))

    @classmethod
    def parse(cls, given: ParsedOptions) -> UpsertColumns:
        """
        Parse ``keyColumns`` and the options that need it.

        Raises:
            InvalidConfig: The options contradict each other.
        """
        keys = given.names("keyColumns")
        for name in (
            "orderColumns",
            "deleteColumn",
            "truncateColumn",
            "unavailableColumn",
        ):
            if given.text(name) and not keys:
                raise InvalidConfig(f"{name}: only with keyColumns")
        delete = given.text("deleteColumn") or None
        if delete in keys:
            raise InvalidConfig("deleteColumn: cannot be a key column")
        order = given.names("orderColumns")
        truncate = given.text("truncateColumn") or None
        if truncate is not None and not order:
            raise InvalidConfig(
                "truncateColumn: only with orderColumns, which tell the rows before a "
                "truncation from those after it"
            )
        if truncate in (*keys, *order, *filter(None, [delete])):
            raise InvalidConfig(
                f"truncateColumn: {truncate!r} is the column of another option"
            )
        return cls(
            keys=keys,
            order=order,
            delete=delete,
            truncate=truncate,
            unavailable=given.text("unavailableColumn") or None,
            is_null_allowed=given.boolean("unavailableAsNull"),
        )

    def problems(self, schema: pa.Schema) -> list[str]:
        """Return what is wrong with these columns for rows of *schema*."""
        found = [
            *missing_columns("keyColumns", self.keys, schema),
            *missing_columns("orderColumns", self.order, schema),
            *missing_columns("deleteColumn", filter(None, [self.delete]), schema),
            *missing_columns("truncateColumn", filter(None, [self.truncate]), schema),
            *missing_columns(
                "unavailableColumn", filter(None, [self.unavailable]), schema
            ),
        ]
        for option, name in (
            ("deleteColumn", self.delete),
            ("truncateColumn", self.truncate),
        ):
            if name in schema.names and schema.field(name).type != pa.bool_():
                found.append(f"{option}: {name!r} must be boolean")
        if self.unavailable in schema.names:
            kind = schema.field(self.unavailable).type
            if not pa.types.is_list(kind) or kind.value_type != pa.string():
                found.append(
                    f"unavailableColumn: {self.unavailable!r} must be an array of "
                    f"strings, not {kind}"
                )
        return found


INSERT_ONLY = UpsertColumns()


def split_truncations(
    batch: pa.RecordBatch, column: str | None
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows of *batch* and, if there are any, those that are truncations."""
    if column is None:
        return batch, None
    mask = pc.fill_null(batch.column(column), False)
    if not mask.true_count:
        return batch, None
    return batch.filter(pc.invert(mask)), batch.filter(mask)


def last_of(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    """Return the values in *order* of the latest of *rows*, of which there are some."""
    return rows.select(list(order)).take(in_order(rows, order)[-1:])


def is_later(has: Sequence[Any], new: Sequence[Any], count: int) -> Any:
    """Return whether the values of *has* come after those of *new*; null is least."""
    is_later = np.zeros(count, np.bool_)
    is_equal = np.ones(count, np.bool_)
    for ours, theirs in zip(has, new, strict=True):
        null, other_null = ours.is_null(), theirs.is_null()
        later = pc.or_(
            pc.fill_null(pc.greater(ours, theirs), False),
            pc.and_(pc.invert(null), other_null),
        )
        equal = pc.or_(
            pc.fill_null(pc.equal(ours, theirs), False), pc.and_(null, other_null)
        )
        is_later |= is_equal & later.to_numpy(zero_copy_only=False)
        is_equal &= equal.to_numpy(zero_copy_only=False)
    return is_later


def check_keys(batch: pa.RecordBatch, keys: Iterable[str]) -> None:
    """
    Raise if a row has no key.

    Raises:
        InvalidPayload: One of the columns *keys* is null in a row.
    """
    for name in keys:
        if batch.column(name).null_count:
            raise InvalidPayload(
                f"the key column {name!r} is null in a row; filter such rows out, "
                "or replace the null"
            )


def latest_rows(
    outputs: Sequence[pa.Table], keys: Sequence[str], order: Sequence[str]
) -> list[Any]:
    """
    Return, for each of *outputs*, a mask of the rows that are the latest of their keys.

    The latest row has the greatest values in *order*, where null is the least; among
    equals it is the last row of the last output.
    """
    rows = pa.concat_tables(outputs)
    rows = rows.append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
    last = (
        rows.select([*keys, _POSITION])
        .take(in_order(rows, order))
        .group_by(list(keys), use_threads=False)
        .aggregate([(_POSITION, "last")])
    )
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[last.column(f"{_POSITION}_last").to_numpy()] = True
    ends = np.cumsum([piece.num_rows for piece in outputs])
    return list(np.split(mask, ends[:-1]))


def in_order(rows: pa.Table, order: Sequence[str]) -> Any:
    """Return the positions of *rows* by *order*, null first; equals stay in order."""
    position = pa.array(np.arange(rows.num_rows))
    table = rows.select(list(order)).append_column(_POSITION, position)
    keys = [(name, "ascending", "at_start") for name in table.column_names]
    return pc.sort_indices(table, sort_keys=keys)
