"""Changes of rows become messages as Debezium has them."""

import pytest

from pydanube_connect.sources.pure.change_events import (
    ChangeEvents,
    TableFacts,
    TableTopics,
)

ORDERS = TableFacts({"table": "orders"}, ["id"], None, {"table": "orders"})
SOURCE = {"lsn": 9}


def events(operation, before, after, table=ORDERS, *, tombstones=False):
    found = ChangeEvents(tombstones).of(
        *(table, operation, before, after), source=SOURCE, time_ms=5
    )
    return list(found)


def test_a_change_has_the_fields_of_debezium():
    [record] = events("u", None, {"id": 1, "who": "Ann"})
    assert record.key == "1"
    assert record.attributes == {"table": "orders"}
    assert record.value == {
        "before": None,
        "after": {"id": 1, "who": "Ann"},
        "source": {"table": "orders", "lsn": 9},
        "op": "u",
        "ts_ms": 5,
    }


def test_a_truncation_has_no_key_and_no_rows_and_no_tombstone():
    [record] = events("t", None, None, tombstones=True)
    assert record.key is None
    shown = [record.value[each] for each in ("op", "before", "after")]
    assert shown == ["t", None, None]


def test_a_change_of_the_key_is_a_deletion_and_an_insertion():
    found = events("u", {"id": 1}, {"id": 2}, tombstones=True)
    assert [(each.key, each.value and each.value["op"]) for each in found] == [
        ("1", "d"),
        ("1", b""),
        ("2", "c"),
    ]


def test_an_update_with_the_old_row_and_the_same_key_is_one_message():
    [record] = events("u", {"id": 1, "who": "A"}, {"id": 1, "who": "B"})
    assert record.value["before"] == {"id": 1, "who": "A"}


@pytest.mark.parametrize(
    ("columns", "row", "key"),
    [
        ([], {"id": 1}, None),
        (["id"], {"id": "a"}, "a"),
        (["id"], {"other": 1}, None),
        (["a", "b"], {"b": 2, "a": "x"}, '["x",2]'),
    ],
)
def test_the_key_is_that_of_the_table(columns, row, key):
    table = TableFacts({}, columns, None, {})
    assert [each.key for each in events("c", None, row, table)] == [key]


def test_tables_have_topics_with_their_names():
    topics = TableTopics({"shop.orders": None, "*": "/default/{schema}.{table}"})
    assert topics.problem() is None
    assert topics.names == [("shop", "orders")]
    assert topics.topic_of("shop", "orders") is None
    assert topics.topic_of("shop", "a b/c") == "/default/shop.a_b_c"
    assert ("any", "table") in topics


def test_other_tables_are_not_published():
    assert ("shop", "other") not in TableTopics({"shop.orders": None})


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({}, "has no table"),
        ({"orders": None}, "'orders' is not 'schema.table'"),
        ({"shop.orders": "orders"}, "orders"),
    ],
)
def test_malformed_tables_are_reported(tables, problem):
    assert problem in TableTopics(tables).problem()
