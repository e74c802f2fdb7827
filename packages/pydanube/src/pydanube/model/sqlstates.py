"""
PostgreSQL's error codes: after which a repetition may succeed.  Pure.

Texts of errors are in the language of the server, so only codes are looked at.  An
error of a connection has no code, because libpq does not tell it: the server cannot be
reached, starts, or refuses the connection.

Source: PostgreSQL's documentation, "PostgreSQL Error Codes".
"""

from __future__ import annotations

_TEMPORARY = (
    "08",  # The connection is lost.
    "40",  # The transaction was rolled back, such as after a deadlock.
    "53",  # Connections, memory or space are short.
    "55006",  # The object is in use, such as the slot of a run that was killed.
    "55P03",  # A lock is not available.
    "57",  # The server was stopped, has crashed, starts, or the query took too long.
)
_DATABASE_DROPPED = "57P04"


def is_temporary(state: str | None, *, is_disconnected: bool) -> bool:
    """
    Return whether an operation that failed may succeed later.

    *state* is the SQLSTATE, if the server has reported one, and *is_disconnected* tells
    whether there is no connection any more, or none yet.
    """
    if not state:
        return is_disconnected
    return state.startswith(_TEMPORARY) and state != _DATABASE_DROPPED
