"""JSON for people: what fits on a line is on one line."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 80


def lay_out_json(value: Any, indent: int = 0, before: int = 0) -> str:
    """
    Return *value* as JSON that is indented, with small objects and arrays on one line.

    Args:
        value: A value of ``json.loads``.
        indent: The indentation of the line that the value is on.
        before: The characters on that line before the value, without the indentation.
    """
    flat = json.dumps(value, ensure_ascii=False)
    is_container = isinstance(value, dict | list) and bool(value)
    # A comma may follow.
    if not is_container or indent + before + len(flat) < WIDTH:
        return flat
    inner = indent + 2
    if isinstance(value, list):
        parts, ends = [lay_out_json(each, inner) for each in value], "[]"
    else:
        heads = {f"{json.dumps(key, ensure_ascii=False)}: ": key for key in value}
        parts, ends = (
            [
                head + lay_out_json(value[key], inner, len(head))
                for head, key in heads.items()
            ],
            "{}",
        )
    lines = ",\n".join(" " * inner + part for part in parts)
    return f"{ends[0]}\n{lines}\n{' ' * indent}{ends[1]}"
