"""One script reads, writes and streams wherever Spark's tasks run."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from support.drivers.spark_scripts import run_script
from support.servers.spark_processes import standalone_cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(600),
]


def test_script_runs_on_a_local_cluster(broker_url, client, tmp_path):
    found = run_script("local-cluster[2,1,1024]", broker_url, client, tmp_path)
    assert len(found["homes"]) == 2


def test_script_runs_on_a_standalone_cluster(broker_url, client, tmp_path):
    with standalone_cluster(tmp_path) as master:
        found = run_script(master, broker_url, client, tmp_path)
    # Otherwise each Python process of the driver compiles the archive.
    assert Path(found["spark_home"], "python/lib/pyspark.zip/pyspark").is_dir()
    assert len(found["homes"]) == 2
    assert all(home.startswith(str(tmp_path)) for home in found["homes"])
