"""
The starting offsets of sources that start at ``latest``.

All queries of a source, including its dead letters, must start at the same message.
The offsets are therefore determined once, before the first query starts, and stored
beside the checkpoints.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from pydanube.pipelines.loading import Pipeline
from pydanube.pipelines.options import source_options, topic_options
from pydanube.pipelines.state import replace_file
from pydanube.reader.bounds import split_name
from pydanube.reader.catalog import process_client
from pydanube.sync import Client

FILE = "starts.json"

Offsets = dict[str, int | dict[str, int]]


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
        name: msgspec.json.encode(_ends(options.url, options.topics, options.pattern))
        for name, source in pipeline.spec.sources.items()
        if source.is_topic and source.is_stream and name not in starts
        if source_options(source, pipeline.broker).get("startingOffsets") == "latest"
        for options in [topic_options(source, pipeline.broker)]
    }
    if not found:
        return starts
    starts |= {name: offsets.decode() for name, offsets in found.items()}
    checkpoints.mkdir(parents=True, exist_ok=True)
    replace_file(checkpoints / FILE, msgspec.json.encode(starts))
    return starts


def _ends(url: str, topics: tuple[str, ...], pattern: str | None) -> Offsets:
    client = process_client(url)
    if pattern is not None:
        topics = tuple(name for name in client.topics() if re.fullmatch(pattern, name))
    return {topic: _end(client, topic) for topic in topics}


def _end(client: Client, topic: str) -> int | dict[str, int]:
    names = client.partitions(topic)
    ends = {name: client.describe_topic(name).end_offset for name in names}
    if names == [topic]:
        return ends[topic]
    return {str(split_name(name)[1]): end for name, end in ends.items()}
