"""Connectors and pipelines that do not work are concerns."""

from pathlib import Path

import pytest

from pydanube_connect.status import ConnectorStatus, State
from pydanube_console.pipeline_monitor import WatchedPipeline
from pydanube_console.programs import (
    concerns_of_connector,
    concerns_of_pipeline,
    concerns_of_programs,
    visible_pipelines,
)
from pydanube_console.sessions import open_sessions
from pydanube_spark.pipelines.pure.progress import RunState, RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.runs import Run
from pydanube_spark.pipelines.state import StateDirectory
from support.worlds.current import memory_broker


def connector(state):
    return ConnectorStatus(
        connector="c", kind="kafka-source", topic="/d/t", state=state
    )


def pipeline(state, *, is_running):
    facts = {"file": "f", "pid": 7, "host": "h", "since": "s", "updated": "u"}
    status = RunStatus(pipeline="p", state=state, **facts)
    facts.pop("updated")
    ended = "e" if state.is_over else None
    record = RunRecord(pipeline="p", mark=None, ended=ended, **facts)
    return Run("p", StateDirectory(Path("/p")), record, status, is_running)


@pytest.mark.parametrize(
    ("state", "texts"),
    [
        (State.FAILED, ["connector c has failed"]),
        (State.RETRYING, ["connector c retries"]),
        (State.RUNNING, []),
        (State.PAUSED, []),
    ],
)
def test_connectors_that_fail_are_concerns(state, texts):
    assert [each.text for each in concerns_of_connector(connector(state), 0)] == texts


def test_connector_that_retries_for_long_is_a_bad_concern():
    status = connector(State.RETRYING)
    status.retrying_since = 0
    [concern] = concerns_of_connector(status, 600_000_000)
    assert concern.kind == "bad"
    assert concern.text == "connector c has retried for 10m"


@pytest.mark.parametrize(
    ("state", "is_running", "texts"),
    [
        (RunState.FAILED, False, ["pipeline p has failed"]),
        (RunState.RUNNING, False, ["pipeline p has died"]),
        (RunState.RUNNING, True, []),
        (RunState.DONE, False, []),
    ],
)
def test_pipelines_that_fail_are_concerns(state, is_running, texts):
    watched = WatchedPipeline(pipeline(state, is_running=is_running))
    assert [each.text for each in concerns_of_pipeline(watched)] == texts


async def test_programs_are_seen_by_users_who_may():
    found = [pipeline(RunState.FAILED, is_running=False)]
    async with (
        memory_broker() as broker,
        open_sessions(broker.url, find_pipelines=lambda: found) as sessions,
    ):
        session = await sessions.open()
        assert [each.run for each in await visible_pipelines(session)] == found
        [concern] = await concerns_of_programs(session)
        assert concern.text == "pipeline p has failed"
