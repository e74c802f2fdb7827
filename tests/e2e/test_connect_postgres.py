"""The source postgres-cdc, with a real PostgreSQL and its logical replication."""

from __future__ import annotations

import random
import uuid

import pytest

pytest.importorskip("psycopg")

import psycopg

from pydanube_broker.testing import memory_broker
from pydanube_connect.status import State
from support.drivers.change_events import (
    TOPIC,
    broker_with_topics,
    check_kills,
    check_large_transactions,
    check_tables,
    events_of,
    shortened,
)
from support.drivers.connectors import declared, running
from support.servers.postgres import PostgresProcess

pytestmark = [pytest.mark.e2e, pytest.mark.rotated]


@pytest.fixture(scope="module")
def server():
    # Each test leaves a slot.
    slots = {"max_replication_slots": 100, "max_wal_senders": 100}
    with PostgresProcess(wal_level="logical", **slots) as found:
        yield found


class Database:
    """A database of its own, with a table ``orders``."""

    def __init__(self, server):
        self.name = f"shop_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name}")
        self.url = server.uri.replace("/postgres?", f"/{self.name}?")
        self.slot = self.name
        self.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, who text, total numeric)"
        )

    def execute(self, *statements):
        """Run *statements* in one transaction."""
        with psycopg.connect(self.url) as connection:
            for each in statements:
                connection.execute(each)

    def query(self, statement):
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).fetchall()

    def declaration(self, options="tables: {public.orders: }", name="shop"):
        return f"""
connectors:
  {name}:
    kind: postgres-source
    topic: /default/orders
    retries: {{backoff: 50ms}}
    batch: {{messages: 1000}}
    options: {{url: "{self.url}", slot: {self.slot}, {options}}}
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
        connectors = declared(
            database.declaration("tables: {public.orders: }, tombstones: true"),
            broker.url,
        )
        async with running(connectors):
            await events_of(client, 2)
            database.execute(
                "INSERT INTO orders VALUES (3, 'Cid', 3)",
                "UPDATE orders SET who = 'Bob' WHERE id = 2",
                "UPDATE orders SET id = 4 WHERE id = 3",
                "DELETE FROM orders WHERE id = 1",
            )
            events = await events_of(client, 9)
        assert [
            (event["op"], key, event["before"], event["after"])
            for key, event in events
            if event
        ] == [
            ("r", "1", None, {"id": 1, "who": "Ann", "total": "1.50"}),
            ("r", "2", None, {"id": 2, "who": None, "total": None}),
            ("c", "3", None, {"id": 3, "who": "Cid", "total": "3"}),
            ("u", "2", None, {"id": 2, "who": "Bob", "total": None}),
            ("d", "3", {"id": 3}, None),
            ("c", "4", None, {"id": 4, "who": "Cid", "total": "3"}),
            ("d", "1", {"id": 1}, None),
        ]
        assert [key for key, event in events if event is None] == ["3", "1"]
        source = events[-2][1]["source"]
        assert source["table"] == "orders"
        assert source["snapshot"] == "false"


async def test_transactions_larger_than_a_batch_continue_after_any_message(database):
    await check_large_transactions(
        database, "SELECT i, 'many', i FROM generate_series(1, {}) i"
    )


async def test_all_types_become_json(database):
    database.execute(
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE types (b bool, i8 int8, f8 float8, nan float8, n numeric(30, 4), "
        "t text, y bytea, d date, ts timestamp, tz timestamptz, late timestamptz, "
        "j jsonb, u uuid, m mood, a int[], ta text[], i interval)",
    )
    database.execute("ALTER TABLE types REPLICA IDENTITY FULL")
    values = (
        "true, 9007199254740993, 1.5, 'NaN', 12345678901234567890.1234, 'é', "
        "'\\x00ff', "
        "'2024-02-29', '2024-02-29 12:00:00.5', '2024-02-29 12:00:00+01', 'infinity', "
        """'{"x": [1, null]}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'good', """
        """'{1,NULL}', '{a,"b c"}', '1 mon 2 days'"""
    )
    database.execute(f"INSERT INTO types VALUES ({values})")
    async with broker_with_topics() as (broker, client):
        text = database.declaration("tables: {public.types: }")
        async with running(declared(text, broker.url)):
            await events_of(client, 1)
            database.execute(f"INSERT INTO types VALUES ({values})")
            (_, snapshot), (key, change) = await events_of(client, 2)
    assert key is None
    assert (
        snapshot["after"]
        == change["after"]
        == {
            "b": True,
            "i8": 9007199254740993,
            "f8": 1.5,
            "nan": "NaN",
            "n": "12345678901234567890.1234",
            "t": "é",
            "y": "\\x00ff",
            "d": "2024-02-29",
            "ts": "2024-02-29T12:00:00.5",
            "tz": "2024-02-29T11:00:00+00",
            "late": "infinity",
            "j": {"x": [1, None]},
            "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "m": "good",
            "a": [1, None],
            "ta": ["a", "b c"],
            "i": "1 mon 2 days",
        }
    )


