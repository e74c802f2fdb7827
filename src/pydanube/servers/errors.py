"""
The error tree in the words of HTTP and of the shell.

Each table names the errors at which the answer changes; whatever is not named has
the answer of its nearest ancestor.  The native protocol needs no table, because it
carries an error's own code.
"""

from __future__ import annotations

from typing import TypeVar

from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Closed,
    Conflict,
    ConnectionLost,
    Corrupt,
    DiskFull,
    InvalidRequest,
    MessageTooLarge,
    NotFound,
    OffsetDropped,
    PermissionDenied,
    ProtocolViolation,
    QuotaExceeded,
    Refused,
    TimedOut,
    Unauthenticated,
    Unavailable,
)

T = TypeVar("T")

HTTP_STATUS: dict[type[BrokerError], int] = {
    BrokerError: 500,
    InvalidRequest: 400,
    MessageTooLarge: 413,
    Refused: 403,
    Unauthenticated: 401,
    PermissionDenied: 403,
    QuotaExceeded: 429,
    NotFound: 404,
    OffsetDropped: 410,
    Conflict: 409,
    Unavailable: 503,
    DiskFull: 507,
    TimedOut: 504,
    ProtocolViolation: 400,
    Closed: 409,
    Corrupt: 500,
}

EXIT_CODE: dict[type[BrokerError], int] = {
    # 0 is success, and 2 is what the shell's own usage errors give.
    BrokerError: 1,
    InvalidRequest: 2,
    NotFound: 3,
    Conflict: 4,
    AlreadyExists: 5,
    Refused: 6,
    # From here on it is worth trying again.
    Unavailable: 7,
    ConnectionLost: 8,
    TimedOut: 9,
    # And here it is not.
    ProtocolViolation: 10,
    Corrupt: 11,
    Closed: 12,
}


def http_status_of(error: BrokerError | type[BrokerError]) -> int:
    """The HTTP status that answers a request which failed with *error*."""
    return _nearest(HTTP_STATUS, error)


def exit_code_of(error: BrokerError | type[BrokerError]) -> int:
    """The exit code of a command which failed with *error*."""
    return _nearest(EXIT_CODE, error)


def _nearest(
    table: dict[type[BrokerError], T], error: BrokerError | type[BrokerError]
) -> T:
    kind = error if isinstance(error, type) else type(error)
    return next(table[cls] for cls in kind.__mro__ if cls in table)
