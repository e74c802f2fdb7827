"""
The checks of a pipeline that need Spark and the servers.

Topics and databases are asked for their columns, every step is analysed, and every
sink looks at the columns that it would get.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import BrokerError, ConnectionLost
from pydanube.model.suggestions import did_you_mean
from pydanube.pipelines import formats
from pydanube.pipelines.building import Builder
from pydanube.pipelines.options import read_of, source_options
from pydanube.pipelines.problems import listed
from pydanube.pipelines.spark_errors import SPARK_ERRORS, error_message
from pydanube.pipelines.spec import Mode, Read
from pydanube.reader.catalog import process_client
from pydanube.reader.read_options import Mode as SourceMode
from pydanube.reader.read_options import parse_read_options
from pydanube.spark.formats import check_sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from pydanube.pipelines.building import Plan, Query
    from pydanube.pipelines.loading import Pipeline
    from pydanube.pipelines.problems import Problems
    from pydanube.pipelines.spec import Source


def validate(
    spark: SparkSession, pipeline: Pipeline, starts: Mapping[str, str] | None = None
) -> Plan:
    """
    The plan of *pipeline*, which has nothing wrong with it.

    Nothing is written anywhere, and no query is started.

    Raises:
        InvalidPipeline: Something is wrong; all that is, is named.
    """
    problems = pipeline.problems()
    with _quiet():
        unusable = {
            name
            for name, source in pipeline.spec.sources.items()
            if source.is_topic and not _topics_exist(name, source, pipeline, problems)
        }
        plan = Builder(spark, pipeline, problems, starts).build(unusable)
        for query in plan.queries:
            _check(spark, query, problems)
    pipeline.refuse(problems)
    return plan


def _topics_exist(
    name: str, source: Source, pipeline: Pipeline, problems: Problems
) -> bool:
    """Whether the broker has the topics of *source*."""
    mode = SourceMode.STREAM if read_of(source) is Read.STREAM else SourceMode.BATCH
    path = ("sources", name)
    options = parse_read_options(source_options(source, pipeline.broker), mode)
    try:
        client = process_client(options.url)
        missing = [each for each in options.topics if not client.partitions(each)]
        known = client.topics() if missing else []
    except ConnectionLost as error:
        problems.add(
            (*path, "broker") if source.broker else path,
            f"no broker answers at {options.url} ({error}); is it running there? "
            "'broker' in the file or the variable DANUBE_URL names another one",
        )
        return False
    except BrokerError as error:
        problems.add(path, f"the broker at {options.url} says: {error}")
        return False
    if missing:
        word = next(iter(source.topic_fields), "options")
        near = did_you_mean(missing[0], known) or "."
        problems.add(
            (*path, word),
            f"there is no topic {listed(missing)} at {options.url}{near} "
            f"'danube topics create {missing[0]}' makes it",
        )
    return not missing


def _check(spark: SparkSession, query: Query, problems: Problems) -> None:
    _check_kind(query, problems)
    if problems.under(query.path):
        return
    name = query.sink.format_name
    twice = [
        column
        for column, count in Counter(
            each.lower() for each in query.frame.columns
        ).items()
        if count > 1
    ]
    if twice and name:
        found = f"the column {twice[0]} comes twice; give one of them another name"
        problems.add((*query.path, "input"), found)
        return
    if query.is_stream:
        _check_output_mode(spark, query, problems)
    if name in formats.OURS:
        _check_ours(query, problems)
    elif name:
        _check_format(spark, query, problems)


def _check_kind(query: Query, problems: Problems) -> None:
    """A stream and a table are written in different ways."""
    mode = query.sink.mode
    if query.is_stream and mode is Mode.OVERWRITE:
        found = "a stream can append, update or complete, not overwrite"
        problems.add((*query.path, "mode"), found)
    if query.is_stream:
        return
    if mode in (Mode.UPDATE, Mode.COMPLETE):
        found = "none of its sources is a stream: append or overwrite"
        problems.add((*query.path, "mode"), found)
    if not query.trigger.ends:
        problems.add(
            query.path,
            "none of its sources is a stream, so it is written once in a run; its "
            "trigger must be available-now",
        )


def _check_ours(query: Query, problems: Problems) -> None:
    name = query.sink.format_name
    try:
        found = check_sink(name, query.options, query.frame.schema)
    except ImportError as error:
        extra = "pip install 'pydanube[pipelines]'"
        found = [f"{name} needs the package {error.name}, which is missing: {extra}"]
    except (BrokerError, OSError) as error:
        found = [str(error)]
    for each in found:
        problems.add(_locate(query, each), each)


def _locate(query: Query, text: str) -> tuple[str | int, ...]:
    """The option that *text* is about, if it names one."""
    for option in sorted(query.sink.options, key=len, reverse=True):
        if text.lower().startswith((f"{option.lower()}:", f"{option.lower()} ")) or (
            f"'{option.lower()}'" in text.lower()
        ):
            return (*query.path, "options", option)
    return query.path


def _check_output_mode(spark: SparkSession, query: Query, problems: Problems) -> None:
    name, mode = query.sink.format_name, query.sink.mode
    if name in formats.FILE_FORMATS and mode is not Mode.APPEND:
        problems.add((*query.path, "mode"), "files can only be appended by a stream")
        return
    # Spark itself looks at this when a query starts, which is too late for us.
    plan = getattr(query.frame, "_jdf", None)
    if plan is None:
        return
    jvm: Any = spark._jvm  # noqa: SLF001
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    wanted = getattr(modes, mode.value.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan.queryExecution().analyzed(), wanted)
    except SPARK_ERRORS as error:
        problems.add((*query.path, "mode"), error_message(error))


def _check_format(spark: SparkSession, query: Query, problems: Problems) -> None:
    """Whether Spark knows the format, where it can be asked."""
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
            f"Spark knows no format {name}{near} A format from elsewhere needs its "
            "jar, named under spark.settings",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Let nobody but us tell what Spark refuses."""
    log = logging.getLogger("SQLQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
