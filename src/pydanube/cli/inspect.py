"""
`danube inspect`: what stands in the files of a broker, without the broker.

Files are only read.  A running broker does not mind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pydanube.cli import options
from pydanube.cli.answers import (
    Format,
    plain,
    print_facts,
    print_json,
    print_line,
    print_table,
)
from pydanube.cli.options import examples
from pydanube.cli.quantities import format_bytes
from pydanube.model.errors import CorruptJournal
from pydanube.storage.inspect import describe_segment, inspect_journal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.storage.inspect import EntryDescription, SegmentDescription

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look into the files that a broker writes.",
    epilog=examples(
        "danube inspect journal danube-data/journal/00000000000000000001.journal",
        "danube inspect segment segment.parquet --format json",
    ),
)

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="The file.",
        show_default=False,
    ),
]


@app.command(
    epilog=examples(
        "danube inspect journal danube-data/journal/00000000000000000001.journal",
        "danube inspect journal 00000000000000000001.journal --format json",
    )
)
def journal(
    file: File,
    *,
    format: options.AnswerFormat = Format.TABLE,  # noqa: A002  # The option's name.
) -> None:
    """
    List the entries of a journal file, and judge whether it is whole.

    The end of a journal's last file may be torn: a crash cut a write short, and nobody was
    told that it had succeeded. Damage in any other place ends with exit code 11.
    """
    described = list(inspect_journal(file))
    verdict = Verdict(described)
    if format is Format.JSON:
        print_json({"entries": plain(described), "verdict": verdict.to_json()})
    else:
        _print_entries(described)
        print_line()
        print_line(str(verdict))
    if verdict.is_damaged:
        raise CorruptJournal(f"{file} is {verdict.word} at position {verdict.position}")


@app.command(epilog=examples("danube inspect segment segment.parquet"))
def segment(
    file: File,
    *,
    format: options.AnswerFormat = Format.TABLE,  # noqa: A002  # The option's name.
) -> None:
    """Describe a segment: its messages, its columns, its row groups."""
    description = describe_segment(file)
    if format is Format.JSON:
        print_json(description)
    else:
        _print_segment(description)


class Verdict:
    """What a journal file's entries say about the file as a whole."""

    def __init__(self, described: list[EntryDescription]) -> None:
        bad = [each for each in described if each.kind == "damaged"]
        self.position: int | None = bad[0].position if bad else None
        self.reason: str | None = bad[0].details["reason"] if bad else None
        self.byte_count = sum(each.byte_count for each in bad)
        # A crash leaves one bad place, at the end, that nothing says was synced.
        self.is_torn = (
            len(bad) == 1
            and bad[0] is described[-1]
            and not bad[0].details.get("was_synced", False)
        )
        self.is_damaged = bool(bad) and not self.is_torn
        self._entries = len(described) - len(bad)

    @property
    def word(self) -> str:
        """``whole``, ``torn`` or ``damaged``."""
        if self.is_damaged:
            return "damaged"
        return "torn" if self.is_torn else "whole"

    def to_json(self) -> dict[str, Any]:
        """The verdict for machines."""
        return {
            "verdict": self.word,
            "position": self.position,
            "bytes": self.byte_count,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        if self.word == "whole":
            return f"Whole: {self._entries} entries."
        said = f"at position {self.position}, {format_bytes(self.byte_count)}"
        if self.is_torn:
            return (
                f"Torn end {said}: {self.reason}. In a journal's last file that is what "
                "a crash leaves of a write that was not acknowledged."
            )
        return f"Damaged {said}: {self.reason}."


def _print_entries(described: Iterable[EntryDescription]) -> None:
    print_table(
        ("Position", "Kind", "Bytes", "Topic", "Offsets", "Details"),
        (_row(each) for each in described),
    )


def _row(entry: EntryDescription) -> tuple[object, ...]:
    details = dict(entry.details)
    details.pop("synced", None)
    topic = details.pop("topic_id", None)
    base, end = details.pop("base", None), details.pop("end", None)
    offsets = "" if base is None else f"{base} \u2026 {end}"
    shown = " ".join(f"{name}={_brief(value)}" for name, value in details.items())
    # As text: a position is for looking it up, not for adding.
    at = str(entry.position)
    return (
        at,
        entry.kind,
        entry.byte_count,
        "" if topic is None else str(topic),
        offsets,
        shown,
    )


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:79]}\u2026"


def _print_segment(segment: SegmentDescription) -> None:
    print_facts(
        [
            ("Messages", segment.count),
            ("Size", format_bytes(segment.byte_count)),
            *((name, value) for name, value in segment.metadata.items()),
        ]
    )
    print_line()
    print_table(("Column", "Type"), segment.columns.items())
    print_line()
    print_table(
        ("Row group", "Offsets", "Messages", "Size", "Compressed"),
        (
            (
                str(group.index),
                "" if group.base is None else f"{group.base} \u2026 {group.end}",
                group.count,
                format_bytes(group.byte_count),
                format_bytes(group.compressed_bytes),
            )
            for group in segment.row_groups
        ),
    )