BOUNDS = {
    "smallint": {"-32768": -32768, "32767": 32767},
    "integer": {"-2147483648": -(2**31), "2147483647": 2**31 - 1},
    "bigint": {"-9223372036854775808": -(2**63), "9223372036854775807": 2**63 - 1},
    "oid": {"4294967295": 2**32 - 1},
    "real": {"NaN": "NaN", "-Infinity": "-Infinity", "1e-45": 1e-45, "0.1": 0.1},
    "double precision": {
        "Infinity": "Infinity",
        "1.7976931348623157e308": 1.7976931348623157e308,
    },
    "numeric": {
        "NaN": "NaN",
        "Infinity": "Infinity",
        "-0.10": "-0.10",
        "9" * 40: "9" * 40,
    },
    "boolean": {"t": True, "f": False},
    "text": {"": "", "\\N": "\\N", "\U0001f600": "\U0001f600", "a\tb\nc": "a\tb\nc"},
    "char(3)": {"a": "a  "},
    "bytea": {"": "\\x", "\\x00ff": "\\x00ff"},
    "date": {
        "infinity": "infinity",
        "4713-01-01 BC": "4713-01-01 BC",
        "5874897-12-31": "5874897-12-31",
        "0001-01-01": "0001-01-01",
    },
    "timestamp": {
        "-infinity": "-infinity",
        "294276-12-31 23:59:59": "294276-12-31T23:59:59",
        "0001-01-01 00:00:00.000001": "0001-01-01T00:00:00.000001",
    },
    "time": {"24:00:00": "24:00:00", "00:00:00.000001": "00:00:00.000001"},
    "interval": {"-178000000 years": "-178000000 years"},
    "uuid": {
        "ffffffff-ffff-ffff-ffff-ffffffffffff": "ffffffff-ffff-ffff-ffff-ffffffffffff"
    },
    "json": {"null": None, '"null"': "null", "[]": [], '{"a": null}': {"a": None}},
    "jsonb": {"null": None, "1": 1, "[1, null]": [1, None]},
    "integer[]": {
        "{}": [],
        "{NULL,1}": [None, 1],
        "{{1,2},{3,4}}": [[1, 2], [3, 4]],
        "[0:1]={1,2}": "[0:1]={1,2}",
        "{-2147483648}": [-(2**31)],
    },
    "text[]": {'{"NULL",NULL,""}': ["NULL", None, ""], '{"a,b","\\""}': ["a,b", '"']},
    "numeric[]": {"{NaN,1.10}": ["NaN", "1.10"]},
    "timestamp[]": {"{infinity}": "{infinity}"},
    "int4range": {"[1,5)": "[1,5)", "empty": "empty"},
    "inet": {"::1": "::1"},
}
"""Texts of values of each type, and what they are in JSON."""


