"""
A Spark session that suits topics: local, quick to answer, quiet, in UTC.

Everything here is a default that *config* overrides.  A session that is there
already, on a cluster or behind Spark Connect, is brought as near to it as Spark
allows; what can only be said where a session is made is named.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydanube.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SETTINGS: dict[str, str] = {
    # Tasks talk to their Python workers without the loopback's 40 ms stalls.
    "spark.python.unix.domain.socket.enabled": "true",
    # Writes the two small files of a micro-batch in a third of the time.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # Publish times are instants; a session's zone would shift them in casts.
    "spark.sql.session.timeZone": "UTC",
    # What a query says of offsets, times and topics reaches the source.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
"""What is set wherever the session runs."""

LOCAL_SETTINGS: dict[str, str] = {
    # The host's own name need not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Two hundred shuffle partitions are for clusters.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    # The second session of a machine would complain about the port.
    "spark.ui.enabled": "false",
}
"""What is set besides when the session runs on this machine alone."""


OF_A_NEW_SESSION = ("spark.log.level", "spark.ui.showConsoleProgress")
"""What is nobody's business in a session that somebody else has made."""


def session(
    app_name: str = "pydanube",
    *,
    master: str = "local[*]",
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> SparkSession:
    """
    The Spark session of this process, made if there is none.

    Starting one takes about ten seconds.  ``JAVA_HOME``, ``PYSPARK_PYTHON`` and
    ``PYSPARK_DRIVER_PYTHON`` of this process are set so that Spark finds the Java
    that was chosen, and its workers this very Python.  What Spark and its workers
    print goes to *log_file*, if that is given.

    A session that this thread has already is returned as it is, after ``configure``;
    what cannot be changed in it is logged.

    Args:
        app_name: What Spark's own pages call it.
        master: Where its tasks run: ``local[*]``, ``spark://host:7077``, ….
        remote: A Spark Connect server, such as ``sc://host:15002``, instead of a
            master; neither Java nor Spark itself is needed here then.
        config: Settings that win over ours.
        log_file: Where the output of processes goes that are started for it.

    Cancellation: Ctrl-C and SIGTERM have their effect when Spark has started.

    Raises:
        JavaNotFound: There is no Java 17 or newer.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # It takes a while.

    existing = SparkSession.getActiveSession() if remote is None else None
    if existing is not None:
        _say_fixed(configure(existing, config))
        return existing
    if remote is not None:
        connected = SparkSession.builder.remote(remote).appName(app_name).getOrCreate()
        _say_fixed(configure(connected, config))
        return connected
    os.environ["JAVA_HOME"] = str(find_java().home)
    if _is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings_for(master, config).items():
        builder = builder.config(name, value)
    with _interrupts_held(), _output_to(log_file):
        return builder.getOrCreate()


def configure(
    existing: SparkSession, config: Mapping[str, str] | None = None
) -> dict[str, str]:
    """
    Give a session that is there already the settings that suit topics.

    Returns: Those that have another value and can only be said where a session is
        made, for ``spark-submit --conf`` or ``spark-defaults.conf``.
    """
    wanted = {
        name: value for name, value in SETTINGS.items() if name not in OF_A_NEW_SESSION
    }
    fixed = {}
    for name, value in (wanted | dict(config or {})).items():
        if existing.conf.get(name, None) == value:
            continue
        if existing.conf.isModifiable(name):
            existing.conf.set(name, value)
        else:
            fixed[name] = value
    return fixed


def settings_for(master: str, config: Mapping[str, str] | None) -> dict[str, str]:
    """What a session on *master* is configured with; *config* wins."""
    local = LOCAL_SETTINGS if _is_local(master) else {}
    return SETTINGS | local | dict(config or {})


def _say_fixed(fixed: Mapping[str, str]) -> None:
    for name, value in fixed.items():
        log.warning(
            "the Spark session was made without %s=%s, and that cannot be changed any "
            "more; set it where the session is made",
            name,
            value,
        )


def _is_local(master: str) -> bool:
    return master.startswith("local")


@contextmanager
def _output_to(log_file: Path | None) -> Iterator[None]:
    """
    Let processes that are started meanwhile print to *log_file*.

    The JVM and, through it, the workers inherit this process's own outputs, so
    for the moment of their start these are pointed elsewhere.
    """
    if log_file is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with log_file.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """
    Let SIGINT and SIGTERM have their effect when the body is done.

    A JVM ends with the process that started it, but only once it is up: one that
    is deserted before that stays for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def hold(number: int, _frame: object) -> None:
        came.append(number)

    held = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, hold) for number in held}
    try:
        yield
    finally:
        for number, handler in before.items():
            # Spark has a handler for SIGINT, which cancels its jobs first.
            if signal.getsignal(number) is hold:
                signal.signal(number, handler)
    for interrupt in came:
        signal.raise_signal(interrupt)
