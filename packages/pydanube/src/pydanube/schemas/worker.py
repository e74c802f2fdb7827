"""
The worker process of a ``WorkerPool``: validates payloads and compares schemas.

It answers requests on a connection until that is closed.  Work that takes too long
ends the process, because its alarm signal has no handler.
"""

from __future__ import annotations

import signal
import sys
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

from msgspec import msgpack

from pydanube.model.schemas import SchemaType
from pydanube.schemas.parsing import parse_schema

SCHEMAS_KEPT_MAX = 16


def main(descriptor: int, seconds_max: float) -> None:
    """Answer requests on the connection with this file *descriptor*."""
    connection = Connection(descriptor)
    while True:
        try:
            kind, *arguments = msgpack.decode(connection.recv_bytes())
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, seconds_max)
        answer = _WORK[kind](*arguments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send_bytes(msgpack.encode(answer))


def _validate(definition: list[Any], payloads: list[bytes]) -> Any:
    return _validator_of(*definition)(payloads)


def _compare(reader: list[Any], writer: list[Any]) -> Any:
    return _schema_of(*reader).incompatibilities_in_process(_schema_of(*writer))


_WORK = {"validate": _validate, "compare": _compare}


@lru_cache(maxsize=SCHEMAS_KEPT_MAX)
def _schema_of(type_: str, text: str, message: str | None) -> Any:
    return parse_schema(SchemaType(type_), text, message=message)


@lru_cache(maxsize=SCHEMAS_KEPT_MAX)
def _validator_of(type_: str, text: str, message: str | None) -> Any:
    return _schema_of(type_, text, message).validator_in_process()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
