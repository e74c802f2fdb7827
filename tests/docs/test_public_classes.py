"""Users can import and annotate whatever a public method returns or takes."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from dataclasses import is_dataclass
from types import UnionType

import pyarrow as pa
import pytest

import pydanube

INTERNAL = {
    "Telemetry": "made by pydanube.otel, for connect",
    "ReceivedBatch": "the batch of a message, for the client's own layers",
    "RunningWorker": "one of RunningWorkers, which adds it itself",
    "WorkerClient": "a Client, as workers use it",
    "ParsedSchema": "a schema as the registry compares it",
}
"""The classes that are no part of the interface, and why they are in a signature."""

ONLY_FOR_TYPES = {
    "pa": pa,
    "Sequence": collections.abc.Sequence,
    "Callable": collections.abc.Callable,
    # The classes that a client imports when they are used.
    **{name: getattr(pydanube, name) for name in pydanube.__all__},
}
"""Names that modules import for type checkers alone."""


def classes_in(hint):
    if isinstance(hint, list):
        for each in hint:
            yield from classes_in(each)
    elif typing.get_origin(hint) or isinstance(hint, UnionType):
        yield from classes_in(typing.get_origin(hint))
        for each in typing.get_args(hint):
            yield from classes_in(each)
    elif inspect.isclass(hint):
        yield hint


def described(value):
    """Yield what has the type hints of the public parts of *value*."""
    if not inspect.isclass(value):
        yield value
        return
    if is_dataclass(value) or typing.is_typeddict(value):
        yield value
    for name, member in vars(value).items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if not name.startswith("_") and callable(function):
            function = inspect.unwrap(function)
            if inspect.isfunction(function):
                yield function


def names_in_signatures(value):
    return {
        each.__name__
        for part in described(value)
        for name, hint in typing.get_type_hints(part, localns=ONLY_FOR_TYPES).items()
        if not name.startswith("_")
        for each in classes_in(hint)
        if each.__module__.startswith("pydanube")
    }


@pytest.mark.parametrize("name", pydanube.__all__)
def test_classes_in_public_signatures_are_public(name):
    found = names_in_signatures(getattr(pydanube, name))
    assert found - {*pydanube.__all__} - INTERNAL.keys() == set()


def test_a_result_that_is_not_public_would_be_found():
    assert "TopicDescription" in names_in_signatures(pydanube.Topics)
    assert "Telemetry" in names_in_signatures(pydanube.connect)
    assert "SubscriptionDescription" in names_in_signatures(pydanube.TopicDescription)


@pytest.mark.parametrize("name", pydanube.__all__)
def test_public_names_have_a_text(name):
    assert inspect.getdoc(getattr(pydanube, name))
