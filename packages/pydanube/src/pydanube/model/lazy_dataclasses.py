"""
Dataclasses whose methods are made when they are needed.

The decorator of the standard library compiles up to six methods of each class.  A
broker imports three hundred such classes, and that was a quarter of the time of its
imports, although it does not use most of the methods.  The decorator of this module
collects the fields of a class, and compiles ``__init__`` for the first instance.  The
other methods need no compiler.

Everything else of ``dataclasses`` is used as usual: ``field``, ``replace``, ``fields``,
``asdict``, and derived classes that have the decorator of the standard library.  There
is no support for ``InitVar``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, FrozenInstanceError
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]


def _dataclass(
    cls: type | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    order: bool = False,
    repr: bool = True,  # noqa: A002  # The name in the standard library.
) -> Any:
    """Return *cls* as a dataclass; without *cls*, return a decorator that does so."""

    def decorate(cls: Any) -> Any:
        # The standard library would derive a docstring from the signature.
        cls.__doc__ = cls.__doc__ or cls.__name__
        collected = dataclasses.dataclass(
            init=False,
            repr=False,
            eq=False,
            slots=slots,
            kw_only=kw_only,
            # The standard library requires that frozen agrees with the bases.
            frozen=frozen and _has_frozen_base(cls),
        )
        made: Any = collected(cls)
        # It looks at this of each base.
        made.__dataclass_params__.frozen = frozen
        fields = dataclasses.fields(made)
        values = _values_of(each.name for each in fields if each.compare)
        methods: dict[str, Any] = {"__init__": LazyInit(made, is_frozen=frozen)}
        if repr:
            methods["__repr__"] = _repr(each.name for each in fields if each.repr)
        if eq:
            methods["__eq__"] = _comparison(values, None)
            explicit = made.__dict__.get("__hash__", MISSING)
            # Python itself gives a class with ``__eq__`` a hash of None.
            if explicit is MISSING or (explicit is None and "__eq__" in made.__dict__):
                made.__hash__ = _hash(values) if frozen else None
        if order:
            for each in (lt, le, gt, ge):
                methods[f"__{each.__name__}__"] = _comparison(values, each)
        if frozen:
            methods |= _frozen_methods(made, slots=slots)
        for name, method in methods.items():
            if name not in made.__dict__:
                setattr(made, name, method)
        return made

    return decorate if cls is None else decorate(cls)


def _has_frozen_base(cls: type) -> bool:
    params = (getattr(each, "__dataclass_params__", None) for each in cls.__bases__)
    return any(each is not None and each.frozen for each in params)


class LazyInit:
    """The ``__init__`` of a dataclass, until somebody needs it."""

    def __init__(self, cls: type, *, is_frozen: bool) -> None:
        self._cls = cls
        self._is_frozen = is_frozen

    def __get__(self, instance: object, owner: type) -> Any:
        """Compile the method, put it into the class, and return it."""
        init = _compile_init(self._cls, is_frozen=self._is_frozen)
        self._cls.__init__ = init  # type: ignore[misc]
        return init.__get__(instance, owner)


class _Factory:
    """The default of a field that a function makes; signatures show its name."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _compile_init(cls: Any, *, is_frozen: bool) -> FunctionType:
    names: dict[str, Any] = {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    positional: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    annotations: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name = value = parameter = field.name
        if field.default is not MISSING:
            names[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
            value = name if field.init else f"_default_{name}"
        elif field.default_factory is not MISSING:
            names[f"_new_{name}"] = field.default_factory
            parameter = f"{name}=_FACTORY"
            value = f"_new_{name}()"
            if field.init:
                value += f" if {name} is _FACTORY else {name}"
        elif not field.init:
            continue
        if field.init:
            (keywords if field.kw_only else positional).append(parameter)
            annotations[name] = field.type
        member = getattr(cls, name, None)
        if not is_frozen:
            body.append(f"self.{name} = {value}")
        elif isinstance(member, MemberDescriptorType):
            # This is faster than a look-up of the name.
            names[f"_set_{name}"] = member.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(
        ["self", *positional, *(["*", *keywords] if keywords else [])]
    )
    source = (
        f"def _make({', '.join(names)}):\n"
        f" def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]) + "\n"
        " return __init__\n"
    )
    made: dict[str, Any] = {}
    exec(source, sys.modules[cls.__module__].__dict__, made)  # noqa: S102
    init: FunctionType = made["_make"](**names)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**annotations, "return": None}
    return init


def _values_of(names: Iterable[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return a function that returns the attributes *names* of an object."""
    match tuple(names):
        case ():
            return lambda _: ()
        case (name,):
            value = attrgetter(name)
            return lambda instance: (value(instance),)
        case several:
            return attrgetter(*several)


def _repr(names: Iterable[str]) -> Callable[[object], str]:
    shown = tuple(names)

    @recursive_repr()
    def show(self: object) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    return show


def _comparison(
    values: Callable[[object], tuple[Any, ...]],
    compare: Callable[[Any, Any], Any] | None,
) -> Callable[[object, object], Any]:
    def equal(self: object, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    def ordered(self: object, other: object) -> Any:
        if other.__class__ is self.__class__:
            return compare(values(self), values(other))  # type: ignore[misc]
        return NotImplemented

    return equal if compare is None else ordered


def _hash(values: Callable[[object], tuple[Any, ...]]) -> Callable[[object], int]:
    return lambda self: hash(values(self))


def _frozen_methods(cls: Any, *, slots: bool) -> dict[str, Any]:
    names = tuple(each.name for each in dataclasses.fields(cls))

    def set_attribute(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    methods = {"__setattr__": set_attribute, "__delattr__": delete_attribute}
    if slots:
        # The usual way to restore attributes would use ``__setattr__``.
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    return methods


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: Iterable[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
