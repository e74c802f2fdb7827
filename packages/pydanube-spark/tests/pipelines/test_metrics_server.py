"""Tests of the server of metrics."""

import urllib.error
import urllib.request

import pytest

pytest.importorskip("prometheus_client")

from pydanube.model.errors import Conflict
from pydanube_spark.pipelines.metrics_server import serving_metrics
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.state import StateDirectory


def scrape(url):
    with urllib.request.urlopen(url) as response:
        return response.read().decode()


def test_each_scrape_reads_the_files_of_the_run(tmp_path):
    state = StateDirectory(tmp_path)
    record = RunRecord(pipeline="p", file="f", pid=1, mark="m", host="h", since="s")
    with serving_metrics("127.0.0.1:0", state) as url:
        assert "danube_pipeline" not in scrape(url)
        for restarts in (0, 5):
            record.restarts = restarts
            state.write_record(record)
            line = f'danube_pipeline_restarts_total{{pipeline="p"}} {restarts}.0'
            assert line in scrape(url)
        address = url.removeprefix("http://").removesuffix("/metrics")
        with (
            pytest.raises(Conflict, match=f"cannot be served at {address}: Address"),
            serving_metrics(address, state),
        ):
            pass
    with pytest.raises(urllib.error.URLError):
        scrape(url)
