"""Tables of what errors become elsewhere: statuses, exit codes."""

from __future__ import annotations

from typing import TypeVar

from pydanube.model.errors import BrokerError

T = TypeVar("T")


def nearest(
    table: dict[type[BrokerError], T], error: BrokerError | type[BrokerError]
) -> T:
    """
    Return the value of *error*, or of its class, in *table*.

    An error that is missing has the value of its nearest ancestor.
    """
    kind = error if isinstance(error, type) else type(error)
    return next(table[cls] for cls in kind.__mro__ if cls in table)
