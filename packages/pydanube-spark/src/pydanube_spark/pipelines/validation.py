"""
The checks of a pipeline that need Spark and the servers.

Topics and databases return their columns, Spark analyses every step, and every sink
checks the columns that it would write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pydanube.declarations.pure.problems import Path as SpecPath
from pydanube.declarations.pure.problems import Problems, option_path
from pydanube.model.suggestions import did_you_mean
from pydanube_spark.formats import check_sink
from pydanube_spark.pipelines.broker_checks import BrokerChecks
from pydanube_spark.pipelines.building import Builder, Query, columns_of
from pydanube_spark.pipelines.graph import Graph
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import TABLE_OPTIONS
from pydanube_spark.pipelines.pure import formats
from pydanube_spark.pipelines.pure.spec import Mode
from pydanube_spark.pipelines.spark_errors import SPARK_ERRORS, error_message


def validate(
    spark: SparkSession,
    pipeline: Pipeline,
    starts: Mapping[str, str] | None = None,
    *,
    is_run: bool = False,
) -> list[Query]:
    """
    Check *pipeline* and return its queries, which are run next with *is_run*.

    This writes nothing and starts no query.

    Raises:
        InvalidDeclaration: The pipeline is invalid; the error has all problems.
    """
    _, queries = _build(spark, pipeline, starts, is_run=is_run)
    return queries


def graph_with_schemas(spark: SparkSession, pipeline: Pipeline) -> Graph:
    """
    Return the graph of *pipeline* with the columns of all rows.

    Raises:
        InvalidDeclaration: As for ``validate``.
    """
    builder, queries = _build(spark, pipeline, None)
    inner = {each.name: columns_of(each.frame) for each in queries if "." in each.name}
    return pipeline.graph(builder.schemas | inner)


def _build(
    spark: SparkSession,
    pipeline: Pipeline,
    starts: Mapping[str, str] | None,
    *,
    is_run: bool = False,
) -> tuple[Builder, list[Query]]:
    problems = Problems(pipeline.document.line_of)
    with _quiet():
        with BrokerChecks(pipeline, problems) as checks:
            unusable = checks.unusable_sources()
        builder = Builder(spark, pipeline, problems, starts, is_run=is_run)
        queries = builder.build(unusable)
        for query in queries:
            _check(spark, query, problems)
    problems.refuse(pipeline.file, pipeline.redact)
    return builder, queries


def _check(spark: SparkSession, query: Query, problems: Problems) -> None:
    _check_kind(query, problems)
    if problems.under(query.path):
        return
    name = query.sink.format_name
    counts = Counter(each.lower() for each in query.frame.columns)
    twice = [column for column, count in counts.items() if count > 1]
    if twice and name:
        found = f"the column {twice[0]} occurs twice; rename one of them"
        problems.add((*query.path, "input"), found)
        return
    if query.is_stream:
        _check_output_mode(spark, query, problems)
    if name in formats.OURS:
        _check_ours(query, problems)
    elif name:
        _check_format(spark, query, problems)


def _check_kind(query: Query, problems: Problems) -> None:
    """Check the mode and the trigger, which differ for streams and tables."""
    mode = query.sink.mode
    if query.is_stream and mode is Mode.OVERWRITE:
        found = "the mode of a stream is append, update or complete, not overwrite"
        problems.add((*query.path, "mode"), found)
    if query.is_stream:
        return
    if mode in (Mode.UPDATE, Mode.COMPLETE):
        found = "no source is a stream, so the mode is append or overwrite"
        problems.add((*query.path, "mode"), found)
    if not query.trigger.ends:
        problems.add(
            query.path,
            "no source is a stream, so it is written once per run; its trigger must be "
            "available-now",
        )


def _check_ours(query: Query, problems: Problems) -> None:
    name = query.sink.format_name
    try:
        found = check_sink(name, query.options, query.frame.schema)
    except ImportError as error:
        extra = "pip install 'pydanube[pipelines]'"
        found = [f"{name} needs the missing package {error.name}: {extra}"]
    for each in found:
        place = option_path(query.path, query.sink.options, each)
        problems.add(place or _table_path(query, each) or query.path, each)


def _table_path(query: Query, text: str) -> SpecPath | None:
    """Return the path of the field of the sink's table that *text* is about."""
    if query.sink.table is None:
        return None
    for field, option in TABLE_OPTIONS.items():
        if text.startswith(option):
            return (*query.path, "table", field)
    return None


def _check_output_mode(spark: SparkSession, query: Query, problems: Problems) -> None:
    # Spark itself checks this only when a query starts.
    plan = getattr(query.frame, "_jdf", None)
    if plan is None:
        return
    jvm: Any = spark._jvm  # noqa: SLF001
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    wanted = getattr(modes, query.sink.mode.value.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan.queryExecution().analyzed(), wanted)
    except SPARK_ERRORS as error:
        problems.add((*query.path, "mode"), error_message(error))


def _check_format(spark: SparkSession, query: Query, problems: Problems) -> None:
    """Check that Spark knows the format, unless it is behind Spark Connect."""
    name = query.sink.format_name
    if name in formats.SINKS or getattr(query.frame, "_jdf", None) is None:
        return
    jvm: Any = spark._jvm  # noqa: SLF001
    state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(
            name, state.conf()
        )
    except SPARK_ERRORS:
        near = did_you_mean(name, formats.SINKS) or "."
        problems.add(
            (*query.path, "format"),
            f"Spark has no format {name}{near} Add the jar of a third-party format "
            "under spark.settings",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log of Spark's errors, which become problems."""
    # Spark's own class: a logger that logging creates would refuse Spark's arguments.
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
