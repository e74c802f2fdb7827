"""The source mysql-cdc, with a real MariaDB and its binary log."""

from __future__ import annotations

import uuid

import pytest

pytest.importorskip("pymysqlreplication")

import pymysql

from pydanube_broker.testing import memory_broker
from pydanube_connect.status import State
from pydanube_connect.trial import try_connector
from support.drivers.change_events import (
    broker_with_topics,
    check_kills,
    check_large_transactions,
    check_tables,
    events_of,
)
from support.drivers.connectors import declared, running
from support.servers.mariadb import MariadbProcess

pytestmark = [pytest.mark.e2e, pytest.mark.soak]


@pytest.fixture(scope="module")
def server():
    with MariadbProcess() as found:
        yield found


class Database:
    """A database of its own, with a table ``orders``."""

    def __init__(self, server):
        self.server = server
        self.name = f"shop_{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {self.name}")
        self.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, who text, total decimal(20, 2))"
        )

    def execute(self, *statements):
        """Run *statements* in one transaction."""
        self.server.execute(f"USE {self.name}", *statements)

    def query(self, statement):
        with (
            self.server.connect(database=self.name) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return cursor.fetchall()

    def declaration(self, options="", table="orders", **more):
        given = "".join(f", {name}: {value}" for name, value in more.items())
        return f"""
connectors:
  shop:
    kind: mysql-source
    topic: /default/orders
    retries: {{backoff: 50ms}}
    batch: {{messages: 1000}}
    options:
      {{port: {self.server.port}, username: danube, password: sesame,
       tables: {{{self.name}.{table}: }}{options}{given}}}
"""


@pytest.fixture
def database(server):
    return Database(server)


async def test_rows_and_then_changes_are_published_as_debezium_does(database):
    database.execute(
        "INSERT INTO orders VALUES (1, 'Ann', 1.50)",
        "INSERT INTO orders VALUES (2, NULL, NULL)",
    )
    async with broker_with_topics() as (broker, client):
        text = database.declaration(tombstones="true")
        async with running(declared(text, broker.url)):
            await events_of(client, 2)
            database.execute(
                "INSERT INTO orders VALUES (3, 'Cid', 3)",
                "UPDATE orders SET who = 'Bob' WHERE id = 2",
                "UPDATE orders SET id = 4 WHERE id = 3",
                "DELETE FROM orders WHERE id = 1",
            )
            events = await events_of(client, 9)
    ann = {"id": 1, "who": "Ann", "total": "1.50"}
    bob = {"id": 2, "who": None, "total": None}
    cid = {"id": 3, "who": "Cid", "total": "3.00"}
    assert [
        (event["op"], key, event["before"], event["after"])
        for key, event in events
        if event
    ] == [
        ("r", "1", None, ann),
        ("r", "2", None, bob),
        ("c", "3", None, cid),
        ("u", "2", bob, {**bob, "who": "Bob"}),
        ("d", "3", cid, None),
        ("c", "4", None, {**cid, "id": 4}),
        ("d", "1", ann, None),
    ]
    assert [key for key, event in events if event is None] == ["3", "1"]
    source = events[-2][1]["source"]
    assert (source["db"], source["table"]) == (database.name, "orders")
    assert source["snapshot"] == "false"
    assert source["gtid"].count("-") == 2


async def test_transactions_larger_than_a_batch_continue_after_any_message(database):
    await check_large_transactions(database, "SELECT seq, 'many', seq FROM seq_1_to_{}")


async def test_all_types_become_json(database):
    database.execute(
        "CREATE TABLE types (b bool, i8 bigint, u8 bigint unsigned, f4 float, "
        "f8 double, n decimal(30, 4), t text, y blob, f binary(4), v varbinary(9), "
        "d date, dt datetime(3), ts timestamp, ti time(1), yr year, "
        "e enum('good', 'bad'), s set('x', 'y', 'z'), bi bit(10), l varchar(9) "
        "CHARACTER SET latin1, j json)"
    )
    values = (
        "true, -9007199254740993, 18446744073709551615, 0.1, 1.5, "
        "12345678901234567890.1234, 'é', x'00ff', x'0a00', x'ff00', '2024-02-29', "
        "'2024-02-29 12:00:00.5', '2024-02-29 12:00:00', '-12:30:00.5', 2024, 'bad', "
        """'z,x', b'1000000001', 'é', '{"x": [1, null]}'"""
    )
    # The time zone of the server does not matter.
    database.execute(f"INSERT INTO types VALUES ({values})")
    async with broker_with_topics() as (broker, client):
        text = database.declaration(table="types")
        async with running(declared(text, broker.url)):
            await events_of(client, 1)
            database.execute(f"INSERT INTO types VALUES ({values})")
            (_, snapshot), (key, change) = await events_of(client, 2)
    assert key is None
    times = {snapshot["after"].pop("ts"), change["after"].pop("ts")}
    assert len(times) == 1
    assert (
        snapshot["after"]
        == change["after"]
        == {
            "b": 1,
            "i8": -9007199254740993,
            "u8": 18446744073709551615,
            "f4": 0.1,
            "f8": 1.5,
            "n": "12345678901234567890.1234",
            "t": "é",
            "y": "00ff",
            "f": "0a000000",
            "v": "ff00",
            "d": "2024-02-29",
            "dt": "2024-02-29T12:00:00.500000",
            "ti": "-12:30:00.500000",
            "yr": 2024,
            "e": "bad",
            "s": "x,z",
            "bi": 513,
            "l": "é",
            "j": '{"x": [1, null]}',
        }
    )


async def test_topics_by_table_and_columns_that_are_added(database):
    text = database.declaration().replace(
        "orders: }", 'orders: , "*": "/default/{schema}-{table}"}'
    )
    await check_tables(database, text, f"/default/{database.name}-other")


async def test_rows_are_left_out_without_a_snapshot(database):
    database.execute("INSERT INTO orders VALUES (1, 'Ann', 1)")
    async with broker_with_topics() as (broker, client):
        connectors = declared(database.declaration(snapshot="never"), broker.url)
        async with running(connectors) as until:
            await until(lambda found: found["shop"].state is State.RUNNING)
            positions = "/default/shop.positions"
            async for _ in client.read(positions, end=1, follow=True):
                pass
            database.execute("DELETE FROM orders")
            [(key, event)] = await events_of(client, 1)
    assert (key, event["op"]) == ("1", "d")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"table": "none"}, "there is no table"),
        ({"password": "wrong"}, "Access denied"),
    ],
)
async def test_servers_that_do_not_fit_are_reported(database, changes, error):
    text = database.declaration(table=changes.get("table", "orders"))
    text = text.replace("sesame", changes.get("password", "sesame"))
    async with memory_broker() as broker:
        [connector] = declared(text, broker.url)
        assert error in (await try_connector(connector)).problem
        async with running([connector]) as until:
            found = await until(lambda found: found["shop"].state is State.FAILED)
    assert error in found["shop"].error


