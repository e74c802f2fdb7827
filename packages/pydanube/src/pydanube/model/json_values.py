"""Descriptions as values of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydanube.model.positions import to_datetime

TIME_SUFFIXES = ("_time", "_at")
"""The ends of the names of fields that hold times, in microseconds since 1970."""


def to_json_value(value: Any) -> Any:
    """
    Return *value* with dataclasses as objects, and other types as JSON has them.

    The times of dataclasses and structs, which are in microseconds, become ISO 8601.
    """
    import msgspec  # noqa: PLC0415  # Most commands print no JSON.

    return msgspec.to_builtins(_with_times(value), str_keys=True)


def _with_times(value: Any) -> Any:
    names = getattr(value, "__struct_fields__", ())
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)]
    if names:
        return {name: _with_time(name, getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: _with_times(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_times(each) for each in value]
    return value


def _with_time(name: str, value: Any) -> Any:
    if isinstance(value, int) and name.endswith(TIME_SUFFIXES):
        return to_datetime(value).isoformat().replace("+00:00", "Z")
    return _with_times(value)
