"""The errors of connectors, by what happens next.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pydanube.model.errors import BrokerError, Remedy


class Transient(Exception):
    """The other system cannot be used at the moment: try again later."""

    def __init__(self, reason: str = "", *, retry_after_s: float = 0.0) -> None:
        """*retry_after_s* is how long the other system says to wait at least."""
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class ConnectorFailed(Exception):
    """The connector cannot continue until somebody changes something."""


class TakenOver(Transient):
    """Another run of the connector has published since: continue after it."""


class Rejected(Exception):
    """A sink cannot write some messages, now or later; it has written the others."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """Name the reason for each message by its index in the batch."""
        super().__init__(f"{len(reasons)} messages are rejected")
        self.reasons = dict(reasons)


class BatchRefused(Exception):
    """
    The other system refuses a request, and one of its messages may be the reason.

    Each message is written alone then, and those that are refused again are rejected.
    """


JSON_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The errors of bytes that are no JSON."""


def is_transient(error: BaseException) -> bool:
    """Return whether it makes sense to try again after *error*."""
    if isinstance(error, BrokerError):
        return error.remedy is not Remedy.GIVE_UP
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_transient, error.exceptions))
    return isinstance(error, Transient | OSError | EOFError | TimeoutError)


def is_unexpected(error: BaseException) -> bool:
    """Return whether a connector has failed in a way that it did not foresee."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_unexpected, error.exceptions))
    expected = Rejected | ConnectorFailed | BrokerError
    return not (isinstance(error, expected) or is_transient(error))


def error_line(error: BaseException) -> str:
    """Return *error* on one line, for the status of a connector."""
    text = " ".join(str(error).split())
    known = Transient | ConnectorFailed | BatchRefused | BrokerError
    if isinstance(error, known) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
