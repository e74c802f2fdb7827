"""Values of MySQL and MariaDB as JSON: of rows, and of the binary log.  Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any

from pydanube.connectors.mapping import InvalidRecord, parse_json
from pydanube.connectors.sources.sql import to_json

Decode = Callable[[Any], Any]

BINARY = "binary"
"""The character set of bytes, and the type of those with a fixed length."""
_FLOAT_DIGITS = 6
"""How many digits the server shows of a single-precision number."""


def row_decoder(data_type: str) -> Decode:
    """Return the function for values of rows, of a type of ``information_schema``."""
    return _ROW_DECODERS.get(data_type, _plain)


def log_decoder(column: Any) -> Decode:
    """Return the function for values of the binary log, of one of its columns."""
    from pymysql.constants import FIELD_TYPE  # noqa: PLC0415

    if column.type == FIELD_TYPE.SET:
        return partial(_members, column.set_values or ())
    if column.type == FIELD_TYPE.BIT:
        return partial(int, base=2)
    if column.type == FIELD_TYPE.FLOAT:
        return _single
    if column.type == FIELD_TYPE.JSON:
        return _texts
    if column.character_set_name == BINARY:
        # Zeros at the end of a fixed length are not in the log.
        is_fixed = column.type == FIELD_TYPE.STRING
        return partial(_bytes, column.max_length if is_fixed else 0)
    return _plain


def _plain(value: Any) -> Any:
    return _duration(value) if isinstance(value, dt.timedelta) else to_json(value)


def _duration(value: dt.timedelta) -> str:
    """Return a TIME as the server writes it, such as ``-12:30:00.5``."""
    sign = "-" if value < dt.timedelta() else ""
    seconds, rest = divmod(abs(value), dt.timedelta(seconds=1))
    minutes, second = divmod(seconds, 60)
    fraction = f".{rest.microseconds:06d}" if rest else ""
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{fraction}"


def _single(value: float) -> float:
    return float(f"{value:.{_FLOAT_DIGITS}g}")


def _members(values: tuple[str, ...], chosen: set[str]) -> str:
    """Return the members of a SET, in the order of its definition."""
    return ",".join(each for each in values if each in chosen)


def _bytes(length: int, value: str | bytes) -> str:
    found = value.encode("latin-1") if isinstance(value, str) else value
    return found.ljust(length, b"\0").hex()


def _bits(value: bytes | int) -> int:
    return value if isinstance(value, int) else int.from_bytes(value)


def _json(value: Any) -> Any:
    try:
        return parse_json(value)
    except InvalidRecord:
        return value


def _texts(value: Any) -> Any:
    """Return a JSON value whose texts may be bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_texts(name): _texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_texts(each) for each in value]
    return _plain(value)


_ROW_DECODERS: dict[str, Decode] = {"bit": _bits, "json": _json}
