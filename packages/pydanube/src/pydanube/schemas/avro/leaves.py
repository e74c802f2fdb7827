"""
Python values of the Avro types that contain no others, as the values that Avro writes.

A value matches a type if a reader gets an equal value.  So a number is never rounded,
with one exception: a ``float`` has 32 bits, and takes the nearest finite number.  The
unit of a time is that of its type, so it has no finer fraction; a ``timestamp`` is an
instant, which needs a time zone, and a ``local-timestamp`` has none.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from pydanube.schemas.avro.types import (
    DECIMAL_DIGITS_MAX,
    Enum,
    Fixed,
    Logical,
    Primitive,
)

Leaf = Primitive | Enum | Fixed
Convert = Callable[[Any], Any]

SHOWN_CHARACTERS = 80

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = _EPOCH.replace(tzinfo=None)
_DAY_ZERO = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_UNITS_US = {"millis": 1000, "micros": 1}
_UUID_CHARACTERS = 36
_EXACT = Context(prec=4 * DECIMAL_DIGITS_MAX, traps=[Inexact, InvalidOperation])
_TOO_LONG: int = 10**DECIMAL_DIGITS_MAX
"""A number with too many digits for any decimal."""


class Mismatch(ValueError):
    """A value does not match its type."""

    def inside(self, part: str) -> Mismatch:
        """Return this for the value that has the present one as its *part*."""
        return Mismatch(f"{part}: {self}")


def mismatch(value: Any, expected: str) -> Mismatch:
    """Return the error that *value* is not *expected*."""
    try:
        shown = f"{value!r:.{SHOWN_CHARACTERS}}"
    except RecursionError:
        shown = "a deeply nested value"
    return Mismatch(f"{shown} ({type(value).__name__}) is not {expected}")


def python_types(leaf: Leaf) -> tuple[type, ...]:
    """Return the types of the values of *leaf*, the preferred one first."""
    logical = leaf.logical.name if not isinstance(leaf, Enum) and leaf.logical else ""
    if logical in _LOGICAL_TYPES:
        return _LOGICAL_TYPES[logical]
    return _KIND_TYPES[leaf.kind]


_LOGICAL_TYPES: dict[str, tuple[type, ...]] = {
    "date": (date,),
    "time-millis": (time,),
    "time-micros": (time,),
    "timestamp-millis": (datetime,),
    "timestamp-micros": (datetime,),
    "local-timestamp-millis": (datetime,),
    "local-timestamp-micros": (datetime,),
    "uuid": (UUID, str),
    "decimal": (Decimal, int),
}
_KIND_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float, int),
    "double": (float, int),
    "bytes": (bytes, bytearray, memoryview),
    "fixed": (bytes, bytearray, memoryview),
    "string": (str,),
    "enum": (str,),
}


def is_of(found: type, accepted: type) -> bool:
    """Return whether values of the type *found* are values of the type *accepted*."""
    if accepted is int and issubclass(found, bool):
        return False
    if accepted is date and issubclass(found, datetime):
        return False
    return issubclass(found, accepted)


def leaf_converter(leaf: Leaf) -> Convert:
    """
    Return the function that checks a value of *leaf*, and converts logical types.

    Its result is None, a bool, an int, a float, bytes or text, as the type without its
    logical type has it.  It raises ``Mismatch``.
    """
    if isinstance(leaf, Enum):
        return _symbol(leaf)
    size = leaf.size if isinstance(leaf, Fixed) else None
    if leaf.logical is not None:
        convert = _logical_converter(leaf.logical, size)
        if convert is not None:
            return convert
    return _fixed(size) if size is not None else _PLAIN[leaf.kind]


def _logical_converter(logical: Logical, size: int | None) -> Convert | None:
    match logical.name:
        case "decimal":
            return _decimal(logical.precision or 0, logical.scale or 0, size)
        case "uuid":
            return _uuid_text if size is None else _uuid_bytes
        case "date":
            return _date
    kind, _, unit = logical.name.rpartition("-")
    if unit not in _UNITS_US:
        # Python's times have no nanoseconds, so these are numbers; a duration is bytes.
        return None
    unit_us = _UNITS_US[unit]
    return {"time": _time, "timestamp": _instant, "local-timestamp": _local}[kind](
        unit_us
    )


# Types without a logical type.


def _null(value: Any) -> None:
    if value is not None:
        raise mismatch(value, "null")


def _boolean(value: Any) -> bool:
    if value is not True and value is not False:
        raise mismatch(value, "a boolean")
    return value


def _integer(bits: int, what: str) -> Convert:
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise mismatch(value, what)
        if not least <= value <= greatest:
            raise mismatch(value, f"{what}, which has {bits} bits")
        return value

    return convert


def _double(value: Any) -> float:
    if isinstance(value, float):
        return value
    return _exact(value, float, "a double")


def _float(value: Any) -> float:
    if isinstance(value, float):
        try:
            struct.pack("<f", value)
        except OverflowError:
            raise mismatch(value, "a float, which has 32 bits") from None
        return value
    return _exact(value, _nearest_float, "a float")


def _exact(value: Any, nearest: Callable[[int], float], what: str) -> float:
    """Return the integer *value* as a number of floating point, if it is one."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise mismatch(value, what)
    try:
        found = nearest(value)
    except OverflowError:
        found = 0.0
    if found != value:
        raise mismatch(value, f"{what}, which would round it")
    return found


