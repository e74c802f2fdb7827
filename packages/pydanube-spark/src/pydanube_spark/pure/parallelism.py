"""
The parallelism of the session, for the processes that plan reads.

Spark plans a read of a Python data source in a process without a session.  The session
passes the number on in an environment variable.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "PYDANUBE_PARALLELISM"
"""The environment variable with the number of tasks that run at the same time."""


def parallelism_in(environment: Mapping[str, str]) -> int:
    """Return the parallelism that *environment* names; 1 if it is unknown."""
    text = environment.get(VARIABLE, "")
    return max(1, int(text)) if text.isdecimal() and len(text) <= 9 else 1


def parallelism_of(settings: Mapping[str, str], default: int) -> int:
    """
    Return how many tasks run at the same time in a session with *settings*.

    *default* is Spark's own number.  It counts only the executors that have started, so
    executors that the settings request are counted here.
    """
    numbers = [
        settings.get(f"spark.executor.{name}", "") for name in ("instances", "cores")
    ]
    if "spark.default.parallelism" in settings or not all(
        number.isdecimal() for number in numbers
    ):
        return max(1, default)
    instances, cores = map(int, numbers)
    return max(1, default, instances * cores)
