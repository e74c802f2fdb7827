"""Tests of the state directory."""

import os
import signal
import subprocess
import sys

import pytest

from pydanube.model.errors import Conflict
from pydanube_spark.pipelines.graph import Edge, Graph, Node, NodeKind
from pydanube_spark.pipelines.pure.progress import QueryProgress, RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.state import (
    StateDirectory,
    is_alive,
    kill,
    process_start_time,
)


@pytest.fixture
def state(tmp_path):
    return StateDirectory(tmp_path / "state")


def status(**more):
    return RunStatus(
        pipeline="p", file="p.yaml", pid=7, host="h", since="s", updated="u", **more
    )


RECORD = RunRecord(pipeline="p", file="f", pid=8, mark="m", host="h", since="s")


@pytest.mark.slow
def test_second_run_is_refused_and_names_the_first(state):
    assert not state.is_locked()
    with state.locked("first"):
        assert state.is_locked()
        state.write_record(RECORD)
        assert state.read_record() == RECORD
        with (
            pytest.raises(Conflict, match="p is already running, as process 8 on h"),
            StateDirectory(state.path).locked("second"),
        ):
            pass
    assert not state.is_locked()
    with state.locked("again"):
        pass


def test_status_round_trips(state):
    assert state.read_status() is None
    with state.locked("test"):
        written = status(jvm=(5, "x"), queries=[QueryProgress(name="q", writes_to="w")])
        state.write_status(written)
        assert state.read_status() == written
        (state.path / "status.json").write_text("{")
        assert state.read_status() is None


def test_graph_round_trips(state):
    assert state.read_graph() is None
    node = Node("orders", NodeKind.SOURCE, "topic /default/orders")
    graph = Graph("p", [node], [Edge(node.id, "sink.table", "a:int")])
    with state.locked("test"):
        state.write_graph(graph)
        assert state.read_graph() == graph
        (state.path / "graph.json").write_text('{"pipeline": 5}')
        assert state.read_graph() is None


def test_stop_request_is_set_and_cleared(state):
    with state.locked("test"):
        assert not state.is_stop_requested()
        state.request_stop()
        assert state.is_stop_requested()
        state.clear_stop_request()
        state.clear_stop_request()
        assert not state.is_stop_requested()


def test_start_time_distinguishes_reused_pids():
    mark = process_start_time(os.getpid())
    if mark is None:
        pytest.skip("this system does not tell")
    assert is_alive((os.getpid(), mark))
    assert not is_alive((os.getpid(), "another"))
    assert not is_alive(None)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    # The process has ended, but its parent has not waited for it yet.
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert process_start_time(ended.pid) is None
    ended.wait()
    assert process_start_time(ended.pid) is None


def test_only_the_process_with_the_start_time_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as process:
        mark = process_start_time(process.pid)
        if mark is None:
            pytest.skip("this system does not tell")
        assert not kill((process.pid, "another"))
        assert process.poll() is None
        assert kill((process.pid, mark))
        assert process.wait() == -signal.SIGKILL
        assert not kill((process.pid, mark))
    assert not kill(None)
