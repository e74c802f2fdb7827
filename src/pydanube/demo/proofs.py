"""
The proof that nothing was lost, duplicated or reordered.

It compares what was published, what was read back, and the tables.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydanube.demo.publishing import Ledger
    from pydanube.model.ranges import Range


@dataclass(frozen=True, slots=True)
class Claim:
    """Two counts from different sources that must be equal."""

    subject: str
    text: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        """Return whether the counts are equal."""
        return self.expected == self.found


@dataclass(slots=True)
class ReadBack:
    """The offsets read from a topic, from its first message."""

    offsets: RangeSet
    repeated: int = 0

    @classmethod
    def from_ranges(cls, ranges: Iterable[Range]) -> ReadBack:
        """Sum up *ranges* in the order in which they were read."""
        found = cls(RangeSet())
        for base, end in ranges:
            found.repeated += end - base - found.offsets.add(base, end)
        return found


def prove_topic(subject: str, ledger: Ledger, back: ReadBack) -> list[Claim]:
    """Check that a topic has everything that the broker acknowledged."""
    last = back.offsets.last()
    return [
        Claim(
            subject,
            "messages published = acknowledged",
            ledger.published,
            ledger.acknowledged,
        ),
        Claim(
            subject,
            "acknowledged = different offsets read back",
            ledger.acknowledged,
            back.offsets.count,
        ),
        Claim(subject, "offsets read twice", 0, back.repeated),
        Claim(
            subject,
            "one range of offsets without a gap, up to",
            ledger.acknowledged,
            last[1] if last is not None and len(back.offsets) == 1 else -1,
        ),
        Claim(
            subject,
            "acknowledgements out of order",
            0,
            0 if ledger.are_offsets_ordered else 1,
        ),
    ]


def prove_lines(
    subject: str, ledger: Ledger, table: pa.Table, lines_on_disk: Mapping[str, int]
) -> list[Claim]:
    """Check the table of files, whose rows are sums of one batch and file each."""
    files = table.group_by("file").aggregate(
        [
            ("lines", "sum"),
            ("bytes", "sum"),
            ("fingerprint", "sum"),
            ("first_offset", "min"),
            ("last_offset", "max"),
        ]
    )
    same_lines = same_bytes = same_fingerprint = in_place = 0
    for row in files.to_pylist():
        expected = ledger.by_key.get(row["file"])
        if expected is None:
            continue
        lines = row["lines_sum"]
        same_lines += lines == lines_on_disk.get(row["file"])
        same_bytes += row["bytes_sum"] + lines - 1 == expected.byte_count
        same_fingerprint += row["fingerprint_sum"] == expected.fingerprint
        # The lines of a file were published together, so their offsets are adjacent.
        in_place += row["last_offset_max"] - row["first_offset_min"] + 1 == lines
    count = len(lines_on_disk)
    return [
        Claim(
            subject,
            "acknowledged = sum of lines in Delta",
            ledger.acknowledged,
            _sum(table, "lines"),
        ),
        Claim(
            subject,
            "acknowledged = different offsets in Delta",
            ledger.acknowledged,
            _sum(table, "offsets") if _are_disjoint(table) else -1,
        ),
        Claim(subject, "files on disk = files in the table", count, files.num_rows),
        Claim(subject, "files with the line count of the disk", count, same_lines),
        Claim(subject, "files with the size of the disk", count, same_bytes),
        Claim(subject, "files whose lines have adjacent offsets", count, in_place),
        Claim(
            subject,
            "files with every line unchanged at its offset",
            count,
            same_fingerprint,
        ),
    ]


def prove_telemetry(subject: str, ledger: Ledger, table: pa.Table) -> list[Claim]:
    """Check the table of windows."""
    windows = table.select(["window_start", "source", "name"])
    different = windows.group_by(windows.column_names).aggregate([]).num_rows
    return [
        Claim(
            subject,
            "acknowledged = sum of messages in Delta",
            ledger.acknowledged,
            _sum(table, "messages"),
        ),
        Claim(
            subject,
            "differences between what was published and read",
            0,
            abs(ledger.fingerprint - _sum(table, "fingerprint")),
        ),
        Claim(
            subject, "windows in Delta = different windows", table.num_rows, different
        ),
    ]


def prove_lag(backlogs: Mapping[str, int], subscriptions: Iterable[str]) -> list[Claim]:
    """Check that the broker shows no lag of the queries."""
    return [
        Claim(
            "broker",
            f"lag of {name}, as the broker shows it",
            0,
            backlogs.get(name, -1),
        )
        for name in subscriptions
    ]


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table.column(column)).as_py() or 0)


def _are_disjoint(table: pa.Table) -> bool:
    """Return whether the offset spans of the rows do not overlap."""
    spans = table.select(["first_offset", "last_offset"]).sort_by("first_offset")
    first: list[Any] = spans.column("first_offset").to_pylist()
    last: list[Any] = spans.column("last_offset").to_pylist()
    return all(end < begin for end, begin in zip(last, first[1:], strict=False))
