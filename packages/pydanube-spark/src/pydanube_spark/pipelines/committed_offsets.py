"""The offsets that a query has committed, from its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from pydanube.model.errors import NotFound
from pydanube_spark.reader.pure.query_positions import from_json


def committed_offsets(checkpoint: Path) -> dict[str, int]:
    """
    Return the end of the last committed micro-batch in each topic and partition.

    Sources of the query that are not topics are left out.

    Raises:
        NotFound: The query has not committed a micro-batch.
    """
    found: dict[str, int] = {}
    for line in _lines_of_last(checkpoint)[2:]:
        value = json.loads(line) if line.startswith("{") else {}
        if any(name.startswith("/") for name in value):
            positions = from_json(value)
            found |= {topic: each.offset for topic, each in positions.items()}
    return found


def committed_watermark(checkpoint: Path) -> int | None:
    """
    Return the watermark of the last committed micro-batch, in milliseconds since 1970.

    None: the query keeps no state, so it wrote each row at once.

    Raises:
        NotFound: The query has not committed a micro-batch.
    """
    if not (checkpoint / "state").is_dir():
        return None
    metadata = json.loads(_lines_of_last(checkpoint)[1])
    return int(metadata.get("batchWatermarkMs", 0))


def _lines_of_last(checkpoint: Path) -> list[str]:
    """Return the lines with the version, the metadata and the sources' positions."""
    try:
        numbers = [
            int(each.name)
            for each in (checkpoint / "commits").iterdir()
            if each.name.isdecimal()
        ]
        text = (checkpoint / "offsets" / str(max(numbers))).read_text("utf-8")
    except (FileNotFoundError, ValueError):
        raise NotFound(f"there is no committed micro-batch in {checkpoint}") from None
    return text.splitlines()
