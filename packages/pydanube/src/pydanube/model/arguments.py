"""
Checks of arguments against the type hints of the functions that receive them.  Pure.

A type hint is the only declaration of what an argument may be.  ``checks_arguments``
checks it in every public method of a class before the call, which takes microseconds
and suits operations that send a request.  Functions that are called for every message
check nothing in advance; they call ``check`` when something has failed.
"""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, wraps
from importlib import import_module
from inspect import iscoroutinefunction
from numbers import Integral, Real
from reprlib import Repr
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from pydanube.model.errors import InvalidRequest

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

SECRETS = frozenset({"api_key", "token"})
"""The arguments whose values error messages do not contain."""

_shortener = Repr()
_shortener.maxstring = _shortener.maxother = 60

_NUMBERS: dict[object, type] = {int: Integral, float: Real}
_TEXT = (str, bytes, bytearray, memoryview)
_ITERABLES = frozenset(
    {
        collections.abc.Iterable,
        collections.abc.Collection,
        collections.abc.Sequence,
    }
)
_NAMES: dict[object, str] = {
    **dict.fromkeys(_ITERABLES, "a list"),
    collections.abc.Mapping: "a dict",
    type: "a class",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a str",
    types.NoneType: "None",
}


class _Mismatch(NamedTuple):
    """An argument, or a part of one, that is not of its type."""

    path: str
    value: object
    hint: Any

    def __str__(self) -> str:
        if self.value is None:
            shown = "None"
        elif self.path in SECRETS:
            shown = type(self.value).__name__
        else:
            shown = f"{_shortener.repr(self.value)} ({type(self.value).__name__})"
        return f"{self.path} must be {_expected(self.path, self.hint)}, not {shown}"


def checks_arguments(cls: C) -> C:
    """
    Make the public methods that *cls* defines check their arguments when called.

    They raise InvalidRequest for an argument that does not match its type hint.
    """
    for name, member in list(vars(cls).items()):
        if isinstance(member, types.FunctionType) and not name.startswith("_"):
            setattr(cls, name, checked(member))
    return cls


def checked(function: F) -> F:
    """Return *function* with a check of its arguments before each call."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]

    if iscoroutinefunction(function):

        @wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            check(function, dict(zip(names, args, strict=False)) | kwargs)
            return await function(*args, **kwargs)

    else:

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            check(function, dict(zip(names, args, strict=False)) | kwargs)
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def check(declaration: Callable[..., Any] | type, values: Mapping[str, object]) -> None:
    """
    Raise unless *values* match the type hints of a function or TypedDict.

    A name without a type hint is not checked.

    Raises:
        InvalidRequest: A value does not match; the message names the argument, its
            value and type, and what is expected.
    """
    hints = _hints(declaration)
    for name, value in values.items():
        if name in hints:
            found = _mismatch(name, value, hints[name])
            if found is not None:
                raise InvalidRequest(str(found))


@cache
def _hints(declaration: Callable[..., Any] | type) -> dict[str, Any]:
    if isinstance(declaration, types.FunctionType):
        # The module need not know the type of what the function returns.
        named = {
            name: hint
            for name, hint in declaration.__annotations__.items()
            if name != "return"
        }
        arguments = types.SimpleNamespace(__annotations__=named)
        hints = _resolved(arguments, declaration.__globals__)
    else:
        hints = get_type_hints(declaration)
    for name, hint in list(hints.items()):
        if get_origin(hint) is Unpack:
            del hints[name]
            hints |= _hints(get_args(hint)[0])
    return hints


def _resolved(declaration: object, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return type hints, also those of public classes that a module has not loaded."""
    names = dict(known)
    while True:
        try:
            return get_type_hints(declaration, names)
        except NameError as error:
            missing = error.name or ""
        names[missing] = getattr(import_module("pydanube"), missing)


def _mismatch(path: str, value: object, hint: Any) -> _Mismatch | None:
    """Return the part of *value* that does not match *hint*, or None."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _mismatch(path, value, arguments[0])
    if origin in (Union, types.UnionType):
        found = [_mismatch(path, value, each) for each in arguments]
        if None in found:
            return None
        # If the value is of one of the types except for a part of it, name the part.
        inner = [each for each in found if each is not None and each.path != path]
        return inner[0] if len(inner) == 1 else _Mismatch(path, value, hint)
    if origin is Literal:
        # Words may be joined by `-`, as on the command line.
        word = value.replace("-", "_") if isinstance(value, str) else value
        is_match = word in arguments
    else:
        is_match = _is_instance(value, hint if origin is None else origin)
    if not is_match:
        return _Mismatch(path, value, hint)
    return _mismatch_inside(path, value, arguments)


def _mismatch_inside(
    path: str, value: object, arguments: tuple[Any, ...]
) -> _Mismatch | None:
    """Return the first field, item or entry of *value* that does not match."""
    parts: Iterable[tuple[str, object, Any]] = ()
    if is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        parts = (
            (f"{path}.{each.name}", getattr(value, each.name), hints[each.name])
            for each in fields(value)
        )
    elif isinstance(value, dict) and len(arguments) == 2:
        parts = (
            (f"{path}[{key!r}]", each, hint)
            for key, item in value.items()
            for each, hint in zip((key, item), arguments, strict=True)
        )
    elif isinstance(value, list | tuple | set | frozenset) and len(arguments) == 1:
        parts = (
            (f"{path}[{index}]", each, arguments[0]) for index, each in enumerate(value)
        )
    found = (_mismatch(name, part, hint) for name, part, hint in parts)
    return next((each for each in found if each is not None), None)


def _is_instance(value: object, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind in _NUMBERS:
        # Subclasses of int, too: a bool is a mistake, and NumPy's numbers are not.
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    if kind in _ITERABLES:
        return not isinstance(value, _TEXT) and hasattr(value, "__iter__")
    # Type variables, callables and the like are not checked.
    return not isinstance(kind, type) or isinstance(value, kind)


def _expected(path: str, hint: Any) -> str:
    """Return what *hint* allows, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _expected(path, arguments[0])
    if origin in (Union, types.UnionType):
        return _joined(_expected(path, each) for each in arguments)
    if origin is Literal:
        return _joined(map(repr, arguments))
    return _named(path, hint if origin is None else origin)


def _named(path: str, kind: Any) -> str:
    """Return the class *kind* in words."""
    if kind in _NUMBERS:
        name = path.rpartition(".")[2]
        unit = " of seconds" if f"{name}_".find("_s_") > 0 else ""
        return _NAMES[kind] + (" of bytes" if "bytes" in name else unit)
    if kind in _NAMES:
        return _NAMES[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _joined(f"{kind.__name__}.{each.name}" for each in kind)
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _joined(words: Iterable[str]) -> str:
    # Each once, in their order.
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last
