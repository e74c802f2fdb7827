"""The template for Spark's own Declarative Pipelines runs as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
# What the extra "pipelines" of pyspark brings.
pytest.importorskip("grpc_status")
pytest.importorskip("google.rpc")
pytest.importorskip("zstandard")

from pydanube_spark.java import find_java
from pydanube_spark.pipelines.templates import write_template
from support.drivers.pipelines import read_json, send, unique_topic

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

PROGRAM = Path(sys.executable).with_name("spark-pipelines")


def run(directory):
    done = subprocess.run(
        [
            *(PROGRAM, "--conf", "spark.sql.catalogImplementation=hive"),
            *("--conf", "spark.driver.host=127.0.0.1", "--remote", "local[2]"),
            *("--conf", "spark.ui.enabled=false", "run"),
        ],
        cwd=directory,
        env=os.environ
        | {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_topics_are_tables_and_sinks_of_a_declarative_pipeline(
    client, broker_url, tmp_path
):
    topic, seen = unique_topic(client), unique_topic(client)
    send(client, topic, *({"customer": "ada", "n": n} for n in range(3)))
    write_template("declarative", tmp_path)
    replaced = {
        "danube://127.0.0.1:6651": broker_url,
        "file:///tmp/danube-declarative/storage": f"file://{tmp_path}/storage",
        "/default/orders": topic,
        "/default/seen-orders": seen,
    }
    for path in [tmp_path / "spark-pipeline.yml", *tmp_path.glob("transformations/*")]:
        text = path.read_text()
        for usual, own in replaced.items():
            text = text.replace(usual, own)
        path.write_text(text)
    run(tmp_path)
    assert [each["n"] for each in read_json(client, seen)] == [0, 1, 2]