async def test_snapshot_and_log_agree_at_the_bounds_of_types(database):
    types = ", ".join(f"c{at} {kind}" for at, kind in enumerate(BOUNDS))
    count = max(map(len, BOUNDS.values())) + 1
    database.execute(
        f"CREATE TABLE t (number serial PRIMARY KEY, {types})",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    )

    def insert():
        with psycopg.connect(database.url) as connection:
            for row in range(count):
                texts = [
                    [*each, None][row] if row <= len(each) else None
                    for each in BOUNDS.values()
                ]
                places = ", ".join(f"%s::text::{kind}" for kind in BOUNDS)
                names = ", ".join(f"c{at}" for at in range(len(BOUNDS)))
                connection.execute(f"INSERT INTO t ({names}) VALUES ({places})", texts)

    insert()
    async with broker_with_topics() as (broker, client):
        text = database.declaration("tables: {public.t: }")
        async with running(declared(text, broker.url)):
            await events_of(client, count)
            insert()
            events = await events_of(client, 2 * count)
    found = [event["after"] for _, event in events]
    for at, (kind, values) in enumerate(BOUNDS.items()):
        for row, wanted in enumerate([*values.values(), None][:count]):
            for each in (found[row], found[count + row]):
                assert (kind, row, each[f"c{at}"]) == (kind, row, wanted)


async def test_columns_that_did_not_change_and_are_large_are_marked(database):
    database.execute(
        "ALTER TABLE orders ALTER COLUMN who SET STORAGE EXTERNAL",
        "INSERT INTO orders VALUES (1, repeat('x', 100000), 1)",
    )
    async with (
        broker_with_topics() as (broker, client),
        running(declared(database.declaration(), broker.url)),
    ):
        await events_of(client, 1)
        database.execute("UPDATE orders SET total = 2")
        database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        database.execute("UPDATE orders SET total = 3")
        events = await events_of(client, 3)
    rows = [each[2] for each in shortened(events)]
    assert rows[1]["who"] == "__debezium_unavailable_value"
    assert rows[2]["who"] == "x" * 100_000
    assert events[2][1]["before"]["total"] == "2"


async def test_topics_by_table_and_columns_that_are_added(database):
    database.execute(f"CREATE PUBLICATION {database.slot} FOR ALL TABLES")
    text = database.declaration(
        'tables: {public.orders: , "*": "/default/{schema}-{table}"}'
    )
    await check_tables(database, text, "/default/public-other")


async def test_changes_of_a_table_that_is_dropped_and_created_again_have_keys(database):
    database.execute(f"CREATE PUBLICATION {database.slot} FOR ALL TABLES")
    async with broker_with_topics() as (broker, client):
        connectors = declared(database.declaration(), broker.url)
        async with running(connectors):
            database.execute("INSERT INTO orders VALUES (1, 'Ann', 1)")
            await events_of(client, 1)
            # A change follows the snapshot, which begins again if it is interrupted.
            database.execute("UPDATE orders SET total = 2")
            await events_of(client, 2)
        database.execute("UPDATE orders SET total = 3", "TRUNCATE orders")
        database.execute(
            "DROP TABLE orders", "CREATE TABLE orders (at date, id text PRIMARY KEY)"
        )
        database.execute("INSERT INTO orders VALUES ('2026-01-01', 'x')")
        async with running(connectors):
            events = await events_of(client, 5)
    assert [(event["op"], key, event["after"]) for key, event in events[2:]] == [
        ("u", "1", {"id": 1, "who": "Ann", "total": "3"}),
        ("t", None, None),
        ("c", "x", {"at": "2026-01-01", "id": "x"}),
    ]


async def test_the_key_is_that_of_the_identity_if_there_is_no_primary_key(database):
    database.execute(
        "CREATE TABLE events (a int NOT NULL, b text NOT NULL, c int)",
        "CREATE UNIQUE INDEX by_b_and_a ON events (b, a)",
        "ALTER TABLE events REPLICA IDENTITY USING INDEX by_b_and_a",
        "INSERT INTO events VALUES (1, 'x', 0)",
    )
    text = database.declaration("tables: {public.events: }")
    async with (
        broker_with_topics() as (broker, client),
        running(declared(text, broker.url)),
    ):
        await events_of(client, 1)
        database.execute("DELETE FROM events")
        events = await events_of(client, 2)
    assert [key for key, _ in events] == ['["x",1]'] * 2
    assert events[1][1]["before"] == {"a": 1, "b": "x"}


