"""Naming the topic in Python's warning about a ``send`` that nobody awaited."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any


def name_in_warnings(producer: Any, topic: str) -> None:
    """
    Make warnings about coroutines of ``producer.send`` name *topic*, and the remedy.

    Python takes the name in "coroutine … was never awaited" from the function, so the
    producer gets a copy of the function with another name.  Calls cost nothing more.
    """
    original = type(producer).send
    copy = FunctionType(
        original.__code__,
        original.__globals__,
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    copy.__kwdefaults__ = original.__kwdefaults__
    copy.__doc__ = original.__doc__
    copy.__qualname__ = (
        f"{type(producer).__name__}.send to {topic} (write: await producer.send(...))"
    )
    producer.__dict__["send"] = MethodType(copy, producer)
