"""Pipelines are read again and again, and their rates follow."""

from pathlib import Path

from pydanube_console.pipeline_monitor import PipelineMonitor
from pydanube_spark.pipelines.pure.progress import QueryProgress, RunStatus
from pydanube_spark.pipelines.runs import Run
from pydanube_spark.pipelines.state import StateDirectory


def run(rows, lag=None, name="orders"):
    queries = [
        QueryProgress(name="one", writes_to="w", rows=rows, lag=lag),
        QueryProgress(name="two", writes_to="w"),
    ]
    facts = {"file": "f", "pid": 7, "host": "h", "since": "s", "updated": "u"}
    status = RunStatus(pipeline=name, queries=queries, **facts)
    return Run(name, StateDirectory(Path("/state") / name), None, status, True)


async def test_rates_are_those_between_two_readings():
    now, found = 0.0, [run(10)]
    monitor = PipelineMonitor(lambda: found, clock=lambda: now)
    await monitor.attempt()
    for at, rows, lag in ((2.0, 30, 5), (4.0, 3, None)):
        now, found = at, [run(rows, lag)]
        await monitor.attempt()
    [pipeline] = monitor.pipelines.values()
    assert (list(pipeline.rates), list(pipeline.lags)) == ([10.0, 0.0], [5, 0])
    assert (pipeline.rows, pipeline.lag, monitor.interval_s) == (3, None, 2.0)


async def test_pipelines_of_different_directories_have_different_ids():
    found = [run(1), run(1, name="other")]
    monitor = PipelineMonitor(lambda: found)
    await monitor.attempt()
    assert [each.run.name for each in monitor.pipelines.values()] == ["orders", "other"]
    found = found[1:]
    await monitor.attempt()
    assert [each.run.name for each in monitor.pipelines.values()] == ["other"]
    assert monitor.is_given


async def test_console_may_be_given_no_pipelines():
    monitor = PipelineMonitor(None)
    await monitor.attempt()
    assert (monitor.is_given, monitor.pipelines, monitor.interval_s) == (False, {}, 0)
