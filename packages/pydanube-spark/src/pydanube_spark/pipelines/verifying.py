"""
The comparison of a sink with the topics that a pipeline has read.

The steps are computed once more from the messages up to the last committed micro-batch.
Both sides are compared by a checksum of each row, so missing, repeated and changed rows
are found, however often a row occurs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pydanube.declarations.pure.problems import Problems
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.names import TopicName
from pydanube_spark.pipelines.added_columns import Default, defaults_at
from pydanube_spark.pipelines.bounding import (
    offset_options,
    offsets_of,
    only_sink,
    with_bounds,
)
from pydanube_spark.pipelines.building import Builder, Query
from pydanube_spark.pipelines.committed_offsets import (
    committed_offsets,
    committed_watermark,
)
from pydanube_spark.pipelines.fan_out import SUFFIX
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import (
    DELETED,
    TRUNCATED,
    UNAVAILABLE,
    sink_options,
    topic_options,
)
from pydanube_spark.pipelines.pure.json_messages import quote
from pydanube_spark.pipelines.pure.sink_groups import sink_groups
from pydanube_spark.pipelines.pure.spec import Mode as WriteMode
from pydanube_spark.pipelines.sink_reading import read_rows, stored_rows
from pydanube_spark.pipelines.spark_errors import SPARK_ERRORS, error_message
from pydanube_spark.pipelines.starting_offsets import read_starting_offsets
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.reader.topics import readable_heads, require_heads
from pydanube_spark.topic_table import read_topics

SAMPLES_MAX = 20
"""How many rows of each kind a report shows."""

_ORIGIN = ("topic", "partition", "offset")
_CHECKSUM = "_danube_checksum"
_EXPECTED = "_danube_expected"
_ACTUAL = "_danube_actual"
_OPEN = "_danube_open"
_RANK = "_danube_rank"
_ROW = "_danube_row"
_VALUE = "_danube_value"
_LAST = "_danube_last"
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = {
    "ignoreNullFields": "false",
    # By default, times have milliseconds.
    "timestampFormat": f"{_MICROSECONDS}XX",
    "timestampNTZFormat": _MICROSECONDS,
}


class Verification(msgspec.Struct, kw_only=True):
    """The result for one sink."""

    sink: str
    writes_to: str
    expected: int = 0
    """The number of rows that the sink must have."""
    missing: int = 0
    """The number of rows that it lacks."""
    unexpected: int = 0
    """The number of rows that it has and should not have, or too often."""
    not_checked: int = 0
    """The number of rows of messages that their topic no longer has."""
    missing_rows: list[str] = []
    """Some of them, in JSON."""
    unexpected_rows: list[str] = []
    offsets: dict[str, int] = {}
    """The ends of the topics up to which rows were compared."""
    dropped: dict[str, int] = {}
    """The oldest offsets of topics that have dropped messages."""
    problem: str | None = None
    """Why the sink could not be verified."""

    @property
    def is_right(self) -> bool:
        return self.problem is None and not self.missing and not self.unexpected


def verify_sink(spark: SparkSession, pipeline: Pipeline, sink: str) -> Verification:
    """
    Compare *sink*, a sink of *pipeline*, with the topics; change nothing.

    The caller holds the lock of the pipeline's state directory, so no run writes.
    """
    found = _new(pipeline, sink)
    try:
        _Verifier(spark, pipeline, found).run()
    except (BrokerError, *SPARK_ERRORS) as error:
        found.problem = pipeline.redact(error_message(error))
    return found


def compare_sinks(
    spark: SparkSession, pipeline: Pipeline, shadow: Pipeline, sink: str
) -> Verification:
    """Compare *sink* with that of *shadow*, whose rows are expected; change nothing."""
    found = _new(pipeline, sink)
    try:
        expected = _stored(spark, shadow, sink)
        actual = _stored(spark, pipeline, sink)
        _compare(found, expected, _like(actual, expected), F.lit(False))
    except (BrokerError, *SPARK_ERRORS) as error:
        found.problem = pipeline.redact(error_message(error))
    return found


def _new(pipeline: Pipeline, sink: str) -> Verification:
    name = pipeline.spec.sinks[sink].format_name or "a function"
    return Verification(sink=sink, writes_to=name)


def _stored(spark: SparkSession, pipeline: Pipeline, name: str) -> DataFrame:
    """Return the rows that a sink has, of a topic without what the broker sets."""
    sink = pipeline.spec.sinks[name]
    options = sink_options(sink, pipeline.broker, pipeline.directory)
    if sink.format_name == "danube":
        given, _ = _topic_options(options)
        return read_topics(spark, {**given, "columns": "key,payload,attributes"})
    return _rows_of_table(spark, sink.format_name, options)


def _rows_of_table(
    spark: SparkSession, format_name: str, options: Mapping[str, str]
) -> DataFrame:
    rows = stored_rows(format_name, options)
    if rows is None:
        raise InvalidRequest(
            "only topics, Delta and Iceberg tables and PostgreSQL can be verified"
        )
    return read_rows(spark, rows)


def _topic_options(options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """
    Return the options for reading the topic of a sink, and whether it has a schema.

    Raises:
        InvalidRequest: The rows name their topics.
    """
    topic = next((each for own, each in options.items() if own.lower() == "topic"), "")
    if not topic:
        raise InvalidRequest("rows name their topic themselves")
    given = {"url": options["url"], "subscribe": topic}
    catalog = Catalog(parse_read_options(given, Mode.BATCH))
    parts = catalog.partitions(topic)
    return given, bool(parts) and catalog.subject_of(parts[0]) is not None


class _Verifier:
    """The verification of one sink."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, found: Verification
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._found = found
        self._defaults: dict[str, Default] = {}
        """Those of columns that a schema of a source got later."""

    def run(self) -> None:
        found = self._found
        checkpoint = self._pipeline.state.checkpoints / self._query_name()
        found.offsets = committed_offsets(checkpoint)
        query = self._bounded_query()
        ours = (DELETED, TRUNCATED, UNAVAILABLE)
        expected = self._current_rows(query).drop(*ours)
        is_open = F.lit(False)
        if query.sink.mode is WriteMode.APPEND:
            is_open = _is_open(expected, committed_watermark(checkpoint))
        actual = self._stored_rows(query, expected)
        actual = self._readable(_like(actual, expected))
        expected, actual = map(self._without_defaults, (expected, actual))
        _compare(self._found, expected, actual, is_open)

    def _query_name(self) -> str:
        for names in sink_groups(self._pipeline.spec):
            if self._found.sink in names:
                return f"{names[0]}.{SUFFIX}"
        return self._found.sink

    def _bounded_query(self) -> Query:
        """Return the query of the sink over the messages that it has read."""
        # A mirror has hundreds of sinks, and each is verified by itself.
        pipeline = only_sink(self._pipeline, self._found.sink)
        starts = read_starting_offsets(pipeline.state.checkpoints)
        bounds: dict[str, Mapping[str, str]] = {}
        for name, source in pipeline.spec.sources.items():
            if not source.is_topic or not source.is_stream:
                continue
            ends = offsets_of(source, self._found.offsets)
            if ends:
                start = msgspec.json.decode(starts.get(name, "{}"), type=dict[str, int])
                bounds[name] = self._bounds(name, start, ends)
        problems = Problems(pipeline.document.line_of)
        queries = Builder(
            self._spark, with_bounds(pipeline, bounds), problems, is_run=True
        ).build(set())
        problems.refuse(pipeline.file, pipeline.redact)
        query = next(each for each in queries if each.name == self._found.sink)
        if query.is_stream:
            raise InvalidRequest(
                "it has a source that is a stream of files, which cannot be read up to "
                "a micro-batch"
            )
        return query

    def _bounds(
        self, name: str, start: Mapping[str, int], ends: Mapping[str, int]
    ) -> Mapping[str, str]:
        """Return the options for reading from *start*, or the oldest message."""
        source = self._pipeline.spec.sources[name]
        options = topic_options(source, self._pipeline.broker)
        catalog = Catalog(options)
        heads = readable_heads(options, require_heads(options, catalog))
        if source.decode is True:
            self._defaults |= defaults_at(catalog, heads)
        first = dict(start)
        if not first and options.starting.by_name:
            first = options.starting.numbers_for(ends)
        for topic in ends:
            base = heads[topic].base if topic in heads else 0
            if base > max(first.get(topic, 0), 0):
                self._found.dropped[topic] = first[topic] = base
        return offset_options(first, ends)

    def _current_rows(self, query: Query) -> DataFrame:
        """Return the rows that a table with keys has: the latest of each key."""
        table, rows = query.sink.table, query.frame
        if table is None:
            return rows
        keys = [table.key] if isinstance(table.key, str) else table.key
        order = [table.order] if isinstance(table.order, str) else table.order
        if TRUNCATED in rows.columns:
            rows = _after_last_truncation(rows, order)
        if not order:
            twice = rows.groupBy(*keys).count().where("count > 1").limit(1).collect()
            if twice:
                raise InvalidRequest(
                    "several rows have the same key; set table.order, which says which "
                    "of them the table keeps"
                )
        if order:
            if UNAVAILABLE in rows.columns:
                rows = _with_last_known(rows, keys, order)
            window = Window.partitionBy(*keys).orderBy(*map(F.desc, order))
            rows = rows.withColumn(_RANK, F.row_number().over(window))
            rows = rows.where(f"{_RANK} = 1").drop(_RANK)
        return rows.where(f"NOT {DELETED}") if DELETED in rows.columns else rows

    def _stored_rows(self, query: Query, expected: DataFrame) -> DataFrame:
        if query.sink.format_name == "danube":
            return self._messages(query, expected)
        return _rows_of_table(self._spark, query.sink.format_name, query.options)

    def _messages(self, query: Query, expected: DataFrame) -> DataFrame:
        """Return the messages of a topic with the columns of *expected*."""
        if {"topic", "partition"} & set(expected.columns):
            raise InvalidRequest("rows name their topic or partition themselves")
        given, has_schema = _topic_options(query.options)
        if has_schema:
            given["decode"] = "true"
        if "attributes" in expected.columns:
            given["includeAttributes"] = "true"
        found = read_topics(self._spark, given)
        if "value" not in expected.columns or has_schema:
            return found
        kind = expected.schema["value"].dataType
        if not isinstance(kind, StructType | ArrayType | MapType):
            raise InvalidRequest("the column value is not an object, list or map")
        text = F.col("payload").cast("string")
        value = F.from_json(text, kind.simpleString())
        # An object that cannot be parsed is not the expected one, even if that is null.
        return found.withColumn("value", value)

    def _without_defaults(self, rows: DataFrame) -> DataFrame:
        """
        Return *rows* with null for the defaults of columns that came later.

        A row has null or the default, whichever version its micro-batch was read with.
        """
        for each in rows.schema:
            default, column = self._defaults.get(each.name), F.col(quote(each.name))
            if default is not None and _is_of(default, each.dataType):
                other = F.when(~column.eqNullSafe(F.lit(default)), column)
                rows = rows.withColumn(each.name, other)
        return rows

    def _readable(self, actual: DataFrame) -> DataFrame:
        """Return the rows of messages that their topics still have."""
        dropped = self._found.dropped
        if not dropped or not set(_ORIGIN) <= set(actual.columns):
            return actual
        condition = F.lit(False)
        for topic, base in dropped.items():
            parsed = TopicName.parse(topic).split_partition()
            name, number = (topic, 0) if parsed is None else (str(parsed[0]), parsed[1])
            condition = condition | (
                (F.col("topic") == name)
                & (F.col("partition") == number)
                & (F.col("offset") < base)
            )
        is_old = F.coalesce(condition, F.lit(False))
        self._found.not_checked = actual.where(is_old).count()
        return actual.where(~is_old)


