"""
The choice of the latest row of each key in a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

_RANK = "_danube_rank"


def latest_rows(
    outputs: Sequence[pa.Table], keys: Sequence[str], order: Sequence[str]
) -> list[Any]:
    """
    Return, for each of *outputs*, a mask of the rows that are the latest of their keys.

    The latest row has the greatest values in *order*, where null is the least; among
    equals it is the last row of the last output.
    """
    rows = pa.concat_tables(outputs)
    places = [(f"_danube_{at}", rows.column(name)) for at, name in enumerate(order)]
    # The position breaks ties.
    places.append((_RANK, pa.array(np.arange(rows.num_rows))))
    sorted_rows = pc.sort_indices(
        pa.table(dict(places)),
        sort_keys=[(name, "ascending", "at_start") for name, _ in places],
    ).to_numpy()
    rank = np.empty(rows.num_rows, np.int64)
    rank[sorted_rows] = np.arange(rows.num_rows)
    last = (
        rows.select(list(keys))
        .append_column(_RANK, pa.array(rank))
        .group_by(list(keys))
        .aggregate([(_RANK, "max")])
    )
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[sorted_rows[last.column(f"{_RANK}_max").to_numpy()]] = True
    ends = np.cumsum([piece.num_rows for piece in outputs])
    return list(np.split(mask, ends[:-1]))
