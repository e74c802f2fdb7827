"""
The DataFrames and queries of a pipeline.

``Builder`` builds sources and steps in the order of the file.  An error of Spark
becomes a problem at its path; everything that depends on it is skipped, so that each
mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pydanube.declarations.functions import NoSuchFunction
from pydanube.declarations.pure.problems import Path as SpecPath
from pydanube.declarations.pure.problems import Problems, option_path
from pydanube.model.dead_letters import ORIGINAL_OFFSET, ORIGINAL_TOPIC, REASON
from pydanube.model.errors import BrokerError
from pydanube_spark.pipelines.change_feeds import (
    IS_COMPLETE,
    read_events,
    rows_of_events,
    undecodable_events,
)
from pydanube_spark.pipelines.expectations import (
    METRICS,
    check_or_fail,
    counts_of,
    kept_rows,
    quarantine_expressions,
    quarantined_rows,
)
from pydanube_spark.pipelines.functions import load_function
from pydanube_spark.pipelines.graph import (
    DEAD_LETTERS,
    QUARANTINE,
    NodeKind,
)
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import (
    DELETED,
    MERGE_SCHEMA,
    TRUNCATED,
    UNAVAILABLE,
    names_topic,
    resolve,
    sink_options,
    source_options,
    with_starting_offsets,
)
from pydanube_spark.pipelines.pure.formats import has_option
from pydanube_spark.pipelines.pure.json_messages import message_expressions, quote
from pydanube_spark.pipelines.pure.spec import (
    SchemaChanges,
    Sink,
    Source,
    Step,
    Trigger,
    Truncate,
    Watermark,
)
from pydanube_spark.pipelines.spark_errors import (
    SPARK_ERRORS,
    error_message,
    location_in,
)
from pydanube_spark.topic_table import read_topics

_ERROR = "_error"
_VALUE = "value"
_OURS = (ORIGINAL_TOPIC, ORIGINAL_OFFSET, REASON)


@dataclass(frozen=True, slots=True)
class Query:
    """The query of one sink."""

    name: str
    """The name of the sink; that of dead letters has a dot."""
    path: SpecPath
    base: DataFrame
    """The rows of the input."""
    frame: DataFrame
    """The rows that are written."""
    sink: Sink
    options: Mapping[str, str]
    trigger: Trigger
    function: Callable[..., Any] | None = None
    expressions: tuple[str, ...] = ()
    """The SQL of the columns of ``frame``; empty: those of ``base``."""
    condition: str = ""
    """The SQL condition of the rows of ``base`` that are written; empty: all."""
    checked_steps: tuple[str, ...] = ()
    """The steps before it that have expectations."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    """The counts of broken expectations by step, if the rows are bounded."""

    @property
    def is_stream(self) -> bool:
        return bool(self.frame.isStreaming)

    def written(self, rows: DataFrame) -> DataFrame:
        """Return *rows* of the input as they are written."""
        kept = rows.where(self.condition) if self.condition else rows
        return kept.selectExpr(*self.expressions) if self.expressions else kept

    @property
    def writes_to(self) -> str:
        """The format or function, for people."""
        return self.sink.python or self.sink.format_name


class BuildFailed(Exception):
    """A source or step cannot be built; without a text, its input has failed."""

    def __init__(self, path: SpecPath, text: str = "") -> None:
        super().__init__(text)
        self.path = path


class Builder:
    """Builds the queries of one pipeline in one session."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        problems: Problems,
        starts: Mapping[str, str] | None = None,
        *,
        is_run: bool = False,
    ) -> None:
        """
        Prepare to build *pipeline*.

        *starts* has the starting offsets of sources, where they are fixed.  If the
        queries are run, which *is_run* says, and no source is a stream, they all have
        the messages that the topics have now, in segments that are held.
        """
        self._spark = spark
        self._pipeline = pipeline
        self._problems = problems
        self._starts = starts or {}
        # Streams read tables again for each micro-batch.
        is_bounded = not any(each.is_stream for each in pipeline.spec.sources.values())
        self._reads_once = is_run and is_bounded
        self._failed: set[str] = set()
        self._tables: dict[str, DataFrame] = {}
        self._unfiltered: dict[str, DataFrame] = {}
        """The rows of steps with expectations before any are removed."""
        self._feeds: dict[str, DataFrame] = {}
        """The rows of change feeds, with the names of values that they lack."""
        self._observations: dict[str, Observation] = {}
        self._queries: list[Query] = []
        self._graph = pipeline.graph()

    @property
    def tables(self) -> dict[str, DataFrame]:
        """The rows of the sources and steps that were built."""
        return dict(self._tables)

    @property
    def schemas(self) -> dict[str, str]:
        """The columns of the sources and steps, in Spark's syntax."""
        return {name: columns_of(frame) for name, frame in self._tables.items()}

    def build(self, unusable: set[str]) -> list[Query]:
        """Build everything but the sources *unusable* and what depends on them."""
        self._failed = set(unusable)
        spec = self._pipeline.spec
        for name, source in spec.sources.items():
            if name not in self._failed:
                path: SpecPath = ("sources", name)
                with self._collecting(path):
                    self._define(path, source, self._source(source, path))
        for name, step in spec.steps.items():
            path = ("steps", name)
            with self._collecting(path):
                self._define(path, step, self._step(step, path))
        for name, sink in spec.sinks.items():
            path = ("sinks", name)
            if sink.input in self._tables:
                with self._collecting(path):
                    self._add_sink(name, path, sink)
        # Dead letters start first, so that they have what the other queries skip.
        return sorted(self._queries, key=lambda query: "." not in query.name)

    @contextmanager
    def _collecting(self, path: SpecPath) -> Iterator[None]:
        """Report an error of the body, and skip everything that depends on it."""
        try:
            yield
        except (BuildFailed, BrokerError) as error:
            if str(error):
                place = error.path if isinstance(error, BuildFailed) else path
                self._problems.add(place, str(error))
            self._failed.add(str(path[-1]))

    def _define(self, path: SpecPath, part: Source | Step, frame: DataFrame) -> None:
        if part.watermark is not None:
            frame = _watermarked(frame, part.watermark, (*path, "watermark"))
        name = str(path[-1])
        if isinstance(part, Step) and part.expect:
            frame = self._checked(path, part, frame)
        self._tables[name] = frame
        frame.createOrReplaceTempView(name)

    def _checked(self, path: SpecPath, step: Step, frame: DataFrame) -> DataFrame:
        """Return the rows that the expectations of *step* keep, and count others."""
        name, expected = str(path[-1]), step.expect
        for each, expectation in expected.items():
            with _failing_at((*path, "expect", each, "condition")):
                _analysed(frame.where(f"({expectation.condition}\n)"))
        counts = [F.expr(sql).alias(each) for each, sql in counts_of(expected).items()]
        with _failing_at((*path, "expect")):
            if frame.isStreaming:
                observed = frame.observe(f"{METRICS}{name}", *counts)
            else:
                self._observations[name] = Observation(f"{METRICS}{name}")
                observed = frame.observe(self._observations[name], *counts)
            # Spark does not evaluate a condition before a join of the step or other
            # operations that precede an observation.
            check = check_or_fail(name, expected, frame.columns)
            found = _analysed(observed if check is None else observed.where(check))
        self._unfiltered[name] = found
        if step.quarantine is not None:
            sink = step.quarantine
            is_topic = sink.format_name == "danube"
            more = quarantine_expressions(
                expected,
                frame.columns,
                for_topic=is_topic,
                names_topic=names_topic(sink),
            )
            if not is_topic:
                more += _expressions(sink, frame.columns)[1:]
            self._add(
                f"{name}.{QUARANTINE}",
                (*path, QUARANTINE),
                found,
                sink,
                condition=quarantined_rows(expected),
                expressions=more,
            )
        kept = kept_rows(expected)
        return found.where(kept) if kept else found

    def _source(self, source: Source, path: SpecPath) -> DataFrame:
        if source.cdc is not None:
            return self._change_feed(source, path)
        frame = self._load(source, path, source.schema)
        if source.dead_letters is not None:
            # Dead letters have all columns, whatever the schema selects.
            whole = frame if source.schema is None else self._load(source, path, None)
            self._add_dead_letters(whole, source.dead_letters, path)
            frame = _decoded(frame)
        return frame

    def _change_feed(self, source: Source, path: SpecPath) -> DataFrame:
        # The schema of a change feed is that of its rows.
        frame = self._load(source, path, None)
        skips_errors = source.dead_letters is not None
        with _failing_at((*path, "cdc" if source.schema is None else "schema")):
            events = read_events(frame, source)
            rows = rows_of_events(
                events,
                skips_errors=skips_errors,
                has_truncations=source.truncate is Truncate.APPLY,
            )
            rows = _analysed(rows)
        if source.dead_letters is not None:
            whole = undecodable_events(events)
            self._add_dead_letters(whole, source.dead_letters, path)
        self._feeds[str(path[-1])] = rows
        if not source.unavailable_as_null:
            rows = rows.where(IS_COMPLETE)
        return rows.drop(UNAVAILABLE)

    def _add_dead_letters(self, whole: DataFrame, sink: Sink, path: SpecPath) -> None:
        name = str(path[-1])
        is_topic = sink.format_name == "danube"
        found = _undecodable(whole, for_topic=is_topic)
        self._add(f"{name}.{DEAD_LETTERS}", (*path, DEAD_LETTERS), found, sink)

    def _load(self, source: Source, path: SpecPath, schema: str | None) -> DataFrame:
        options = source_options(source, self._pipeline.broker)
        start = self._starts.get(str(path[-1]))
        if start is not None:
            options = with_starting_offsets(options, start)
        reader: Any = self._spark.readStream if source.is_stream else self._spark.read
        reader = reader.format(source.format_name).options(**options)
        if schema is not None:
            if source.dead_letters is not None and _ERROR not in schema:
                schema += f", {_ERROR} string"
            with _failing_at((*path, "schema")):
                reader = reader.schema(schema)
        try:
            if source.is_topic and self._reads_once:
                return _analysed(
                    read_topics(self._spark, options, schema, is_held=True)
                )
            files = source.files
            if files is not None:
                files = resolve(self._pipeline.directory, files)
            return _analysed(reader.load(files))
        except SPARK_ERRORS as error:
            text = error_message(error)
            raise BuildFailed(_locate(source, path, text), text) from error

    def _step(self, step: Step, path: SpecPath) -> DataFrame:
        if step.python is not None:
            return self._call(step.python, step, path)
        word, text = "sql", step.sql or ""
        if step.sql_file is not None:
            word = "sql_file"
            text = self._pipeline.read_sql(step.sql_file)
        try:
            return _analysed(self._spark.sql(text.strip().removesuffix(";")))
        except SPARK_ERRORS as error:
            missing = _missing_table(error)
            is_reported = missing in self._failed
            found = "" if is_reported else self._sql_problem(error, missing)
            raise BuildFailed((*path, word), found) from error

    def _sql_problem(self, error: Exception, missing: str) -> str:
        if not missing:
            return f"{error_message(error)}{_location_in_sql(error)}"
        later = self._pipeline.spec.steps
        if missing in later:
            return f"the step {missing} is defined later; move it up"
        known = ", ".join(self._tables)
        return f"there is no table {missing}; the sources and steps so far are: {known}"

    def _call(self, text: str, step: Step, path: SpecPath) -> DataFrame:
        inputs = step.inputs or []
        path = (*path, "python")
        if self._failed & set(inputs):
            raise BuildFailed(path)
        with _failing_at(path):
            function = load_function(text, self._pipeline.directory)
        try:
            frame = function(*(self._tables[each] for each in inputs), **step.arguments)
            if isinstance(frame, DataFrame):
                return _analysed(frame)
        except Exception as error:  # User code.
            file = self._pipeline.directory / text.rpartition(":")[0]
            is_sparks = isinstance(error, PySparkException)
            kind = "" if is_sparks else f"{type(error).__name__}: "
            found = f"{kind}{error_message(error)}{location_in(error, file.resolve())}"
            raise BuildFailed(path, found) from error
        found = type(frame).__name__
        raise BuildFailed(path, f"must return a DataFrame, and returned a {found}")

    def _add_sink(self, name: str, path: SpecPath, sink: Sink) -> None:
        feed = self._feeds.get(sink.input)
        if feed is not None:
            self._add_sink_of_feed(name, path, sink, feed)
            return
        frame = self._unfiltered.get(sink.input)
        if frame is None:
            self._add(name, path, self._tables[sink.input], sink)
            return
        # The rows that the quarantine takes are in the same query if it is shared.
        kept = kept_rows(self._pipeline.spec.steps[sink.input].expect)
        self._add(name, path, frame, sink, condition=kept)

    def _add_sink_of_feed(
        self, name: str, path: SpecPath, sink: Sink, feed: DataFrame
    ) -> None:
        """Add a sink whose input is a change feed; only some take incomplete rows."""
        as_null = self._pipeline.spec.sources[sink.input].unavailable_as_null
        if sink.table is not None and has_option(sink.format_name, "unavailableColumn"):
            more = {
                "unavailableColumn": UNAVAILABLE,
                "unavailableAsNull": str(as_null).lower(),
            }
            self._add(name, path, feed, sink, options=more)
            return
        columns = [each for each in feed.columns if each != UNAVAILABLE]
        self._add(
            name,
            path,
            feed,
            sink,
            condition="" if as_null else IS_COMPLETE,
            # The rows have one more column than those that are written.
            expressions=_expressions(sink, columns) or [*map(quote, columns)],
        )

    def _add(
        self,
        name: str,
        path: SpecPath,
        frame: DataFrame,
        sink: Sink,
        *,
        condition: str = "",
        expressions: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        function = None
        if sink.python is not None:
            with _failing_at((*path, "python")):
                function = load_function(sink.python, self._pipeline.directory)
        steps = self._checked_steps(name)
        query = Query(
            name=name,
            path=path,
            base=frame,
            frame=frame,
            sink=sink,
            options={
                **self._evolving(name, sink),
                **sink_options(sink, self._pipeline.broker, self._pipeline.directory),
                **(options or {}),
            },
            trigger=self._pipeline.trigger_of(sink),
            function=function,
            expressions=tuple(
                _expressions(sink, frame.columns)
                if expressions is None
                else expressions
            ),
            condition=condition,
            checked_steps=steps,
            observations={
                each: self._observations[each]
                for each in steps
                if not frame.isStreaming and _observes(frame, each)
            },
        )
        if sink.table is not None and sink.table.truncate is not None:
            with _failing_at((*path, "table", "truncate")):
                _analysed(frame.where(f"({sink.table.truncate}\n)"))
        with _failing_at((*path, "table", "delete")):
            query = replace(query, frame=_analysed(query.written(frame)))
        self._queries.append(query)

    def _evolving(self, query: str, sink: Sink) -> dict[str, str]:
        """Return the option with which *sink* takes the new columns of its sources."""
        if not has_option(sink.format_name, MERGE_SCHEMA):
            return {}
        there = self._graph.upstream(f"{NodeKind.SINK.value}.{query}")
        evolves = any(
            source.schema_changes is SchemaChanges.EVOLVE
            for name, source in self._pipeline.spec.sources.items()
            if f"{NodeKind.SOURCE.value}.{name}" in there
        )
        is_set = any(each.lower() == MERGE_SCHEMA.lower() for each in sink.options)
        return {MERGE_SCHEMA: "true"} if evolves and not is_set else {}

    def _checked_steps(self, query: str) -> tuple[str, ...]:
        """Return the steps with expectations whose rows *query* reads."""
        there = self._graph.upstream(f"{NodeKind.SINK.value}.{query}")
        return tuple(
            name
            for name, step in self._pipeline.spec.steps.items()
            if step.expect and f"{NodeKind.STEP.value}.{name}" in there
        )


def columns_of(frame: DataFrame) -> str:
    """Return the columns of *frame* and their types, such as ``a:int, b:string``."""
    return ", ".join(
        f"{each.name}:{each.dataType.simpleString()}" for each in frame.schema
    )


def _expressions(sink: Sink, columns: Sequence[str]) -> tuple[str, ...]:
    """Return what *sink* writes of *columns*, in SQL; empty: the columns themselves."""
    if sink.table is not None:
        conditions = {DELETED: sink.table.delete, TRUNCATED: sink.table.truncate}
        # A condition may be null, which is not true.
        found = tuple(
            f"coalesce({condition}, false) AS {name}"
            for name, condition in conditions.items()
            if condition is not None
        )
        return ("*", *found) if found else ()
    if sink.format_name == "danube":
        return tuple(message_expressions(columns, names_topic=names_topic(sink)) or ())
    return ()


def _observes(frame: DataFrame, step: str) -> bool:
    """Return whether the plan of *frame* counts the broken expectations of *step*."""
    plan: Any = getattr(frame, "_jdf", None)
    # Behind Spark Connect the plan is unknown; counts that do not arrive are empty.
    if plan is None:
        return True
    return f"CollectMetrics {METRICS}{step}," in str(
        plan.queryExecution().analyzed().toString()
    )


def _analysed(frame: DataFrame) -> DataFrame:
    """Return *frame*; Spark Connect analyses it only when its schema is needed."""
    frame.schema  # noqa: B018
    return frame


@contextmanager
def _failing_at(path: SpecPath) -> Iterator[None]:
    try:
        yield
    except (NoSuchFunction, *SPARK_ERRORS) as error:
        raise BuildFailed(path, error_message(error)) from error


def _watermarked(frame: DataFrame, watermark: Watermark, path: SpecPath) -> DataFrame:
    if watermark.column not in frame.columns:
        known = ", ".join(frame.columns)
        found = f"there is no column {watermark.column}; there are: {known}"
        raise BuildFailed((*path, "column"), found)
    with _failing_at(path):
        return _analysed(frame.withWatermark(watermark.column, watermark.delay))


def _locate(source: Source, path: SpecPath, text: str) -> SpecPath:
    """Return the path of the option or field that Spark's message is about."""
    words = [word for word in ("files", "jdbc", "format") if getattr(source, word)]
    return option_path(path, source.options, text) or (*path, *words[:1])


def _decoded(frame: DataFrame) -> DataFrame:
    """Return the decoded messages of *frame*, without the error column."""
    return frame.where(f"{_ERROR} IS NULL").drop(_ERROR)


def _undecodable(frame: DataFrame, *, for_topic: bool) -> DataFrame:
    """
    Return the messages of *frame* that could not be decoded, as they are written.

    In a topic, a dead letter is the message with attributes for its origin and the
    reason, named as those of a subscription's dead letters.  In a table these are
    columns.
    """
    bad = frame.where(f"{_ERROR} IS NOT NULL")
    if not for_topic:
        return bad.drop(_VALUE).withColumnRenamed(_ERROR, "error")
    ours = ", ".join(f"'{name}'" for name in _OURS)
    # If the message is a dead letter itself, the new attributes replace the old ones.
    kept = f"map_filter(coalesce(attributes, map()), (k, v) -> k NOT IN ({ours}))"
    new = (
        f"map('{ORIGINAL_TOPIC}', topic, '{ORIGINAL_OFFSET}', "
        f"CAST(offset AS STRING), '{REASON}', {_ERROR})"
    )
    return bad.selectExpr("payload", "key", f"map_concat({kept}, {new}) AS attributes")


def _missing_table(error: Exception) -> str:
    """Return the table that *error* reports as missing; empty for other errors."""
    if not isinstance(error, PySparkException) or (
        error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND"
    ):
        return ""
    parameters = error.getMessageParameters() or {}
    return str(parameters.get("relationName", "")).strip("`")


def _location_in_sql(error: Exception) -> str:
    found: list[Any] = getattr(error, "getQueryContext", list)() or []
    fragments = [each.fragment() for each in found if each.fragment()]
    return f" (near {fragments[0]!r})" if fragments else ""