def _is_of(default: Default, kind: DataType) -> bool:
    """Return whether *default* is a value of *kind*."""
    if isinstance(default, bool):
        return isinstance(kind, BooleanType)
    return isinstance(kind, StringType if isinstance(default, str) else NumericType)


def _is_open(rows: DataFrame, watermark_ms: int | None) -> Column:
    """
    Return whether each of *rows* is of a window that the query may not have written.

    A stream that appends windows writes each when the watermark has passed its end.
    """
    is_open = F.lit(False)
    for each in [] if watermark_ms is None else rows.schema:
        kind = each.dataType
        if isinstance(kind, StructType) and kind.names == ["start", "end"]:
            end = F.col(f"`{each.name}`.`end`")
            if isinstance(kind["end"].dataType, TimestampType):
                is_open |= end > F.timestamp_millis(F.lit(watermark_ms))
    return F.coalesce(is_open, F.lit(False))


def _like(actual: DataFrame, expected: DataFrame) -> DataFrame:
    """
    Return *actual* with the columns of *expected*.

    Raises:
        InvalidRequest: A column is missing.
    """
    missing = [name for name in expected.columns if name not in actual.columns]
    if missing:
        raise InvalidRequest(f"the sink has no column {missing[0]}")
    columns = (
        F.col(f"`{each.name}`").cast(_with_null(each.dataType)).alias(each.name)
        for each in expected.schema
    )
    return actual.select(*columns)


