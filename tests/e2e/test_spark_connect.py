"""The same script through Spark Connect, whose server has this package or has not."""

import pytest

pytest.importorskip("pyspark")

from support.drivers.spark_scripts import run_script
from support.servers.spark_processes import connect_server, python_without_us

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(600),
]


def test_script_runs_through_a_connect_server(broker_url, client, tmp_path):
    with connect_server(tmp_path) as server:
        run_script(server, broker_url, client, tmp_path)


def test_script_runs_through_a_connect_server_without_the_package(
    broker_url, client, tmp_path
):
    python = python_without_us(tmp_path / "python")
    with connect_server(tmp_path, python=python) as server:
        run_script(server, broker_url, client, tmp_path, "ship")
