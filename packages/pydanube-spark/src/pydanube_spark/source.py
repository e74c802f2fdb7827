"""
The data source ``danube``: topics as tables and as streams.

Spark runs these classes in several processes.  It calls ``schema`` and creates readers
in short planning processes.  It calls the offset methods, ``partitions`` and ``commit``
of a stream in one long-lived process for each query.  It calls ``read`` in tasks, on a
pickled copy of the reader.  Readers hold only values, and connect when they are
first used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.parallelism import parallelism_in
from pydanube_spark.pushdown import condition_of
from pydanube_spark.reader import topics
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import ERROR, VALUE
from pydanube_spark.reader.decoding_planner import (
    check_columns,
    from_metadata,
    to_metadata,
)
from pydanube_spark.reader.json_decoding_planner import planner_for
from pydanube_spark.reader.pure.query_positions import ReaderSchema, resolve
from pydanube_spark.reader.pure.read_options import (
    Mode,
    OnUndecodable,
    ReadOptions,
    parse_read_options,
)
from pydanube_spark.reader.scan_reader import DECODED_COLUMNS, SCHEMA, SCHEMA_DEFAULT
from pydanube_spark.stream import StreamReader
from pydanube_spark.topic_reader import TopicReader


class DanubeDataSource(DataSource):  # type: ignore[misc]
    """Topics of a Danube broker as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "danube"

    def schema(self) -> StructType:
        """Return the columns; the broker provides the type of decoded values."""
        options = parse_read_options(dict(self.options), None)
        return schema_of(options, Catalog(options))

    def reader(self, schema: StructType) -> BatchReader:
        options = parse_read_options(dict(self.options), Mode.BATCH)
        return BatchReader(
            options, _arrow_schema(schema, options), planned=_planned(schema)
        )

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        options = parse_read_options(dict(self.options), Mode.STREAM)
        return StreamReader(
            options, _arrow_schema(schema, options), planned=_planned(schema)
        )


def schema_of(options: ReadOptions, catalog: Catalog) -> StructType:
    """
    Return the columns of a query that does not specify a schema.

    Raises:
        InvalidConfig: The option ``columns`` names a column that topics do not have.
        TopicNotFound: A topic does not exist.
        InvalidRequest: The messages are to be decoded, and their topics are not all
            bound to the same subject.
        SchemaNotFound: The subject does not have the version in ``schemaVersion``.
    """
    return StructType(
        [_column(options, catalog, name) for name in column_names(options)]
    )


def column_names(options: ReadOptions) -> Sequence[str]:
    """Return the names of the columns of such a query."""
    if options.columns is not None:
        check_columns(options.columns, options.values)
        return options.columns
    names = [
        name
        for name in SCHEMA_DEFAULT.names
        if name != "attributes" or options.has_attributes
    ]
    if options.values is not None:
        names.append(VALUE)
        if options.values.on_undecodable is OnUndecodable.NULL:
            names.append(ERROR)
    return names


def _column(options: ReadOptions, catalog: Catalog, name: str) -> StructField:
    if name == ERROR:
        return StructField(ERROR, StringType())
    if name in SCHEMA.names:
        return StructField(name, from_arrow_type(SCHEMA.field(name).type))
    if name != VALUE:
        raise InvalidConfig(
            f"columns: topics have no column {name!r}; they have "
            f"{', '.join([*SCHEMA.names, *DECODED_COLUMNS])}"
        )
    assert options.values is not None, "check_columns refuses this"
    heads = topics.require_heads(options, catalog)
    values = planner_for(options.values, catalog)
    reader_schema = values.plan(heads)
    value_type = from_arrow_type(values.column_type(reader_schema))
    return StructField(VALUE, value_type, metadata=to_metadata(reader_schema))


class BatchReader(TopicReader, DataSourceReader):  # type: ignore[misc]
    """A batch read: a fixed offset range of each topic."""

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        connect: Callable[[ReadOptions], Catalog] = Catalog,
        planned: ReaderSchema | None = None,
    ) -> None:
        super().__init__(options, schema, connect, planned)
        self.pushFilters = _PushFilters(self)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks do not push filters, and pushFilters refers back to the reader.
        return {
            name: value for name, value in vars(self).items() if name != "pushFilters"
        }

    def take(self, pushed: Iterable[Any]) -> Iterator[Any]:
        """
        Evaluate the filters *pushed* here if possible, and yield the others.

        Spark (4.3) reuses a plan with the filters of one query for another query of the
        same DataFrame that pushes no filters, or for another branch of the same query;
        messages would be missing there.  So Spark evaluates all filters unless the user
        sets ``pushFilters``, which promises that the DataFrame is read only once.
        """
        for each in pushed:
            condition = condition_of(each)
            if condition is None or not self._options.pushes_filters:
                yield each
            else:
                self._conditions = (*self._conditions, condition)

    def partitions(self) -> list[InputPartition]:
        """
        Return the scans of all messages between the starting and the ending offsets.

        The offsets are resolved only here, so a query reads the same messages however
        often its tasks are repeated.
        """
        options, catalog = self._options, self._catalog
        heads = topics.readable_heads(options, topics.require_heads(options, catalog))
        start = resolve(options.starting, heads, catalog.offset_at_time)
        end = resolve(options.ending, heads, catalog.offset_at_time)
        decoding = None
        if self._values is not None:
            decoding = self._values.decoding(heads, self._values.plan(heads))
        # A stream must divide a repeated micro-batch as before, wherever it runs; a
        # batch may use what this session has.
        return self._plan(
            start, end, heads, decoding, parallelism=parallelism_in(os.environ)
        )


class _PushFilters:
    """
    ``pushFilters`` of a reader.

    If ``spark.sql.python.filterPushdown.enabled`` is off, which is the default, Spark
    refuses sources that override ``pushFilters``; it compares the method's function.
    This object looks like the inherited method.  So Spark pushes filters if the setting
    is on, and reads work without pushed filters if it is off.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, pushed: Iterable[Any]) -> Iterator[Any]:
        return self._reader.take(pushed)


def _planned(schema: StructType) -> ReaderSchema | None:
    """Return the reader schema, if it was chosen together with the columns."""
    metadata = [field.metadata for field in schema if field.name == VALUE]
    return from_metadata(metadata[0] or {}) if metadata else None


def _arrow_schema(schema: StructType, options: ReadOptions) -> pa.Schema:
    if options.columns is not None and list(options.columns) != schema.names:
        raise InvalidConfig(
            f"columns: schema(…) has other columns: {', '.join(schema.names)}; use "
            "either columns or schema(…)"
        )
    if not len(schema):
        raise InvalidConfig("the schema has no columns")
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found
