"""The tables of options in the guides."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube_spark.reader.pure.option_parsing import Option


def options_table(declared: Sequence[Option], *, has_modes: bool = False) -> str:
    """Return the Markdown table of *declared*, for the guides."""
    heads = ["Option", "Default", *["For"] * has_modes, "Meaning"]
    rows = [
        [
            f"`{option.name}`",
            "required" if option.is_required else option.default or "none",
            *[option.modes] * has_modes,
            option.meaning,
        ]
        for option in declared
    ]
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])