def _nearest_float(value: int) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise mismatch(value, "bytes")
    return bytes(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise mismatch(value, "a string")
    return value


_PLAIN: dict[str, Convert] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer(32, "an int"),
    "long": _integer(64, "a long"),
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _fixed(size: int) -> Convert:
    def convert(value: Any) -> bytes:
        found = _bytes(value)
        if len(found) != size:
            raise mismatch(value, f"a fixed of {size} bytes, but has {len(found)}")
        return found

    return convert


def _symbol(leaf: Enum) -> Convert:
    symbols = frozenset(leaf.symbols)

    def convert(value: Any) -> str:
        if not isinstance(value, str) or value not in symbols:
            some = ", ".join(leaf.symbols[:10])
            raise mismatch(value, f"a symbol of the enum {leaf.name} ({some})")
        return value

    return convert


# Logical types.


def _uuid_text(value: Any) -> str:
    return str(_uuid(value))


def _uuid_bytes(value: Any) -> bytes:
    return _uuid(value).bytes


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and len(value) == _UUID_CHARACTERS:
        try:
            found = UUID(value)
        except ValueError:
            found = None
        # UUID() takes other forms, too.
        if found is not None and str(found) == value.lower():
            return found
    raise mismatch(value, "a UUID")


def _decimal(precision: int, scale: int, size: int | None) -> Convert:
    what = f"a decimal({precision}, {scale})"

    def convert(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise mismatch(value, what)
        unscaled = _unscaled(value, scale)
        if unscaled is None:
            raise mismatch(value, f"{what}: it has more than {scale} decimal places")
        if abs(unscaled) >= 10**precision:
            raise mismatch(value, f"{what}: it has more than {precision} digits")
        if size is None:
            return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)
        return unscaled.to_bytes(size, signed=True)

    return convert


def _unscaled(value: Decimal | int, scale: int) -> int | None:
    """Return *value* times 10 to the power of *scale*, if that is an integer."""
    if isinstance(value, int):
        # A longer number has too many digits in any case.
        is_long = value.bit_length() > 4 * DECIMAL_DIGITS_MAX
        return _TOO_LONG if is_long else value * int(10**scale)
    if not value.is_finite():
        return None
    if value and value.adjusted() > DECIMAL_DIGITS_MAX:
        return _TOO_LONG
    try:
        scaled = value.scaleb(scale, _EXACT)
        is_integer = scaled == scaled.to_integral_value(context=_EXACT)
    except ArithmeticError:
        # Too small or too long to be exact.
        return None
    return int(scaled) if is_integer else None


def _date(value: Any) -> int:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise mismatch(value, "a date")
    return value.toordinal() - _DAY_ZERO


def _time(unit_us: int) -> Convert:
    def convert(value: Any) -> int:
        if not isinstance(value, time):
            raise mismatch(value, "a time")
        if value.tzinfo is not None:
            raise mismatch(value, "a time without a time zone, which Avro's have not")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return _in_units(value, seconds * 1_000_000 + value.microsecond, unit_us)

    return convert


def _instant(unit_us: int) -> Convert:
    def convert(value: Any) -> int:
        if not isinstance(value, datetime):
            raise mismatch(value, "a timestamp, which is a datetime with a time zone")
        if value.utcoffset() is None:
            raise Mismatch(
                f"the time {value} has no time zone, which a timestamp needs, for "
                "example tzinfo=datetime.UTC"
            )
        return _in_units(value, (value - _EPOCH) // _MICROSECOND, unit_us)

    return convert


def _local(unit_us: int) -> Convert:
    def convert(value: Any) -> int:
        if not isinstance(value, datetime):
            raise mismatch(value, "a local timestamp, which is a datetime")
        if value.tzinfo is not None:
            raise Mismatch(
                f"the time {value} has a time zone, which a local timestamp would "
                "lose: use the type timestamp"
            )
        return _in_units(value, (value - _LOCAL_EPOCH) // _MICROSECOND, unit_us)

    return convert


def _in_units(value: Any, microseconds: int, unit_us: int) -> int:
    # pandas has datetimes with nanoseconds.
    units, rest = divmod(microseconds, unit_us)
    if rest or getattr(value, "nanosecond", 0):
        unit = "milliseconds" if unit_us > 1 else "microseconds"
        raise Mismatch(f"the time {value} is not a number of whole {unit}")
    return units


# Values that were read.


def decimal_of(data: bytes, precision: int, scale: int) -> Decimal:
    """
    Return the decimal with the unscaled value *data*.

    Raises:
        ValueError: It has more than *precision* digits.
    """
    unscaled = int.from_bytes(data, signed=True)
    if abs(unscaled) >= 10**precision:
        raise ValueError(f"a decimal has more than {precision} digits")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def time_of(since_midnight: timedelta) -> time:
    """
    Return the time of a day.

    Raises:
        ValueError: It is no time of a day.
    """
    if not timedelta(0) <= since_midnight < timedelta(days=1):
        raise ValueError(f"{since_midnight} is not a time of a day")
    return (_LOCAL_EPOCH + since_midnight).time()


# JSON, which has fewer types.


def json_converter(leaf: Leaf) -> Convert | None:
    """
    Return the function that converts texts and numbers of JSON to values of *leaf*.

    It takes what the command line prints, and numbers of the units of times.  Other
    values stay as they are.  None: JSON has the type itself.
    """
    first = python_types(leaf)[0]
    if first is Decimal:
        return _decimal_of_json
    if first is bytes:
        return _bytes_of_json
    if not isinstance(leaf, Primitive) or leaf.logical is None or first is UUID:
        return None
    kind, _, unit = leaf.logical.name.rpartition("-")
    step = timedelta(microseconds=_UNITS_US.get(unit, 1))

    def convert(value: Any) -> Any:
        if isinstance(value, str) and first is not int:
            return first.fromisoformat(value)  # type: ignore[attr-defined]
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        if first is date:
            return date.fromordinal(_DAY_ZERO + value)
        if first is datetime:
            return (_EPOCH if kind == "timestamp" else _LOCAL_EPOCH) + value * step
        return time_of(value * step) if first is time else value

    return convert


def _decimal_of_json(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= 2 * DECIMAL_DIGITS_MAX:
        return Decimal(value)
    # The shortest text of the number, which is how JSON wrote it.
    return Decimal(repr(value)) if isinstance(value, float) else value


def _bytes_of_json(value: Any) -> Any:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value
