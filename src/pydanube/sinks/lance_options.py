"""
What a user can say to the sink ``danube-lancedb``, and whether rows fit its table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.vectors import is_numbers
from pydanube.spark.dataframe_columns import missing_columns
from pydanube.spark.sink import BatchIdentity
from pydanube.spark.sink_options import APP_ID, BATCH_ID, SinkOption, parse_given

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = (
    SinkOption(
        "uri",
        "",
        "The database: a directory that all of Spark's machines see, or an object "
        "store such as `s3://bucket/path`.",
        is_required=True,
    ),
    SinkOption("table", "", "The table.", is_required=True),
    SinkOption(
        "keyColumns",
        "",
        "Replace the row that has the same values in these columns, or else add one. "
        "Without it all rows are added.",
    ),
    SinkOption(
        "orderColumns",
        "",
        "Which row of a batch is the last of its key: the one with the greatest values "
        "here, then the one that comes last in the highest partition.",
    ),
    SinkOption(
        "batchColumn",
        "_batch",
        "Without `keyColumns`: the column of the table that says which batch a row is "
        "of. `none` has no such column, and a batch may be added twice.",
    ),
    SinkOption(
        "vectorColumn",
        "",
        "The column that is a vector: an array of numbers, all of one length.",
    ),
    SinkOption(
        "dimension",
        "the table's",
        "How many numbers a vector has; needed where the table is created.",
    ),
    SinkOption("createTable", "false", "Create the table if it is not there."),
    SinkOption(
        "index",
        "none",
        "Index the vectors as soon as there are enough: `IvfFlat`, `IvfPq`, `IvfSq`, "
        "`HnswSq` or `HnswPq`.",
    ),
    SinkOption("indexMinRows", "10000", "How many rows are enough for an index."),
    SinkOption("metric", "l2", "How the index compares: `l2`, `cosine` or `dot`."),
    SinkOption(
        "optimizeEvery",
        "100",
        "Join small files and index new rows after so many batches; 0 leaves it to "
        "others.",
    ),
    SinkOption(
        "storage.*",
        "",
        "What the object store wants to know, such as `storage.region`; never shown.",
    ),
    APP_ID,
    BATCH_ID,
)

INDICES = ("none", "IvfFlat", "IvfPq", "IvfSq", "HnswSq", "HnswPq")
METRICS = ("l2", "cosine", "dot")
RESERVED = "_danube_"
"""What staging tables, and the columns that only they have, begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceOptions:
    """A sink, as the user asked for it."""

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
        What *options* ask for.

        Raises:
            InvalidConfig: An option is unknown, malformed or contradicts another.
        """
        given = parse_given(options, OPTIONS)
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
        """What is wrong with the DataFrame, whatever the table is like."""
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
                found.append("dimension: is needed where a table may be created")
        found += [
            f"the name of the column {name!r} is reserved"
            for name in schema.names
            if name.startswith(RESERVED) or name == self.batch_column
        ]
        return found

    def problems_with(self, schema: pa.Schema, there: pa.Schema) -> list[str]:
        """What keeps rows of *schema* from a table whose schema is *there*."""
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
                found.append(f"the column {name!r} is {has} and cannot become {to}")
        return found


def _can_become(has: pa.DataType, to: pa.DataType) -> bool:
    try:
        pa.array([], has).cast(to)
    except pa.ArrowNotImplementedError:
        return False
    return True
