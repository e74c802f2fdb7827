"""One script reads, writes and streams wherever Spark's tasks run."""

import pytest

pytest.importorskip("pyspark")

from support.drivers.spark_scripts import run_script
from support.servers.spark_processes import HOME, standalone_cluster

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
    assert len(found["homes"]) == 2
    assert all(home.startswith(str(tmp_path)) for home in found["homes"])


def test_script_runs_where_spark_submit_says(broker_url, client, tmp_path):
    """The master of spark-submit comes before that of ``session``."""
    submit = str(HOME / "bin" / "spark-submit"), "--master", "local[3]"
    found = run_script("submitted", broker_url, client, tmp_path, program=submit)
    assert found["settings"]["spark.master"] == "local[3]"
