"""
`danube inspect`: shows the contents of a broker's files.

Files are only read, so the broker may be running.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pydanube.model.errors import CorruptJournal, CorruptSegment, InvalidRequest
from pydanube.model.quantity_formats import format_bytes, format_offset_range
from pydanube.model.shown_text import excerpt, printable
from pydanube_broker.storage.inspect import (
    EntryDescription,
    describe_segment,
    inspect_journal,
)
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.exit_codes import exit_code_of
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import (
    Columns,
    Fields,
    OutputFormat,
    Result,
    Table,
    print_json_line,
    print_line,
)

app = command_group(
    "Inspect the files that a broker writes.",
    "danube inspect journal danube-data/journal",
    "danube inspect segment segment.parquet --format json",
)


@command(
    app,
    "danube inspect journal danube-data/journal",
    "danube inspect journal danube-data/journal/00000000000000000001.journal",
    "danube inspect journal 00000000000000000001.journal --format json",
)
def journal(
    path: Annotated[Path, typer.Argument(exists=True)],
    *,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    List the entries of a journal file, or of all files of a journal, and verify them.

    A crash may leave an incomplete write at the end of the last file, which was not
    acknowledged. Damage in any other place ends the command with exit code 11.

    Args:
        path (PATH): A journal file, or the directory with all of them.
    """
    files = sorted(path.glob("*.journal")) if path.is_dir() else [path]
    if not files:
        raise InvalidRequest(f"no journal file in {path}")
    verdicts = {file: _inspect_file(file, output_format) for file in files}
    for file, verdict in verdicts.items():
        if verdict.state == "damaged" or (
            verdict.state == "torn" and file != files[-1]
        ):
            raise CorruptJournal(f"{file} is damaged at position {verdict.position}")


def _inspect_file(file: Path, output_format: OutputFormat) -> Verdict:
    verdict = Verdict()
    if output_format is OutputFormat.TABLE:
        print_line(f"{file}\n")
        print_line(_COLUMNS.format(*_HEADINGS))
    for entry in inspect_journal(file):
        verdict.add(entry)
        if output_format is OutputFormat.JSON:
            print_json_line(entry)
        else:
            print_line(_row(entry))
    if output_format is OutputFormat.JSON:
        print_json_line({"file": str(file)} | verdict.to_json())
    else:
        print_line(f"\n{verdict}\n")
    return verdict


@command(app, "danube inspect segment segment.parquet")
def segment(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
) -> Result:
    """
    Describe a segment: its messages, columns and row groups.

    All pages are read and their checksums verified; the exit code is 11 if one is
    damaged.

    Args:
        file (FILE): The segment file.
    """
    found = describe_segment(file)
    damaged = [group for group in found.row_groups if group.problem is not None]
    return Result(
        found,
        Fields(
            [
                ("Messages", found.count),
                ("Size", format_bytes(found.byte_count)),
                ("CRC-32C", f"{found.checksum:#010x}"),
                *found.metadata.items(),
            ]
        ),
        "",
        Table(("Column", "Type"), found.columns.items()),
        "",
        Table.of(found.row_groups, ROW_GROUP),
        *(
            f"\nRow group {group.index} is damaged: {group.problem}"
            for group in damaged
        ),
        exit_code=exit_code_of(CorruptSegment) if damaged else 0,
    )


class Verdict:
    """
    The result of verifying the entries of a journal file.

    A crash leaves one invalid place, at the end, with no synced entry after it.
    """

    def __init__(self) -> None:
        self.state = "whole"
        """``whole``, ``torn`` or ``damaged``."""
        self.position: int | None = None
        """The position of the first invalid place."""
        self.reason: str | None = None
        self.byte_count = 0
        """The number of invalid bytes."""
        self.entry_count = 0

    def add(self, entry: EntryDescription) -> None:
        """Add the next entry of the file."""
        is_bad = entry.kind == "damaged"
        if self.position is None and is_bad:
            self.position, self.reason = entry.position, entry.details["reason"]
            self.state = "damaged" if entry.details.get("was_synced") else "torn"
        elif self.position is not None:
            # An entry follows the invalid place.
            self.state = "damaged"
        self.byte_count += entry.byte_count if is_bad else 0
        self.entry_count += not is_bad

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for JSON."""
        return {
            "verdict": self.state,
            "entries": self.entry_count,
            "position": self.position,
            "bad_bytes": self.byte_count,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        place = f"at position {self.position}, {format_bytes(self.byte_count)}"
        match self.state:
            case "torn":
                return (
                    f"Torn end {place}: {self.reason}. At the end of a journal's last "
                    "file, this is a write that a crash interrupted and that was not "
                    "acknowledged."
                )
            case "damaged":
                return f"Damaged {place}: {self.reason}."
            case _:
                return f"Whole: {self.entry_count} entries."


_COLUMNS = "{:>12}  {:<20}  {:>9}  {:>5}  {:<23}  {}"
_HEADINGS = ("Position", "Kind", "Bytes", "Topic", "Offsets", "Details")


def _row(entry: EntryDescription) -> str:
    # Not a Table, which would hold all entries in memory; there may be millions.
    details = dict(entry.details)
    details.pop("synced", None)
    topic = details.pop("topic_id", "")
    base, end = details.pop("base", None), details.pop("end", None)
    offsets = "" if base is None else format_offset_range(base, end)
    shown = " ".join(f"{name}={_brief(value)}" for name, value in details.items())
    return _COLUMNS.format(
        entry.position, entry.kind, entry.byte_count, topic, offsets, shown
    ).rstrip()


def _brief(value: object) -> str:
    return excerpt(printable(str(value)), DETAIL_CHARACTERS_MAX)


DETAIL_CHARACTERS_MAX = 80

ROW_GROUP: Columns = {
    "Row group": lambda group: str(group.index),
    "Offsets": lambda group: (
        "" if group.base is None else format_offset_range(group.base, group.end)
    ),
    "Messages": "count",
    "Size": lambda group: format_bytes(group.byte_count),
    "Compressed": lambda group: format_bytes(group.compressed_bytes),
}
