"""
Values of MySQL and MariaDB as JSON: of rows, and of the binary log.  Pure.

Both give what the server prints, with two exceptions that keep the exact value: a FLOAT
is the shortest number that is stored as the same, and bytes are in hexadecimal.  Dates
and times of Python are not used, because the server has some that Python has not, such
as ``0000-00-00``, ``2024-00-15`` and ``838:59:59``.

Sources: MariaDB's and MySQL's documentation of data types and of row events.
"""

from __future__ import annotations

import ipaddress
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

from pydanube_connect.pure.mapping import InvalidRecord, parse_json
from pydanube_connect.sources.sql import to_json

Decode = Callable[[Any], Any]

BINARY = "binary"
"""The character set of bytes, and the type of those with a fixed length."""
PRINTED_TYPES = frozenset({"inet4", "inet6", "uuid"})
"""Types of MariaDB that are bytes in the log, and texts in rows."""

_FLOAT_DIGITS_MAX = 9
_TIME_ZERO = 0x800000
"""The integral part of a TIME of zero, in the log."""
_DATETIME_ZERO = 0x8000000000

_ENCODINGS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ascii": "ascii",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "tis620": "tis_620",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "hp8": "hp_roman8",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}
"""Python's names of character sets, if they differ."""


# Rows, as the server prints them.


def row_expression(name: str, data_type: str) -> str:
    """Return what to select for the column *name*, which is quoted."""
    # The server prints six digits; as a double, it prints all that it has.
    return f"({name} + 0.0e0)" if data_type == "float" else name


def row_decoder(data_type: str) -> Decode:
    """
    Return the function for values of rows, of a type of ``information_schema``.

    It gets a text, or bytes of columns that have no character set.
    """
    return _ROW_DECODERS.get(data_type, _plain)


def _plain(value: str | bytes) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _float(value: str) -> float:
    return shortest_single(float(value))


def _datetime(value: str) -> str:
    """Return a DATETIME as ISO 8601 has it, with a fraction of six digits if any."""
    return _with_fraction(value.replace(" ", "T", 1))


def _with_fraction(value: str) -> str:
    whole, _, fraction = value.partition(".")
    return f"{whole}.{fraction:0<6}" if fraction.strip("0") else whole


def _bits(value: bytes) -> int:
    return int.from_bytes(value)


def _json(value: str) -> Any:
    try:
        return parse_json(value)
    except InvalidRecord:
        return value


_ROW_DECODERS: dict[str, Decode] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), int),
    "float": _float,
    "double": float,
    "datetime": _datetime,
    "timestamp": _datetime,
    "time": _with_fraction,
    "bit": _bits,
    "json": _json,
}


# The log.


def read_log_value(  # noqa: PLR0911, PLR0912  # A case for each type.
    event: Any, column: Any, printed_type: str | None
) -> Any:
    """
    Return the next value of a row event, which is not null.

    *event* is one of the library, whose packet is read.  *printed_type* is one of
    ``PRINTED_TYPES``, or None.
    """
    from pymysql.constants import FIELD_TYPE  # noqa: PLC0415

    packet, kind = event.packet, column.type
    if kind in _INTEGER_BYTES:
        return int.from_bytes(
            packet.read(_INTEGER_BYTES[kind]), "little", signed=not column.unsigned
        )
    match kind:
        case FIELD_TYPE.FLOAT:
            return shortest_single(struct.unpack("<f", packet.read(4))[0])
        case FIELD_TYPE.DOUBLE:
            return struct.unpack("<d", packet.read(8))[0]
        case FIELD_TYPE.NEWDECIMAL:
            return read_decimal(packet.read, column.precision, column.decimals)
        case FIELD_TYPE.YEAR:
            year = packet.read(1)[0]
            return year and 1900 + year
        case FIELD_TYPE.DATE:
            return log_date(int.from_bytes(packet.read(3), "little"))
        case 19:  # TIME2
            return read_time(packet.read, column.fsp)
        case 18:  # DATETIME2
            return read_datetime(packet.read, column.fsp)
        case 17:  # TIMESTAMP2
            seconds = int.from_bytes(packet.read(4))
            return log_timestamp(seconds, _fraction(packet.read, column.fsp))
        case FIELD_TYPE.BIT:
            return int.from_bytes(packet.read(column.bytes))
        case FIELD_TYPE.ENUM:
            number = int.from_bytes(packet.read(column.size), "little")
            return column.enum_values[number] if number else ""
        case FIELD_TYPE.SET:
            chosen = int.from_bytes(packet.read(column.size), "little")
            values = column.set_values or ()
            return ",".join(
                each for number, each in enumerate(values) if chosen >> number & 1
            )
        case FIELD_TYPE.VARCHAR | FIELD_TYPE.STRING:
            size = 2 if column.max_length > 255 else 1
            data = packet.read(int.from_bytes(packet.read(size), "little"))
            if kind == FIELD_TYPE.STRING and _is_binary(column):
                # Zeros at the end of a fixed length are not in the log.
                return _fixed(data.ljust(column.max_length, b"\0"), printed_type)
            return _log_text(data, column)
        case FIELD_TYPE.BLOB:
            length = int.from_bytes(packet.read(column.length_size), "little")
            return _log_text(packet.read(length), column)
        case FIELD_TYPE.GEOMETRY:
            length = int.from_bytes(packet.read(column.length_size), "little")
            return packet.read(length).hex()
        case FIELD_TYPE.JSON:
            return _texts(packet.read_binary_json(column.length_size, False))
    raise NotImplementedError(
        f"the column {column.name} has the type {kind} of the log, which is not known"
    )


