"""
Streams that run to their end, and what a crash takes from their checkpoints.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TIMEOUT_S = 120


class PublishedTopic:
    """A topic of its own, which is published to and read as a stream."""

    def __init__(self, spark: Any, url: str, client: Any) -> None:
        self.name = f"/default/t-{uuid.uuid4().hex[:12]}"
        self._spark = spark
        self.url = url
        self._client = client

    def publish(self, texts: Iterable[str], keys: int = 5) -> None:
        """Publish *texts*, one after the other, with so many keys in turn."""
        with self._client.producer(self.name, reliable=True) as producer:
            for at, text in enumerate(texts):
                producer.send_nowait(text, key=f"k{at % keys}")
            producer.flush()

    def stream(self, *columns: str, batch_rows: int = 40) -> Any:
        """Its messages from the first one on, with such *columns*."""
        return (
            self._spark.readStream.schema("offset bigint, key string, payload string")
            .format("danube")
            .options(url=self.url, subscribe=self.name, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", batch_rows)
            .load()
            .selectExpr(*columns)
        )


def run_to_end(
    stream: Any,
    sink: str,
    options: dict[str, str],
    checkpoint: Path,
    output_mode: str = "append",
) -> Any:
    """Write what there is to read from *stream*, and wait until it is written."""
    query = (
        stream.writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .outputMode(output_mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(TIMEOUT_S)
    assert not query.isActive
    return query


def forget_last_commit(checkpoint: Path) -> int:
    """
    Have the last batch run again, as when Spark is killed after the sink's commit.

    It is its number that comes back.
    """
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last
