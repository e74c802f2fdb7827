"""Tests of ``danube bench`` with Spark."""

import json
import subprocess

import pytest

from support.drivers.commands import DANUBE, environment

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]


def test_bench_measures_spark_reading(tmp_path):
    # Spark takes a while to start.
    options = ["--messages", "5000", "--data-dir", str(tmp_path), "--format", "json"]
    done = subprocess.run(
        [*DANUBE, "bench", "--workload", "spark-read", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    # So few messages are never sealed, so there are no files to compare with.
    [row] = json.loads(done.stdout)["rows"]
    assert (row["workload"], row["messages"]) == ("Spark reads a topic", 5000)
    assert row["per_second"] > 0
