"""
The error tree in the words of HTTP, of gRPC and of the shell.

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
    RevisionConflict,
    TimedOut,
    TopicFenced,
    Unauthenticated,
    Unavailable,
)
from pydanube.wire.grpc.connection import StatusCode

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

GRPC_STATUS: dict[type[BrokerError], StatusCode] = {
    # Clients of the original repeat a request that was UNAVAILABLE or met
    # RESOURCE_EXHAUSTED, and then create their producer again, or subscribe again.
    # The Java client does so without end after NOT_FOUND, PERMISSION_DENIED or
    # FAILED_PRECONDITION, and nobody does after INVALID_ARGUMENT.
    BrokerError: StatusCode.INTERNAL,
    InvalidRequest: StatusCode.INVALID_ARGUMENT,
    Refused: StatusCode.PERMISSION_DENIED,
    Unauthenticated: StatusCode.UNAUTHENTICATED,
    QuotaExceeded: StatusCode.RESOURCE_EXHAUSTED,
    NotFound: StatusCode.NOT_FOUND,
    OffsetDropped: StatusCode.OUT_OF_RANGE,
    Conflict: StatusCode.FAILED_PRECONDITION,
    AlreadyExists: StatusCode.ALREADY_EXISTS,
    RevisionConflict: StatusCode.ABORTED,
    Unavailable: StatusCode.UNAVAILABLE,
    TimedOut: StatusCode.DEADLINE_EXCEEDED,
    ProtocolViolation: StatusCode.INVALID_ARGUMENT,
    Closed: StatusCode.FAILED_PRECONDITION,
    Corrupt: StatusCode.DATA_LOSS,
}

GRPC_STATUS_OF_PUBLISH: dict[type[BrokerError], StatusCode] = {
    **GRPC_STATUS,
    # Created again, the producer finds another topic, or is told what is wrong.
    NotFound: StatusCode.UNAVAILABLE,
    TopicFenced: StatusCode.UNAVAILABLE,
    Closed: StatusCode.UNAVAILABLE,
    # It lost its place to somebody who wants it for good.
    Conflict: StatusCode.INVALID_ARGUMENT,
    RevisionConflict: StatusCode.UNAVAILABLE,
}
"""The same for messages that were not taken."""

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


def grpc_status_of(error: BrokerError | type[BrokerError]) -> StatusCode:
    """The gRPC status that answers a request which failed with *error*."""
    return _nearest(GRPC_STATUS, error)


def grpc_status_of_publish(error: BrokerError) -> StatusCode:
    """The gRPC status that answers a message which was not taken because of *error*."""
    return _nearest(GRPC_STATUS_OF_PUBLISH, error)


def exit_code_of(error: BrokerError | type[BrokerError]) -> int:
    """The exit code of a command which failed with *error*."""
    return _nearest(EXIT_CODE, error)


def _nearest(
    table: dict[type[BrokerError], T], error: BrokerError | type[BrokerError]
) -> T:
    kind = error if isinstance(error, type) else type(error)
    return next(table[cls] for cls in kind.__mro__ if cls in table)
