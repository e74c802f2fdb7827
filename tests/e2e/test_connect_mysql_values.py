"""
Values of every type of MariaDB, at its bounds: the snapshot and the log agree.

Both are what the server prints.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pymysqlreplication")

from pymysql.converters import encoders

from support.drivers.change_events import broker_with_topics, events_of
from support.drivers.connectors import declared, running
from support.servers.mariadb import MariadbProcess

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

COLUMNS = {
    # The values in SQL, and how JSON has what is printed.
    "tinyint": (["-128", "127", "0"], int),
    "tinyint unsigned": (["0", "255"], int),
    "boolean": (["true", "false"], int),
    "smallint": (["-32768", "32767"], int),
    "smallint unsigned": (["0", "65535"], int),
    "mediumint": (["-8388608", "8388607", "-1"], int),
    "mediumint unsigned": (["0", "16777215"], int),
    "int": (["-2147483648", "2147483647"], int),
    "int unsigned": (["0", "4294967295"], int),
    "bigint": (["-9223372036854775808", "9223372036854775807"], int),
    "bigint unsigned": (["0", "18446744073709551615"], int),
    "int(5) zerofill": (["7"], int),
    "decimal(65, 30)": (["9" * 35 + "." + "9" * 30, "-0." + "0" * 29 + "1"], str),
    "decimal(65, 0)": (["9" * 65, "-" + "9" * 65, "0"], str),
    "decimal(30, 30)": (["0." + "9" * 30, "-0." + "9" * 30], str),
    "decimal(10, 2)": (["1", "-0.01", "100000.5", "0"], str),
    "decimal(1, 1)": (["0.9", "-0.9", "0"], str),
    "double": (["1e308", "-1e-308", "0.1", "1.7976931348623157e308", "0"], float),
    "date": (
        [
            *("'0000-00-00'", "'2024-00-15'", "'2024-02-00'"),
            *("'1000-01-01'", "'9999-12-31'", "'0001-01-01'"),
        ],
        str,
    ),
    "datetime": (
        ["'0000-00-00 00:00:00'", "'2024-01-00 00:00:01'", "'9999-12-31 23:59:59'"],
        "datetime",
    ),
    "datetime(1)": (["'2024-02-29 12:00:00.5'", "'2024-02-29 12:00:00'"], "datetime"),
    "datetime(3)": (["'0001-01-01 00:00:00.001'"], "datetime"),
    "datetime(6)": (
        [
            "'9999-12-31 23:59:59.999999'",
            "'0001-01-01 00:00:00.000001'",
            "'0000-00-00 00:00:00.000000'",
        ],
        "datetime",
    ),
    "timestamp null": (
        ["'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"],
        "datetime",
    ),
    "timestamp(3) null": (
        ["'2038-01-19 03:14:07.999'", "'1970-01-01 00:00:01.5'"],
        "datetime",
    ),
    "timestamp(6) null": (["'2024-01-01 00:00:00.000001'"], "datetime"),
    "time": (["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"], "time"),
    "time(1)": (["'-00:00:00.5'", "'-12:30:00.1'"], "time"),
    "time(2)": (["'-00:00:00.01'", "'-00:00:01.99'"], "time"),
    "time(3)": (["'-838:59:59.999'", "'838:59:59.999'", "'-01:00:00.001'"], "time"),
    "time(4)": (["'-00:00:00.0001'", "'-00:00:59.9999'"], "time"),
    "time(6)": (
        ["'-838:59:59.999999'", "'-00:00:00.000001'", "'00:00:00.000001'"],
        "time",
    ),
    "year": (["0", "1901", "2155"], int),
    "char(20)": (["''", "'a b '", "'\U0001f600'"], str),
    "varchar(300)": (["''", "repeat('é', 300)", "'a '"], str),
    "varchar(20) character set latin1": (
        ["'café'", "_latin1 x'80'", "_latin1 x'81'", "''"],
        str,
    ),
    "varchar(20) character set ucs2": (["'žluť'", "''"], str),
    "char(20) character set utf16": (["'žluť\U0001f600'"], str),
    "varchar(20) character set utf16le": (["'žluť\U0001f600'"], str),
    "text character set utf32": (["'žluť\U0001f600'"], str),
    "varchar(20) character set latin2": (["'žluť'"], str),
    "varchar(20) character set cp1251": (["'привет'"], str),
    "varchar(20) character set koi8r": (["'привет'"], str),
    "varchar(20) character set greek": (["'αβγ'"], str),
    "varchar(20) character set sjis": (["'日本'"], str),
    "varchar(20) character set big5": (["'日本'"], str),
    "varchar(20) character set gbk": (["'日本'"], str),
    "varchar(20) character set euckr": (["'한국'"], str),
    "varchar(20) character set utf8mb3": (["'žluť'"], str),
    "tinytext": (["''", "repeat('x', 255)"], str),
    "text": (["'\U0001f600'", "''"], str),
    "mediumtext": (["repeat('é', 40000)"], str),
    "longtext": (["repeat('é', 70000)"], str),
    "json": (
        ["'null'", "'[]'", "'\"x\"'", '\'{"a": [1, null], "b": 1.10}\''],
        str,
    ),
    "binary(5)": (["x'6100'", "x''", "x'ff00ff00ff'"], "hex"),
    "binary(16)": (["x'6100'"], "hex"),
    "varbinary(300)": (["x'00ff00'", "x''", "x'6100'"], "hex"),
    "tinyblob": (["x'fffe'", "x''"], "hex"),
    "blob": (["x'00'", "x''"], "hex"),
    "mediumblob": (["x'00'"], "hex"),
    "longblob": (["x'00ff'"], "hex"),
    "bit(1)": (["b'1'", "b'0'"], "bits"),
    "bit(10)": (["b'1000000001'", "0"], "bits"),
    "bit(64)": (["0xFFFFFFFFFFFFFFFF", "1"], "bits"),
    "enum('a', 'b ünï', '')": (["'a'", "'b ünï'", "''"], str),
    "enum('x')": (["''", "'invalid'"], str),
    "set('x', 'y', 'z')": (["''", "'x,z'", "'z,x,y'"], str),
    "point": (["POINT(1, 2)"], "hex"),
    "inet6": (["'::1'", "'ffff::'", "'::ffff:1.2.3.4'", "'1:0:0:2::3'", "'::'"], str),
    "inet4": (["'1.2.3.4'", "'0.0.0.0'"], str),
    "uuid": (
        [
            "'123e4567-e89b-12d3-a456-426655440000'",
            "'00000000-0000-0000-0000-000000000001'",
            "'ffffffff-ffff-7fff-bfff-ffffffffffff'",
        ],
        str,
    ),
}
FLOATS = ["1.1", "16777217", "-3.402823466e38", "1.17549435e-38", "0", "0.1"]


def expected(printed, rule):
    """What JSON has of a value that the server prints as *printed*."""
    if printed is None:
        return None
    if rule == "hex":
        return printed.hex()
    if rule == "bits":
        return int.from_bytes(printed)
    if rule in {"datetime", "time"}:
        whole, _, fraction = printed.replace(" ", "T").partition(".")
        return f"{whole}.{fraction:0<6}" if fraction.strip("0") else whole
    return rule(printed)


@pytest.fixture(scope="module")
def server():
    with MariadbProcess(**{"sql-mode": "", "character-set-server": "utf8mb4"}) as found:
        yield found


async def test_snapshot_and_log_have_what_the_server_prints(server):
    rows = max(len(values) for values, _ in COLUMNS.values())
    types = ", ".join(f"c{at} {kind}" for at, kind in enumerate(COLUMNS))
    server.execute(
        "CREATE DATABASE bounds CHARACTER SET utf8mb4",
        f"CREATE TABLE bounds.t (number int PRIMARY KEY, {types}) ROW_FORMAT=DYNAMIC",
        "CREATE TABLE bounds.u LIKE bounds.t",
    )

    def insert(table):
        with server.connect(charset="utf8mb4") as connection:
            cursor = connection.cursor()
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            for row in range(rows + 1):
                given = [
                    values[row] if row < len(values) else "NULL"
                    for values, _ in COLUMNS.values()
                ]
                values = ", ".join([str(row), *given])
                cursor.execute(f"INSERT IGNORE INTO bounds.{table} VALUES ({values})")
            connection.commit()

    insert("t")
    with server.connect(
        charset="utf8mb4", conv=encoders, init_command="SET time_zone = '+00:00'"
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM bounds.t ORDER BY number")
        printed = [
            [
                expected(value, rule)
                for value, (_, rule) in zip(row[1:], COLUMNS.values(), strict=True)
            ]
            for row in cursor.fetchall()
        ]
    snapshot, log = await published(server, "t", rows + 1, lambda: insert("u"))
    for at, (kind, (values, _)) in enumerate(COLUMNS.items()):
        for row in range(rows + 1):
            name = (kind, values[row : row + 1])
            assert (*name, snapshot[row][f"c{at}"]) == (*name, printed[row][at])
            assert (*name, log[row][f"c{at}"]) == (*name, printed[row][at])


async def published(server, table, count, change):
    """The rows of a table in a snapshot, and of ``u`` in the log after *change*."""
    text = f"""
