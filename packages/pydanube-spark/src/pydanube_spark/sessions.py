"""
Spark sessions with settings that suit topics: local, low latency, quiet, in UTC.

All settings are defaults that *config* overrides.  In an existing session, on a cluster
or behind Spark Connect, ``configure`` changes the settings that Spark lets it change,
and reports the others.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydanube_spark import driver_jvm
from pydanube_spark.java import cache_directory, find_java
from pydanube_spark.pure.parallelism import VARIABLE, parallelism_of
from pydanube_spark.spark_home import find_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SETTINGS: dict[str, str] = {
    # Avoids 40 ms stalls of the loopback between tasks and their Python workers.
    "spark.python.unix.domain.socket.enabled": "true",
    # Writes the two small checkpoint files of a micro-batch in a third of the time.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # Publish times are in UTC; another session time zone would shift them in casts.
    "spark.sql.session.timeZone": "UTC",
    # Lets the source evaluate conditions on offsets, times and topics.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of all sessions."""

LOCAL_SETTINGS: dict[str, str] = {
    # The host's name may not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The default of 200 shuffle partitions is for clusters.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    # The second session on a machine would warn that the port is in use.
    "spark.ui.enabled": "false",
}
"""Additional settings of sessions that run on this machine alone."""

NEW_SESSION_ONLY = ("spark.log.level", "spark.ui.showConsoleProgress")
"""Settings that ``configure`` leaves alone in an existing session."""

APP_NAME = "pydanube"
"""The name of applications that nobody has named."""

QUERY_VARIABLES = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
"""Environment variables that Spark sets when a streaming query starts."""


