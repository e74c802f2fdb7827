"""
The options of the sink ``danube-lancedb``, and the checks of its columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from pydanube.model.errors import InvalidConfig
from pydanube.reader.option_parsing import Option
from pydanube.sinks.vectors import is_numbers
from pydanube.spark.dataframe_columns import missing_columns
from pydanube.spark.sink import BatchIdentity
from pydanube.spark.sink_options import APP_ID, BATCH_ID, parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = (
    Option(
        "uri",
        "",
        "The database: a directory that all machines of the cluster share, or an "
        "object store such as `s3://bucket/path`.",
        is_required=True,
    ),
    Option("table", "", "The table.", is_required=True),
    Option(
        "keyColumns",
        "",
        "Replace the row that has the same values in these columns, or insert it. "
        "Without this option all rows are inserted.",
    ),
    Option(
        "orderColumns",
        "",
        "The latest row of a key in a batch is the one with the greatest values in "
        "these columns, then the last one in the highest partition.",
    ),
    Option(
        "batchColumn",
        "_batch",
        "Without `keyColumns`: the column of the table that names the batch of a row. "
        "With `none` there is no such column, and a batch may be added twice.",
    ),
    Option(
        "vectorColumn",
        "",
        "The vector column: arrays of numbers, all of the same length.",
    ),
    Option(
        "dimension",
        "the table's",
        "The number of values in a vector; required if the table is created.",
    ),
    Option("createTable", "false", "Create the table if it does not exist."),
    Option(
        "index",
        "none",
        "The vector index, created as soon as there are enough rows: `IvfFlat`, "
        "`IvfPq`, `IvfSq`, `HnswSq` or `HnswPq`.",
    ),
    Option("indexMinRows", "10000", "The number of rows required for an index."),
    Option("metric", "l2", "The distance metric: `l2`, `cosine` or `dot`."),
    Option(
        "optimizeEvery",
        "100",
        "Merge small files and index new rows after this many batches; 0: never.",
    ),
    Option(
        "storage.*",
        "",
        "Options of the object store, such as `storage.region`; never shown.",
    ),
    APP_ID,
    BATCH_ID,
)

INDICES = ("none", "IvfFlat", "IvfPq", "IvfSq", "HnswSq", "HnswPq")
METRICS = ("l2", "cosine", "dot")
RESERVED = "_danube_"
"""The prefix of staging tables, and of the columns that only they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceOptions:
    """The options of a sink."""

    uri: str
    table: str
    keys: tuple[str, ...]
    order: tuple[str, ...]
    batch_column: str | None
    vector: str | None
    dimension: int | None
    create: bool
    index: str
    index_rows_min: int
    metric: str
    optimize_every: int
    storage: Mapping[str, str] = field(repr=False)
    identity: BatchIdentity

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LanceOptions:
        """
        Parse *options*.

        Raises:
            InvalidConfig: An option is unknown, malformed or contradicts another.
        """
        given = parse_sink_options(options, OPTIONS)
        keys = given.names("keyColumns")
        if given.text("orderColumns") and not keys:
            raise InvalidConfig("orderColumns: only with keyColumns")
        if "batchColumn" in given and keys:
            raise InvalidConfig("batchColumn: only without keyColumns")
        vector = given.text("vectorColumn") or None
        index = given.choice("index", INDICES, "none")
        for name in ("dimension", "index"):
            if name in given and vector is None:
                raise InvalidConfig(f"{name}: only with vectorColumn")
        batch_column = given.text("batchColumn", "_batch")
        return cls(
            uri=given.text("uri"),
            table=given.text("table"),
            keys=keys,
            order=given.names("orderColumns"),
            batch_column=None if keys or batch_column == "none" else batch_column,
            vector=vector,
            dimension=given.count("dimension", 1) if "dimension" in given else None,
            create=given.boolean("createTable"),
            index=index,
            index_rows_min=given.count("indexMinRows", 10_000, smallest=1),
            metric=given.choice("metric", METRICS, "l2"),
            optimize_every=given.count("optimizeEvery", 100, smallest=0),
            storage=given.family("storage."),
            identity=BatchIdentity.parse(given),
        )

    def column_problems(self, schema: pa.Schema) -> list[str]:
        """Return what is wrong with the DataFrame, whatever the table."""
        wanted = [self.vector] if self.vector else []
        found = [
            *missing_columns("keyColumns", self.keys, schema),
            *missing_columns("orderColumns", self.order, schema),
            *missing_columns("vectorColumn", wanted, schema),
        ]
        if self.vector in schema.names:
            kind = schema.field(self.vector).type
            if not is_numbers(kind):
                found.append(
                    f"vectorColumn: {self.vector!r} is {kind}, not an array of numbers"
                )
            elif self.create and self.dimension is None:
                found.append("dimension: is required with createTable=true")
        found += [
            f"the name of the column {name!r} is reserved"
            for name in schema.names
            if name.startswith(RESERVED) or name == self.batch_column
        ]
        return found

    def problems_with(self, schema: pa.Schema, there: pa.Schema) -> list[str]:
        """Return what prevents writing rows of *schema* to a table with *there*."""
        found = [
            f"the table {self.table!r} has no column {name!r}; it has "
            f"{', '.join(there.names)}"
            for name in [*schema.names, *filter(None, [self.batch_column])]
            if name not in there.names
        ]
        for name in (name for name in schema.names if name in there.names):
            has, to = schema.field(name).type, there.field(name).type
            if name == self.vector:
                if not pa.types.is_fixed_size_list(to):
                    found.append(f"vectorColumn: {name!r} is {to} in the table")
                elif self.dimension not in (None, to.list_size):
                    found.append(
                        f"dimension: {name!r} has {to.list_size} numbers in the table"
                    )
            elif not _can_become(has, to):
                found.append(f"the column {name!r} is {has} and cannot be cast to {to}")
        return found


def _can_become(has: pa.DataType, to: pa.DataType) -> bool:
    try:
        pa.array([], has).cast(to)
    except pa.ArrowNotImplementedError:
        return False
    return True
