"""The example for dbt runs: its model is a table made of a topic."""

import os
import shutil
import subprocess

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from pydanube_spark.java import find_java
from support.drivers.pipelines import send
from support.project import ROOT
from support.servers.programs import skip_without

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
]

DBT = ROOT / ".venv/dbt/bin"


def test_a_model_of_dbt_is_a_table_made_of_a_topic(client, broker_url, tmp_path):
    if not (DBT / "dbt").exists():
        skip_without("dbt", "tools/dbt")
    client.topics.create("/default/orders")
    customers = ["ada", "bob", "ada"]
    send(client, "/default/orders", *({"customer": each} for each in customers))
    project = shutil.copytree(ROOT / "examples/dbt", tmp_path / "project")
    done = subprocess.run(
        [DBT / "dbt", "run", "--profiles-dir", "."],
        cwd=project,
        env=os.environ
        | {
            "DANUBE_URL": broker_url,
            "JAVA_HOME": str(find_java()),
            "PYSPARK_PYTHON": str(DBT / "python"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pq.read_table(project / "spark-warehouse/shop.db/customers").to_pylist()
    assert sorted((row["customer"], row["orders"]) for row in rows) == [
        ("ada", 2),
        ("bob", 1),
    ]
