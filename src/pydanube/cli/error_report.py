"""
How a command fails: one line on standard error, and an exit code.

The exit codes of errors stand in ``servers/errors.py``.  Whatever ended by a
signal ends with 128 and the signal's number, as it is usual in shells.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from pydanube.cli.interruption import Interrupted
from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    ConsumerBusy,
    IncompatibleSchema,
    InvalidConfig,
    InvalidName,
    JournalFailed,
    NamespaceNotFound,
    OffsetDropped,
    QuotaExceeded,
    SchemaInUse,
    SchemaMismatch,
    SchemaNotFound,
    SubscriptionInUse,
    SubscriptionNotFound,
    TimedOut,
    TopicNotFound,
)
from pydanube.model.extras import MissingExtra
from pydanube.servers.errors import exit_code_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNAL_EXIT_CODE = 128
"""Added to the number of the signal that ended a command."""

HINTS: dict[type[BrokerError], str] = {
    ConnectionLost: "--url or the variable DANUBE_URL names a broker elsewhere",
    ConsumerBusy: "'danube subscriptions describe' shows who it is; consumers of a "
    "subscription of type shared or failover do not exclude each other",
    IncompatibleSchema: "'danube schemas diff SUBJECT --file FILE' shows what differs, "
    "and by which rules it may follow",
    InvalidName: "a topic is called /NAMESPACE/TOPIC, as in /default/orders",
    JournalFailed: "its log says why; only a restart can tell what was kept",
    NamespaceNotFound: "'danube admin namespaces list' shows what there is, 'danube "
    "admin namespaces create' makes one",
    OffsetDropped: "retention removes old messages; consume again to go on with "
    "what is there",
    QuotaExceeded: "'danube admin topics limits' shows the limits of a topic, and "
    "changes them",
    SchemaInUse: "'danube schemas bind' says what a topic keeps to; --force deletes it "
    "all the same",
    SchemaMismatch: "'danube produce --schema SUBJECT' writes messages as a subject of "
    "the schema registry says",
    SchemaNotFound: "'danube schemas list' shows what there is, 'danube schemas "
    "register' adds to it",
    SubscriptionInUse: "--force does it all the same",
    SubscriptionNotFound: "'danube subscriptions list TOPIC' shows what there is",
    TopicNotFound: "'danube topics list' shows what there is, 'danube topics create' "
    "makes one",
}
"""What may help, where the error itself does not say so."""


@contextmanager
def exit_on_error(*, is_debugging: bool = False) -> Iterator[None]:
    """
    Run a command; what may go wrong with it becomes a line and an exit code.

    What is not foreseen here is a bug and keeps its traceback.

    Raises:
        typer.Exit: The command has failed, and that has been said.
    """
    try:
        yield
    except BrokenPipeError:
        _discard_output()
        raise typer.Exit(SIGNAL_EXIT_CODE + signal.SIGPIPE) from None
    except KeyboardInterrupt:
        raise typer.Exit(SIGNAL_EXIT_CODE + signal.SIGINT) from None
    except Interrupted as interrupted:
        raise typer.Exit(SIGNAL_EXIT_CODE + interrupted.number) from None
    except MissingExtra as missing:
        sys.stderr.write(f"error: {missing}\n")
        raise typer.Exit(exit_code_of(InvalidConfig())) from None
    except (BrokerError, OSError) as error:
        if is_debugging:
            traceback.print_exc()
        failure = _as_broker_error(error)
        sys.stderr.write(format_error(failure))
        raise typer.Exit(exit_code_of(failure)) from None


def format_error(error: BrokerError) -> str:
    """What is said about *error*: a line, and one that helps, if there is one."""
    said = " ".join(str(error).split()) or type(error).__name__
    hint = next((HINTS[kind] for kind in type(error).__mro__ if kind in HINTS), None)
    return f"error: {said}\n" + (f"hint: {hint}\n" if hint else "")


def _as_broker_error(error: BrokerError | OSError) -> BrokerError:
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, TimeoutError):
        return TimedOut(str(error) or "the broker did not answer in time")
    named = f"{error.filename}: " if error.filename else ""
    return BrokerError(f"{named}{error.strerror or error}")


def _discard_output() -> None:
    # Python flushes standard output once more when it ends, and would complain
    # about the broken pipe then.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
