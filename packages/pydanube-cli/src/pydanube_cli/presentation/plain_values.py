"""
The conversion of the values of options and arguments, without pydantic if possible.

Typer converts every value with pydantic, even those that need no conversion.  The
import of pydantic would be a quarter of the processor time of a short command, and a
tenth of that of the start of a broker, with 10 MB of memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

_NUMBER = re.compile("[0-9]{1,15}")
_CHECKS: dict[str, object] = {
    **dict.fromkeys(("min", "max", "path_type", "parser")),
    **dict.fromkeys(("clamp", "exists", "writable", "resolve_path"), False),
    **dict.fromkeys(("file_okay", "dir_okay"), True),
}
"""The options that check or change numbers and paths, as they are by default."""


def convert_plainly(parameters: Iterable[Any]) -> None:
    """Make *parameters* of a command leave to pydantic only what needs it."""
    for each in parameters:
        if hasattr(each, "get_runtime_param") and not isinstance(
            each.get_runtime_param, _Conversion
        ):
            each.get_runtime_param = _Conversion(each)


class _Conversion:
    """The conversion of a parameter's values, in place of that of Typer."""

    def __init__(self, parameter: Any) -> None:
        declared = parameter.type_descriptor.parameter_info
        self._kind = parameter.type_descriptor.annotation
        self._has_parser = declared.parser is not None
        self._is_checked = any(
            getattr(declared, name) != usual for name, usual in _CHECKS.items()
        )
        self._find_adapter = parameter.get_runtime_param

    def __call__(self) -> _Conversion:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """
        Return the converted *value*.

        Raises:
            BadParameter: It is invalid.
        """
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        plain = None if self._has_parser else plain_value(value, self._kind)
        if plain is None and not self._is_checked:
            plain = simple_value(value, self._kind)
        if plain is not None:
            return plain
        try:
            return self._find_adapter().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as error:
            # Pydantic begins the text of a ValueError so.
            error.message = error.message.replace("Value error, ", "")
            raise


def plain_value(value: Any, kind: Any) -> Any:
    """Return *value* as a *kind*, or None if Typer must convert or refuse it."""
    if get_origin(kind) is list and isinstance(value, (list, tuple)):
        values = [plain_value(each, get_args(kind)[0]) for each in value]
        return None if None in values else values
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Enum):
        return next((each for each in kind if value in (each, each.value)), None)
    return value if isinstance(value, kind) else None


def simple_value(value: Any, kind: Any) -> Any:
    """Return the text *value* as a number or path, or None if Typer must convert it."""
    if kind is int and isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return Path(value) if kind is Path and isinstance(value, str) else None
