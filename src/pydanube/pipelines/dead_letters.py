"""
The dead letters of a pipeline: messages that cannot be decoded.

In a topic, a dead letter is the message with attributes for its origin and the reason,
named as those of a subscription's dead letters.  In a table these are columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.dead_letters import ORIGINAL_OFFSET, ORIGINAL_TOPIC, REASON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERROR = "_error"
VALUE = "value"

OURS = (ORIGINAL_TOPIC, ORIGINAL_OFFSET, REASON)


def decoded(frame: DataFrame) -> DataFrame:
    """Return the decoded messages of *frame*, without the error column."""
    return frame.where(f"{ERROR} IS NULL").drop(ERROR)


def undecodable(frame: DataFrame, *, for_topic: bool) -> DataFrame:
    """Return the messages of *frame* that could not be decoded, as they are written."""
    bad = frame.where(f"{ERROR} IS NOT NULL")
    if not for_topic:
        return bad.drop(VALUE).withColumnRenamed(ERROR, "error")
    ours = ", ".join(f"'{name}'" for name in OURS)
    # If the message is a dead letter itself, the new attributes replace the old ones.
    kept = f"map_filter(coalesce(attributes, map()), (k, v) -> k NOT IN ({ours}))"
    new = (
        f"map('{ORIGINAL_TOPIC}', topic, '{ORIGINAL_OFFSET}', "
        f"CAST(offset AS STRING), '{REASON}', {ERROR})"
    )
    return bad.selectExpr("payload", "key", f"map_concat({kept}, {new}) AS attributes")
