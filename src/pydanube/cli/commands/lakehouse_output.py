"""The output of `danube lakehouse`: results and plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    print_table,
)
from pydanube.cli.quantities import format_bytes, format_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.tables.export.exporter import ExportPlan, ExportReport
    from pydanube.tables.export.zero_copy import TopicSegments


def fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, one level deep."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def sentence(report: ExportReport) -> str:
    """Return what one round did as a sentence."""
    dead = f", {report.dead_count} of them dead letters" if report.dead_count else ""
    return (
        f"{format_messages(report.message_count)}{dead} in {report.file_count} "
        f"{'file' if report.file_count == 1 else 'files'} of "
        f"{format_bytes(report.file_bytes)}"
    )


def total(reports: Sequence[ExportReport]) -> dict[str, Any]:
    """Return the sums of all rounds."""
    counted = ("message_count", "dead_count", "file_count", "file_bytes")
    return {
        "topics": [
            {"topic": each.topic, "exported": each.exported}
            for each in reports[-1].topics
        ],
        **{name: sum(getattr(each, name) for each in reports) for name in counted},
        "round_count": len(reports),
    }


def print_total(total: dict[str, Any]) -> None:
    """Print the result of ``total``."""
    print_table(
        ("topic", "exported up to"),
        [(each["topic"], each["exported"]) for each in total["topics"]],
    )
    print_line()
    print_fields(
        [
            ("messages", total["message_count"]),
            ("dead letters", total["dead_count"]),
            ("files", total["file_count"]),
            ("size", format_bytes(total["file_bytes"])),
        ]
    )


def print_plan(plan: ExportPlan, output_format: OutputFormat) -> None:
    """Print what the next round would do."""
    bases = {each.topic: each.base for each in plan.round.ranges}
    rows = [
        {
            "topic": each.topic,
            "exported": each.exported,
            "from": bases.get(each.topic),
            "to": each.end,
        }
        for each in plan.topics
    ]
    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "is_new": field.name in plan.new_columns,
        }
        for field in plan.columns
    ]
    if output_format is OutputFormat.JSON:
        print_json(
            {
                "table": plan.table,
                "shape": plan.layout,
                "waiting_count": plan.waiting_count,
                "topics": rows,
                "columns": columns,
            }
        )
        return
    print_fields(
        [
            ("table", plan.table),
            ("shape", plan.layout),
            ("waiting", format_messages(plan.waiting_count)),
            ("in the first round", format_messages(plan.round.message_count)),
        ]
    )
    print_line()
    print_table(
        ("topic", "in the table up to", "from", "to"), [[*r.values()] for r in rows]
    )
    print_line()
    print_table(("column", "type", "new"), [[*c.values()] for c in columns])


def print_registrations(
    planned: Sequence[TopicSegments], output_format: OutputFormat
) -> None:
    """Print which segments would become files of a table."""
    rows = [
        {
            "topic": each.found.topic,
            "from": each.found.base,
            "to": each.found.end,
            "segments": len(each.found.segments),
            "messages": each.message_count,
        }
        for each in planned
    ]
    if output_format is OutputFormat.JSON:
        print_json(rows)
    else:
        print_table(
            ("topic", "from", "to", "segments", "messages"),
            [[*r.values()] for r in rows],
        )
