"""The parts of workers that a client needs before it has any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

STOP_TIMEOUT_S = 30.0
"""How long calls of workers may take to end when workers stop."""

_given: list[type] = []


def given_to_workers(cls: C) -> C:
    """Let functions of workers have a parameter of *cls*: the client."""
    _given.append(cls)
    return cls


def is_given_to_workers(hint: object) -> bool:
    """Return whether *hint* is a class that was declared so, or derived from one."""
    return isinstance(hint, type) and issubclass(hint, tuple(_given))
