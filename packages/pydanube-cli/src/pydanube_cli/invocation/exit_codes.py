"""The exit codes of commands that fail."""

from __future__ import annotations

from functools import partial

from pydanube.model.error_tables import nearest
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Closed,
    Conflict,
    ConnectionLost,
    Corrupt,
    InvalidRequest,
    NotFound,
    ProtocolViolation,
    Refused,
    RequestFailed,
    TimedOut,
    Unavailable,
)

EXIT_CODE: dict[type[BrokerError], int] = {
    # 0 is success; 2 is also the code for usage errors.
    BrokerError: 1,
    InvalidRequest: 2,
    NotFound: 3,
    Conflict: 4,
    AlreadyExists: 5,
    Refused: 6,
    # Errors that may go away.
    Unavailable: 7,
    ConnectionLost: 8,
    TimedOut: 9,
    # Errors that stay.
    ProtocolViolation: 10,
    Corrupt: 11,
    Closed: 12,
    RequestFailed: 13,
}

exit_code_of = partial(nearest, EXIT_CODE)
"""Returns the exit code of a command that failed with an error."""
