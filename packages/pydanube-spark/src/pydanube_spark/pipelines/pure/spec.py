"""
The contents of a pipeline file.

The classes define the fields of a file: ``parse_spec`` refuses any other and suggests
similar ones.  ``rules`` checks the combinations.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from pydanube.declarations.pure.problems import Problems
from pydanube.declarations.pure.sections import (
    Retries,
    Scalar,
    Section,
    parse_duration,
    parse_section,
)
from pydanube.model.errors import InvalidConfig


class Read(Enum):
    """How a source is read."""

    STREAM = "stream"
    """Existing data, and then new data as it arrives."""
    TABLE = "table"
    """The data at the start of each micro-batch or run."""


class Mode(Enum):
    """The write mode of a sink."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"
    OVERWRITE = "overwrite"


class ChangeFeed(Enum):
    """The format of the change events of a database."""

    DEBEZIUM = "debezium"
    """Debezium's events of relational databases."""
    DEBEZIUM_MONGODB = "debezium-mongodb"
    """Debezium's events of MongoDB, whose documents are texts."""


class Truncate(Enum):
    """The treatment of a change event that empties the table of the database."""

    FAIL = "fail"
    """The query fails."""
    IGNORE = "ignore"
    """The rows stay."""
    APPLY = "apply"
    """It is a row with the operation ``t``, which empties tables with ``truncate``."""


class SchemaChanges(Enum):
    """The treatment of change events with columns that the query does not have."""

    FAIL = "fail"
    """The query fails."""
    EVOLVE = "evolve"
    """The query goes on with the new columns, and so do the tables that it writes."""


class Action(Enum):
    """The treatment of a row that breaks an expectation."""

    DROP = "drop"
    """It is removed."""
    QUARANTINE = "quarantine"
    """It is removed, and written to the quarantine of the step."""
    FAIL = "fail"
    """The pipeline stops, and the micro-batch with the row is not written."""


class Expectation(Section, frozen=True):
    """A condition for the rows of a step."""

    condition: str
    """In SQL; a row breaks the expectation if it is false or null."""
    action: Action


class Decode(Enum):
    """The forms of decoded messages other than columns."""

    JSON = "json"
    """Text, for topics of several subjects."""


class Watermark(Section, frozen=True):
    """How late rows may arrive."""

    column: str
    delay: str
    """In Spark's syntax, such as ``10 minutes``."""


class TableKey(Section, frozen=True):
    """How the rows of a table are identified, to replace and to delete them."""

    key: str | list[str]
    """The columns that identify a row."""
    order: str | list[str] = []
    """The columns whose greatest values are those of the latest row."""
    delete: str | None = None
    """An SQL condition: if it is true, the row with the same key is deleted."""
    truncate: str | None = None
    """An SQL condition: if it is true, all earlier rows of the table are deleted."""


class Sink(Section, frozen=True):
    """A sink of a pipeline."""

    input: str = ""
    """The source or step whose rows it writes."""
    topic: str | None = None
    """A topic; short for the format danube with this option."""
    broker: str | None = None
    format: str | None = None
    path: str | None = None
    """The option path; relative to the directory of the file."""
    python: str | None = None
    """A function that is called with each micro-batch and its number."""
    mode: Mode = Mode.APPEND
    trigger: str | dict[str, Scalar] | None = None
    partition_by: list[str] = []
    table: TableKey | None = None
    options: dict[str, Scalar] = {}

    @property
    def format_name(self) -> str:
        """Return the name of Spark's format; empty for a function."""
        return self.format or ("danube" if self.topic is not None else "")


class Source(Section, frozen=True):
    """A source of a pipeline."""

    topic: str | None = None
    topics: list[str] | None = None
    pattern: str | None = None
    broker: str | None = None
    start: str | int | dict[str, Any] | None = None
    """
    Where the first run begins: ``earliest``, ``latest``, a time, how long ago, an
    offset, or offsets by topic.
    """
    decode: bool | Decode = False
    """Add the column value: as the topic's schema says, or as JSON text."""
    cdc: ChangeFeed | None = None
    """
    Read change events as rows, whose columns *schema* has unless they decode.

    The documents of MongoDB are texts in decoded events, too, and need *schema*.
    """
    optional_columns: list[str] = []
    """
    Columns of change events that rows may lack, which are null then, or that *schema*
    may lack, which are dropped then.
    """
    unavailable_as_null: bool = False
    """Whether values that a change event lacks, and no table keeps, are null."""
    truncate: Truncate = Truncate.FAIL
    schema_changes: SchemaChanges = SchemaChanges.FAIL
    dead_letters: Sink | None = None
    files: str | None = None
    """Files or directories; relative to the directory of the file."""
    jdbc: str | None = None
    table: str | None = None
    query: str | None = None
    format: str | None = None
    schema: str | None = None
    read: Read | None = None
    watermark: Watermark | None = None
    options: dict[str, Scalar] = {}

    @property
    def is_topic(self) -> bool:
        """Return whether it reads topics, by a topic field or by its format."""
        return bool(self.topic_fields) or self.format == "danube"

    @property
    def is_stream(self) -> bool:
        """Return whether it is read as a stream, by default if topics or files are."""
        if self.read is not None:
            return self.read is Read.STREAM
        return self.is_topic or self.files is not None

    @property
    def format_name(self) -> str:
        """Return the name of Spark's format."""
        if self.is_topic:
            return "danube"
        return "jdbc" if self.jdbc is not None else self.format or ""

    @property
    def topic_fields(self) -> list[str]:
        """Return the fields naming topics that it uses."""
        names = ("topic", "topics", "pattern")
        return [name for name in names if getattr(self, name) is not None]


