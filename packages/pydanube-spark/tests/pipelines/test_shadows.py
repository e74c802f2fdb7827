"""Tests of pipelines that compute a part of their history again."""

from datetime import UTC, datetime

import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_spark.formats import SINKS
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.options import topic_options
from pydanube_spark.pipelines.pure.formats import TARGETS
from pydanube_spark.pipelines.pure.spec import Mode, TriggerKind
from pydanube_spark.pipelines.shadows import backfill_of, shadow_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)

FILE = """\
name: p
trigger: continuous
fan_out: true
sources:
  a: {topic: /default/a, decode: true, dead_letters: {topic: /default/dead}}
  lines: {files: x, format: text}
steps:
  b:
    sql: SELECT * FROM a
    expect: {ok: {condition: "true", action: quarantine}}
    quarantine: {format: parquet, path: bad/}
sinks:
  topic: {input: b, topic: /default/b, trigger: {every: 1s}}
  delta: {input: b, format: danube-delta, path: t/b}
  keyed: {input: b, format: danube-delta, options: {Path: k}, mode: update,
    table: {key: x}}
  iceberg: {input: b, format: danube-iceberg, options: {table: shop.b}}
  postgres: {input: b, format: danube-postgres,
    options: {uri: "postgresql:///x", table: '"s"."b"'}}
  alerts: {input: b, python: "package.module:call"}
"""


@pytest.fixture
def pipeline(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    return load(file)


def test_shadow_has_targets_and_a_state_of_its_own(pipeline):
    shadow = shadow_of(pipeline, "v2")
    sinks = shadow.pipeline.spec.sinks
    assert shadow.left_out == ["alerts"]
    assert sinks.keys() == {"topic", "delta", "keyed", "iceberg", "postgres"}
    assert sinks["topic"].topic == "/default/b-v2"
    assert sinks["delta"].path == "t/b-v2"
    assert sinks["keyed"].options == {"Path": "k-v2"}
    assert sinks["iceberg"].options["table"] == "shop.b_v2"
    assert sinks["postgres"].options["table"] == '"s"."b_v2"'
    assert shadow.pipeline.spec.steps["b"].quarantine.path == "bad-v2/"
    assert shadow.pipeline.spec.sources["a"].dead_letters.topic == "/default/dead-v2"
    assert shadow.pipeline.state.path.name == "p-v2"


def test_backfill_reads_topics_once_and_replaces_rows_if_it_can(pipeline):
    shadow = shadow_of(pipeline, "v2").pipeline
    found = backfill_of(shadow, "2026-01-01T00:00:00Z", "24h", NOW)
    assert found.trigger.kind is TriggerKind.AVAILABLE_NOW
    assert not any(each.is_stream for each in found.spec.sources.values())
    options = topic_options(found.spec.sources["a"], found.broker)
    assert options.starting.is_time
    assert options.ending.is_time
    assert {name: each.mode for name, each in found.spec.sinks.items()} == {
        "topic": Mode.APPEND,
        "delta": Mode.OVERWRITE,
        "keyed": Mode.APPEND,
        "iceberg": Mode.OVERWRITE,
        "postgres": Mode.OVERWRITE,
    }
    assert found.trigger_of(found.spec.sinks["topic"]).ends
    assert not found.spec.fan_out


def test_positions_may_be_offsets_of_one_topic(pipeline):
    shadow = shadow_of(pipeline, "v2").pipeline
    source = backfill_of(shadow, "3", "latest", NOW).spec.sources["a"]
    options = topic_options(source, pipeline.broker)
    assert options.starting.by_name == {("/default/a", None): 3}
    assert options.ending.value == -1


def test_unusable_names_and_positions_are_refused(pipeline, tmp_path):
    with pytest.raises(InvalidRequest, match="letters, digits and _"):
        shadow_of(pipeline, "../x")
    shadow = shadow_of(pipeline, "v2").pipeline
    with pytest.raises(InvalidRequest, match="is not a position"):
        backfill_of(shadow, "soon", "latest", NOW)
    file = tmp_path / "q.yaml"
    file.write_text(
        "name: q\nsources: {a: {topics: [/default/a, /default/b]}}\n"
        "sinks: {o: {input: a, format: noop}, t: {input: a, topic: /default/t}}\n"
    )
    shadow = shadow_of(load(file), "v2")
    assert shadow.left_out == ["o"]
    with pytest.raises(InvalidRequest, match="has several topics: use times"):
        backfill_of(shadow.pipeline, "3", "latest", NOW)


def test_all_formats_with_a_table_have_a_target():
    assert SINKS.keys() <= TARGETS.keys()


def test_backfill_does_not_need_the_tables_of_an_earlier_run(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        'name: p\nmirrors: {m: {topic: "/default/{table}", tables: {"*": {key: id}}, '
        'format: danube-delta, path: "lake/{table}"}}\n'
    )

    def backfill(**tables):
        shadow = shadow_of(load(file, tables=tables), "v2").pipeline
        return backfill_of(shadow, "earliest", "latest", NOW).spec

    assert list(backfill().mirrors) == ["m"]
    assert backfill(m=["a"]).sinks["m_a"].path == "lake/a-v2"
