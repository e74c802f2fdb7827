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
from pydanube.reader.option_parsing import ParsedOptions
from pydanube.spark.sink_options import missing_columns

_POSITION = "_danube_position"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertColumns:
    """The columns that identify, order and delete the rows of a table."""

    keys: tuple[str, ...] = ()
    """Empty: rows are inserted."""
    order: tuple[str, ...] = ()
    delete: str | None = None
    """A boolean column that is not written; if it is true, the row is deleted."""

    @classmethod
    def parse(cls, given: ParsedOptions) -> UpsertColumns:
        """
        Parse ``keyColumns``, ``orderColumns`` and ``deleteColumn``.

        Raises:
            InvalidConfig: The options contradict each other.
        """
        keys = given.names("keyColumns")
        for name in ("orderColumns", "deleteColumn"):
            if given.text(name) and not keys:
                raise InvalidConfig(f"{name}: only with keyColumns")
        delete = given.text("deleteColumn") or None
        if delete in keys:
            raise InvalidConfig("deleteColumn: cannot be a key column")
        return cls(keys=keys, order=given.names("orderColumns"), delete=delete)

    def problems(self, schema: pa.Schema) -> list[str]:
        """Return what is wrong with these columns for rows of *schema*."""
        found = [
            *missing_columns("keyColumns", self.keys, schema),
            *missing_columns("orderColumns", self.order, schema),
            *missing_columns("deleteColumn", filter(None, [self.delete]), schema),
        ]
        if self.delete in schema.names and schema.field(self.delete).type != pa.bool_():
            found.append(f"deleteColumn: {self.delete!r} must be boolean")
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
    # The position breaks ties.
    sort_keys = [(name, "ascending", "at_start") for name in (*order, _POSITION)]
    last = (
        rows.select([*keys, _POSITION])
        .take(pc.sort_indices(rows, sort_keys=sort_keys))
        .group_by(list(keys), use_threads=False)
        .aggregate([(_POSITION, "last")])
    )
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[last.column(f"{_POSITION}_last").to_numpy()] = True
    ends = np.cumsum([piece.num_rows for piece in outputs])
    return list(np.split(mask, ends[:-1]))
