"""Tests of mirrors, which are sources and sinks."""

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.pure.spec import ChangeFeed, Truncate

MIRROR = """\
name: p
mirrors:
  shop:
    topic: /default/shop.{table}
    tables:
      customers: {key: id, schema: "id BIGINT, name STRING", optional_columns: [name]}
      lines: {key: [order, line]}
    format: danube-delta
    path: lake/{table}
    options: {compactFiles: 50}
    dead_letters: {topic: "/default/shop.{table}.dead"}
"""
LONG = """\
name: p
sources:
  shop_customers:
    topic: /default/shop.customers
    cdc: debezium
    schema: id BIGINT, name STRING
    optional_columns: [name]
    dead_letters: {topic: /default/shop.customers.dead}
  shop_lines:
    topic: /default/shop.lines
    cdc: debezium
    decode: true
    dead_letters: {topic: /default/shop.lines.dead}
sinks:
  shop_customers:
    input: shop_customers
    format: danube-delta
    path: lake/customers
    table: {key: id, order: [_ts, _offset], delete: "_op = 'd'"}
    options: {compactFiles: 50}
  shop_lines:
    input: shop_lines
    format: danube-delta
    path: lake/lines
    table: {key: [order, line], order: [_ts, _offset], delete: "_op = 'd'"}
    options: {compactFiles: 50}
"""


def loaded(tmp_path, text):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    return load(file)


def problems(tmp_path, text):
    with pytest.raises(InvalidDeclaration) as caught:
        loaded(tmp_path, text)
    return {each.path: each.message for each in caught.value.problems}


def test_a_mirror_is_a_source_and_a_sink_for_each_table(tmp_path):
    assert loaded(tmp_path, MIRROR).spec == loaded(tmp_path, LONG).spec


def test_each_table_needs_a_topic_and_a_target_of_its_own(tmp_path):
    text = MIRROR.replace("shop.{table}\n", "shop\n").replace("lake/{table}", "lake")
    found = problems(tmp_path, text)
    assert "must contain {table}" in found["mirrors.shop.topic"]
    assert "which table is written" in found["mirrors.shop"]
    assert loaded(
        tmp_path,
        MIRROR.replace("danube-delta", "danube-iceberg")
        .replace("    path: lake/{table}\n", "")
        .replace("compactFiles: 50", 'table: "lake.{table}"'),
    ).spec.sinks["shop_lines"].options == {"table": "lake.lines"}


def test_parts_of_a_mirror_have_names_that_nothing_else_has(tmp_path):
    more = "sources: {shop_lines: {topic: /default/x}}\n"
    found = problems(tmp_path, MIRROR + more)
    assert "called shop_lines, as another part" in found["mirrors.shop.tables.lines"]


def test_mistakes_in_tables_are_those_of_sources_and_sinks(tmp_path):
    found = problems(tmp_path, MIRROR.replace("compactFiles", "compactFilez"))
    assert "compactFiles" in found["sinks.shop_lines.options.compactFilez"]
    found = problems(tmp_path, MIRROR.replace("key: id", "kye: id"))
    assert any("kye" in each for each in found)
    empty = "name: p\nmirrors: {m: {topic: 'a{table}', tables: {}, format: noop}}\n"
    assert "at least one" in problems(tmp_path, empty)["mirrors.m.tables"]


def test_settings_of_a_mirror_are_those_of_all_its_sources(tmp_path):
    more = MIRROR + "    cdc: debezium-mongodb\n    truncate: ignore\n"
    found = problems(tmp_path, more)
    assert list(found) == ["sources.shop_lines.schema"]
    text = more.replace("line]}", "line], schema: _id STRING}")
    for source in loaded(tmp_path, text).spec.sources.values():
        assert source.cdc is ChangeFeed.DEBEZIUM_MONGODB
        assert source.truncate is Truncate.IGNORE