async def test_a_publication_that_lacks_a_table_is_reported(database):
    database.execute(f"CREATE PUBLICATION {database.slot}")
    async with (
        memory_broker() as broker,
        running(declared(database.declaration(), broker.url)) as until,
    ):
        found = await until(lambda found: found["shop"].state is State.FAILED)
    assert found["shop"].error.endswith(
        f'ALTER PUBLICATION "{database.slot}" ADD TABLE "public"."orders"'
    )


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ("public.heap", "publication yourself WITH (publish = 'insert')"),
        ("public.none", "there is no table public.none"),
    ],
)
async def test_tables_that_cannot_be_published_are_reported(database, table, error):
    database.execute("CREATE TABLE heap (x int)")
    text = database.declaration(f"tables: {{{table}: }}")
    async with (
        memory_broker() as broker,
        running(declared(text, broker.url)) as until,
    ):
        found = await until(lambda found: found["shop"].state is State.FAILED)
    assert error in found["shop"].error
    # The table can be changed as before.
    database.execute("INSERT INTO heap VALUES (1)", "UPDATE heap SET x = 2")


async def test_a_slot_that_is_gone_is_reported_instead_of_losing_changes(database):
    database.execute("INSERT INTO orders VALUES (1, 'Ann', 1)")
    async with broker_with_topics() as (broker, client):
        text = database.declaration()
        async with running(declared(text, broker.url)):
            await events_of(client, 1)
            database.execute("DELETE FROM orders")
            await events_of(client, 2)
        database.query(f"SELECT pg_drop_replication_slot('{database.slot}')")
        async with running(declared(text, broker.url)) as until:
            found = await until(lambda found: found["shop"].state is State.FAILED)
    assert "does not exist any more: changes may be missing" in found["shop"].error


async def test_a_slot_of_somebody_else_is_not_taken(database):
    database.query(
        f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')"
    )
    async with (
        memory_broker() as broker,
        running(declared(database.declaration(), broker.url)) as until,
    ):
        found = await until(lambda found: found["shop"].state is State.FAILED)
    assert "exists already: choose another 'slot'" in found["shop"].error


async def test_the_server_may_delete_the_log_when_its_changes_are_stored(database):
    async with broker_with_topics() as (broker, client):
        async with running(declared(database.declaration(), broker.url)):
            database.execute("INSERT INTO orders VALUES (1, 'Ann', 1)")
            await events_of(client, 1)
            [(lsn,)] = database.query("SELECT pg_current_wal_lsn()::text")
            database.execute("INSERT INTO orders VALUES (2, 'Ann', 1)")
            await events_of(client, 2)
        [(is_confirmed,)] = database.query(
            f"SELECT confirmed_flush_lsn >= '{lsn}'::pg_lsn FROM pg_replication_slots "
            f"WHERE slot_name = '{database.slot}'"
        )
    assert is_confirmed


SINK = """
  mirror:
    kind: postgres-sink
    topic: {topic}
    retries: {{backoff: 50ms}}
    dead_letters: /default/dead
    options: {{url: "{url}", table: {table}, {options}}}
"""


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
async def test_a_table_is_mirrored_by_its_changes(database, identity):
    chance = random.Random(3)
    database.execute(
        "CREATE TABLE mirror (LIKE orders INCLUDING ALL)",
        "ALTER TABLE orders ALTER COLUMN who SET STORAGE EXTERNAL",
        f"ALTER TABLE orders REPLICA IDENTITY {identity}",
        "INSERT INTO orders SELECT i, 'old', i FROM generate_series(1, 50) i",
    )
    text = database.declaration() + SINK.format(
        topic=TOPIC,
        url=database.url,
        table="mirror",
        options="key: [id], envelope: debezium",
    )
    async with (
        broker_with_topics() as (broker, client),
        running(declared(text, broker.url)) as until,
    ):
        await events_of(client, 50)
        for number in range(100):
            key, other = chance.sample(range(1, 80), 2)
            upsert = f"INSERT INTO orders VALUES ({key}, repeat('n', 9000), {number}) "
            upsert += f"ON CONFLICT (id) DO UPDATE SET total = {number}"
            delete = f"DELETE FROM orders WHERE id = {other}"
            new_key = f"UPDATE orders SET id = {1000 + number} WHERE id = {key} + 1"
            statements = [upsert, delete]
            if identity == "FULL":
                statements.append(new_key)
            database.execute(*statements[: chance.randint(1, 3)])
        database.execute("INSERT INTO orders VALUES (-1, 'last', 0)")
        keys = []
        while "-1" not in keys:
            keys += [key for key, _ in await events_of(client, 1, start=len(keys))]
        await until(lambda found: found["mirror"].messages == len(keys))
    rows = "SELECT * FROM {} ORDER BY id"
    assert database.query(rows.format("mirror")) == database.query(
        rows.format("orders")
    )


