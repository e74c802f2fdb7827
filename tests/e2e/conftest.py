"""One broker process and one Spark session for all tests that need them."""

from __future__ import annotations

import os

import pytest

from pydanube import sync
from pydanube_cli.bench.broker_process import running_broker
from support.drivers.warm_python import WarmPython
from support.worlds.current import MEMORY, sync_memory_broker

SEAL_BYTES = 64 * 1024


@pytest.fixture(scope="session")
def broker_url(tmp_path_factory):
    """A broker in a process of its own that seals early, so that there are segments."""
    directory = tmp_path_factory.mktemp("broker")
    settings = {
        "DANUBE_STORAGE__SEAL_BYTES": str(SEAL_BYTES),
        "DANUBE_STORAGE__SEAL_INTERVAL_S": "0.05",
        # Not while a test counts segments, or maintains them.
        "DANUBE_STORAGE__MERGE_BYTES": "0",
    }
    with running_broker(directory / "data", directory / "log", settings) as broker:
        yield broker.url()


@pytest.fixture
def url(request, world):
    """The URL of the module's ``process_url``, or of a broker of another world."""
    if world == MEMORY:
        yield request.getfixturevalue("process_url")
        return
    with sync_memory_broker() as broker:
        yield broker.url


@pytest.fixture(scope="session")
def client(broker_url):
    """A client without await, connected to the broker."""
    with sync.connect(broker_url) as client:
        yield client


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """The program of Spark's Python processes, which start at once."""
    with WarmPython(tmp_path_factory.mktemp("python")) as python:
        yield python.program


@pytest.fixture(scope="session")
def spark(tmp_path_factory, python):
    """A session with two cores; starting one takes a while, so there is one."""
    import pydanube_spark

    directory = tmp_path_factory.mktemp("spark")
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    session = pydanube_spark.session(
        "tests",
        master="local[2]",
        config={
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            # Short jobs end before the optimizing compiler is worth its time.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.pyspark.python": str(python),
            "spark.python.authenticate.socketTimeout": "120s",
        },
        log_file=directory / "spark.log",
    )
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


ENVIRONMENT = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")
