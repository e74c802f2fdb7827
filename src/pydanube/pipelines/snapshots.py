"""
Which files of a checkpoint make a whole, and which of two wholes is newer.

Spark writes ``offsets/N`` before it runs micro-batch N and ``commits/N`` behind it, and
the state of version N in between.  So what is whole is found from the commits: the
newest one that is there when one begins to look, all state up to it, and the offsets of
one micro-batch more, which then runs again as it was.  Everything here is pure.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 1

COMMITS, OFFSETS, METADATA = "commits", "offsets", "metadata"


class FileEntry(msgspec.Struct, frozen=True):
    """One file of a snapshot."""

    path: str
    """Below the checkpoints of the pipeline, with slashes."""
    digest: str
    """SHA-256, which is also the name of its object."""
    byte_count: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot: the object that makes its files one."""

    format: int = FORMAT
    pipeline: str
    generation: int
    """Rises by one with each snapshot."""
    is_final: bool
    """Whether no run was going on, so that nothing was written behind it."""
    created: str
    commits: dict[str, int]
    """By query: the last micro-batch that is done."""
    ids: dict[str, str]
    """By query: its id, which its checkpoint was born with."""
    files: list[FileEntry]


class Order(Enum):
    """How one state of a pipeline's checkpoints stands to another."""

    SAME = "same"
    OLDER = "older"
    NEWER = "newer"
    UNRELATED = "unrelated"
    """They are of different queries, or each is ahead in one of them."""


def commits_of(paths: Iterable[str]) -> dict[str, int]:
    """By query: the newest commit among the files *paths*, -1 if there is none."""
    newest: dict[str, int] = {}
    for path in paths:
        query, _, rest = path.partition("/")
        if not rest:
            continue
        newest.setdefault(query, -1)
        kind, _, name = rest.partition("/")
        if kind == COMMITS and name.isdecimal():
            newest[query] = max(newest[query], int(name))
    return newest


def select(paths: Iterable[str], commits: Mapping[str, int]) -> list[str]:
    """Those of *paths* that belong to the snapshot at *commits*, sorted."""
    return sorted(path for path in paths if _belongs(path, commits))


def order_of(
    mine: tuple[Mapping[str, str], Mapping[str, int]],
    other: tuple[Mapping[str, str], Mapping[str, int]],
) -> Order:
    """How *mine* stands to *other*; each is ids and commits, by query."""
    (my_ids, my_commits), (other_ids, other_commits) = mine, other
    both = my_ids.keys() & other_ids.keys()
    if any(my_ids[name] != other_ids[name] for name in both):
        return Order.UNRELATED
    names = my_commits.keys() | other_commits.keys()
    ahead = [my_commits.get(name, -2) - other_commits.get(name, -2) for name in names]
    is_behind, is_ahead = any(n < 0 for n in ahead), any(n > 0 for n in ahead)
    if is_behind and is_ahead:
        return Order.UNRELATED
    if is_ahead:
        return Order.NEWER
    return Order.OLDER if is_behind else Order.SAME


def _belongs(path: str, commits: Mapping[str, int]) -> bool:
    parts = path.split("/")
    # Hidden are checksums, which are optional, and files that are not finished.
    if any(part.startswith(".") or part.endswith(".tmp") for part in parts):
        return False
    if len(parts) != 3 or not parts[2].isdecimal():
        return True
    last = commits.get(parts[0], -1)
    match parts[1]:
        case "commits":
            return int(parts[2]) <= last
        case "offsets":
            return int(parts[2]) <= last + 1
    return True
