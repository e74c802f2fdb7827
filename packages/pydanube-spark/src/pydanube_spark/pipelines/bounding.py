"""
A pipeline whose streams of topics are read once, between two positions.  Pure.

Spark then computes all rows at once, as for a pipeline of tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import msgspec
from msgspec import structs

from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import STARTING
from pydanube_spark.pipelines.pure.spec import Read, Source
from pydanube_spark.reader.pure.bounds import split_name
from pydanube_spark.reader.pure.read_options import OPTIONS

_ONLY_STREAMS = frozenset(
    each.name.lower() for each in OPTIONS if each.modes == "stream"
)
_DROPPED = STARTING | _ONLY_STREAMS | {"startingoffsetsbytimestampstrategy"}

Offsets = Mapping[str, int]
"""Offsets by the name of a topic, or of a partition of one."""


def with_bounds(
    pipeline: Pipeline, bounds: Mapping[str, Mapping[str, str]]
) -> Pipeline:
    """
    Return *pipeline* with sources that are tables.

    *bounds* has the options for the positions of sources by name; other streams of
    topics are read from the oldest message to the last one.
    """
    sources = {
        name: _bounded(source, bounds.get(name, {}))
        if source.is_topic and source.is_stream
        else source
        for name, source in pipeline.spec.sources.items()
    }
    return replace(pipeline, spec=structs.replace(pipeline.spec, sources=sources))


def only_sink(pipeline: Pipeline, name: str) -> Pipeline:
    """
    Return *pipeline* with the sink *name* and its input alone, if that is a source.

    Otherwise return *pipeline*, whose steps may need each other.
    """
    spec = pipeline.spec
    sink = spec.sinks[name]
    if sink.input not in spec.sources:
        return pipeline
    sources = {sink.input: spec.sources[sink.input]}
    alone = structs.replace(spec, sources=sources, steps={}, sinks={name: sink})
    return replace(pipeline, spec=alone)


def offset_options(start: Offsets, end: Offsets) -> dict[str, str]:
    """Return the options for reading the topics of *end*, at *start* or its oldest."""
    first = {name: start.get(name, -2) for name in end}
    return {
        "startingOffsets": msgspec.json.encode(first).decode(),
        "endingOffsets": msgspec.json.encode(dict(end)).decode(),
    }


def offsets_of(source: Source, offsets: Offsets) -> dict[str, int]:
    """Return those of *offsets* that are of topics that *source* reads."""
    return {name: at for name, at in offsets.items() if _reads(source, name)}


def _bounded(source: Source, options: Mapping[str, str]) -> Source:
    own = {
        name: value
        for name, value in source.options.items()
        if name.lower() not in _DROPPED
    }
    start = None if options else "earliest"
    return structs.replace(
        source, read=Read.TABLE, start=start, options={**own, **options}
    )


def _reads(source: Source, name: str) -> bool:
    base, _ = split_name(name)
    if source.topic_fields == ["pattern"]:
        assert source.pattern is not None
        return re.fullmatch(source.pattern, base) is not None
    topics = source.topics if source.topic is None else [source.topic]
    return bool({base, name} & set(topics or ()))
