"""Spark's own servers, started from the package that pip installs."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from pydanube_spark.java import cache_directory, find_java
from pydanube_spark.spark_home import find_spark_home
from support.project import SOURCES
from support.servers.ports import free_port

HOME = find_spark_home(cache_directory())
"""Its Python processes start in a third of the time that others need."""
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0


class SparkMaster:
    """The master of a standalone cluster."""

    def __init__(self, process, log):
        self._process = process
        self._log = log
        [self.url] = self._logged(r"Starting Spark master at (spark://\S+)")

    def wait_for_workers(self, count):
        """Wait until *count* workers have registered, also such that have ended."""
        self._logged("(Registering worker)", times=count)

    def _logged(self, pattern, times=1):
        return logged(self._process, self._log, pattern, times)


@contextmanager
def spark_master(directory):
    """A master without workers."""
    with spark_process(
        directory / "master.log",
        *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
        *("--port", "0", "--webui-port", "0"),
    ) as process:
        yield SparkMaster(process, directory / "master.log")


def spark_worker(directory, number, url, *, host="127.0.0.1"):
    """A worker of one core, which looks for the master at *url*."""
    return spark_process(
        directory / f"worker-{number}.log",
        "org.apache.spark.deploy.worker.Worker",
        *("--host", host),
        *("--cores", "1", "--memory", "600m", "--webui-port", "0"),
        *("--work-dir", str(directory / f"worker-{number}"), url),
    )


@contextmanager
def standalone_cluster(directory, *, workers=2, hosts=("127.0.0.1",)):
    """The URL of a master with *workers* of one core each, on *hosts* in turns."""
    with (
        spark_master(directory) as master,
        several(
            spark_worker(directory, number, master.url, host=hosts[number % len(hosts)])
            for number in range(workers)
        ),
    ):
        master.wait_for_workers(workers)
        yield master.url


def executors_in(directory):
    """The processes of the executors of workers in *directory*."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            home = str((process / "cwd").readlink())
            words = (process / "cmdline").read_bytes()
            is_executor = b"CoarseGrainedExecutorBackend" in words
            if is_executor and home.startswith(f"{directory}/worker-"):
                found.append(int(process.name))
    return found


@contextmanager
def connect_server(directory, *, python=sys.executable):
    """The URL of a Spark Connect server whose tasks run in this machine's *python*."""
    port = free_port()
    with spark_process(
        directory / "connect.log",
        *("org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        *("--conf", f"spark.sql.warehouse.dir={directory / 'warehouse'}"),
        *("--conf", "spark.python.unix.domain.socket.enabled=true"),
        "spark-internal",
        python=python,
        memory="1g",
    ) as process:
        logged(process, directory / "connect.log", r"(Spark Connect server started)")
        yield f"sc://127.0.0.1:{port}"


def python_without_us(directory):
    """A Python like this one that does not have this package."""
    directory.mkdir()
    ours = list(map(str, SOURCES))
    assert ours[0] in sys.path, "the package is installed for good"
    (directory / "sitecustomize.py").write_text(
        f"import sys\nsys.path[:] = [p for p in sys.path if p not in {ours!r}]\n"
    )
    program = directory / "python"
    program.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="{directory}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o700)
    return program


@contextmanager
def spark_process(log, *words, python=sys.executable, memory="256m"):
    """``spark-class`` with *words*, in a process group of its own."""
    environment = os.environ | {
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": str(python),
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [HOME / "bin" / "spark-class", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # A test may have killed it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def several(scopes):
    """Enter all of *scopes* at the same time."""
    first = next(scopes, None)
    if first is None:
        yield
        return
    with first, several(scopes):
        yield


def logged(process, log, pattern, times=1):
    """Wait until *pattern* matches *log* often enough, and return the matches."""
    give_up_at = time.monotonic() + START_TIMEOUT_S
    while True:
        found = re.findall(pattern, log.read_text(errors="replace"))
        if len(found) >= times:
            return found
        is_late = time.monotonic() > give_up_at or process.poll() is not None
        assert not is_late, log.read_text(errors="replace")[-3000:]
        time.sleep(0.05)
