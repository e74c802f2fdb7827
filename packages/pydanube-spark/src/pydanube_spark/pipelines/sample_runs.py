"""
The run of a pipeline's tests on Spark, without a broker.

Sources are tables with the sample rows, so each step computes all rows at once.
Nothing is written: the rows of a sink are those that it would be given.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

from pydanube.declarations.pure.problems import Path as SpecPath
from pydanube.declarations.pure.problems import Problems
from pydanube.model.suggestions import did_you_mean
from pydanube_spark.pipelines.building import Builder, BuildFailed
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import topic_options
from pydanube_spark.pipelines.pure.spec import Decode, Source
from pydanube_spark.pipelines.row_comparison import Difference, compare
from pydanube_spark.pipelines.sample_cases import Case, Given
from pydanube_spark.pipelines.spark_errors import SPARK_ERRORS, error_message
from pydanube_spark.source import column_names

PUBLISH_TIME = "2026-01-01T00:00:00Z"
"""The time at which messages without one were published."""

ROWS_MAX = 10_000
"""The maximum number of rows that are compared for a step or sink."""

_ENVELOPE = {
    "topic": "STRING",
    "offset": "BIGINT",
    "publish_time": "TIMESTAMP",
    "key": "STRING",
    "payload": "STRING",
    "attributes": "MAP<STRING, STRING>",
    "producer": "STRING",
    "schema_id": "BIGINT",
    "schema_version": "INT",
    "partition": "INT",
    "deliver_at": "TIMESTAMP",
    "expires_at": "TIMESTAMP",
}
_BYTES = ("key", "payload")
_VALUE = "value"
_ERROR = "_error"
_TEXT = "_danube_text"
_ROW = "_danube_row"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one test."""

    name: str
    differences: dict[str, Difference]
    """The differences by step or sink, for those that have any."""
    error: str | None = None
    """Why it failed, if not by different rows."""

    @property
    def has_passed(self) -> bool:
        return not self.differences and self.error is None


def run_case(spark: SparkSession, pipeline: Pipeline, name: str, case: Case) -> Outcome:
    """
    Run one test of *pipeline*.

    Raises:
        InvalidDeclaration: The pipeline or a given row is invalid.
    """
    problems = Problems(pipeline.document.line_of)
    builder = _SampleBuilder(spark, pipeline, problems, case)
    queries = builder.build(set())
    problems.refuse(pipeline.file, pipeline.redact)
    frames = {query.name: query.frame for query in queries} | builder.tables
    try:
        differences = {
            each: _compare(frames[each], expected, each)
            for each, expected in case.expect.items()
        }
        if case.error is not None:
            # An error may occur in rows that no step or sink of the test has.
            for query in queries:
                _compute(query.frame)
    except _CannotCompare as error:
        return Outcome(name, {}, str(error))
    except SPARK_ERRORS as error:
        found = pipeline.redact(error_message(error))
        if case.error is not None and case.error in found:
            return Outcome(name, {})
        wanted = "" if case.error is None else f"; expected was: {case.error}"
        return Outcome(name, {}, f"the pipeline failed: {found}{wanted}")
    differences = {each: found for each, found in differences.items() if found}
    if case.error is not None:
        text = f"the pipeline did not fail; expected was: {case.error}"
        return Outcome(name, differences, text)
    return Outcome(name, differences)


class _CannotCompare(Exception):
    """The expected rows cannot be compared with those of a step or sink."""


