"""The activity of a broker's topics as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.model.activity import Activity, Sample
from pydanube.model.descriptions import StorageDescription
from pydanube.model.quantity_formats import format_bytes, format_count
from pydanube.model.shown_text import printable
from pydanube_cli.presentation.output import Columns, Table
from pydanube_cli.presentation.text_columns import wrap

COLUMNS: Columns = {
    "Topic": "topic",
    "In/s": lambda each: round(each.published_per_s),
    "Out/s": lambda each: round(each.delivered_per_s),
    "Lag": "lag",
    "Producers": "producers",
    "Consumers": "consumers",
    "Stored": lambda each: format_bytes(each.byte_count),
}


def screen(
    sample: Sample,
    found: Sequence[Activity],
    *,
    title: str,
    width: int | None,
    height: int | None,
) -> list[str]:
    """
    Return the lines that show *found*; None: with any width or height.

    Topics for which there is no line are counted in the last one.
    """
    lines = [title, *_totals(sample.storage, found), ""]
    if width is not None:
        lines = [piece for line in lines for piece in wrap(line, width)]
    hidden = sample.topic_count - len(sample.topics)
    shown = list(found)
    if height is not None:
        # The table has a heading and a rule, and a line says what is not shown.
        shown = shown[: max(1, height - len(lines) - 3)]
    lines += Table.of(shown, COLUMNS).lines(width)
    if hidden:
        lines.append(f"{hidden} topics are not examined; name a pattern")
    elif len(shown) < len(found):
        lines.append(f"{len(found) - len(shown)} more topics")
    return lines


def _totals(storage: StorageDescription, found: Sequence[Activity]) -> list[str]:
    """Return the lines about the whole broker."""
    rate_in = sum(each.published_per_s for each in found)
    rate_out = sum(each.delivered_per_s for each in found)
    rates = f"in {format_count(rate_in)}/s  out {format_count(rate_out)}/s"
    producers = sum(each.producers for each in found)
    consumers = sum(each.consumers for each in found)
    stored = format_bytes(sum(each.byte_count for each in found))
    journal = format_bytes(storage.journal_bytes)
    return [
        f"{rates}  producers {producers}  consumers {consumers}  topics {len(found)}",
        f"stored {stored}  journal {journal}{_uploads(storage)}",
        *(f"problem: {printable(each)}" for each in storage.problems),
    ]


def _uploads(storage: StorageDescription) -> str:
    if not storage.remote_url:
        return ""
    waiting = format_bytes(storage.backlog_bytes)
    return f"  not uploaded {storage.backlog_segments} segments ({waiting})"
