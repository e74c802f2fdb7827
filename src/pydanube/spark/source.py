"""
The data source ``danube``: topics as tables and as streams.

Spark runs these classes in several processes.  It calls ``schema`` and creates readers
in short planning processes.  It calls the offset methods, ``partitions`` and ``commit``
of a stream in one long-lived process for each query.  It calls ``read`` in tasks, on a
pickled copy of the reader.  Readers hold only values, and connect when they are
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from pydanube.model.errors import InvalidConfig
from pydanube.reader import topics
from pydanube.reader.catalog import Catalog, broker_catalog
from pydanube.reader.decoding import ERROR, VALUE
from pydanube.reader.decoding_planner import (
    DecodingPlanner,
    check_columns,
    from_metadata,
    to_metadata,
)
from pydanube.reader.read_options import (
    Mode,
    OnUndecodable,
    ReadOptions,
    parse_read_options,
)
from pydanube.reader.scan_reader import (
    DECODED_COLUMNS,
    SCHEMA,
    SCHEMA_DEFAULT,
    check_schema,
)
from pydanube.spark.input_partitions import (
    ScanPartition,
    decoding_planner,
    read_partition,
)
from pydanube.spark.pushdown import condition_of
from pydanube.spark.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader

    from pydanube.reader.filters import Condition
    from pydanube.reader.offsets import ReaderSchema


class DanubeDataSource(DataSource):  # type: ignore[misc]
    """Topics of a Danube broker as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "danube"

    def schema(self) -> StructType:
        """Return the columns; the broker provides the type of decoded values."""
        options = parse_read_options(dict(self.options), None)
        return schema_of(options, broker_catalog(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(dict(self.options), Mode.BATCH)
        _check_chosen(options, schema)
        return BatchReader(options, _arrow_schema(schema), planned=_planned(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = parse_read_options(dict(self.options), Mode.STREAM)
        _check_chosen(options, schema)
        return StreamReader(options, _arrow_schema(schema), planned=_planned(schema))


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
        [_column(options, catalog, name) for name in _column_names(options)]
    )


def _column_names(options: ReadOptions) -> Sequence[str]:
    known = [*SCHEMA.names, *DECODED_COLUMNS]
    if options.columns is not None:
        unknown = [name for name in options.columns if name not in known]
        if unknown:
            raise InvalidConfig(
                f"columns: topics have no column {', '.join(map(repr, unknown))}; they "
                f"have {', '.join(known)}"
            )
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
    if name != VALUE:
        return StructField(name, from_arrow_type(SCHEMA.field(name).type))
    assert options.values is not None, "check_columns refuses this"
    heads = topics.find_heads(options, catalog)
    topics.require_topics(options, catalog, heads)
    values = DecodingPlanner(options.values, catalog)
    reader_schema = values.plan(heads)
    value_type = from_arrow_type(values.column_type(reader_schema))
    return StructField(VALUE, value_type, metadata=to_metadata(reader_schema))


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """A batch read: a fixed offset range of each topic."""

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        connect: Callable[[ReadOptions], Catalog] = broker_catalog,
        planned: ReaderSchema | None = None,
    ) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._catalog = connect(options)
        self._values = decoding_planner(options, schema, self._catalog, planned)
        self._conditions: tuple[Condition, ...] = ()
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
        heads = topics.find_heads(options, catalog)
        topics.require_topics(options, catalog, heads)
        heads = topics.readable_heads(options, heads)
        start = topics.find_positions(
            options.starting, options.starting_option, heads, catalog
        )
        end = topics.find_positions(
            options.ending, options.ending_option, heads, catalog
        )
        decoding = None
        if self._values is not None:
            decoding = self._values.decoding(heads, self._values.plan(heads))
        scans = topics.plan_read(
            options, catalog, start, end, heads=heads, conditions=self._conditions
        )
        return [ScanPartition(scan, decoding) for scan in scans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(
            partition, self._options, self._schema, self._catalog, self._conditions
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


def _check_chosen(options: ReadOptions, schema: StructType) -> None:
    if options.columns is not None and list(options.columns) != schema.names:
        raise InvalidConfig(
            f"columns: schema(…) has other columns: {', '.join(schema.names)}; use "
            "either columns or schema(…)"
        )


def _planned(schema: StructType) -> ReaderSchema | None:
    """Return the reader schema, if it was chosen together with the columns."""
    metadata = [field.metadata for field in schema if field.name == VALUE]
    return from_metadata(metadata[0] or {}) if metadata else None


def _arrow_schema(schema: StructType) -> pa.Schema:
    if not len(schema):
        raise InvalidConfig("the schema has no columns")
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found
