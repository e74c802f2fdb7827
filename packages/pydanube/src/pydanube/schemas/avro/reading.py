"""
The form of a schema that fastavro reads, and how it reads some types.

fastavro takes numbers outside of their types, rounds decimals, and returns a UUID in a
``fixed`` as bytes.  Logical types of our own replace these types.
"""

from __future__ import annotations

from datetime import time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from fastavro import read

from pydanube.schemas.avro.leaves import decimal_of, time_of

_PREFIX = "pydanube-"
"""Other users of fastavro in this process do not have these logical types."""
INT = f"{_PREFIX}int"


def form_for_reading(form: Any) -> Any:
    """Return the canonical *form* of a schema as fastavro should read it."""
    if isinstance(form, list):
        return [form_for_reading(each) for each in form]
    if form == "int":
        return {"type": "int", "logicalType": INT}
    if not isinstance(form, dict):
        return form
    parts = {
        key: form_for_reading(part)
        if key in ("type", "items", "values", "fields")
        else part
        for key, part in form.items()
    }
    logical = form.get("logicalType")
    if logical is not None:
        # A type with a logical type has no parts.
        own = f"{_PREFIX}{logical}"
        is_own = f"{form['type']}-{own}" in read.LOGICAL_READERS
        parts = {**form, "logicalType": own if is_own else logical}
    # Without it, a name would belong to the namespace of the type around it.
    is_named = not form.keys().isdisjoint(("fields", "symbols", "size"))
    return parts | ({"namespace": ""} if is_named and "." not in form["name"] else {})


def _int(data: int, *_: Any) -> int:
    if not -(2**31) <= data < 2**31:
        raise ValueError(f"{data} is not an int, which has 32 bits")
    return data


def _decimal(data: bytes, schema: Any, _: Any) -> Decimal:
    return decimal_of(data, schema["precision"], schema.get("scale", 0))


def _uuid(data: bytes, *_: Any) -> UUID:
    return UUID(bytes=data)


def _time_millis(data: int, *_: Any) -> time:
    return time_of(timedelta(milliseconds=data))


def _time_micros(data: int, *_: Any) -> time:
    return time_of(timedelta(microseconds=data))


read.LOGICAL_READERS |= {
    f"int-{INT}": _int,
    f"int-{_PREFIX}time-millis": _time_millis,
    f"long-{_PREFIX}time-micros": _time_micros,
    f"bytes-{_PREFIX}decimal": _decimal,
    f"fixed-{_PREFIX}decimal": _decimal,
    f"fixed-{_PREFIX}uuid": _uuid,
}
