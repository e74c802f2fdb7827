"""The options that several sinks have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydanube.model.suggestions import did_you_mean
from pydanube_spark.reader.pure.option_parsing import (
    Option,
    ParsedOptions,
    parse_options,
)

if TYPE_CHECKING:
    import pyarrow as pa

SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})
"""Options for Spark itself, which it also passes to the sink of a stream."""

APP_ID = Option(
    "appId",
    "the query's id",
    "The application that numbers the batches. A batch whose number was written before "
    "under this name is skipped, so a query with a new checkpoint needs a new name. "
    "`txnAppId`, as in Delta Lake, is another name for it.",
    alias="txnappid",
)
BATCH_ID = Option(
    "batchId",
    "",
    "The number of the batch, for a batch write in `foreachBatch`; needs `appId`. "
    "Streams number their batches themselves. `txnVersion` is another name for it.",
    alias="txnversion",
)
TRUNCATE_COLUMN = Option(
    "truncateColumn",
    "",
    "A boolean column that is not written: if it is true, the row is a truncation, "
    "which deletes all rows of the table, and those of the batch that are not later by "
    "`orderColumns`. Only with `keyColumns` and `orderColumns`.",
)
UNAVAILABLE = (
    Option(
        "unavailableColumn",
        "",
        "A column with the names of the columns whose value a row does not have, as "
        "an array of strings; it is not written. The row of the table keeps its "
        "values in these columns. Only with `keyColumns`.",
    ),
    Option(
        "unavailableAsNull",
        "false",
        "Write null if a row lacks a value and the table has no row with its key. "
        "Without this option that is an error.",
    ),
)


def parse_sink_options(
    given: Mapping[str, str], declared: Sequence[Option]
) -> ParsedOptions:
    """
    Parse the options of a sink; see ``parse_options``.

    Raises:
        InvalidConfig: A name is unknown or given twice, or a required one is missing.
    """
    return parse_options(given, declared, ignored=SPARK_OPTIONS)


def missing_columns(option: str, wanted: Iterable[str], there: pa.Schema) -> list[str]:
    """Return an error message for each name in *option* that is not a column."""
    known = there.names
    return [
        f"{option}: the DataFrame has no column {name!r}"
        + (did_you_mean(name, known) or f"; it has {', '.join(known)}")
        for name in wanted
        if name not in known
    ]
