"""
Connectors whose kind is a Spark format, as pipelines.

Such a pipeline reads the topic of the connector, and writes to one sink, if the
connector has ``sql`` after a step.
"""

from __future__ import annotations

from typing import Any

from pydanube.declarations.pure.problems import Path, Problems
from pydanube_connect.loading import DeclaredConnector
from pydanube_connect.sinks.spark import SparkOptions, SparkSink
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.pure.spec import TriggerKind, parse_spec, parse_trigger
from pydanube_spark.pipelines.rules import Rules

MESSAGES = "messages"
"""The source, which is the table that ``sql`` reads."""
ROWS = "rows"
"""The step with the query of ``sql``."""
TABLE = "table"
"""The sink."""

_PLACES: dict[Path, Path] = {
    (): (),
    ("name",): (),
    ("spark",): ("options",),
    ("trigger",): ("options", "trigger"),
    ("sources", MESSAGES): (),
    ("sources", MESSAGES, "decode"): ("options", "decode"),
    ("steps", ROWS): ("options",),
    ("sinks", TABLE): ("options", "sink"),
    ("sinks", TABLE, "options"): ("options", "sink"),
}
"""The part of a connector that a part of its pipeline comes from."""


def pipeline_of(connector: DeclaredConnector) -> Pipeline:
    """
    Return the pipeline of *connector*, whose kind is a Spark format.

    Its state is in the directory ``.danube/pipelines/NAME`` beside the file.

    Raises:
        InvalidDeclaration: It cannot be run; the problems are at their places in the
            file of the connector.
    """
    problems = Problems(
        connector.document.line_of,
        lambda path: ("connectors", connector.name, *_place_of(path)),
    )
    spec = parse_spec(tree_of(connector), problems)
    if spec is not None:
        directory = connector.file.parent
        Rules(spec, connector.broker, directory, problems).check()
    problems.refuse(connector.file, connector.redact)
    assert spec is not None
    return Pipeline(
        connector.file,
        spec,
        connector.broker,
        connector.redact,
        connector.document,
        parse_trigger(spec.trigger),
    )


def tree_of(connector: DeclaredConnector) -> dict[str, Any]:
    """Return the content of a pipeline file that does what *connector* does."""
    spec = connector.spec
    assert issubclass(connector.kind, SparkSink)
    options = connector.options
    assert isinstance(options, SparkOptions)
    source: dict[str, Any] = {"topic": spec.topic, "start": spec.start.value}
    if options.decode:
        source["decode"] = True
    if spec.dead_letters is not None:
        source["dead_letters"] = {"topic": spec.dead_letters}
    sink: dict[str, Any] = {"input": MESSAGES, "format": connector.kind.format}
    steps = {}
    if options.sql is not None:
        steps[ROWS] = {"sql": options.sql}
        sink["input"] = ROWS
    written = dict(options.sink)
    if "path" in written:
        sink["path"] = written.pop("path")
    kinds = {TriggerKind.AVAILABLE_NOW.value, TriggerKind.CONTINUOUS.value}
    every = options.trigger not in kinds
    return {
        "name": connector.name,
        "trigger": {"every": options.trigger} if every else options.trigger,
        "spark": {"master": options.master, "settings": options.settings},
        "sources": {MESSAGES: source},
        "steps": steps,
        "sinks": {TABLE: {**sink, "options": written}},
    }


def _place_of(path: Path) -> Path:
    """Return the part of a connector that *path*, of its pipeline, comes from."""
    size = next(size for size in range(len(path), -1, -1) if path[:size] in _PLACES)
    return (*_PLACES[path[:size]], *path[size:])
