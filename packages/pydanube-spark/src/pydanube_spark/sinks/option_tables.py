"""
The options of the sinks of databases.

The sinks parse their options with these tables, and pipelines check names with them
before Spark starts, so this module imports neither PySpark nor a database driver.
"""

from __future__ import annotations

from pydanube_spark.pure.sink_options import (
    APP_ID,
    BATCH_ID,
    TRUNCATE_COLUMN,
    UNAVAILABLE,
)
from pydanube_spark.reader.pure.option_parsing import Option
from pydanube_spark.sinks.pure.staging import ORDER_COLUMNS
from pydanube_spark.sinks.retrying import RETRY_OPTIONS

POSTGRES_OPTIONS = (
    Option(
        "uri",
        "",
        "The database: `postgresql://user:password@host:5432/database`.",
        is_required=True,
    ),
    Option(
        "table",
        "",
        "The table, as `table` or `schema.table`. Names are case-sensitive; those with "
        "dots or blanks are in double quotes.",
        is_required=True,
    ),
    Option(
        "keyColumns",
        "",
        "Update the row that has the same values in these columns, or insert it; they "
        "need a unique index. Without this option all rows are inserted.",
    ),
    ORDER_COLUMNS,
    Option(
        "deleteColumn",
        "",
        "A boolean column that is not written: if it is true, the row with that key is "
        "deleted. Only with `keyColumns`.",
    ),
    TRUNCATE_COLUMN,
    *UNAVAILABLE,
    Option(
        "createTable",
        "false",
        "Create the table if it does not exist, with `keyColumns` as its primary key.",
    ),
    Option(
        "mergeSchema",
        "false",
        "Add new columns to the table, whose owner the user must be. Without this "
        "option they are an error. Column types never change.",
    ),
    *RETRY_OPTIONS,
    APP_ID,
    BATCH_ID,
)

CLICKHOUSE_OPTIONS = (
    Option(
        "url",
        "http://127.0.0.1:8123",
        "The HTTP interface of one server. Behind a load balancer the sink would not "
        "find its staged rows again.",
    ),
    Option("database", "default", "The database of the table."),
    Option("table", "", "The table; its name is case-sensitive.", is_required=True),
    Option("user", "default", "The user who writes."),
    Option("password", "", "The user's password; it is never shown."),
    Option(
        "createTable", "false", "Create the table if it does not exist; see `orderBy`."
    ),
    Option(
        "engine",
        "MergeTree",
        "The engine of a created table, such as `ReplacingMergeTree(version)`.",
    ),
    Option(
        "orderBy",
        "",
        "The sorting key of a created table; its columns are not nullable.",
    ),
    Option("batchRows", "100000", "The maximum number of rows in a request."),
    Option("batchBytes", "33554432", "The maximum size of a request in bytes."),
    Option("timeoutS", "300", "The timeout of a request in seconds."),
    *RETRY_OPTIONS,
    APP_ID,
    BATCH_ID,
)

LANCEDB_OPTIONS = (
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
    ORDER_COLUMNS,
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
