"""
A pipeline that computes a part of its history again, into targets of its own.  Pure.

Such a backfill reads topics once, between two positions, and has a state directory of
its own, so it neither changes the targets of the pipeline nor its checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from pydanube.declarations.pure.parameters import option_text
from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import parse_position
from pydanube_spark.pipelines.bounding import with_bounds
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import sink_options
from pydanube_spark.pipelines.pure import formats
from pydanube_spark.pipelines.pure.modes import mode_problem
from pydanube_spark.pipelines.pure.spec import (
    Mode,
    Read,
    Sink,
    Source,
    Trigger,
    TriggerKind,
)


@dataclass(frozen=True, slots=True)
class Shadow:
    """A pipeline with targets of its own."""

    pipeline: Pipeline
    left_out: list[str]
    """The sinks that have no target that could be replaced."""


def shadow_of(pipeline: Pipeline, name: str) -> Shadow:
    """
    Return *pipeline* with targets and a state directory that have *name* at their end.

    Raises:
        InvalidRequest: *name* is malformed, or no sink can have another target.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise InvalidRequest(
            f"the name of a shadow consists of letters, digits and _, not {name!r}"
        )
    spec = pipeline.spec
    sinks = {each: _renamed(sink, name) for each, sink in spec.sinks.items()}
    kept = {each: sink for each, sink in sinks.items() if sink is not None}
    # A run finds the tables of mirrors, of which others may know none yet.
    if not kept and not spec.mirrors:
        raise InvalidRequest(
            f"no sink of {spec.name} can have another target: a backfill needs a topic "
            "or a table"
        )
    own = spec.checkpoints.path
    shadow = structs.replace(
        spec,
        name=f"{spec.name}-{name}",
        sinks=kept,
        sources={
            each: structs.replace(
                source, dead_letters=_inner(source.dead_letters, name)
            )
            for each, source in spec.sources.items()
        },
        steps={
            each: structs.replace(step, quarantine=_inner(step.quarantine, name))
            for each, step in spec.steps.items()
        },
        checkpoints=structs.replace(
            spec.checkpoints, path=None if own is None else f"{own}-{name}"
        ),
    )
    return Shadow(
        replace(pipeline, spec=shadow),
        [each for each, sink in sinks.items() if sink is None],
    )


def backfill_of(shadow: Pipeline, start: str, end: str, now: datetime) -> Pipeline:
    """
    Return *shadow* as a pipeline that reads its topics once, from *start* to *end*.

    Both are positions as for ``danube read``; *now* has a time zone.  Streams of files
    are read as a whole.

    Raises:
        InvalidRequest: A position is malformed, or is an offset and a source has
            several topics.
    """
    spec = shadow.spec
    bounds = {
        name: _bounds(name, source, start, end, now)
        for name, source in spec.sources.items()
        if source.is_topic and source.is_stream
    }
    if not bounds and not spec.mirrors:
        raise InvalidRequest(f"no source of {spec.name} is a stream of topics")
    sources = {
        name: structs.replace(source, read=Read.TABLE, watermark=None)
        if source.is_stream and not source.is_topic
        else source
        for name, source in spec.sources.items()
    }
    sinks = {
        name: structs.replace(sink, mode=_mode(shadow, sink), trigger=None)
        for name, sink in spec.sinks.items()
    }
    bounded = replace(
        shadow,
        spec=structs.replace(spec, sources=sources, sinks=sinks, fan_out=False),
        trigger=Trigger(TriggerKind.AVAILABLE_NOW),
    )
    return with_bounds(bounded, bounds)


def _inner(sink: Sink | None, name: str) -> Sink | None:
    """Return a sink of dead letters or of a quarantine; it must have a target."""
    if sink is None:
        return None
    renamed = _renamed(sink, name)
    if renamed is None:
        raise InvalidRequest(
            f"{sink.python or sink.format_name} cannot have another target: use a "
            "topic or a table for dead letters and quarantines"
        )
    return structs.replace(renamed, trigger=None)


def _renamed(sink: Sink, name: str) -> Sink | None:
    """Return *sink* with another target; None if it cannot have one."""
    option = formats.TARGETS.get(sink.format_name)
    if option is None:
        return None
    if option in ("topic", "path") and getattr(sink, option) is not None:
        found = _with_end(getattr(sink, option), f"-{name}")
        return structs.replace(sink, **{option: found})
    for own, value in sink.options.items():
        if own.lower() == option:
            end = f"-{name}" if option in ("topic", "path") else f"_{name}"
            options = {**sink.options, own: _with_end(option_text(value), end)}
            return structs.replace(sink, options=options)
    return None


def _with_end(text: str, end: str) -> str:
    """Return *text* with *end*, which comes before a closing quote or slash."""
    kept = text.rstrip('/"`')
    return f"{kept}{end}{text[len(kept) :]}"


def _mode(pipeline: Pipeline, sink: Sink) -> Mode:
    """Return the mode for one write: replace earlier rows if the sink can."""
    options = sink_options(sink, pipeline.broker, Path())
    can_replace = mode_problem(sink.format_name, Mode.OVERWRITE, options) is None
    has_keys = sink.table is not None
    return Mode.OVERWRITE if can_replace and not has_keys else Mode.APPEND


def _bounds(
    name: str, source: Source, start: str, end: str, now: datetime
) -> Mapping[str, str]:
    first = _position(name, source, start, now)
    last = _position(name, source, end, now)
    found: dict[str, Any] = {"startingOffsets": first, "endingOffsets": last}
    if isinstance(first, datetime):
        del found["startingOffsets"]
        found["startingTimestamp"] = first.isoformat()
        # A topic may have no message of that time or later.
        found["startingOffsetsByTimestampStrategy"] = "latest"
    if isinstance(last, datetime):
        del found["endingOffsets"]
        found["endingTimestamp"] = last.isoformat()
    return {option: str(value) for option, value in found.items()}


def _position(name: str, source: Source, text: str, now: datetime) -> Any:
    """Return a time, or the value of an option for offsets."""
    found = parse_position(text, now)
    if not isinstance(found, int):
        return found
    if source.topic is None:
        raise InvalidRequest(
            f"{found} is an offset, and the source {name} has several topics: use times"
        )
    return msgspec.json.encode({source.topic: found}).decode()
