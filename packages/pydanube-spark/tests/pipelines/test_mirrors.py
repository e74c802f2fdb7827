"""Tests of mirrors, which are sources and sinks."""

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.pure.mirrors import tables_among
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


def loaded(tmp_path, text, **more):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    return load(file, **more)


def mirror_of(tmp_path, text):
    return loaded(tmp_path, text).spec.mirrors["shop"]


def problems(tmp_path, text, **more):
    with pytest.raises(InvalidDeclaration) as caught:
        loaded(tmp_path, text, **more)
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
    applied = loaded(tmp_path, MIRROR + "    truncate: apply\n").spec
    assert {each.truncate for each in applied.sources.values()} == {Truncate.APPLY}
    assert {each.table.truncate for each in applied.sinks.values()} == {"_op = 't'"}


OPEN = """\
name: p
mirrors:
  shop:
    topic: /default/shop.{table}
    tables:
      public.lines: {key: [order, line]}
      "public.*": {key: id}
      "*": {key: key, schema: key BIGINT}
    exclude: [transaction]
    format: danube-postgres
    options: {table: "{table}", uri: "postgresql://localhost/x"}
    dead_letters: {topic: "/default/shop.{table}.dead"}
"""
TOPICS = [
    "/default/shop.public.orders-part-0",
    "/default/shop.public.orders-part-1",
    "/default/shop.public.lines",
    "/default/shop.public.lines.dead",
    "/default/shop.carts",
    "/default/shop.carts.dead",
    "/default/shop.public.orders.dead",
    "/default/shop.transaction",
    "/default/shop.other.carts",
    "/default/shop",
    "/default/else",
]


def test_patterns_stand_for_the_tables_that_have_topics(tmp_path):
    found = tables_among(mirror_of(tmp_path, OPEN), TOPICS)
    assert found == ["carts", "public.orders"]
    spec = loaded(tmp_path, OPEN, tables={"shop": found}).spec
    assert list(spec.sources) == [
        "shop_public_lines",
        "shop_carts",
        "shop_public_orders",
    ]
    orders = spec.sinks["shop_public_orders"]
    assert (orders.table.key, orders.options["table"]) == ("id", "public.orders")
    assert spec.sources["shop_carts"].schema == "key BIGINT"
    assert spec.sources["shop_public_orders"].decode is True
    assert spec.sources["shop_public_orders"].topic == "/default/shop.public.orders"


def test_dead_letters_are_no_tables_even_if_their_table_is_gone(tmp_path):
    text = OPEN.replace("{table}.dead", "{table}-dead")
    gone = "carts-dead", "public.old-dead", "transaction-dead", "carts-dead-backfill"
    topics = [f"/default/shop.{each}" for each in ("a", "public.b", "c-dead.d", *gone)]
    assert tables_among(mirror_of(tmp_path, text), topics) == ["a", "public.b"]
    all_in_one = OPEN.replace("shop.{table}.dead", "shop.dead")
    topics = ["/default/shop.dead", "/default/shop.a-dead", "/default/shop.dead-x"]
    assert tables_among(mirror_of(tmp_path, all_in_one), topics) == ["a-dead"]


def test_tables_of_the_last_run_are_known_to_all_commands(tmp_path):
    first = loaded(tmp_path, OPEN)
    assert list(first.spec.sources) == ["shop_public_lines"]
    first.state.path.mkdir(parents=True)
    first.state.write_mirrored_tables({"shop": ["carts", "a.b.c"]})
    # No pattern stands for the other one any more.
    assert list(loaded(tmp_path, OPEN).spec.sources) == [
        "shop_public_lines",
        "shop_carts",
    ]
    only = OPEN.replace("      public.lines: {key: [order, line]}\n", "")
    assert loaded(tmp_path, only, tables={}).spec.sources == {}


def test_tables_whose_names_become_the_same_are_refused(tmp_path):
    found = problems(tmp_path, OPEN, tables={"shop": ["public_lines"]})
    assert "called shop_public_lines" in found["mirrors.shop.tables.*"]


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("localhost/x", "localhost/{table}", ".options.uri", "the option table of"),
        ("/default/shop.{table}\n", "/{table}/shop\n", ".topic", "in its namespace"),
        ("/default/shop.{table}\n", "shop.{table}\n", ".topic", "invalid format"),
        ("/default/shop.{table}\n", "/d/{table}.{table}\n", ".topic", "must contain"),
        ("exclude:", "tables_max: 0\n    exclude:", ".tables_max", "1 to 1000"),
        ("exclude:", "path: a/{table}\n    exclude:", ".path", "the option table of"),
    ],
)
def test_mistakes_of_a_mirror_are_reported(tmp_path, old, new, place, words):
    found = problems(tmp_path, OPEN.replace(old, new, 1))
    assert words in found[f"mirrors.shop{place}"]


def test_excluded_tables_need_patterns(tmp_path):
    found = problems(tmp_path, MIRROR + "    exclude: [a]\n")
    assert "only valid with patterns" in found["mirrors.shop.exclude"]
