"""Messages become rows, and rows statements."""

from types import SimpleNamespace

import pytest
from msgspec import Raw

from pydanube_connect.sinks.postgres_rows import (
    Envelope,
    InvalidRow,
    Row,
    TableFormat,
    Truncate,
)

COLUMNS = ["id", "who", "total"]


TRUNCATION = b'{"before": null, "after": null, "op": "t"}'


def table(envelope=Envelope.ROW, key=("id",), truncate=Truncate.FAIL):
    return TableFormat('"orders"', COLUMNS, key, envelope, truncate)


def row_of(payload, key=None, topic="/default/orders", **table_options):
    message = SimpleNamespace(
        payload=payload, key_bytes=key and key.encode(), topic=topic
    )
    found = table(**table_options).row(message)
    return found and (
        {name: bytes(each) for name, each in found.values.items()},
        found.is_deleted,
    )


@pytest.mark.parametrize(
    ("payload", "row"),
    [
        (b'{"id": 1, "who": "a"}', ({"id": b"1", "who": b'"a"'}, False)),
        (
            b'{"id": 12345678901234567890123}',
            ({"id": b"12345678901234567890123"}, False),
        ),
    ],
)
def test_an_object_is_a_row_with_exact_values(payload, row):
    assert row_of(payload) == row


def test_an_empty_message_deletes_the_row_of_its_key():
    assert row_of(b"", "7") == ({"id": b'"7"'}, True)


@pytest.mark.parametrize(
    ("payload", "row"),
    [
        (b'{"op": "r", "after": {"id": 1}}', ({"id": b"1"}, False)),
        (
            b'{"op": "u", "after": {"id": 1, "who": "__debezium_unavailable_value"}}',
            ({"id": b"1"}, False),
        ),
        (b'{"op": "d", "before": {"id": 1, "who": null}}', ({"id": b"1"}, True)),
        (
            b'{"schema": {}, "payload": {"op": "c", "after": {"id": 1}}}',
            ({"id": b"1"}, False),
        ),
        (b'{"op": "m"}', None),
        (b"", None),
    ],
)
def test_an_event_of_debezium_changes_a_row(payload, row):
    assert row_of(payload, envelope=Envelope.DEBEZIUM) == row


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"[1]", "no JSON object"),
        (b"\xff", "no JSON object"),
        (b'{"id": ' + b"[" * 5000 + b"]" * 5000 + b"}", "no JSON object"),
        (b'{"who": "a"}', "key column id"),
        (b'{"id": null}', "key column id"),
        (b'{"id": 1, "x": 2}', "no column 'x'"),
        (b"", "its key is no key of a row"),
    ],
)
def test_other_messages_are_refused(payload, reason):
    with pytest.raises(InvalidRow, match=reason):
        row_of(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"op": "t"}',
        b'{"op": "c"}',
        b'{"schema": 1, "payload": 1}',
        b"{}",
        b'{"op": "c", "after": {"id": 1, "who": "__debezium_unavailable_value"}}',
    ],
)
def test_other_events_are_refused(payload):
    with pytest.raises(InvalidRow):
        row_of(payload, envelope=Envelope.DEBEZIUM)


@pytest.mark.parametrize(
    ("truncate", "row"), [(Truncate.IGNORE, None), (Truncate.APPLY, ({}, True))]
)
def test_a_truncation_is_ignored_or_deletes_all_rows(truncate, row):
    options = {"envelope": Envelope.DEBEZIUM, "truncate": truncate}
    assert row_of(TRUNCATION, **options) == row
    wrapped = b'{"schema": {}, "payload": %s}' % TRUNCATION
    assert row_of(wrapped, **options) == row


def test_a_truncation_is_refused_where_it_has_no_order():
    options = {"envelope": Envelope.DEBEZIUM, "truncate": Truncate.APPLY}
    with pytest.raises(InvalidRow, match="needs a topic with one partition"):
        row_of(TRUNCATION, topic="/default/orders-part-0", **options)


def rows(*given):
    return [
        Row({name: Raw(b"%d" % value) for name, value in values.items()}, is_deleted)
        for values, is_deleted in given
    ]


def shown(runs):
    return [
        [
            ({n: int(bytes(v)) for n, v in each.values.items()}, each.is_deleted)
            for each in run
        ]
        for run in runs
    ]


def test_rows_of_a_key_are_merged_and_deletions_come_first():
    given = rows(
        ({"id": 1, "total": 1}, False),
        ({"id": 2, "total": 1}, False),
        ({"id": 1, "who": 5}, False),
        ({"id": 2}, True),
        ({"id": 3, "total": 1}, False),
        ({"id": 3}, True),
        ({"id": 3, "total": 2}, False),
    )
    assert shown(table().runs(given)) == [
        [({"id": 2}, True), ({"id": 3}, True)],
        [({"id": 1, "total": 1, "who": 5}, False)],
        [({"id": 3, "total": 2}, False)],
    ]


def test_rows_before_a_truncation_are_not_written():
    given = rows(
        ({"id": 1, "total": 1}, False),
        ({}, True),
        ({"id": 2, "total": 1}, False),
        ({}, True),
        ({"id": 3}, True),
        ({"id": 1, "total": 2}, False),
    )
    assert shown(table().runs(given)) == [
        [({}, True)],
        [({"id": 3}, True)],
        [({"id": 1, "total": 2}, False)],
    ]
    assert table().statement(given[1]) == 'DELETE FROM "orders"'


def test_without_a_key_every_row_stays():
    given = rows(({"id": 1}, False), ({"id": 1}, False), ({"who": 1}, False))
    found = shown(table(key=()).runs(given))
    assert found == [[({"id": 1}, False)] * 2, [({"who": 1}, False)]]


def test_statements_name_quoted_columns_only():
    strange = TableFormat('"t"', ['a"b', "c"], ['a"b'], Envelope.ROW)
    [row] = rows(({"c": 1, 'a"b': 2}, False))
    assert strange.statement(row) == (
        'INSERT INTO "t" ("a""b", "c") SELECT "a""b", "c" FROM '
        'jsonb_populate_recordset(NULL::"t", %s::jsonb) AS new '
        'ON CONFLICT ("a""b") DO UPDATE SET "c" = EXCLUDED."c"'
    )