class MirroredTable(Section, frozen=True):
    """A table of a database that a mirror follows."""

    key: str | list[str]
    """The columns of its primary key."""
    schema: str | None = None
    """The columns of a row; without them the topic's schema has them."""
    optional_columns: list[str] = []
    """As of a source."""


class Mirror(Section, frozen=True):
    """The tables of a database, each with a topic of its changes, as tables here."""

    topic: str
    """The topic of a table, whose name replaces ``{table}``."""
    tables: dict[str, MirroredTable]
    """By name, or by patterns such as ``public.*`` for the tables that have topics."""
    format: str
    """The format of the sinks."""
    path: str | None = None
    """The option path, with ``{table}``."""
    exclude: list[str] = []
    """Tables that no pattern stands for."""
    tables_max: int = 100
    """How many tables the patterns may stand for."""
    cdc: ChangeFeed = ChangeFeed.DEBEZIUM
    options: dict[str, Scalar] = {}
    """Further options of the sinks, in which ``{table}`` is replaced, too."""
    trigger: str | dict[str, Scalar] | None = None
    broker: str | None = None
    start: str | int | dict[str, Any] | None = None
    unavailable_as_null: bool = False
    truncate: Truncate = Truncate.FAIL
    schema_changes: SchemaChanges = SchemaChanges.FAIL
    dead_letters: Sink | None = None


class Step(Section, frozen=True):
    """A step of a pipeline: a query or function over sources and earlier steps."""

    sql: str | None = None
    sql_file: str | None = None
    python: str | None = None
    """``functions.py:enrich`` next to the file, or ``package.module:enrich``."""
    inputs: list[str] | None = None
    """The sources and steps that a function is called with, in order."""
    arguments: dict[str, Any] = {}
    """Further keyword arguments of the function."""
    watermark: Watermark | None = None
    expect: dict[str, Expectation] = {}
    """The conditions for its rows by name."""
    quarantine: Sink | None = None
    """Where rows go that break an expectation with the action ``quarantine``."""


class SparkSection(Section, frozen=True):
    """Where Spark runs, and its settings."""

    master: str | None = None
    remote: str | None = None
    """A Spark Connect server, such as ``sc://host:15002``."""
    settings: dict[str, Scalar] = {}
    slow_starts: Retries = Retries(count=15, backoff="5s", backoff_max="2m")
    """
    The retries of queries whose Python processes started too slowly.

    Spark waits for ten seconds.  A machine that is too busy for that may be so for
    minutes, and retries that follow soon make it busier.
    """


class MetricsSection(Section, frozen=True):
    """The metrics of a run for Prometheus."""

    listen: str
    """``HOST:PORT``."""


class Lineage(Section, frozen=True):
    """Where the events of OpenLineage go."""

    url: str | None = None
    """The server, such as ``http://marquez:5000``."""
    file: str | None = None
    """A file, to which they are appended; relative to the directory of the file."""
    namespace: str = "danube"
    """The namespace of the job."""
    api_key: str | None = None


class CheckpointSection(Section, frozen=True):
    """Where checkpoints are stored."""

    path: str | None = None
    """The state directory; relative to the directory of the file."""


class Spec(Section, frozen=True):
    """A pipeline file."""

    name: str
    description: str = ""
    broker: str | None = None
    parameters: dict[str, Any] = {}
    spark: SparkSection = SparkSection()
    trigger: str | dict[str, Scalar] = "available-now"
    retries: Retries = Retries()
    metrics: MetricsSection | None = None
    lineage: Lineage | None = None
    report_progress: bool = True
    """Whether the broker shows the lag, as that of a subscription."""
    fan_out: bool = False
    """Whether sinks with the same input, mode and trigger share a query."""
    checkpoints: CheckpointSection = CheckpointSection()
    sources: dict[str, Source] = {}
    steps: dict[str, Step] = {}
    sinks: dict[str, Sink] = {}
    mirrors: dict[str, Mirror] = {}


class TriggerKind(Enum):
    """When a query runs its next micro-batch."""

    AVAILABLE_NOW = "available-now"
    EVERY = "every"
    CONTINUOUS = "continuous"


class Trigger(msgspec.Struct, frozen=True):
    """When a query runs its next micro-batch."""

    kind: TriggerKind
    every_s: float = 0.0

    @property
    def ends(self) -> bool:
        """Return whether a query with this trigger ends by itself."""
        return self.kind is TriggerKind.AVAILABLE_NOW


def parse_spec(tree: Mapping[str, Any], problems: Problems) -> Spec | None:
    """Parse *tree*; return None if a required field is missing or invalid."""
    return parse_section(dict(tree), Spec, (), problems)


def parse_trigger(value: object) -> Trigger:
    """
    Parse a trigger of a file or an option.

    Raises:
        InvalidConfig: *value* is not a trigger.
    """
    if isinstance(value, dict) and set(value) == {"every"}:
        return Trigger(TriggerKind.EVERY, parse_duration(str(value["every"])))
    for kind in (TriggerKind.AVAILABLE_NOW, TriggerKind.CONTINUOUS):
        if value == kind.value:
            return Trigger(kind)
    raise InvalidConfig(
        f"a trigger is available-now, continuous, or {{every: 10s}}, not {value!r}"
    )
