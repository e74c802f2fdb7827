"""
The DataFrames and queries of a pipeline.

``Builder`` builds sources and steps in the order of the file.  An error of Spark
becomes a problem at its path; everything that depends on it is skipped, so that each
mistake is reported once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import BrokerError
from pydanube.pipelines import dead_letters
from pydanube.pipelines.functions import (
    NoSuchFunction,
    load_function,
    parse_function,
)
from pydanube.pipelines.options import (
    format_of,
    read_of,
    resolve,
    sink_options,
    source_options,
)
from pydanube.pipelines.rules import DEAD_LETTERS
from pydanube.pipelines.spark_errors import (
    SPARK_ERRORS,
    condition_of,
    error_message,
    location_in,
    parameters_of,
)
from pydanube.pipelines.spec import Read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pydanube.pipelines.loading import Pipeline
    from pydanube.pipelines.problems import Path as SpecPath
    from pydanube.pipelines.problems import Problems
    from pydanube.pipelines.spec import Sink, Source, Step, Trigger, Watermark


@dataclass(frozen=True, slots=True)
class Query:
    """The query of one sink."""

    name: str
    """The name of the sink; that of dead letters has a dot."""
    path: SpecPath
    frame: DataFrame
    sink: Sink
    options: Mapping[str, str]
    trigger: Trigger
    function: Callable[..., Any] | None = None

    @property
    def is_stream(self) -> bool:
        return bool(self.frame.isStreaming)

    @property
    def writes_to(self) -> str:
        """The format or function, for people."""
        return self.sink.python or self.sink.format_name


@dataclass(slots=True)
class Plan:
    """All DataFrames of a pipeline."""

    tables: dict[str, DataFrame] = field(default_factory=dict)
    """Sources and steps, by name."""
    dead_letters: dict[str, DataFrame] = field(default_factory=dict)
    """The dead letters of each source, by its name."""
    queries: list[Query] = field(default_factory=list)


class Builder:
    """Builds the plan of one pipeline in one session."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        problems: Problems,
        starts: Mapping[str, str] | None = None,
    ) -> None:
        """*starts* has the starting offsets of sources that start at ``latest``."""
        self._spark = spark
        self._pipeline = pipeline
        self._problems = problems
        self._starts = starts or {}
        self._failed: set[str] = set()
        self._plan = Plan()

    def build(self, unusable: set[str] | None = None) -> Plan:
        """Build everything but the sources *unusable* and what depends on them."""
        self._failed = set(unusable or ())
        spec = self._pipeline.spec
        for name, source in spec.sources.items():
            if name not in self._failed:
                self._catch(
                    name, ("sources", name), partial(self._source, name, source)
                )
        for name, step in spec.steps.items():
            self._catch(name, ("steps", name), partial(self._step, name, step))
        for name, sink in spec.sinks.items():
            if sink.input not in self._failed:
                frame = self._plan.tables[sink.input]
                self._add(name, ("sinks", name), frame, sink)
        # Dead letters start first, so that they have what the other queries skip.
        self._plan.queries.sort(key=lambda query: "." not in query.name)
        return self._plan

    def _catch(
        self, name: str, path: SpecPath, build: Callable[[], DataFrame | None]
    ) -> None:
        try:
            frame = build()
        except NoSuchFunction as error:
            self._problems.add((*path, "python"), str(error))
            frame = None
        except BrokerError as error:
            self._problems.add(path, str(error))
            frame = None
        if frame is None:
            self._failed.add(name)
            return
        self._plan.tables[name] = frame
        frame.createOrReplaceTempView(name)

    def _source(self, name: str, source: Source) -> DataFrame | None:
        path: SpecPath = ("sources", name)
        frame = self._load(name, source, source.schema)
        if frame is None:
            return None
        if source.dead_letters is not None:
            # Dead letters have all columns, whatever the schema selects.
            whole = frame if source.schema is None else self._load(name, source, None)
            frame = dead_letters.decoded(frame)
            sink, at = source.dead_letters, (*path, DEAD_LETTERS)
            if whole is not None:
                is_topic = sink.format_name == "danube"
                found = dead_letters.undecodable(whole, for_topic=is_topic)
                self._plan.dead_letters[name] = found
                self._add(f"{name}.{DEAD_LETTERS}", at, found, sink)
        return self._watermarked(frame, source.watermark, path)

    def _load(self, name: str, source: Source, schema: str | None) -> DataFrame | None:
        path: SpecPath = ("sources", name)
        options = source_options(source, self._pipeline.broker)
        if name in self._starts:
            options["startingOffsets"] = self._starts[name]
        is_stream = read_of(source) is Read.STREAM
        reader: Any = self._spark.readStream if is_stream else self._spark.read
        reader = reader.format(format_of(source)).options(**options)
        if schema is not None:
            if source.dead_letters is not None and dead_letters.ERROR not in schema:
                schema += f", {dead_letters.ERROR} string"
            try:
                reader = reader.schema(schema)
            except SPARK_ERRORS as error:
                self._problems.add((*path, "schema"), error_message(error))
                return None
        try:
            if source.files is not None:
                files = resolve(self._pipeline.directory, source.files)
                frame = reader.load(files)
            else:
                frame = reader.load()
            # Spark Connect analyses the query only now.
            frame.schema  # noqa: B018
        except SPARK_ERRORS as error:
            self._problems.add(
                self._locate(source, path, error_message(error)), error_message(error)
            )
            return None
        return frame

    def _locate(self, source: Source, path: SpecPath, text: str) -> SpecPath:
        """Return the path of the option or field that Spark's message is about."""
        for option in source.options:
            if option.lower() in text.lower():
                return (*path, "options", option)
        word = next(
            (each for each in ("files", "jdbc", "format") if getattr(source, each)),
            None,
        )
        return path if word is None else (*path, word)

    def _step(self, name: str, step: Step) -> DataFrame | None:
        path: SpecPath = ("steps", name)
        if step.python is not None:
            frame = self._call(step, path)
        else:
            frame = self._sql(step, path)
        return None if frame is None else self._watermarked(frame, step.watermark, path)

    def _sql(self, step: Step, path: SpecPath) -> DataFrame | None:
        word, text = "sql", step.sql or ""
        if step.sql_file is not None:
            word = "sql_file"
            text = (self._pipeline.directory / step.sql_file).read_text("utf-8")
        try:
            frame = self._spark.sql(text.strip().removesuffix(";"))
            frame.schema  # noqa: B018
        except SPARK_ERRORS as error:
            missing = _missing_table(error)
            # If the table failed to build, its problem is already reported.
            if missing not in self._failed:
                self._problems.add((*path, word), self._sql_problem(error, missing))
            return None
        return frame

    def _sql_problem(self, error: Exception, missing: str) -> str:
        if not missing:
            return f"{error_message(error)}{_location_in_sql(error)}"
        later = self._pipeline.spec.steps
        if missing in later:
            return f"the step {missing} is defined later; move it up"
        known = ", ".join(self._plan.tables)
        return f"there is no table {missing}; the sources and steps so far are: {known}"

    def _call(self, step: Step, path: SpecPath) -> DataFrame | None:
        from pyspark.sql import DataFrame  # noqa: PLC0415  # It takes a while.

        inputs = step.inputs or []
        if self._failed & set(inputs):
            return None
        assert step.python is not None
        name = parse_function(step.python)
        function = load_function(name, self._pipeline.directory)
        try:
            frame = function(
                *(self._plan.tables[each] for each in inputs), **step.arguments
            )
            if isinstance(frame, DataFrame):
                frame.schema  # noqa: B018
        except Exception as error:  # noqa: BLE001  # User code.
            where = _where(error, self._pipeline.directory / name.path)
            kind = "" if condition_of(error) else f"{type(error).__name__}: "
            self._problems.add(
                (*path, "python"), f"{kind}{error_message(error)}{where}"
            )
            return None
        if not isinstance(frame, DataFrame):
            found = type(frame).__name__
            self._problems.add(
                (*path, "python"), f"must return a DataFrame, and returned a {found}"
            )
            return None
        return frame

    def _watermarked(
        self, frame: DataFrame, watermark: Watermark | None, path: SpecPath
    ) -> DataFrame | None:
        if watermark is None:
            return frame
        path = (*path, "watermark")
        if watermark.column not in frame.columns:
            known = ", ".join(frame.columns)
            found = f"there is no column {watermark.column}; there are: {known}"
            self._problems.add((*path, "column"), found)
            return None
        try:
            frame = frame.withWatermark(watermark.column, watermark.delay)
            frame.schema  # noqa: B018
        except SPARK_ERRORS as error:
            self._problems.add(path, error_message(error))
            return None
        return frame

    def _add(self, name: str, path: SpecPath, frame: DataFrame, sink: Sink) -> None:
        function = None
        if sink.python is not None:
            try:
                function = load_function(
                    parse_function(sink.python), self._pipeline.directory
                )
            except NoSuchFunction as error:
                self._problems.add((*path, "python"), str(error))
                return
        self._plan.queries.append(
            Query(
                name=name,
                path=path,
                frame=frame,
                sink=sink,
                options=sink_options(
                    sink, self._pipeline.broker, self._pipeline.directory
                ),
                trigger=self._pipeline.trigger_of(sink),
                function=function,
            )
        )


def _missing_table(error: Exception) -> str:
    """Return the table that *error* reports as missing; empty for other errors."""
    if condition_of(error) != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    return parameters_of(error).get("relationName", "").strip("`")


def _location_in_sql(error: Exception) -> str:
    found: list[Any] = getattr(error, "getQueryContext", list)() or []
    fragments = [each.fragment() for each in found if each.fragment()]
    return f" (near {fragments[0]!r})" if fragments else ""


def _where(error: Exception, file: Path) -> str:
    location = location_in(error, file.resolve())
    return f" ({location})" if location else ""
