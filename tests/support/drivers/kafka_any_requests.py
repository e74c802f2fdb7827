"""Requests of Kafka's protocol that are made from the types of their messages."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType
from typing import get_args, get_type_hints

from kio.index import load_request_schema


def any_fields(api, version, values):
    """
    The fields of a request.

    *values* chooses: its method ``count`` the number of elements of an array, and
    ``value`` a scalar, each by the name of the field and the type.
    """
    return _fields_of(load_request_schema(api, version), values)


def _fields_of(schema, values):
    hints = _hints(schema)
    return {
        each.name: _value(each.name, hints[each.name], each.metadata, values)
        for each in fields(schema)
    }


@cache
def _hints(schema):
    return get_type_hints(schema)


def _value(name, hint, metadata, values):
    found = [each for each in get_args(hint) if each is not NoneType]
    may_be_none = NoneType in get_args(hint)
    if str(hint).startswith("tuple["):
        (element,) = [each for each in get_args(_array(hint)) if each is not Ellipsis]
        if may_be_none and values.count(name) == 0:
            return None
        return tuple(
            element(**_fields_of(element, values))
            if is_dataclass(element)
            else values.value(name, metadata["kafka_type"], may_be_none=False)
            for _ in range(values.count(name))
        )
    if found and is_dataclass(found[0]):
        return found[0](**_fields_of(found[0], values))
    if is_dataclass(hint):
        return hint(**_fields_of(hint, values))
    return values.value(name, metadata["kafka_type"], may_be_none=may_be_none)


def _array(hint):
    """The array of a type that may be None."""
    arrays = [each for each in get_args(hint) if str(each).startswith("tuple[")]
    return arrays[0] if arrays else hint


def default_of(kafka_type):
    """A value of a type that asks for nothing."""
    if kafka_type.startswith("timedelta"):
        return timedelta(seconds=5)
    if kafka_type.startswith(("int", "uint")):
        return 0
    return {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": None}[
        kafka_type
    ]