_INTEGER_BYTES = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8}
"""The sizes of TINYINT, SMALLINT, MEDIUMINT, INT and BIGINT, by the type of the log."""

Read = Callable[[int], bytes]


def read_decimal(read: Read, precision: int, decimals: int) -> str:
    """Return a DECIMAL with all its decimals: groups of nine digits, the sign first."""
    data = bytearray(read(decimal_bytes(precision, decimals)))
    is_negative = not data[0] & 0x80
    data[0] ^= 0x80
    if is_negative:
        data = bytearray(each ^ 0xFF for each in data)
    whole, rest = divmod(precision - decimals, 9)
    sizes = [rest] * bool(rest) + [9] * whole
    digits = _digit_groups(data, sizes)
    whole, rest = divmod(decimals, 9)
    fraction = _digit_groups(data, [9] * whole + [rest] * bool(rest))
    text = digits.lstrip("0") or "0"
    if fraction:
        text += f".{fraction}"
    return f"-{text}" if is_negative else text


def decimal_bytes(precision: int, decimals: int) -> int:
    """Return how many bytes a DECIMAL has in the log."""
    return sum(
        4 * (digits // 9) + _PARTIAL_BYTES[digits % 9]
        for digits in (precision - decimals, decimals)
    )


_PARTIAL_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4)
"""The bytes of a group with fewer than nine digits, by their number."""


def _digit_groups(data: bytearray, sizes: list[int]) -> str:
    text = ""
    for digits in sizes:
        size = 4 if digits == 9 else _PARTIAL_BYTES[digits]
        text += f"{int.from_bytes(data[:size]):0{digits}d}"
        del data[:size]
    return text


def _fraction(read: Read, digits: int) -> int:
    """Return the microseconds of a time with so many digits after the point."""
    size = (digits + 1) // 2
    return int.from_bytes(read(size)) * 10 ** (6 - 2 * size) if size else 0


def log_date(packed: int) -> str:
    """Return a DATE of the log: day, month and year from the lowest bit."""
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"


def read_time(read: Read, digits: int) -> str:
    """Return a TIME, such as ``-12:30:00.500000``: a number above that of zero."""
    size = (digits + 1) // 2
    packed = int.from_bytes(read(3 + size)) - (_TIME_ZERO << 8 * size)
    sign = "-" if packed < 0 else ""
    whole, fraction = divmod(abs(packed), 1 << 8 * size)
    text = f"{sign}{whole >> 12 & 1023:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
    return _with_microseconds(text, fraction * 10 ** (6 - 2 * size))


def read_datetime(read: Read, digits: int) -> str:
    """Return a DATETIME in the format of ISO 8601."""
    packed = int.from_bytes(read(5)) - _DATETIME_ZERO
    date, time = packed >> 17, packed & (1 << 17) - 1
    year, month = divmod(date >> 5, 13)
    text = (
        f"{year:04d}-{month:02d}-{date & 31:02d}"
        f"T{time >> 12:02d}:{time >> 6 & 63:02d}:{time & 63:02d}"
    )
    return _with_microseconds(text, _fraction(read, digits))


def log_timestamp(seconds: int, microseconds: int) -> str:
    """Return a TIMESTAMP in UTC; 0 is not 1970, but no time."""
    import datetime as dt  # noqa: PLC0415

    if not seconds and not microseconds:
        return "0000-00-00T00:00:00"
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)  # noqa: DTZ001
    return _with_microseconds(moment.isoformat(), microseconds)


def _with_microseconds(text: str, microseconds: int) -> str:
    return f"{text}.{microseconds:06d}" if microseconds else text


def shortest_single(value: float) -> float:
    """Return the shortest number that is *value* in single precision."""
    packed = struct.pack("<f", value)
    for digits in range(1, _FLOAT_DIGITS_MAX):
        short = float(f"{value:.{digits}g}")
        with suppress(OverflowError):  # The largest one may be rounded up.
            if struct.pack("<f", short) == packed:
                return short
    return float(f"{value:.{_FLOAT_DIGITS_MAX}g}")


def _is_binary(column: Any) -> bool:
    return column.character_set_name in {None, BINARY}


def _fixed(data: bytes, printed_type: str | None) -> str:
    if printed_type in {"inet4", "inet6"}:
        return _printed_address(data)
    return str(uuid.UUID(bytes=data)) if printed_type == "uuid" else data.hex()


def _printed_address(data: bytes) -> str:
    address = ipaddress.ip_address(data)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return f"::ffff:{address.ipv4_mapped}"
    return str(address)


def _log_text(data: bytes, column: Any) -> str:
    if column.character_set_name in {None, BINARY}:
        return data.hex()
    return decoded_text(data, column.character_set_name)


def decoded_text(data: bytes, character_set: str) -> str:
    """Return a text in a character set of the server."""
    if character_set in {"latin1", "cp1252"}:
        # MySQL calls cp1252 latin1, and maps all 256 bytes to characters.
        return "".join(
            bytes([each]).decode("cp1252", "ignore") or chr(each) for each in data
        )
    name = _ENCODINGS.get(character_set, character_set)
    try:
        return data.decode(name, "replace")
    except LookupError:
        return data.decode("ascii", "replace")


def _texts(value: Any) -> Any:
    """Return a JSON value whose texts may be bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_texts(name): _texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_texts(each) for each in value]
    if isinstance(value, Decimal):
        # As the same number in a row, which is parsed.
        return parse_json(str(value))
    return to_json(value)
