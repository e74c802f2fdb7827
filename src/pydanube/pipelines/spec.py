"""
The contents of a pipeline file.

The classes define the fields of a file: ``parse_spec`` refuses any other and suggests
similar ones.  ``rules`` checks the combinations.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from pydanube.model.errors import InvalidConfig
from pydanube.model.quantities import DURATION_UNITS, parse_quantity
from pydanube.model.retry import RetryPolicy
from pydanube.model.suggestions import did_you_mean
from pydanube.pipelines.problems import Path, Problems, listed

G = TypeVar("G", bound=msgspec.Struct)

Scalar = str | int | float | bool


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


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of the file."""


class ChangeFeed(Enum):
    """The format of the change events of a database."""

    DEBEZIUM = "debezium"


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
    decode: bool = False
    cdc: ChangeFeed | None = None
    """Read change events as rows, whose columns *schema* has unless they decode."""
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


class SparkSection(Section, frozen=True):
    """Where Spark runs, and its settings."""

    master: str | None = None
    remote: str | None = None
    """A Spark Connect server, such as ``sc://host:15002``."""
    settings: dict[str, Scalar] = {}


class Retries(Section, frozen=True):
    """The retries of failed queries."""

    count: int = 3
    """The maximum number of retries in a row; a completed micro-batch resets it."""
    backoff: str = "1s"
    """The delay before the first retry; it doubles with each further one."""
    backoff_max: str = "1m"

    @property
    def policy(self) -> RetryPolicy:
        """The policy for valid settings."""
        return RetryPolicy(
            parse_duration(self.backoff),
            parse_duration(self.backoff_max),
            self.count,
        )


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
    fan_out: bool = False
    """Whether sinks with the same input, mode and trigger share a query."""
    checkpoints: CheckpointSection = CheckpointSection()
    sources: dict[str, Source] = {}
    steps: dict[str, Step] = {}
    sinks: dict[str, Sink] = {}


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
    return _parse_section(dict(tree), Spec, (), problems)


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


def parse_duration(text: str) -> float:
    """
    Return the seconds in a duration such as ``500ms``, ``10s``, ``5m`` or ``1h``.

    Raises:
        InvalidConfig: *text* is no duration, or is 0.
    """
    seconds = parse_quantity(text, DURATION_UNITS)
    if not seconds:
        raise InvalidConfig(f"{text!r} is not a duration such as 10s, 5m or 1h")
    return seconds


def option_text(value: Scalar) -> str:
    """Return *value* as text for an option of Spark."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_section(
    value: object, kind: type[G], path: Path, problems: Problems
) -> G | None:
    """Parse *value* as *kind*; report the problems of all fields."""
    if not isinstance(value, dict):
        problems.add(path, f"must be settings by name, not {_type_name(value)}")
        return None
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in value.keys() - fields.keys():
        hint = did_you_mean(name, fields) or f"; known are {listed(fields)}"
        problems.add((*path, name), f"unknown{hint}")
    found = {}
    for name, field in fields.items():
        given = value.get(name, UNSET)
        if given is UNSET:
            if field.required:
                problems.add(path, f"'{name}' is missing")
            continue
        # An empty section, such as ``steps:`` alone, counts as omitted.
        if given is None and not field.required:
            continue
        part = _parse_field(given, field.type, (*path, name), problems)
        if not isinstance(part, UnsetType):
            found[name] = part
    if any(field.required and name not in found for name, field in fields.items()):
        return None
    return kind(**found)


def _parse_field(value: object, kind: Any, path: Path, problems: Problems) -> Any:
    if get_origin(kind) is dict and _struct_in(get_args(kind)[1]):
        return _parse_named(value, _struct_in(get_args(kind)[1]), path, problems)
    struct = _struct_in(kind)
    if struct is not None:
        built = _parse_section(value, struct, path, problems)
        return UNSET if built is None else built
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problems.add(path, _message(error, value, kind))
        return UNSET


def _parse_named(value: object, kind: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(value, dict):
        problems.add(path, f"must be names with settings, not {_type_name(value)}")
        return UNSET
    built = {
        name: _parse_section(each, kind, (*path, name), problems)
        for name, each in value.items()
    }
    return {name: each for name, each in built.items() if each is not None}


def _struct_in(kind: Any) -> type[Any] | None:
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def _message(error: Exception, value: object, kind: Any) -> str:
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, Enum):
            names = [str(choice.value) for choice in each]
            near = did_you_mean(str(value), names)
            return f"must be {' or '.join(names)}, not {value!r}{near}"
    return str(error).replace("`", "'").replace(" - at '$", " - at '")


def _type_name(value: object) -> str:
    names = {str: "a text", list: "a list", dict: "settings", type(None): "nothing"}
    return names.get(type(value), repr(value))