def _with_null(kind: DataType) -> DataType:
    """Return *kind* with null everywhere, as tables have it; no cast removes it."""
    match kind:
        case StructType():
            fields = [StructField(f.name, _with_null(f.dataType)) for f in kind.fields]
            return StructType(fields)
        case ArrayType():
            return ArrayType(_with_null(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _with_null(kind.valueType))
    return kind


def _compare(
    found: Verification, expected: DataFrame, actual: DataFrame, is_open: Column
) -> None:
    """Compare the rows, of which those that are *is_open* may be missing."""
    one = _counted(expected, _EXPECTED, is_open)
    other = _counted(actual, _ACTUAL, F.lit(False)).drop(_OPEN)
    both = one.join(other, _CHECKSUM, "full_outer").select(
        F.coalesce(one[_ROW], other[_ROW]).alias(_ROW),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in (_EXPECTED, _ACTUAL)),
        _OPEN,
    )
    # A query may have rows with a start and an end that are no window: it wrote them.
    may_lack = F.when(F.col(_OPEN), F.least(_EXPECTED, _ACTUAL)).otherwise(
        F.col(_EXPECTED)
    )
    both = both.withColumn(_EXPECTED, may_lack).persist()
    try:
        difference = f"{_EXPECTED} - {_ACTUAL}"
        [counts] = both.selectExpr(
            f"coalesce(sum({_EXPECTED}), 0)",
            f"coalesce(sum(greatest({difference}, 0)), 0)",
            f"coalesce(sum(greatest(-({difference}), 0)), 0)",
        ).collect()
        found.expected, found.missing, found.unexpected = map(int, counts)
        found.missing_rows = _samples(both.where(f"{difference} > 0"))
        found.unexpected_rows = _samples(both.where(f"{difference} < 0"))
    finally:
        both.unpersist()


