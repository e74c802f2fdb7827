"""
The checks of a pipeline file that need neither Spark nor a server.

All problems are reported, not just the first one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pydanube.declarations.functions import check_function
from pydanube.declarations.pure.problems import Path as SpecPath
from pydanube.declarations.pure.problems import Problems, listed, option_path
from pydanube.declarations.pure.sections import Retries, parse_duration
from pydanube.model.errors import BrokerError
from pydanube.model.names import TopicName
from pydanube.model.suggestions import did_you_mean
from pydanube_spark.formats import declared_options
from pydanube_spark.pipelines.graph import DEAD_LETTERS, QUARANTINE
from pydanube_spark.pipelines.options import (
    MERGE_SCHEMA,
    TABLE_OPTIONS,
    sink_options,
    source_options,
)
from pydanube_spark.pipelines.pure import formats
from pydanube_spark.pipelines.pure.modes import mode_problem
from pydanube_spark.pipelines.pure.operation_rules import operation_problems
from pydanube_spark.pipelines.pure.sink_groups import sink_groups
from pydanube_spark.pipelines.pure.spec import (
    Action,
    ChangeFeed,
    Decode,
    Mode,
    SchemaChanges,
    Sink,
    Source,
    Spec,
    Step,
    Truncate,
    parse_trigger,
)
from pydanube_spark.pure.sink_options import SPARK_OPTIONS
from pydanube_spark.reader.pure.option_parsing import option_problems, unknown_options
from pydanube_spark.reader.pure.read_options import OPTIONS as READ_OPTIONS
from pydanube_spark.reader.pure.read_options import Mode as ReadMode
from pydanube_spark.reader.pure.read_options import parse_read_options

_VIEW = r"[A-Za-z_][A-Za-z0-9_]*", "an SQL view: use letters, digits and _"
_EXPECTATION = r"[A-Za-z_][A-Za-z0-9_]*", "an expectation: use letters, digits and _"
_DIRECTORY = r"[A-Za-z0-9_][A-Za-z0-9_-]*", "a directory: use letters, digits, _ and -"
_ONLY_FEEDS = (
    "optional_columns",
    "unavailable_as_null",
    "truncate",
    "schema_changes",
)
_DEFAULTS: tuple[object, ...] = (None, False, [], {}, Truncate.FAIL, SchemaChanges.FAIL)
_ONLY_TOPICS = ("broker", "start", "decode", "cdc", *_ONLY_FEEDS, "dead_letters")


class Rules:
    """The checks of one file."""

    def __init__(
        self, spec: Spec, broker: str, directory: Path, problems: Problems
    ) -> None:
        self._spec = spec
        self._broker = broker
        self._directory = directory
        self._problems = problems

    def check(self) -> None:
        """Run all checks."""
        spec = self._spec
        self._check_name(spec.name, ("name",), _DIRECTORY)
        self._catch(parse_trigger, spec.trigger, ("trigger",))
        self._check_settings()
        for part in ("sources", "sinks"):
            is_open = bool(spec.mirrors) or self._problems.under((part,))
            if not getattr(spec, part) and not is_open:
                self._problems.add((part,), "there must be at least one")
        for name, source in spec.sources.items():
            self._check_name(name, ("sources", name), _VIEW)
            self._check_source(source, ("sources", name))
        known = list(spec.sources)
        for name, step in spec.steps.items():
            self._check_name(name, ("steps", name), _VIEW)
            if name in spec.sources:
                self._problems.add(("steps", name), "a source has this name already")
            self._check_step(step, ("steps", name), known)
            known.append(name)
        for name, sink in spec.sinks.items():
            self._check_name(name, ("sinks", name), _DIRECTORY)
            self._check_input(sink.input, ("sinks", name, "input"), known)
            self._check_sink(sink, ("sinks", name))
            self._check_truncations(sink, ("sinks", name))
            self._check_new_columns(sink, ("sinks", name))
        if spec.fan_out and not sink_groups(spec):
            self._problems.add(
                ("fan_out",),
                "no two sinks share a query: they need the same input, mode and "
                "trigger, and formats that begin with danube or functions",
            )

    def _check_settings(self) -> None:
        spec = self._spec
        if spec.spark.master is not None and spec.spark.remote is not None:
            self._problems.add(
                ("spark", "remote"), "set either spark.master or spark.remote, not both"
            )
        self._check_retries(spec.retries, ("retries",))
        self._check_retries(spec.spark.slow_starts, ("spark", "slow_starts"))
        for path, found in operation_problems(spec):
            self._problems.add(path, found)

    def _check_retries(self, retries: Retries, path: SpecPath) -> None:
        for name in ("backoff", "backoff_max"):
            self._catch(parse_duration, getattr(retries, name), (*path, name))
        if (retries.count or 0) < 0:
            self._problems.add((*path, "count"), "must be 0 or more")

    def _check_source(self, source: Source, path: SpecPath) -> None:
        if self._problems.under(path):
            return
        kinds = source.topic_fields + [
            word for word in ("files", "jdbc") if getattr(source, word) is not None
        ]
        if len(kinds) > 1:
            self._problems.add(path, f"has {listed(kinds)}; keep only one of them")
        elif not kinds and source.format is None:
            names = "topic, topics, pattern, files, jdbc or format"
            self._problems.add(path, f"has nothing to read; set {names}")
        elif source.is_topic:
            self._check_topics(source, path)
        else:
            self._check_table_or_files(source, path)
        if source.watermark is not None and not source.is_stream:
            self._problems.add((*path, "watermark"), "only streams have a watermark")

    def _check_topics(self, source: Source, path: SpecPath) -> None:
        for name in (source.topic, *(source.topics or ())):
            if name is not None:
                word = "topic" if source.topic is not None else "topics"
                self._catch(TopicName.parse, name, (*path, word))
        self._refuse_fields(source, ("table", "query"), "only valid with 'jdbc'", path)
        if source.format not in (None, "danube"):
            self._problems.add((*path, "format"), "the format of topics is danube")
        if source.dead_letters is not None:
            self._check_dead_letters(source, (*path, DEAD_LETTERS))
        if source.cdc is not None:
            self._check_change_feed(source, path)
        else:
            reason = "only valid with 'cdc'"
            self._refuse_fields(source, _ONLY_FEEDS, reason, path)
        self._check_topic_options(source, path)

    def _check_topic_options(self, source: Source, path: SpecPath) -> None:
        unknown = unknown_options(source.options, READ_OPTIONS)
        for option, found in unknown.items():
            self._problems.add((*path, "options", option), found)
        known = {k: v for k, v in source.options.items() if k not in unknown}
        source = msgspec.structs.replace(source, options=known)
        try:
            options = source_options(source, self._broker)
        except BrokerError as error:
            self._problems.add((*path, "start"), str(error))
            source = msgspec.structs.replace(source, start=None)
            options = source_options(source, self._broker)
        mode = ReadMode.STREAM if source.is_stream else ReadMode.BATCH
        parse = partial(parse_read_options, mode=mode)
        fields = {"subscribePattern": "pattern", "startingOffsets": "start"}
        for message in option_problems(parse, options):
            field = fields.get(message.partition(":")[0])
            place = path if field is None else (*path, field)
            found_path = option_path(path, source.options, message)
            self._problems.add(found_path or place, message)

    def _check_change_feed(self, source: Source, path: SpecPath) -> None:
        if source.truncate is Truncate.APPLY and source.topic is None:
            found = (
                "apply needs 'topic', one topic: the changes of several have no order"
            )
            self._problems.add((*path, "truncate"), found)
        if source.decode is Decode.JSON:
            found = "change events are columns; use decode: true"
            self._problems.add((*path, "decode"), found)
        elif source.cdc is ChangeFeed.DEBEZIUM_MONGODB:
            if source.schema is None:
                found = (
                    "set schema to the fields of a document that are columns, such as "
                    "'_id STRING, name STRING'"
                )
                self._problems.add((*path, "schema"), found)
            if source.decode and source.schema_changes is SchemaChanges.EVOLVE:
                found = "not with decode: events of MongoDB evolve only in JSON"
                self._problems.add((*path, "schema_changes"), found)
            return
        elif bool(source.decode) == (source.schema is not None):
            self._problems.add(
                (*path, "cdc"),
                "set either schema to the columns of a row, such as 'id BIGINT, name "
                "STRING', or decode: true if the topic has a schema",
            )
        if source.decode:
            reason = "only valid with 'schema': a topic's schema has all columns"
            self._refuse_fields(source, ("optional_columns",), reason, path)

    def _check_dead_letters(self, source: Source, path: SpecPath) -> None:
        sink = source.dead_letters
        assert sink is not None
        if not source.decode and source.cdc is None:
            self._problems.add(path, "dead letters need 'decode: true' or 'cdc'")
        if not source.is_stream:
            self._problems.add(path, "dead letters need a stream")
        self._check_inner_sink(sink, path, "source")

    def _check_inner_sink(self, sink: Sink, path: SpecPath, part: str) -> None:
        """Check *sink*, which is a field of its input, a source or step."""
        if sink.input:
            self._problems.add((*path, "input"), f"omit it: the input is the {part}")
        if sink.mode is not Mode.APPEND:
            self._problems.add((*path, "mode"), "must be append")
        self._check_sink(sink, path)

    def _check_table_or_files(self, source: Source, path: SpecPath) -> None:
        self._refuse_fields(source, _ONLY_TOPICS, "only valid for topics", path)
        words = ("table", "query")
        if source.jdbc is None:
            self._refuse_fields(source, words, "only valid with 'jdbc'", path)
        elif len([word for word in words if getattr(source, word)]) != 1:
            self._problems.add(path, "'jdbc' needs either a table or a query")
        if source.jdbc is not None and source.is_stream:
            self._problems.add(
                (*path, "read"), "a database can only be read as a table"
            )
        if source.files is not None:
            self._check_files(source, path)

    def _check_files(self, source: Source, path: SpecPath) -> None:
        if source.format is None:
            known = listed(sorted(formats.FILE_FORMATS | formats.SCHEMALESS))
            self._problems.add(path, f"set the format of the files: {known}")
        elif (
            source.is_stream
            and source.schema is None
            and source.format.lower() not in formats.SCHEMALESS
        ):
            self._problems.add(
                path,
                "a stream of files needs a schema, such as schema: 'id bigint, name "
                "string'; with 'read: table' Spark infers it",
            )

    def _check_step(self, step: Step, path: SpecPath, known: list[str]) -> None:
        if self._problems.under(path):
            return
        self._check_expectations(step, path)
        ways = [word for word in ("sql", "sql_file", "python") if getattr(step, word)]
        if len(ways) != 1:
            found = f"has {listed(ways)}; " if ways else ""
            self._problems.add(path, f"{found}set one of sql, sql_file and python")
            return
        if step.sql_file is not None:
            file = self._directory / step.sql_file
            if not file.is_file():
                self._problems.add((*path, "sql_file"), f"there is no file {file}")
        if step.python is None:
            reason = "only valid for a python step"
            self._refuse_fields(step, ("inputs", "arguments"), reason, path)
            return
        self._check_function(step.python, (*path, "python"))
        if not step.inputs:
            self._problems.add(
                (*path, "inputs"),
                "is missing: the sources and steps that the function is called with, "
                "such as [orders]",
            )
        for at, each in enumerate(step.inputs or ()):
            self._check_input(each, (*path, "inputs", at), known)

    def _check_expectations(self, step: Step, path: SpecPath) -> None:
        for name, each in step.expect.items():
            place: SpecPath = (*path, "expect", name)
            self._check_name(name, place, _EXPECTATION)
            if not each.condition.strip():
                found = "must be an SQL condition, such as amount > 0"
                self._problems.add((*place, "condition"), found)
        actions = {each.action for each in step.expect.values()}
        if step.quarantine is not None:
            self._check_inner_sink(step.quarantine, (*path, QUARANTINE), "step")
            if Action.QUARANTINE not in actions:
                found = "no expectation of the step has the action quarantine"
                self._problems.add((*path, QUARANTINE), found)
        elif Action.QUARANTINE in actions:
            self._problems.add(
                path,
                "quarantine is missing: the sink for the rows of expectations with "
                "this action, such as quarantine: {topic: /default/orders-quarantine}",
            )

    def _check_input(self, name: str, path: SpecPath, known: list[str]) -> None:
        if name in known or self._problems.under(("sources", name)):
            return
        if not name:
            what = f"is missing: one of {listed(known)}"
        elif name in self._spec.steps:
            what = f"the step {name} is defined later; move it up"
        else:
            what = f"there is no source or step {name}{did_you_mean(name, known)}"
        self._problems.add(path, what)

    def _check_function(self, text: str, path: SpecPath) -> None:
        self._catch(partial(check_function, directory=self._directory), text, path)

    def _check_sink(self, sink: Sink, path: SpecPath) -> None:
        if self._problems.under(path):
            return
        if sink.trigger is not None:
            self._catch(parse_trigger, sink.trigger, (*path, "trigger"))
        if sink.python is not None:
            if sink.format_name:
                self._problems.add(path, "set either python or a format, not both")
            self._check_function(sink.python, (*path, "python"))
            self._refuse_fields(sink, ("table",), "only valid with a format", path)
            return
        name = sink.format_name
        if not name:
            self._problems.add(path, "has no target; set topic, format or python")
            return
        if name != "danube":
            reason = "only valid for the format danube"
            self._refuse_fields(sink, ("topic", "broker"), reason, path)
        elif sink.topic is not None:
            self._catch(TopicName.parse, sink.topic, (*path, "topic"))
        if name in formats.BATCH_ONLY | formats.OURS:
            reason = (
                "only valid for Spark's file formats; other formats may have an option"
            )
            self._refuse_fields(sink, ("partition_by",), reason, path)
        if sink.table is not None:
            self._check_table(sink, name, path)
        self._check_options(sink, name, path)
        self._check_values(sink, name, path)
        self._check_mode(sink, name, (*path, "mode"))

    def _check_table(self, sink: Sink, name: str, path: SpecPath) -> None:
        table = sink.table
        assert table is not None
        own = {option.lower() for option in sink.options}
        for field, option in TABLE_OPTIONS.items():
            if option.lower() in own:
                found = f"has the same meaning as table.{field}; keep only one of them"
                self._problems.add((*path, "options", option), found)
            if getattr(table, field) and not formats.has_option(name, option):
                known = (
                    each
                    for each in sorted(formats.OURS)
                    if formats.has_option(each, option)
                )
                found = f"only valid for {listed(known)}"
                self._problems.add((*path, "table", field), found)
        if not table.key:
            found = "must have the columns that identify a row"
            self._problems.add((*path, "table", "key"), found)

    def _check_truncations(self, sink: Sink, path: SpecPath) -> None:
        """Check that the table of *sink* follows the truncations of its change feed."""
        source, table = self._spec.sources.get(sink.input), sink.table
        if source is None or table is None or source.truncate is not Truncate.APPLY:
            return
        if table.truncate is None:
            found = (
                f"{sink.input} has rows for truncations, which have no key: set "
                "truncate: \"_op = 't'\" here, or truncate: ignore for the source"
            )
            self._problems.add((*path, "table"), found)
        elif "_offset" not in _listed(table.order):
            found = (
                "must have _offset, as in [_ts, _offset]: it tells the rows of the "
                "millisecond of a truncation that come after it"
            )
            self._problems.add((*path, "table", "order"), found)

    def _check_new_columns(self, sink: Sink, path: SpecPath) -> None:
        """Check that the table of *sink* can get the new columns of its feed."""
        source, name = self._spec.sources.get(sink.input), sink.format_name
        if source is None or source.schema_changes is not SchemaChanges.EVOLVE:
            return
        # Topics and files have the columns of each row.
        if name == "danube" or name not in formats.OURS:
            return
        if not formats.has_option(name, MERGE_SCHEMA):
            known = [
                each
                for each in sorted(formats.OURS)
                if formats.has_option(each, MERGE_SCHEMA)
            ]
            found = (
                f"{name} cannot add columns to its table, and {sink.input} has "
                "schema_changes: evolve. Choose the columns in a step, write to "
                f"{listed(known)}, or set schema_changes: fail"
            )
            self._problems.add((*path, "input"), found)

    def _check_options(self, sink: Sink, name: str, path: SpecPath) -> None:
        # The fields of the table are checked on their own.
        own = msgspec.structs.replace(sink, table=None)
        given = sink_options(own, self._broker, self._directory)
        unknown: dict[str, str] = {}
        if name in formats.OURS:
            declared = declared_options(name)
            unknown = unknown_options(given, declared, ignored=SPARK_OPTIONS)
        for option, found in unknown.items():
            place = (*path, "options", option) if option in sink.options else path
            self._problems.add(place, found)
        present = {key.lower() for key, value in given.items() if value.strip()}
        for option in formats.required_options(name):
            # A name that resembles it is reported above.
            if option.lower() not in present and not did_you_mean(option, unknown):
                where = "path" if option == "path" else f"options.{option}"
                near = did_you_mean(option, given)
                self._problems.add(path, f"{where} is missing for {name}{near}")

    def _check_values(self, sink: Sink, name: str, path: SpecPath) -> None:
        """Check the values of options that need no connection and no columns."""
        parse = formats.PARSERS.get(name)
        if parse is None:
            return
        options = sink_options(sink, self._broker, self._directory)
        unknown = unknown_options(
            options, declared_options(name), ignored=SPARK_OPTIONS
        )
        given = {key: each for key, each in options.items() if key not in unknown}
        present = {key.lower() for key, each in given.items() if each.strip()}
        if any(each.lower() not in present for each in formats.required_options(name)):
            return  # This problem is reported already.
        for message in option_problems(parse, given):
            found = option_path(path, sink.options, message)
            self._problems.add(found or path, message)

    def _check_mode(self, sink: Sink, name: str, path: SpecPath) -> None:
        options = sink_options(sink, self._broker, self._directory)
        found = mode_problem(name, sink.mode, options)
        if found is not None:
            self._problems.add(path, found)

    def _check_name(self, name: str, path: SpecPath, rule: tuple[str, str]) -> None:
        pattern, what = rule
        if not re.fullmatch(pattern, name):
            self._problems.add(path, f"is the name of {what}")

    def _refuse_fields(
        self, part: object, names: Iterable[str], reason: str, path: SpecPath
    ) -> None:
        """Report those of the fields *names* that *part* has."""
        for name in names:
            if getattr(part, name) not in _DEFAULTS:
                self._problems.add((*path, name), reason)

    def _catch(
        self, parse: Callable[[Any], object], value: Any, path: SpecPath
    ) -> None:
        try:
            parse(value)
        except (BrokerError, ValueError) as error:
            self._problems.add(path, str(error))


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names
