"""
Sinks that Spark writes to.

A pipeline in a process of its own runs such a connector; ``pipelines`` knows how.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from pydanube.declarations.pure.sections import Scalar, Section
from pydanube_connect.connector import Connector


class SparkOptions(Section, frozen=True, kw_only=True):
    """The options of all sinks that Spark writes to."""

    sink: Annotated[
        dict[str, Scalar],
        Meta(
            description="The options of the Spark format, such as `path` or `table`; "
            "see the guide of sinks."
        ),
    ]
    sql: Annotated[
        str | None,
        Meta(
            description="A query of the table `messages`, in the SQL of Spark, whose "
            "rows are written; by default the columns of `messages`."
        ),
    ] = None
    decode: Annotated[
        bool,
        Meta(
            description="Whether `messages` has the column `value`, decoded by the "
            "schema of the topic."
        ),
    ] = False
    trigger: Annotated[
        str,
        Meta(
            description="How often rows are written, such as `10s`; `available-now` "
            "writes what the topic has, and ends."
        ),
    ] = "10s"
    master: Annotated[
        str | None,
        Meta(description="The master of Spark; by default this machine."),
    ] = None
    settings: Annotated[
        dict[str, Scalar], Meta(description="The settings of Spark.")
    ] = {}


class SparkSink(Connector):
    """A sink that Spark writes to, as the only sink of a pipeline."""

    Options = SparkOptions
    extra = "pipelines"
    format: ClassVar[str]
    """The name of Spark's format."""


class ClickhouseSink(SparkSink):
    """
    Writes messages as rows of a table of ClickHouse, with Spark.

    Delivery: exactly once, in batches, if the table deduplicates.
    """

    format = "danube-clickhouse"


class DeltaSink(SparkSink):
    """
    Writes messages as rows of a table of Delta Lake, with Spark.

    Delivery: exactly once, in batches.
    """

    format = "danube-delta"


class IcebergSink(SparkSink):
    """
    Writes messages as rows of a table of Iceberg, with Spark.

    Delivery: exactly once, in batches.
    """

    format = "danube-iceberg"


class LancedbSink(SparkSink):
    """
    Writes messages as rows of a table of LanceDB, with Spark.

    Delivery: exactly once, in batches.
    """

    format = "danube-lancedb"