class _SampleBuilder(Builder):
    """Builds a pipeline whose sources have the rows of a test."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, problems: Problems, case: Case
    ) -> None:
        super().__init__(spark, pipeline, problems)
        self._case = case

    def _load(self, source: Source, path: SpecPath, schema: str | None) -> DataFrame:
        given = self._case.given_to(str(path[-1]))
        if source.is_topic:
            frame = self._messages(source, path, given)
            if schema is None:
                return frame
            names = self._spark.createDataFrame([], schema).columns
            if source.dead_letters is not None and _ERROR not in names:
                names.append(_ERROR)
            return frame.select(*names)
        columns = given.schema or schema
        if columns is None:
            raise _needs_schema(path, "of the source")
        return self._rows(given.rows, columns, path)

    def _messages(self, source: Source, path: SpecPath, given: Given) -> DataFrame:
        options = topic_options(source, self._pipeline.broker)
        names = column_names(options)
        columns = dict(_ENVELOPE)
        if source.decode is Decode.JSON:
            columns |= {_VALUE: "STRING", _ERROR: "STRING"}
        elif source.decode:
            if given.schema is None:
                raise _needs_schema(path, "of value, as the schema of the topic has")
            columns |= {_VALUE: f"STRUCT<{given.schema}>", _ERROR: "STRING"}
        texts = (*_BYTES, _VALUE) if source.decode is Decode.JSON else _BYTES
        topic = next(iter(options.topics), f"/default/{path[-1]}")
        rows = [
            {"topic": topic, "offset": at, "partition": 0, "payload": ""}
            | {"publish_time": PUBLISH_TIME}
            | {name: _message_value(name, row[name], texts) for name in row}
            for at, row in enumerate(given.rows)
        ]
        schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        frame = self._rows(rows, schema, path)
        for name in _BYTES:
            frame = frame.withColumn(name, F.col(name).cast("binary"))
        return frame.select(*names)

    def _rows(
        self, rows: list[dict[str, Any]], schema: str, path: SpecPath
    ) -> DataFrame:
        """Return *rows* as a table with the columns *schema*."""
        try:
            texts = self._spark.createDataFrame(
                [(json.dumps(row),) for row in rows], f"{_TEXT} STRING"
            )
            options = {"mode": "FAILFAST"}
            parsed = F.from_json(F.col(_TEXT), schema, options).alias(_ROW)
            frame = texts.select(parsed).select(f"{_ROW}.*")
            for name in {name for row in rows for name in row}:
                if name not in frame.columns:
                    near = did_you_mean(name, frame.columns)
                    known = near or f"; there are {', '.join(frame.columns)}"
                    text = f"the test gives the unknown column {name}{known}"
                    raise BuildFailed(path, text)
            # Rows that do not fit the columns fail here.
            _compute(frame)
        except SPARK_ERRORS as error:
            text = f"the rows that the test gives: {error_message(error)}"
            raise BuildFailed(path, text) from error
        return frame


def _needs_schema(path: SpecPath, what: str) -> BuildFailed:
    return BuildFailed(
        path,
        f"the test must give the columns {what}: given: {{{path[-1]}: {{schema: 'id "
        "BIGINT', rows: […]}}",
    )


def _message_value(name: str, value: Any, texts: Collection[str]) -> Any:
    """Return JSON for a value of *texts* that is given as an object."""
    if name not in texts or value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _compare(
    frame: DataFrame, expected: Sequence[Mapping[str, Any]], place: str
) -> Difference:
    known = frame.columns
    for name in {name for row in expected for name in row}:
        if name not in known:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise _CannotCompare(f"{place} has no column {name}{near}")
    return compare(expected, _rows_of(frame, place), known)


def _rows_of(frame: DataFrame, place: str) -> list[dict[str, Any]]:
    """Return the rows of *frame* as JSON has them, with bytes as text."""
    for each in frame.schema:
        if isinstance(each.dataType, BinaryType):
            frame = frame.withColumn(each.name, F.col(each.name).cast("string"))
    options = {"ignoreNullFields": "false"}
    whole = F.to_json(
        F.struct(*(F.col(f"`{name}`") for name in frame.columns)), options
    )
    found = frame.select(whole).limit(ROWS_MAX + 1).collect()
    if len(found) > ROWS_MAX:
        raise _CannotCompare(f"{place} has more than {ROWS_MAX:,} rows")
    return [json.loads(row[0]) for row in found]


def _compute(frame: DataFrame) -> None:
    """Compute all rows of *frame*."""
    frame.write.format("noop").mode("overwrite").save()
