"""The options of `danube pipeline run` for a part of the history."""

from __future__ import annotations

import time

from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import to_datetime
from pydanube_cli.presentation.output import print_note
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.shadows import backfill_of, shadow_of


def as_backfill(
    pipeline: Pipeline, start: str | None, end: str | None, into: str | None
) -> Pipeline:
    """
    Return the backfill of *pipeline* for these options; without any, *pipeline*.

    Raises:
        InvalidRequest: An option is missing or malformed.
    """
    if start is None and end is None and into is None:
        return pipeline
    if into is None:
        raise InvalidRequest(
            "--from and --to need --into NAME: rows of messages that were processed "
            "before are written to other targets, whose names end in NAME"
        )
    shadow = shadow_of(pipeline, into)
    if shadow.left_out:
        print_note(f"not run, because of their formats: {', '.join(shadow.left_out)}")
    now = to_datetime(time.time_ns() // 1000)
    return backfill_of(shadow.pipeline, start or "earliest", end or "latest", now)
