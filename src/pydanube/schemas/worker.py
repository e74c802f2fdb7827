"""
The worker process of a ``WorkerPool``: validates payloads and compares schemas.

It answers requests on standard input until the input ends.  Work that takes too long
ends the process, because its alarm signal has no handler.
"""

from __future__ import annotations

import signal
import sys
from functools import lru_cache
from typing import Any

from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsing import parse_schema
from pydanube.schemas.worker_pool import read_message, write_message

SCHEMAS_KEPT_MAX = 16


def main(seconds_max: float) -> None:
    """Answer requests until standard input ends."""
    while True:
        try:
            kind, *arguments = read_message(sys.stdin.buffer)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, seconds_max)
        answer = _WORK[kind](*arguments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_message(sys.stdout.buffer, answer)


def _validate(definition: list[Any], payloads: list[bytes]) -> Any:
    return _validator_of(*definition)(payloads)


def _compare(reader: list[Any], writer: list[Any]) -> Any:
    found = _schema_of(*reader).incompatibilities_in_process(_schema_of(*writer))
    return [(each.path, each.rule, each.text) for each in found]


_WORK = {"validate": _validate, "compare": _compare}


@lru_cache(maxsize=SCHEMAS_KEPT_MAX)
def _schema_of(type_: str, text: str, message: str | None) -> Any:
    return parse_schema(SchemaType(type_), text, message=message)


@lru_cache(maxsize=SCHEMAS_KEPT_MAX)
def _validator_of(type_: str, text: str, message: str | None) -> Any:
    return _schema_of(type_, text, message).validator_in_process()


if __name__ == "__main__":
    main(float(sys.argv[1]))
