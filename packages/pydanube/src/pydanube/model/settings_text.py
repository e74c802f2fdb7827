"""Settings as one line of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


def settings_text(settings: Any) -> str:
    """
    Return *settings*, a mapping or a dataclass, as in ``age_s=60, bytes_max=None``.

    The fields of a dataclass that have their defaults are left out.
    """
    if isinstance(settings, Mapping):
        items = list(settings.items())
    else:
        pairs = [(each, getattr(settings, each.name)) for each in fields(settings)]
        items = [(each.name, value) for each, value in pairs if value != each.default]
    return ", ".join(f"{name}={_text(value)}" for name, value in items) or "defaults"


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return f"({settings_text(value)})" if is_dataclass(value) else str(value)
