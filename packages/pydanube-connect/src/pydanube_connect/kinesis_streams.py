"""The streams of Amazon Kinesis, for the source and the sink."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def stream_problems(stream: str) -> dict[str, str]:
    """Return whether the option ``stream`` is malformed."""
    if _NAME.fullmatch(stream):
        return {}
    return {"stream": f"{stream!r} is not a name of letters, digits, '.', '_' and '-'"}