async def test_a_server_whose_log_lacks_names_is_reported():
    with MariadbProcess(**{"binlog-row-metadata": "MINIMAL"}) as server:
        text = Database(server).declaration()
        async with memory_broker() as broker:
            [connector] = declared(text, broker.url)
            found = await try_connector(connector)
    assert "set binlog_row_metadata = FULL in its configuration" in found.problem


async def test_a_log_that_is_gone_is_reported_instead_of_losing_changes(database):
    database.execute("INSERT INTO orders VALUES (1, 'Ann', 1)")
    async with broker_with_topics() as (broker, client):
        text = database.declaration()
        async with running(declared(text, broker.url)):
            await events_of(client, 1)
        database.execute("DELETE FROM orders")
        for _ in range(2):
            database.execute("FLUSH BINARY LOGS")
            database.execute("INSERT INTO orders VALUES (2, 'Bob', 1)")
            database.execute("DELETE FROM orders")
        file = database.query("SHOW MASTER STATUS")[0][0]
        database.execute(f"PURGE BINARY LOGS TO '{file}'")
        async with running(declared(text, broker.url)) as until:
            found = await until(lambda found: found["shop"].state is State.FAILED)
    assert "Changes may be missing" in found["shop"].error


def test_each_change_is_published_once_although_everything_is_killed(
    server, database, tmp_path
):
    lost = (pymysql.err.OperationalError, pymysql.err.InterfaceError)
    check_kills(server, database, tmp_path, lost=lost)


async def test_truncations_are_published_without_a_key_and_once(database):
    database.execute("INSERT INTO orders VALUES (1, 'Ann', 1)")
    async with broker_with_topics() as (broker, client):
        text = database.declaration(tombstones="true")
        async with running(declared(text, broker.url)):
            await events_of(client, 1)
            database.execute(
                "CREATE TABLE other (x int)",
                "TRUNCATE TABLE other",
                "TRUNCATE /* all */ `orders`",
                "INSERT INTO orders VALUES (1, 'Bob', 2)",
            )
            await events_of(client, 3)
        database.server.execute(f"TRUNCATE {database.name}.orders")
        async with running(declared(text, broker.url)):
            events = await events_of(client, 4)
    assert [(event["op"], key) for key, event in events] == [
        ("r", "1"),
        ("t", None),
        ("c", "1"),
        ("t", None),
    ]
    source = events[1][1]["source"]
    assert (source["db"], source["table"]) == (database.name, "orders")
    assert events[1][1]["before"] is events[1][1]["after"] is None