def session(
    app_name: str | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> SparkSession:
    """
    Return the Spark session of this process, and start one if there is none.

    Starting a session takes about ten seconds.  It sets ``JAVA_HOME``, and for a local
    master ``PYSPARK_PYTHON`` and ``PYSPARK_DRIVER_PYTHON``, in the environment of this
    process, so that Spark uses the Java that was found and its workers use this Python,
    or the one that *config* names as ``spark.pyspark.python``.  For a local master or
    one of a standalone cluster it also sets ``SPARK_HOME``, unless it is set, to one in
    the user's cache whose Python processes start faster.

    If this thread already has an active session, the function applies ``configure`` to
    it and returns it.  It logs the settings that cannot be changed.

    In a program that ``spark-submit`` runs, its master and its settings come before the
    defaults of this function.

    Args:
        app_name: The name of the application in Spark's web pages.  By default it is
            that of ``spark-submit``, and ``pydanube`` without it.
        master: Where tasks run: ``local[*]``, ``spark://host:7077``, ….  By default it
            is the master of ``spark-submit``, and all cores of this machine without it.
        remote: A Spark Connect server, such as ``sc://host:15002``, instead of a
            master; this machine then needs neither Java nor Spark itself.
        config: Settings that override the defaults.
        log_file: The file for the output of Spark and its workers.

    Cancellation: Ctrl-C and SIGTERM take effect after Spark has started.

    Raises:
        JavaNotFound: There is no Java 17 or newer.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # It takes a while.

    existing = (
        SparkSession.getActiveSession()
        if remote is None
        else SparkSession.builder.remote(remote)
        .appName(app_name or APP_NAME)
        .getOrCreate()
    )
    if existing is not None:
        for name, value in configure(existing, config).items():
            # A value of the caller's may be a secret, such as a key for s3a.
            given = name if name in (config or {}) else f"{name}={value}"
            log.warning(
                "the Spark session was created without %s, which cannot be changed "
                "now; set it when the session is created",
                given,
            )
        return existing
    os.environ["JAVA_HOME"] = str(find_java())
    submitted = _submitted_settings()
    app_name = app_name or submitted.get("spark.app.name", APP_NAME)
    master = master or submitted.get("spark.master", "local[*]")
    if master.startswith("local"):
        chosen = submitted | dict(config or {})
        python = chosen.get("spark.pyspark.python", sys.executable)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    if master.startswith(("local", "spark://")) and "SPARK_HOME" not in os.environ:
        home = find_spark_home(cache_directory())
        if home is not None:
            os.environ["SPARK_HOME"] = str(home)
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings_for(master, config, submitted).items():
        builder = builder.config(name, value)
    with _interrupts_held(), _output_to(log_file):
        created = builder.getOrCreate()
    _prepare_source(created)
    return created


def configure(
    existing: SparkSession, config: Mapping[str, str] | None = None
) -> dict[str, str]:
    """
    Give an existing session the settings that suit topics.

    Returns: The settings that have another value and can only be set when a session is
        created, by ``spark-submit --conf`` or in ``spark-defaults.conf``.
    """
    wanted = {
        name: value for name, value in SETTINGS.items() if name not in NEW_SESSION_ONLY
    }
    fixed = {}
    for name, value in (wanted | dict(config or {})).items():
        if existing.conf.get(name, None) == value:
            continue
        if existing.conf.isModifiable(name):
            existing.conf.set(name, value)
        else:
            fixed[name] = value
    _prepare_source(existing)
    return fixed


def _prepare_source(spark: SparkSession) -> None:
    """
    Let queries that read topics start at the same time, and know the parallelism.

    Sinks of tables learn how their commits reach the application.

    Spark 4.3 keeps one map of environment variables for a Python data source that it
    found by itself.  Each starting query adds its variables without a lock.  Two that
    start at once can break the map, and after that no query can send its tasks until
    the application ends ("Task serialization failed: Illegal size").  A variable that
    is in the map already is only replaced, which breaks nothing.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # It takes a while.

    if not isinstance(spark, SparkSession):
        # A Spark Connect session, which has no JVM in this process.
        return
    try:
        state = spark._jsparkSession.sessionState()  # noqa: SLF001
        source = state.dataSourceManager().lookupDataSource("danube")
        variables = source.dataSourceCls().envVars()
        for name in QUERY_VARIABLES:
            variables.putIfAbsent(name, "")
        context = spark.sparkContext
        settings = dict(context.getConf().getAll())
        found = parallelism_of(settings, context.defaultParallelism)
        variables.put(VARIABLE, str(found))
        # Their commits run jobs.
        path = driver_jvm.publish(context)
        for name in ("danube-delta", "danube-iceberg"):
            source = state.dataSourceManager().lookupDataSource(name)
            source.dataSourceCls().envVars().put(driver_jvm.VARIABLE, path)
    except Exception:
        # Other versions of Spark may arrange their internals differently.
        log.warning(
            "the Spark session cannot be prepared for streaming queries of topics that "
            "start at the same time; start them one after another. Merges into tables "
            "run in the driver alone",
            exc_info=True,
        )


def settings_for(
    master: str,
    config: Mapping[str, str] | None,
    submitted: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """
    Return the settings of a new session on *master*; *config* overrides defaults.

    A default is left out if ``spark-submit`` has *submitted* a value for it.
    """
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    defaults = {
        name: value
        for name, value in (SETTINGS | local).items()
        if name not in submitted
    }
    return defaults | dict(config or {})


def _submitted_settings() -> dict[str, str]:
    """Return the settings of ``spark-submit``, if it has started this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # It takes a while.

    # Connects to the JVM of spark-submit, whose settings these are.
    SparkContext._ensure_initialized()  # noqa: SLF001
    return dict(SparkConf().getAll())


@contextmanager
def _output_to(log_file: Path | None) -> Iterator[None]:
    """
    Redirect the output of processes that start in the body to *log_file*.

    The JVM, and through it the workers, inherit standard output and error of this
    process, which are therefore redirected while the JVM starts.
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
    Delay SIGINT and SIGTERM until the end of the body.

    A JVM ends with the process that started it, but only after the JVM has started.
    If the process ends before that, the JVM runs for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def hold(number: int, _frame: object) -> None:
        received.append(number)

    held = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, hold) for number in held}
    try:
        yield
    finally:
        for number, handler in before.items():
            # Spark installs a handler for SIGINT, which cancels its jobs first.
            if signal.getsignal(number) is hold:
                signal.signal(number, handler)
    for interrupt in received:
        signal.raise_signal(interrupt)
