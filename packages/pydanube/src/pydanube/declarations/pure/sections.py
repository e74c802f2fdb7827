"""
The sections of a declared file: classes that define its fields.

``parse_section`` refuses any other field and suggests similar ones.  It reports the
problems of all fields, each with its line.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from pydanube.declarations.pure.problems import UNKNOWN, Path, Problems, listed
from pydanube.model.errors import InvalidConfig
from pydanube.model.quantities import DURATION_UNITS, parse_quantity
from pydanube.model.retry import RetryPolicy
from pydanube.model.suggestions import did_you_mean

G = TypeVar("G", bound=msgspec.Struct)

Scalar = str | int | float | bool


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of the file."""


class Retries(Section, frozen=True):
    """The retries of something that failed."""

    count: int | None = 3
    """The maximum number of retries in a row; a success resets it.  None: no limit."""
    backoff: str = "1s"
    """The delay before the first retry; it doubles with each further one."""
    backoff_max: str = "1m"

    @property
    def policy(self) -> RetryPolicy:
        """The policy for valid settings."""
        return RetryPolicy(
            parse_duration(self.backoff),
            parse_duration(self.backoff_max),
            self.count,
        )


def parse_section(
    value: object, kind: type[G], path: Path, problems: Problems
) -> G | None:
    """Parse *value* as *kind*; report the problems of all fields."""
    if not isinstance(value, dict):
        problems.add(path, f"must be settings by name, not {_type_name(value)}")
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in value.keys() - fields.keys():
        hint = did_you_mean(name, fields) or f"; known are {listed(fields)}"
        problems.add((*path, name), f"{UNKNOWN}{hint}")
    found = {}
    for name, field in fields.items():
        given = value.get(name, UNSET)
        if given is UNSET:
            if field.required:
                problems.add(path, f"'{name}' is missing")
            continue
        # An empty section, such as ``steps:`` alone, counts as omitted.
        if given is None and not field.required:
            continue
        part = _parse_field(given, field.type, (*path, name), problems)
        if not isinstance(part, UnsetType):
            found[field.name] = part
    if any(each.required and each.name not in found for each in fields.values()):
        return None
    return kind(**found)


def parse_duration(text: str) -> float:
    """
    Return the seconds in a duration such as ``500ms``, ``10s``, ``5m`` or ``1h``.

    Raises:
        InvalidConfig: *text* is no duration, or is 0.
    """
    seconds = parse_quantity(text, DURATION_UNITS)
    if not seconds:
        raise InvalidConfig(f"{text!r} is not a duration such as 10s, 5m or 1h")
    return seconds


def _parse_field(value: object, kind: Any, path: Path, problems: Problems) -> Any:
    if get_origin(kind) is dict and struct_in(get_args(kind)[1]):
        return _parse_named(value, struct_in(get_args(kind)[1]), path, problems)
    struct = struct_in(kind)
    if struct is not None:
        built = parse_section(value, struct, path, problems)
        return UNSET if built is None else built
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problems.add(path, _message(error, value, kind))
        return UNSET


def _parse_named(value: object, kind: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(value, dict):
        problems.add(path, f"must be names with settings, not {_type_name(value)}")
        return UNSET
    built = {
        name: parse_section(each, kind, (*path, name), problems)
        for name, each in value.items()
    }
    return {name: each for name, each in built.items() if each is not None}


def struct_in(kind: Any) -> type[Any] | None:
    """Return the class of sections in the annotation *kind*, if there is one."""
    inner = [part for each in get_args(kind) for part in get_args(each)]
    for each in (kind, *get_args(kind), *inner):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def _message(error: Exception, value: object, kind: Any) -> str:
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, Enum):
            names = [str(choice.value) for choice in each]
            near = did_you_mean(str(value), names)
            return f"must be {' or '.join(names)}, not {value!r}{near}"
    return str(error).replace("`", "'").replace(" - at '$", " - at '")


def _type_name(value: object) -> str:
    names = {str: "a text", list: "a list", dict: "settings", type(None): "nothing"}
    return names.get(type(value), repr(value))
