"""The tables of mirrors that a run knows."""

from functools import partial

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.commands.pipeline_process import load_pipeline
from pydanube_spark.commands.pipeline_runs import (
    with_changed_tables,
    with_mirrored_tables,
)
from pydanube_spark.pipelines import table_discovery
from pydanube_spark.pipelines.broker_checks import NoBrokerAnswers

PIPELINE = """\
name: p
mirrors:
  shop:
    topic: /shop/{table}
    tables: {"*": {key: id}, "*.*": {key: id}}
    format: danube-delta
    path: lake/{table}
"""


def test_a_run_forgets_tables_that_cannot_be_together(tmp_path, monkeypatch):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    reload = partial(load_pipeline, file, None, None, None)

    def run(*tables):
        monkeypatch.setattr(
            table_discovery, "discover_tables", lambda *_: {"shop": list(tables)}
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
            return {"shop": result}

        monkeypatch.setattr(table_discovery, "discover_tables", found)

    discover(["a.b", "c"])
    with_mirrored_tables(pipeline, reload, is_run=True)
    assert with_changed_tables(pipeline, reload) is None
    discover(["c"])
    assert list(with_changed_tables(pipeline, reload).spec.sources) == ["shop_c"]
    discover(["a.b", "c", "d"])
    found = with_changed_tables(pipeline, reload)
    assert list(found.spec.sources) == ["shop_a_b", "shop_c", "shop_d"]
    # The run alone remembers tables, when it begins with them.
    assert pipeline.state.read_mirrored_tables() == {"shop": ["a.b", "c"]}
    discover(["a.b", "a_b"])
    with pytest.raises(InvalidDeclaration, match="or name a_b in 'exclude'"):
        with_changed_tables(pipeline, reload)
    discover(NoBrokerAnswers(str(file), []))
    assert with_changed_tables(pipeline, reload) is None
