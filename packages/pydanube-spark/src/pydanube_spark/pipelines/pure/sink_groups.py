"""
The sinks that share a query with ``fan_out: true``.  Pure.
"""

from __future__ import annotations

from pydanube_spark.pipelines.graph import DEAD_LETTERS, all_sinks
from pydanube_spark.pipelines.pure import formats
from pydanube_spark.pipelines.pure.spec import Mode, Sink, Spec


def sink_groups(spec: Spec) -> list[list[str]]:
    """
    Return the names of the sinks with the same input, mode and trigger.

    Sinks alone are left out, and all without ``fan_out``.  The quarantine of a step is
    the last one of the sinks whose input is the step.
    """
    found: dict[tuple[str, Mode, str], list[str]] = {}
    for name, source, sink in all_sinks(spec):
        # The rows of dead letters are not those of the source.
        is_other = name.endswith(f".{DEAD_LETTERS}")
        if spec.fan_out and may_share(sink) and not is_other:
            key = source, sink.mode, str(sink.trigger or spec.trigger)
            found.setdefault(key, []).append(name)
    return [names for names in found.values() if len(names) > 1]


def may_share(sink: Sink) -> bool:
    """
    Return whether *sink* can be one of several of a query.

    Spark's own formats write a stream exactly once only with a query of their own.
    """
    return sink.python is not None or sink.format_name in formats.OURS
