"""
The starting offsets of sources that start at ``latest``.

All queries of a source, including its dead letters, must start at the same message.
The offsets are therefore determined once, before the first query starts, and stored
beside the checkpoints.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pydanube.pipelines.loading import Pipeline
from pydanube.pipelines.options import source_options, topic_options
from pydanube.pipelines.state import replace_file
from pydanube.reader.catalog import Catalog
from pydanube.reader.read_options import ReadOptions
from pydanube.reader.topics import readable_heads, require_heads

FILE = "starts.json"


def read_starting_offsets(checkpoints: Path) -> dict[str, str]:
    """Return the stored starting offsets by source."""
    try:
        return msgspec.json.decode(
            (checkpoints / FILE).read_bytes(), type=dict[str, str]
        )
    except FileNotFoundError:
        return {}


def fix_latest_offsets(pipeline: Pipeline) -> dict[str, str]:
    """
    Store the offsets of new sources that start at ``latest``; return all offsets.

    Raises:
        BrokerError: A broker cannot be reached, or refuses the request.
    """
    checkpoints = pipeline.state.checkpoints
    starts = read_starting_offsets(checkpoints)
    found = {
        name: msgspec.json.encode(_ends(topic_options(source, pipeline.broker)))
        for name, source in pipeline.spec.sources.items()
        if source.is_topic and source.is_stream and name not in starts
        if source_options(source, pipeline.broker).get("startingOffsets") == "latest"
    }
    if not found:
        return starts
    starts |= {name: offsets.decode() for name, offsets in found.items()}
    checkpoints.mkdir(parents=True, exist_ok=True)
    replace_file(checkpoints / FILE, msgspec.json.encode(starts))
    return starts


def _ends(options: ReadOptions) -> dict[str, int]:
    """Return the ends of the topics and partitions that *options* select."""
    heads = readable_heads(options, require_heads(options, Catalog(options)))
    return {topic: head.end for topic, head in heads.items()}
