"""The source of a table's rows continues after the last value of a column."""

import asyncio
import datetime as dt
import sqlite3
from contextlib import aclosing
from decimal import Decimal
from uuid import UUID

import pytest

pytest.importorskip("sqlalchemy")

from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.sources.sql import SqlOptions, SqlSource, to_json
from support.drivers.connectors import read_records

TIMEOUT_S = 30


@pytest.fixture
def database(tmp_path):
    file = tmp_path / "shop.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE orders (id INTEGER, who TEXT, at TIMESTAMP)")
    connection.commit()
    yield connection, f"sqlite:///{file}"
    connection.close()


def insert(connection, *numbers):
    for number in numbers:
        row = (
            number,
            f"user-{number % 2}",
            f"2026-01-01 00:00:{number % 60:02}.000000",
        )
        connection.execute("INSERT INTO orders VALUES (?, ?, ?)", row)
    connection.commit()


async def read(count, url, position=None, **options):
    given = {"table": "orders", "column": "id", "poll": "10ms", **options}
    return await read_records(SqlSource(SqlOptions(url=url, **given)), count, position)


async def test_rows_are_objects_in_the_order_of_the_column(database):
    connection, url = database
    insert(connection, 2, 1)
    records, position = await read(2, url, key="who")
    assert [each.value for each in records] == [
        {"id": 1, "who": "user-1", "at": "2026-01-01T00:00:01"},
        {"id": 2, "who": "user-0", "at": "2026-01-01T00:00:02"},
    ]
    assert [each.key for each in records] == ["user-1", "user-0"]
    assert position == 2


async def test_source_continues_after_its_position(database):
    connection, url = database
    insert(connection, *range(2500))
    records, position = await read(1499, url, position=1000, columns=["id"])
    assert [each.value["id"] for each in records] == [*range(1001, 2500)]
    assert position == 2499


async def test_column_may_be_a_time(database):
    connection, url = database
    insert(connection, 1, 2, 3)
    position = "2026-01-01T00:00:01"
    records, position = await read(2, url, position, column="at")
    assert [each.value["id"] for each in records] == [2, 3]
    assert position == "2026-01-01T00:00:03"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"table": "nothing"}, "there is no table nothing"),
        ({"column": "number"}, "no column 'number'; it has id, who, at"),
        ({"key": "name"}, "no column 'name'"),
        ({"url": "no url"}, "cannot be used"),
    ],
)
async def test_wrong_names_stop_the_connector(database, options, error):
    with pytest.raises(ConnectorFailed, match=error):
        await read(1, **{"url": database[1], **options})


def test_values_that_json_lacks_become_text():
    assert [
        to_json(each)
        for each in (
            dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            Decimal("1.50"),
            UUID(int=1),
            b"\xff",
            [dt.date(2026, 1, 2)],
            None,
        )
    ] == [
        "2026-01-01T00:00:00+00:00",
        "1.50",
        "00000000-0000-0000-0000-000000000001",
        "ff",
        ["2026-01-02"],
        None,
    ]


async def test_columns_that_are_added_or_removed_later_are_noticed(database):
    connection, url = database
    insert(connection, 1)
    options = SqlOptions(url=url, table="orders", column="id", poll="1ms")
    batches = SqlSource(options).batches(None)
    async with asyncio.timeout(TIMEOUT_S), aclosing(batches):
        [first] = (await anext(batches)).records
        connection.execute("ALTER TABLE orders ADD COLUMN total INTEGER")
        connection.execute("INSERT INTO orders (id, total) VALUES (2, 7)")
        connection.commit()
        [second] = (await anext(batches)).records
        connection.execute("ALTER TABLE orders DROP COLUMN who")
        connection.execute("INSERT INTO orders (id, total) VALUES (3, 8)")
        connection.commit()
        [third] = (await anext(batches)).records
    assert "total" not in first.value
    assert second.value["total"] == 7
    assert set(third.value) == {"id", "at", "total"}
