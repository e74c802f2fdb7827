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

    from examples.demo.inputs import SourceFile
    from examples.demo.publishing import Ledger
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


def prove_topic(
    subject: str, ledger: Ledger, ranges: Iterable[Range], lag: int | None
) -> list[Claim]:
    """
    Check that a topic has everything that the broker acknowledged.

    *ranges* are the offsets that were read from its start, in this order, and *lag* is
    that of the query as the broker shows it.
    """
    offsets, repeated = RangeSet(), 0
    for base, end in ranges:
        repeated += end - base - offsets.add(base, end)
    last = offsets.last()
    end = last[1] if last is not None and len(offsets) == 1 else -1
    done = ledger.acknowledged
    return _claims(
        subject,
        {
            "messages published = acknowledged": (ledger.published, done),
            "acknowledged = different offsets read back": (done, offsets.count),
            "offsets read twice": (0, repeated),
            "one range of offsets without a gap, up to": (done, end),
            "acknowledgements out of order": (0, int(not ledger.are_offsets_ordered)),
            "lag of the query, as the broker shows it": (0, -1 if lag is None else lag),
        },
    )


def prove_lines(
    subject: str, ledger: Ledger, table: pa.Table, on_disk: Iterable[SourceFile]
) -> list[Claim]:
    """Check the table of files, whose rows are sums of one batch and file each."""
    totals = table.group_by("file").aggregate(
        [
            ("lines", "sum"),
            ("bytes", "sum"),
            ("fingerprint", "sum"),
            ("first_offset", "min"),
            ("last_offset", "max"),
        ]
    )
    rows = {row["file"]: row for row in totals.to_pylist()}
    count = same_lines = same_bytes = same = in_place = 0
    for file in on_disk:
        count += 1
        row = rows.get(file.name)
        if row is None:
            continue
        lines = row["lines_sum"]
        same_lines += lines == len(file.lines)
        same_bytes += row["bytes_sum"] + lines - 1 == file.byte_count
        same += row["fingerprint_sum"] == ledger.fingerprints.get(file.name)
        # The lines of a file were published together, so their offsets are adjacent.
        in_place += row["last_offset_max"] - row["first_offset_min"] + 1 == lines
    done = ledger.acknowledged
    offsets = _sum(table, "offsets") if _are_disjoint(table) else -1
    return _claims(
        subject,
        {
            "acknowledged = sum of lines in Delta": (done, _sum(table, "lines")),
            "acknowledged = different offsets in Delta": (done, offsets),
            "files on disk = files in the table": (count, len(rows)),
            "files with the line count of the disk": (count, same_lines),
            "files with the size of the disk": (count, same_bytes),
            "files whose lines have adjacent offsets": (count, in_place),
            "files with every line unchanged at its offset": (count, same),
        },
    )


def prove_telemetry(subject: str, ledger: Ledger, table: pa.Table) -> list[Claim]:
    """Check the table of windows, whose rows are sums of one batch each."""
    done = ledger.acknowledged
    difference = abs(ledger.fingerprint - _sum(table, "fingerprint"))
    return _claims(
        subject,
        {
            "acknowledged = sum of messages in Delta": (done, _sum(table, "messages")),
            "differences between what was published and read": (0, difference),
        },
    )


def _claims(subject: str, counts: Mapping[str, tuple[int, int]]) -> list[Claim]:
    """Return claims by their texts, with the expected and the found counts."""
    return [Claim(subject, text, *pair) for text, pair in counts.items()]


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table.column(column)).as_py() or 0)


def _are_disjoint(table: pa.Table) -> bool:
    """Return whether the offset spans of the rows do not overlap."""
    spans = table.select(["first_offset", "last_offset"]).sort_by("first_offset")
    first: list[Any] = spans.column("first_offset").to_pylist()
    last: list[Any] = spans.column("last_offset").to_pylist()
    return all(end < begin for end, begin in zip(last, first[1:], strict=False))
