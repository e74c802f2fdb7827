"""Checks of options that several kinds of connectors have."""

from __future__ import annotations

from typing import Any

from pydanube.aio.certificates import check_readable
from pydanube.declarations.pure.sections import parse_duration
from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.quantities import BYTE_UNITS, parse_quantity


def duration_problems(options: Any, *names: str) -> dict[str, str]:
    """Return which of the options *names* are not durations."""
    found = {}
    for name in names:
        try:
            parse_duration(getattr(options, name))
        except InvalidConfig as error:
            found[name] = str(error)
    return found


def size_problems(options: Any, name: str) -> dict[str, str]:
    """Return whether the option *name* is not a number of bytes."""
    text = getattr(options, name)
    if parse_quantity(text, BYTE_UNITS):
        return {}
    return {name: f"{text!r} is not a size such as 1MiB"}


def file_problems(options: Any, *names: str) -> dict[str, str]:
    """Return which of the options *names* are files that cannot be read."""
    found = {}
    for name in names:
        try:
            check_readable(**{name: getattr(options, name)})
        except InvalidRequest as error:
            found[name] = str(error)
    return found


def http_problems(url: str) -> dict[str, str]:
    """Return whether the option ``url`` is not an address of HTTP."""
    if url.startswith(("http://", "https://")):
        return {}
    return {"url": f"{url!r} does not begin with http:// or https://"}