async def test_tables_are_emptied_with_those_that_they_mirror(database, caplog):
    database.execute(
        "CREATE TABLE lines (id int PRIMARY KEY, of int REFERENCES orders)",
        "CREATE TABLE mirror (LIKE orders INCLUDING ALL)",
        "CREATE TABLE kept (LIKE orders INCLUDING ALL)",
        "INSERT INTO orders VALUES (1, 'Ann', 1)",
        # As earlier versions created it.
        f"CREATE PUBLICATION {database.slot} FOR TABLE orders, lines "
        "WITH (publish = 'insert, update, delete')",
    )
    options = "key: [id], envelope: debezium, truncate: {}"
    source = text = database.declaration(
        "tables: {public.orders: , public.lines: /default/lines}"
    )
    for name, truncate in (("mirror", "apply"), ("kept", "ignore")):
        text += SINK.replace("mirror:", f"{name}:").format(
            topic=TOPIC,
            url=database.url,
            table=name,
            options=options.format(truncate),
        )
    async with broker_with_topics("/default/lines") as (broker, client):
        async with running(declared(source, broker.url)):
            await events_of(client, 1)
            # A change follows the snapshot, which begins again if it is interrupted.
            database.execute("UPDATE orders SET total = 0")
            await events_of(client, 2)
        [hint] = [each for each in caplog.messages if "no truncations" in each]
        database.execute(hint[hint.index("ALTER") :])
        async with running(declared(text, broker.url)) as until:
            database.execute(
                "INSERT INTO orders VALUES (2, 'Bob', 2)",
                "INSERT INTO lines VALUES (7, 2)",
                "TRUNCATE orders, lines",
                "INSERT INTO orders VALUES (1, 'Cid', 3), (3, 'Dan', 4)",
            )
            database.execute("TRUNCATE lines")
            events = await events_of(client, 6)
            lines = await events_of(client, 3, "/default/lines")
            for name in ("mirror", "kept"):
                await until(lambda found, name=name: found[name].messages == 6)
    assert [event["op"] for _, event in events[2:]] == ["c", "t", "c", "c"]
    assert [event["op"] for _, event in lines] == ["c", "t", "t"]
    key, event = events[3]
    assert (key, event["before"], event["after"]) == (None, None, None)
    assert event["source"]["table"] == "orders"
    rows = "SELECT id, who FROM {} ORDER BY id"
    wanted = [(1, "Cid"), (3, "Dan")]
    assert database.query(rows.format("mirror")) == wanted
    assert database.query(rows.format("kept")) == [wanted[0], (2, "Bob"), wanted[1]]


async def test_vectors_are_written_to_columns_of_pgvector(database):
    database.execute(
        "CREATE EXTENSION vector",
        "CREATE TABLE texts (id int PRIMARY KEY, at vector(2))",
    )
    text = "connectors:" + SINK.format(
        topic=TOPIC, url=database.url, table="texts", options="key: [id]"
    )
    async with broker_with_topics("/default/dead") as (broker, client):
        async with client.producer(TOPIC) as producer:
            await producer.send(b'{"id": 1, "at": [1, 2.5]}')
            await producer.send(b'{"id": 2, "at": [1, 2, 3]}')
        async with running(declared(text, broker.url)) as until:
            found = await until(lambda found: found["mirror"].messages == 1)
    assert found["mirror"].dead_letters == 1
    assert database.query("SELECT id, at::text FROM texts") == [(1, "[1,2.5]")]


