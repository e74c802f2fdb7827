"""
The Spark application, for the Python processes of its driver that have no session.

Spark starts a process for each commit of a Python data source, on the machine of the
driver.  ``publish`` writes how such a process reaches the JVM into a file that only
the user of the driver can read, below Spark's own temporary directory, and returns its
path.  Executors may know the path, and have no such file.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

log = logging.getLogger(__name__)

VARIABLE = "PYDANUBE_DRIVER"
"""The environment variable with the path of the file."""


def publish(context: Any) -> str:
    """Write how the application of *context* is reached, and return the path."""
    parameters = context._gateway.gateway_parameters  # noqa: SLF001
    path = Path(context._temp_dir, "driver.json")  # noqa: SLF001
    found = {
        "port": parameters.port,
        "token": parameters.auth_token,
        "python": context.pythonExec,
        "environment": context.environment,
        "files": context._python_includes,  # noqa: SLF001
    }
    path.unlink(missing_ok=True)
    with os.fdopen(
        os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w"
    ) as f:
        json.dump(found, f)
    return str(path)


@contextmanager
def application() -> Iterator[Any]:
    """
    Yield an object with the ``sparkContext`` of the application; None: there is none.

    It is that of this process, or the one whose JVM ``VARIABLE`` leads to.
    """
    from pyspark import SparkContext  # noqa: PLC0415  # It takes a while.

    own = SparkContext._active_spark_context  # noqa: SLF001
    path = Path(os.environ.get(VARIABLE) or os.devnull)
    if own is not None:
        yield SimpleNamespace(sparkContext=own)
        return
    if not path.is_file():
        yield None
        return
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        context, gateway = _attach(json.loads(path.read_text()))
    except Exception:
        # Other versions of Spark may arrange their internals differently.
        log.warning(
            "the application cannot be reached; work is done here", exc_info=True
        )
        yield None
        return
    try:
        yield SimpleNamespace(sparkContext=context)
    finally:
        # Not stop(), which would end the application.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)
        context._accumulatorServer.shutdown()  # noqa: SLF001
        # Otherwise the JVM keeps it until the application ends.
        shutil.rmtree(context._temp_dir, ignore_errors=True)  # noqa: SLF001
        SparkContext._active_spark_context = None  # noqa: SLF001
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        gateway.shutdown_callback_server()
        gateway.close()


def _attach(found: dict[str, Any]) -> tuple[Any, Any]:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    given = {
        "PYSPARK_GATEWAY_PORT": str(found["port"]),
        "PYSPARK_GATEWAY_SECRET": found["token"],
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        gateway = launch_gateway()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    jvm: Any = gateway.jvm
    scala = jvm.org.apache.spark.SparkContext.getOrCreate()
    java = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(scala)
    context = SparkContext(
        gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf())
    )
    context.pythonExec = found["python"]
    context.environment = found["environment"]
    context._python_includes = found["files"]  # noqa: SLF001
    return context, gateway
