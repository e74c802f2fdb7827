"""
Where messages go that could not be decoded.

In a topic a dead letter is the message as it was, payload, key and attributes, with
attributes that say where it comes from and why, named as those of a subscription's
dead letters.  In a table these are columns.
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
    """The messages of *frame* that have a value, without the column of errors."""
    return frame.where(f"{ERROR} IS NULL").drop(ERROR)


def undecodable(frame: DataFrame, *, for_topic: bool) -> DataFrame:
    """The other ones, as they are written."""
    bad = frame.where(f"{ERROR} IS NOT NULL")
    if not for_topic:
        return bad.drop(VALUE).withColumnRenamed(ERROR, "error")
    ours = ", ".join(f"'{name}'" for name in OURS)
    # A letter that failed before has such attributes already: the new ones count.
    kept = f"map_filter(coalesce(attributes, map()), (k, v) -> k NOT IN ({ours}))"
    new = (
        f"map('{ORIGINAL_TOPIC}', topic, '{ORIGINAL_OFFSET}', "
        f"CAST(offset AS STRING), '{REASON}', {ERROR})"
    )
    return bad.selectExpr("payload", "key", f"map_concat({kept}, {new}) AS attributes")
