"""
How a command fails: one line on standard error, and an exit code.

``exit_codes`` has the exit codes of errors.  A command that a signal ends exits with
128 plus the signal's number, as is usual in shells.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    ConsumerBusy,
    IncompatibleSchema,
    InvalidConfig,
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
from pydanube.model.extras import MissingExtra, extra_of
from pydanube_cli.invocation.exit_codes import exit_code_of
from pydanube_cli.invocation.interruption import Interrupted

SIGNAL_EXIT_CODE = 128
"""Added to the number of the signal that ended a command."""

HINTS: dict[type[BrokerError], str] = {
    ConnectionLost: "--url, the variable DANUBE_URL or a context (see 'danube config "
    "--help') sets the address of the broker",
    ConsumerBusy: "'danube subscriptions describe' shows the connected consumer; "
    "subscriptions of type shared or failover accept several consumers",
    IncompatibleSchema: "'danube schemas diff SUBJECT --file FILE' shows the "
    "differences, and the rules that a new version must follow",
    JournalFailed: "the broker's log has the cause; in a cluster, other brokers take "
    "its topics over, and a single broker must be restarted",
    NamespaceNotFound: "'danube namespaces list' lists the namespaces, 'danube "
    "namespaces create' creates one",
    OffsetDropped: "retention removes old messages; consume again, or read with --from "
    "earliest, to continue with the oldest message that is left",
    QuotaExceeded: "'danube security quotas describe' shows what is used of a quota, "
    "'danube topics configure' the settings of a topic",
    SchemaInUse: "'danube topics configure TOPIC --set schema.subject=SUBJECT' binds a "
    "topic to another subject or version; --force deletes the schema although it is "
    "in use",
    SchemaMismatch: "'danube produce --schema SUBJECT' encodes messages with a "
    "subject of the schema registry",
    SchemaNotFound: "'danube schemas list' lists the subjects, 'danube schemas "
    "register' registers a schema",
    SubscriptionInUse: "--force does it although the subscription is in use",
    SubscriptionNotFound: "'danube subscriptions list TOPIC' lists the subscriptions",
    TopicNotFound: "'danube topics list' lists the topics, 'danube topics create' "
    "creates one",
}
"""Hints for errors whose message does not say what the user can do next."""


@contextmanager
def exit_on_error(
    *,
    is_debugging: bool = False,
    find_context: Callable[[], str | None] = lambda: None,
    suggest_topic: Callable[[TopicNotFound], str] = lambda _: "",
) -> Iterator[None]:
    """
    Run a command; turn the errors that it raises into a message and an exit code.

    Unexpected exceptions are bugs; they pass through with their traceback.

    Args:
        is_debugging: Print a traceback for every error.
        find_context: Returns the context that the broker's address comes from, if it
            does.
        suggest_topic: Returns what is said about topics that resemble a missing one.

    Raises:
        typer.Exit: The command failed, and the error has been printed.
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
    except ModuleNotFoundError as missing:
        extra = extra_of(missing.name)
        if extra is None or is_debugging:
            raise
        more = ", or 'pydanube[pipelines]' for all sinks" if extra == "spark" else ""
        package = (missing.name or "").partition(".")[0]
        sys.stderr.write(
            f"error: this command needs {package}, which is not installed: "
            f"pip install 'pydanube[{extra}]'{more}\n"
        )
        raise typer.Exit(exit_code_of(InvalidConfig())) from None
    except (BrokerError, OSError) as error:
        if is_debugging:
            traceback.print_exc()
        failure = _as_broker_error(error)
        more = suggest_topic(failure) if isinstance(failure, TopicNotFound) else ""
        sys.stderr.write(format_error(failure, find_context(), more))
        raise typer.Exit(exit_code_of(failure)) from None


def format_error(error: BrokerError, context: str | None = None, more: str = "") -> str:
    """
    Return the line that describes *error*, and a line with a hint if there is one.

    *context* is the context that the address of the broker comes from, if it does.
    *more* is added to the first line.
    """
    message = (" ".join(str(error).split()) or type(error).__name__) + more
    hint = next((HINTS[kind] for kind in type(error).__mro__ if kind in HINTS), None)
    if isinstance(error, ConnectionLost) and context is not None:
        hint = (
            f"the address is that of the context {context!r}; 'danube config set "
            f"{context} --url URL' changes it, --url and --context choose another one"
        )
    return f"error: {message}\n" + (f"hint: {hint}\n" if hint else "")


def _as_broker_error(error: BrokerError | OSError) -> BrokerError:
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, TimeoutError):
        return TimedOut(str(error) or "the broker did not answer in time")
    named = f"{error.filename}: " if error.filename else ""
    return BrokerError(f"{named}{error.strerror or error}")


def _discard_output() -> None:
    # Python flushes standard output at exit, and would report the broken pipe then.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