connectors:
  bounds:
    kind: mysql-source
    topic: /default/orders
    options:
      {{port: {server.port}, username: danube, password: sesame,
       tables: {{bounds.{table}: , bounds.u: }}}}
"""
    async with (
        broker_with_topics() as (broker, client),
        running(declared(text, broker.url)) as until,
    ):
        await until(
            lambda found: (
                found["bounds"].messages >= count or found["bounds"].error is not None
            )
        )
        change()
        await until(
            lambda found: (
                found["bounds"].messages >= 2 * count
                or found["bounds"].error is not None
            )
        )
        status = (await until(lambda _: True))["bounds"]
        assert status.error is None
        found = [event["after"] for _, event in await events_of(client, 2 * count)]
    return found[:count], found[count:]


async def test_floats_are_exact(server):
    server.execute(
        "CREATE DATABASE floats", "CREATE TABLE floats.t (n int PRIMARY KEY, f float)"
    )
    rows = [f"({at}, {value})" for at, value in enumerate(FLOATS)]
    server.execute(f"INSERT INTO floats.t VALUES {', '.join(rows)}")
    text = f"""
connectors:
  floats:
    kind: mysql-source
    topic: /default/orders
    options:
      {{port: {server.port}, username: danube, password: sesame,
       tables: {{floats.t: }}}}
"""
    count = len(FLOATS)
    async with (
        broker_with_topics() as (broker, client),
        running(declared(text, broker.url)),
    ):
        await events_of(client, count)
        server.execute("UPDATE floats.t SET n = n + 100")
        events = await events_of(client, 3 * count)
    wanted = [1.1, 16777216.0, -3.4028235e38, 1.1754944e-38, 0.0, 0.1]
    rows = [event["after"]["f"] for _, event in events if event["after"]]
    assert rows == wanted * 2
