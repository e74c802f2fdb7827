"""
The starting offsets of sources that start at ``latest`` or at a time.

All queries of a source, including its dead letters, must start at the same message.
The offsets are therefore determined once, before the first query starts, and stored
beside the checkpoints.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import topic_options
from pydanube_spark.pipelines.state import replace_file
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.pure.bounds import LATEST, Bound
from pydanube_spark.reader.pure.query_positions import resolve
from pydanube_spark.reader.pure.read_options import ReadOptions
from pydanube_spark.reader.topics import readable_heads, require_heads

FILE = "starts.json"


def read_starting_offsets(checkpoints: Path) -> dict[str, str]:
    """Return the stored starting offsets by source."""
    try:
        return msgspec.json.decode(
            (checkpoints / FILE).read_bytes(), type=dict[str, str]
        )
    except FileNotFoundError:
        return {}


def fix_starting_offsets(pipeline: Pipeline) -> dict[str, str]:
    """
    Store the offsets of new sources that start at ``latest`` or a time; return all.

    Raises:
        BrokerError: A broker cannot be reached, or refuses the request.
    """
    checkpoints = pipeline.state.checkpoints
    starts = read_starting_offsets(checkpoints)
    found = {}
    for name, source in pipeline.spec.sources.items():
        if source.is_topic and source.is_stream and name not in starts:
            options = topic_options(source, pipeline.broker)
            if may_move(options.starting):
                found[name] = _offsets(options)
    # A pattern may not select a topic yet; topics of later are read from the beginning.
    encoded = {name: msgspec.json.encode(each) for name, each in found.items() if each}
    if not encoded:
        return starts
    starts |= {name: offsets.decode() for name, offsets in encoded.items()}
    checkpoints.mkdir(parents=True, exist_ok=True)
    replace_file(checkpoints / FILE, msgspec.json.encode(starts))
    return starts


def may_move(start: Bound) -> bool:
    """Return whether *start* may be another offset when it is resolved later."""
    numbers = start.by_name.values() if start.by_name else (start.value,)
    return start.is_time or LATEST in numbers


def _offsets(options: ReadOptions) -> dict[str, int]:
    """Return where reading begins in the topics and partitions of *options*."""
    catalog = Catalog(options)
    heads = readable_heads(options, require_heads(options, catalog))
    positions = resolve(options.starting, heads, catalog.offset_at_time)
    return {topic: each.offset for topic, each in positions.items()}