async def test_rows_that_the_table_refuses_become_dead_letters(database):
    text = "connectors:" + SINK.format(
        topic=TOPIC, url=database.url, table="public.orders", options="key: [id]"
    )
    payloads = [
        b'{"id": 1, "who": "Ann", "total": "1.5"}',
        b'{"id": "one"}',
        b'{"id": 2, "who": "Bob"}',
        b"no JSON",
        b'{"id": 2, "total": 7}',
        b'{"id": 3, "strange": 1}',
        b'{"id": 4, "who": "a\\u0000b"}',
    ]
    async with broker_with_topics("/default/dead") as (broker, client):
        async with client.producer(TOPIC) as producer:
            await producer.send_batch(payloads)
            await producer.send(b"", key="1")
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["mirror"].messages == 4)
            dead = [
                each async for batch in client.read("/default/dead") for each in batch
            ]
    assert database.query("SELECT * FROM orders") == [(2, "Bob", 7)]
    assert [each.payload for each in dead] == [payloads[at] for at in (1, 3, 5, 6)]
    reasons = [each.attributes["x-failure-reason"] for each in dead]
    assert "invalid input syntax for type integer" in reasons[0]
    assert reasons[2] == "the table has no column 'strange'"


async def test_a_column_that_is_added_or_dropped_while_a_sink_runs_is_noticed(database):
    text = f"""
connectors:
  copy:
    kind: postgres-sink
    topic: {TOPIC}
    dead_letters: {TOPIC}-dead
    retries: {{backoff: 10ms}}
    options: {{url: "{database.url}", table: orders, key: [id]}}
"""
    async with memory_broker() as broker, broker.connect() as client:
        await client.topics.create(TOPIC)
        async with (
            client.producer(TOPIC) as producer,
            running(declared(text, broker.url)) as until,
        ):

            async def write(payload, count):
                await producer.send(payload)
                await until(
                    lambda all_: (
                        all_["copy"].messages + all_["copy"].dead_letters == count
                    )
                )

            await write(b'{"id": 1, "who": "Ann"}', 1)
            database.execute("ALTER TABLE orders ADD COLUMN x int")
            await write(b'{"id": 2, "x": 2}', 2)
            database.execute("ALTER TABLE orders DROP COLUMN who")
            await write(b'{"id": 3, "x": 3}', 3)
            await write(b'{"id": 4, "who": "Bo"}', 4)
            database.execute("ALTER TABLE orders RENAME COLUMN x TO y")
            await write(b'{"id": 5, "y": 5}', 5)
        dead = [each async for batch in client.read(f"{TOPIC}-dead") for each in batch]
    found = database.query("SELECT id, y FROM orders ORDER BY id")
    assert found == [(1, None), (2, 2), (3, 3), (5, 5)]
    assert [each.payload for each in dead] == [b'{"id": 4, "who": "Bo"}']
    assert "no column 'who'" in dead[0].attributes["x-failure-reason"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("key: [id]", "there is no table none"),
        ("key: [missing]", "has no column 'missing'; it has id, who, total"),
    ],
)
async def test_a_table_that_does_not_fit_is_reported(database, options, error):
    table = "none" if "none" in error else "orders"
    text = "connectors:" + SINK.format(
        topic=TOPIC, url=database.url, table=table, options=options
    )
    async with broker_with_topics() as (broker, client):
        async with client.producer(TOPIC) as producer:
            await producer.send(b"{}")
        async with running(declared(text, broker.url)) as until:
            found = await until(lambda found: found["mirror"].state is State.FAILED)
    assert error in found["mirror"].error


@pytest.mark.slow
async def test_nothing_is_lost_when_the_database_of_a_sink_is_killed(server, database):
    text = "connectors:" + SINK.format(
        topic=TOPIC, url=database.url, table="orders", options="key: [id]"
    )
    count = 3000
    async with (
        broker_with_topics() as (broker, client),
        running(declared(text, broker.url)) as until,
    ):
        async with client.producer(TOPIC) as producer:
            for base in range(0, count, 100):
                await producer.send_batch(
                    [b'{"id": %d}' % each for each in range(base, base + 100)]
                )
                if base in {500, 1500, 2500}:
                    server.crash()
                    server.start()
        await until(lambda found: found["mirror"].messages == count)
    assert database.query("SELECT count(*), max(id) FROM orders") == [
        (count, count - 1)
    ]


@pytest.mark.slow
@pytest.mark.soak
def test_each_change_is_published_once_although_everything_is_killed(
    server, database, tmp_path
):
    check_kills(server, database, tmp_path, lost=psycopg.OperationalError)
