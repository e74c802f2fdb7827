"""
The tests that cannot hold in a world, and why.

This is the only place that says so.  ``docs/guide/cluster-differences.md`` tells users
the reasons that concern them; a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

INSIDE = "looks inside of the broker, of which there is another one now"

DIFFERENCES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "cluster": {},
    "secured": {},
    "restarts": {},
}
"""By world and reason: patterns of the ids of tests, below ``tests``."""


def find_difference(world: str, nodeid: str) -> str | None:
    """Return why the test *nodeid* cannot hold in *world*; None: it must."""
    name = nodeid.removeprefix("tests/")
    for reason, patterns in DIFFERENCES.get(world, {}).items():
        if any(fnmatchcase(name, each.replace("[", "[[]")) for each in patterns):
            return reason
    return None