def _counted(rows: DataFrame, name: str, is_open: Column) -> DataFrame:
    """Return a row for each checksum with the number of rows, and if they are open."""
    columns = [F.col(f"`{each}`") for each in sorted(rows.columns)]
    whole = F.to_json(F.struct(*columns), _JSON)
    # Two hashes of 64 bits: with a billion rows, one would be the same for some.
    checksum = F.struct(F.xxhash64(_ROW), F.xxhash64(F.reverse(_ROW)))
    return (
        rows.select(whole.alias(_ROW), is_open.alias(_OPEN))
        .groupBy(checksum.alias(_CHECKSUM))
        .agg(
            F.count(F.lit(1)).alias(name),
            F.any_value(_ROW).alias(_ROW),
            F.any_value(_OPEN).alias(_OPEN),
        )
    )


def _samples(rows: DataFrame) -> list[str]:
    return [str(row[0]) for row in rows.select(_ROW).limit(SAMPLES_MAX).collect()]


def _after_last_truncation(rows: DataFrame, order: Sequence[str]) -> DataFrame:
    """Return *rows* without truncations and the rows before the last one."""
    # Spark compares structs field by field; null is the least.
    at = F.struct(*(F.col(f"`{name}`") for name in order))
    last = rows.where(TRUNCATED).agg(F.max(at).alias(_LAST))
    is_after = F.col(_LAST).isNull() | (at > F.col(_LAST))
    return rows.where(f"NOT {TRUNCATED}").crossJoin(last).where(is_after).drop(_LAST)


def _with_last_known(
    rows: DataFrame, keys: Sequence[str], order: Sequence[str]
) -> DataFrame:
    """Return *rows* with the values that they lack from earlier rows of their keys."""
    window = (
        Window.partitionBy(*keys)
        .orderBy(*map(F.asc, order))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    for name in rows.columns:
        if name in {*keys, *order, DELETED, TRUNCATED, UNAVAILABLE}:
            continue
        # In a struct, a value that is null differs from one that is not there.
        is_there = ~F.array_contains(UNAVAILABLE, name)
        known = F.when(is_there, F.struct(F.col(f"`{name}`").alias(_VALUE)))
        last = F.last(known, ignorenulls=True).over(window)
        rows = rows.withColumn(name, last[_VALUE])
    return rows
