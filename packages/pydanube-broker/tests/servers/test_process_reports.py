"""Reports of all processes of one broker."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from pydanube.aio.long_work import LongWork
from pydanube_broker.servers.connections.process_sockets import ProcessGroup
from pydanube_broker.servers.process_reports import (
    READINESS_S,
    Answer,
    ProcessReports,
    Question,
    Readiness,
    metrics_of_all,
    readiness_of_all,
)
from support.project import ROOT

if TYPE_CHECKING:
    from pathlib import Path

READY = Readiness(ready=True)
STARTING = Readiness(ready=False, code="unavailable", message="it is starting")

METRICS = b"""\
# HELP danube_topics Topics.
# TYPE danube_topics gauge
danube_topics %d.0
# HELP danube_lag_messages Lag.
# TYPE danube_lag_messages gauge
danube_lag_messages{topic="/default/a",subscription="with {braces} and, words"} %d.0
"""


def reports(directory: Path, number: int, answer: Answer, count: int) -> ProcessReports:
    (directory / str(number)).mkdir(parents=True)

    async def report(_: Question) -> Answer:
        return answer

    group = ProcessGroup(directory=directory, number=number, count=count)
    return ProcessReports(group=group, own_port=0, report=report)


@pytest.mark.parametrize("name", ["short", "a" * 150])
async def test_process_answers_for_all(tmp_path: Path, name: str) -> None:
    answers = {
        number: Answer(READY, METRICS % (number, number)) for number in range(1, 4)
    }
    async with AsyncExitStack() as stack:
        all_of_them = [
            reports(tmp_path / name, number, answer, 3)
            for number, answer in answers.items()
        ]
        for each in all_of_them:
            await stack.enter_async_context(each.answering())
        for each in all_of_them:
            assert await each.ask_all(Question(metrics=True)) == answers


async def test_process_that_is_gone_is_not_ready(tmp_path: Path) -> None:
    first = reports(tmp_path, 1, Answer(READY), 2)
    second = reports(tmp_path, 2, Answer(READY), 2)
    async with first.answering():
        async with second.answering():
            found = await first.ask_all(Question())
            assert readiness_of_all(found) == READY
        found = readiness_of_all(await first.ask_all(Question()))
        assert found.ready
        [problem] = found.problems
        assert problem.startswith("process 2 is not ready")
        # It is started again, at the socket that the one before has left.
        async with second.answering():
            assert readiness_of_all(await first.ask_all(Question())) == READY


async def test_broker_is_ready_in_time_although_a_process_is_stuck(
    tmp_path: Path,
) -> None:
    first = reports(tmp_path, 1, Answer(READY), 2)
    (tmp_path / "2").mkdir()
    group = ProcessGroup(directory=tmp_path, number=2, count=2)
    with group.listen("reports"):
        # The kernel accepts its connections, and nobody reads.
        found = readiness_of_all(await first.ask_all(Question(), answer_s=0.01))
    assert found.ready
    assert found.problems == ["process 2 is not ready: it does not answer"]
    chart = ROOT / "deploy" / "helm" / "pydanube" / "templates" / "statefulset.yaml"
    probes = re.findall(r"timeoutSeconds: (\d+)", chart.read_text())
    assert min(map(int, probes)) / 2 > READINESS_S


async def test_nonsense_of_a_process_harms_nobody_else(tmp_path: Path) -> None:
    first = reports(tmp_path, 1, Answer(READY), 2)
    (tmp_path / "2").mkdir()

    async def nonsense(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    path = tmp_path / "2" / "reports"
    async with await asyncio.start_unix_server(nonsense, path):
        found = readiness_of_all(await first.ask_all(Question()))
    assert found.ready
    assert len(found.problems) == 1


def test_broker_is_ready_if_one_process_is() -> None:
    late = Readiness(ready=True, problems=["a segment is missing"])
    found = readiness_of_all({1: Answer(STARTING), 2: Answer(late), 3: Answer(late)})
    assert found.ready
    assert found.problems == [
        "process 1 is not ready: it is starting",
        "a segment is missing",
    ]
    assert readiness_of_all({1: Answer(STARTING), 2: Answer(STARTING)}) == STARTING


async def test_metrics_of_all_processes_have_a_label_and_one_header() -> None:
    answers = {
        1: Answer(READY, METRICS % (1, 2) + b"# EOF\n"),
        2: Answer(STARTING, b""),
        3: Answer(READY, METRICS % (3, 4) + b"# EOF\n"),
    }
    found = (await metrics_of_all(answers, LongWork())).decode().splitlines()
    lag = 'topic="/default/a",subscription="with {braces} and, words"} '
    assert [each for each in found if "processes" not in each] == [
        "# HELP danube_topics Topics.",
        "# TYPE danube_topics gauge",
        'danube_topics{process="1"} 1.0',
        'danube_topics{process="3"} 3.0',
        "# HELP danube_lag_messages Lag.",
        "# TYPE danube_lag_messages gauge",
        'danube_lag_messages{process="1",' + lag + "2.0",
        'danube_lag_messages{process="3",' + lag + "4.0",
        "# EOF",
    ]
    assert "danube_processes 3" in found
    assert "danube_processes_ready 2" in found
