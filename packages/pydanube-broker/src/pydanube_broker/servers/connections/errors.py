"""
HTTP statuses and gRPC statuses of errors.

An error that is missing in a table has the value of its nearest ancestor.  The native
protocol needs no table, because it transmits the error's code.
"""

from __future__ import annotations

import logging
from functools import partial

from pydanube.model.error_tables import nearest
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Closed,
    Conflict,
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
    RequestFailed,
    RevisionConflict,
    TimedOut,
    TopicFenced,
    Unauthenticated,
    Unavailable,
)
from pydanube_broker.wire.grpc.status import StatusCode

log = logging.getLogger(__name__)

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
    RequestFailed: 502,
    ProtocolViolation: 400,
    Closed: 409,
    Corrupt: 500,
}

GRPC_STATUS: dict[type[BrokerError], StatusCode] = {
    # Clients of the original retry after UNAVAILABLE and RESOURCE_EXHAUSTED, and then
    # create their producer again or subscribe again.  The Java client does so without
    # end after NOT_FOUND, PERMISSION_DENIED and FAILED_PRECONDITION.  No client does
    # so after INVALID_ARGUMENT.
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
    RequestFailed: StatusCode.UNKNOWN,
    ProtocolViolation: StatusCode.INVALID_ARGUMENT,
    Closed: StatusCode.FAILED_PRECONDITION,
    Corrupt: StatusCode.DATA_LOSS,
}

GRPC_STATUS_OF_PUBLISH: dict[type[BrokerError], StatusCode] = {
    **GRPC_STATUS,
    # The client creates its producer again, which succeeds or gets the exact error.
    NotFound: StatusCode.UNAVAILABLE,
    TopicFenced: StatusCode.UNAVAILABLE,
    Closed: StatusCode.UNAVAILABLE,
    # Another producer has replaced this one; a retry must not replace it again.
    Conflict: StatusCode.INVALID_ARGUMENT,
    RevisionConflict: StatusCode.UNAVAILABLE,
}
"""The statuses for messages that were not published."""

http_status_of = partial(nearest, HTTP_STATUS)
"""Returns the HTTP status for a request that failed with an error, or its class."""
grpc_status_of = partial(nearest, GRPC_STATUS)
"""Returns the gRPC status for a call that failed with an error."""
grpc_status_of_publish = partial(nearest, GRPC_STATUS_OF_PUBLISH)
"""Returns the gRPC status for a message that was not published."""


def as_broker_error(error: Exception, doing: str) -> BrokerError:
    """
    Return *error* if the caller may get it.

    Otherwise it is a bug, which fails one request and not the server.  It is logged.
    """
    if isinstance(error, BrokerError):
        return error
    log.error("%s failed", doing, exc_info=error)
    return BrokerError("the broker failed; its log says why")
