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
    unavailable: str | None = None
    """A column, not written, with the names of the columns that keep their values."""
    is_null_allowed: bool = False
    """Whether such a column of a new row is null; otherwise it is an error."""

    @property
    def not_written(self) -> frozenset[str]:
        """Return the columns of rows that the table does not have."""
        return frozenset(filter(None, (self.delete, self.unavailable)))

    @classmethod
    def parse(cls, given: ParsedOptions) -> UpsertColumns:
        """
        Parse ``keyColumns`` and the options that need it.

        Raises:
            InvalidConfig: The options contradict each other.
        """
        keys = given.names("keyColumns")
        for name in ("orderColumns", "deleteColumn", "unavailableColumn"):
            if given.text(name) and not keys:
                raise InvalidConfig(f"{name}: only with keyColumns")
        delete = given.text("deleteColumn") or None
        if delete in keys:
            raise InvalidConfig("deleteColumn: cannot be a key column")
        return cls(
            keys=keys,
            order=given.names("orderColumns"),
            delete=delete,
            unavailable=given.text("unavailableColumn") or None,
            is_null_allowed=given.boolean("unavailableAsNull"),
        )

    def problems(self, schema: pa.Schema) -> list[str]:
        """Return what is wrong with these columns for rows of *schema*."""
        found = [
            *missing_columns("keyColumns", self.keys, schema),
            *missing_columns("orderColumns", self.order, schema),
            *missing_columns("deleteColumn", filter(None, [self.delete]), schema),
            *missing_columns(
                "unavailableColumn", filter(None, [self.unavailable]), schema
            ),
        ]
        if self.delete in schema.names and schema.field(self.delete).type != pa.bool_():
            found.append(f"deleteColumn: {self.delete!r} must be boolean")
        if self.unavailable in schema.names:
            kind = schema.field(self.unavailable).type
            if not pa.types.is_list(kind) or kind.value_type != pa.string():
                found.append(
                    f"unavailableColumn: {self.unavailable!r} must be an array of "
                    f"strings, not {kind}"
                )
        return found


INSERT_ONLY = UpsertColumns()


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
