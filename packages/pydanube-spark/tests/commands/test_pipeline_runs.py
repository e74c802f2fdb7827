"""The Spark session of a run, and the tables of mirrors that it knows."""

from functools import partial
from types import SimpleNamespace

import pytest

import pydanube_spark
from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.commands.pipeline_process import load_pipeline
from pydanube_spark.commands.pipeline_runs import (
    run_to_end,
    spark_for,
    with_changed_tables,
    with_mirrored_tables,
)
from pydanube_spark.pipelines import table_discovery
from pydanube_spark.pipelines.broker_checks import NoBrokerAnswers
from pydanube_spark.pipelines.pure.progress import RunState
from pydanube_spark.pipelines.running import ChangedTables
from pydanube_spark.pipelines.table_discovery import DiscoveredTables

PIPELINE = """\
name: p
mirrors:
  shop:
    topic: /shop/{table}
    tables: {"*": {key: id}, "*.*": {key: id}}
    format: danube-delta
    path: lake/{table}
"""


@pytest.mark.parametrize("master", [None, "spark://head:7077"])
def test_a_run_leaves_the_master_to_the_session_if_nobody_has_named_one(
    tmp_path, monkeypatch, master
):
    """The session takes the master of ``spark-submit``."""
    asked = []

    def session(name, **how):
        asked.append((name, how["master"], how["remote"]))
        return SimpleNamespace(stop=lambda: asked.append("stopped"))

    monkeypatch.setattr(pydanube_spark, "session", session)
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\nsources: {a: {topic: /default/a}}\n"
        "sinks: {o: {input: a, format: noop}}\n"
        + (f"spark: {{master: '{master}'}}\n" if master else "")
    )
    with spark_for(load_pipeline(file, None), tmp_path / "spark.log"):
        assert asked == [("danube pipeline p", master, None)]
    assert asked[1:] == ["stopped"]


def test_a_run_forgets_tables_that_cannot_be_together(tmp_path, monkeypatch):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    reload = partial(load_pipeline, file, None, None, None)

    def run(*tables):
        monkeypatch.setattr(
            table_discovery,
            "discover_tables",
            lambda *_: DiscoveredTables({"shop": list(tables)}),
        )
        # With the tables that are known from before.
        pipeline = load_pipeline(file, None)
        pipeline.state.path.mkdir(parents=True, exist_ok=True)
        found = with_mirrored_tables(pipeline, reload, is_run=True)
        return list(found.spec.sources)

    assert run("a.b", "c") == ["shop_a_b", "shop_c"]
    with pytest.raises(InvalidDeclaration, match="or name a_b in 'exclude'"):
        run("a.b", "a_b")
    # The topic of one of the two was deleted since.
    assert run("a.b") == ["shop_a_b"]
    assert list(load_pipeline(file, None).spec.sources) == ["shop_a_b"]


def test_a_run_finds_the_tables_that_are_new_or_gone(tmp_path, monkeypatch):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    reload = partial(load_pipeline, file, None, None, None)
    pipeline = load_pipeline(file, None)
    pipeline.state.path.mkdir(parents=True, exist_ok=True)

    def discover(result):
        def found(*_):
            if isinstance(result, Exception):
                raise result
            return DiscoveredTables({"shop": result})

        monkeypatch.setattr(table_discovery, "discover_tables", found)

    discover(["a.b", "c"])
    with_mirrored_tables(pipeline, reload, is_run=True)
    assert with_changed_tables(pipeline, reload) is None
    discover(["c"])
    found = with_changed_tables(pipeline, reload).pipeline
    assert list(found.spec.sources) == ["shop_c"]
    discover(["a.b", "c", "d"])
    found = with_changed_tables(pipeline, reload).pipeline
    assert list(found.spec.sources) == ["shop_a_b", "shop_c", "shop_d"]
    # The run alone remembers tables, when it begins with them.
    assert pipeline.state.read_mirrored_tables() == {"shop": ["a.b", "c"]}
    discover(["a.b", "a_b"])
    with pytest.raises(InvalidDeclaration, match="or name a_b in 'exclude'"):
        with_changed_tables(pipeline, reload)
    discover(NoBrokerAnswers(str(file), []))
    assert with_changed_tables(pipeline, reload) is None


class Runs:
    """Runs that end as *ends* say: in a state, with tables, or with an error."""

    def __init__(self, pipeline, reload, *ends):
        self.pipeline, self.reload = pipeline, reload
        self.ends = iter(ends)
        self.begun = []
        self.waits = 0
        self.is_stopped = False

    def changed_to(self, *tables):
        found = {"shop": list(tables)}
        return ChangedTables(pipeline=self.reload(found), found=DiscoveredTables(found))

    def __call__(self, pipeline):
        self.begun.append(list(pipeline.spec.sources))
        end = next(self.ends)
        if isinstance(end, Exception):
            raise end
        return end

    def wait(self, _seconds):
        self.waits += 1

    def run(self, find=lambda _pipeline: None):
        return run_to_end(
            self.pipeline,
            self,
            lambda changed: self.begun.append(changed.found.tables["shop"]),
            find,
            is_stop_requested=lambda: self.is_stopped,
            wait=self.wait,
        )


@pytest.fixture
def runs(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    reload = partial(load_pipeline, file, None, None, None)
    return Runs(reload({"shop": ["a"]}), reload)


def test_a_run_begins_again_with_the_tables_that_were_checked(runs):
    more = runs.changed_to("a", "b")
    runs.ends = iter([more, RunState.STOPPED])
    # Tables that have come since were not checked, and could end the others.
    assert runs.run(lambda _: pytest.fail("asked again")) is RunState.STOPPED
    assert runs.begun == [["shop_a"], ["a", "b"], ["shop_a", "shop_b"]]


def test_a_run_that_cannot_begin_again_is_repeated(runs):
    gone = NoBrokerAnswers("p.yaml", [])
    runs.ends = iter([runs.changed_to("a", "b"), gone, gone, RunState.STOPPED])
    found = iter([None, runs.changed_to("b")])
    assert runs.run(lambda _: next(found)) is RunState.STOPPED
    assert runs.begun[2:] == [["shop_a", "shop_b"]] * 2 + [["b"], ["shop_b"]]
    assert runs.waits > 1


def test_a_run_that_cannot_begin_again_ends_after_its_retries_or_if_it_is_asked(runs):
    gone = NoBrokerAnswers("p.yaml", [])
    runs.ends = iter([gone])
    with pytest.raises(NoBrokerAnswers):
        runs.run()
    assert runs.waits == 0
    retries = runs.pipeline.spec.retries.policy.retries_max
    runs.ends = iter([runs.changed_to("b"), *[gone] * (retries + 1)])
    with pytest.raises(NoBrokerAnswers):
        runs.run()
    runs.is_stopped, runs.waits = True, 0
    runs.ends = iter([runs.changed_to("b"), gone])
    assert runs.run() is RunState.STOPPED
    assert runs.waits == 0
