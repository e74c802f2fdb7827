"""The errors of connectors, by what happens next.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pydanube.model.errors import BrokerError, Remedy


class Transient(Exception):
    """The other system cannot be used at the moment: try again later."""


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


def is_transient(error: BaseException) -> bool:
    """Return whether it makes sense to try again after *error*."""
    if isinstance(error, BrokerError):
        return error.remedy is not Remedy.GIVE_UP
    return isinstance(error, Transient | OSError | EOFError | TimeoutError)


def error_line(error: BaseException) -> str:
    """Return *error* on one line, for the status of a connector."""
    text = " ".join(str(error).split())
    if isinstance(error, Transient | ConnectorFailed | BrokerError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
