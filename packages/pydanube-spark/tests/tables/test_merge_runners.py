"""Tests of the choice where the jobs of a merge run."""

import json

import pytest
from pyspark import SparkContext

from pydanube_spark import driver_jvm
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.merge_runners import MergeRunners


@pytest.fixture(autouse=True)
def _without_an_application_of_this_process(monkeypatch):
    """Hide the application that an earlier test has started."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.mark.parametrize("is_entered", [True, False])
def test_jobs_run_in_threads_without_an_application(is_entered, monkeypatch):
    monkeypatch.delenv(driver_jvm.VARIABLE, raising=False)
    runners = MergeRunners(10)
    if not is_entered:
        assert isinstance(runners.of(11), ThreadRunner)
        return
    with runners:
        assert isinstance(runners.of(10), ThreadRunner)
        assert isinstance(runners.of(11), ThreadRunner)
        assert runners.of(11).run([1, 2], str) == ["1", "2"]


@pytest.mark.slow
def test_jobs_run_in_threads_if_the_application_cannot_be_reached(
    tmp_path, monkeypatch, caplog
):
    file = tmp_path / "driver.json"
    # The port of a driver that has ended.
    file.write_text(json.dumps({"port": 1, "token": "secret"}))
    monkeypatch.setenv(driver_jvm.VARIABLE, str(file))
    with MergeRunners(10) as runners:
        assert isinstance(runners.of(10), ThreadRunner)
        assert caplog.messages == []
        assert isinstance(runners.of(11), ThreadRunner)
        assert isinstance(runners.of(12), ThreadRunner)
    [message] = caplog.messages
    assert "cannot be reached" in message
    assert "secret" not in caplog.text
