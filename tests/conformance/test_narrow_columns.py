"""Values that a column of a database cannot have; without Spark."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.sinks.clickhouse import ClickHouseSink
from pydanube_spark.sinks.postgres import PostgresSink
from support.servers.clickhouse import PASSWORD, ClickHouseProcess
from support.servers.http_server import LocalServer
from support.servers.postgres import PostgresProcess

pytestmark = pytest.mark.slow

KEY = BatchKey("nightly", 0, "")
INTEGER, TEXT, REAL = pa.int64(), pa.string(), pa.float64()
WHOLE, SMALL = pa.decimal128(20, 0), pa.decimal128(18, 8)
MONEY, DAY, TIME = pa.decimal128(12, 3), pa.date32(), pa.timestamp("us", "UTC")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def array(kind):
    return pa.list_(kind)


def by_name(kind):
    return pa.map_(TEXT, kind)


def pair(first, second=TEXT):
    return pa.struct([("a", first), ("b", second)])


def write(sink, rows):
    batches = iter(rows.to_batches())
    sink.commit(KEY, [sink.write(TaskKey(KEY, 0, 0), batches)])


OTHERS = [
    (INTEGER, "Int32", 2**31 - 1, [2**31, -(2**31) - 1]),
    (INTEGER, "Nullable(UInt8)", 255, [256, -1]),
    (INTEGER, "UInt64", 2**63 - 1, [-1]),
    (INTEGER, "Bool", 1, [5]),
    (INTEGER, "Float64", 2**53, [2**53 + 1]),
    (INTEGER, "LowCardinality(String)", -(2**63), []),
    (array(INTEGER), "Array(Int16)", [-(2**15), 7], [[1, 2**15]]),
    (array(array(INTEGER)), "Array(Array(Int8))", [[127], []], [[[], [1, 128]]]),
    (by_name(INTEGER), "Map(String, UInt32)", [("a", 1)], [[("a", 1), ("b", -1)]]),
    (
        by_name(array(INTEGER)),
        "Map(String, Array(Int8))",
        [("a", [1])],
        [[("a", [200])]],
    ),
    (
        array(by_name(INTEGER)),
        "Array(Map(String, Int8))",
        [[("a", 1)]],
        [[[("a", 200)]]],
    ),
    (
        array(pair(array(INTEGER))),
        "Array(Tuple(a Array(Int8), b String))",
        [{"a": [1], "b": "x"}],
        [[{"a": [], "b": "x"}, {"a": [200], "b": "x"}]],
    ),
    (
        pair(INTEGER),
        "Tuple(b String, a Int8)",
        {"a": 1, "b": "x"},
        [{"a": 128, "b": ""}],
    ),
    (pair(INTEGER), "Tuple(a Int64)", {"a": 1, "b": None}, [{"a": 1, "b": "lost"}]),
    (MONEY, "Decimal(10, 2)", Decimal("1.230"), [Decimal("1.239")]),
    (MONEY, "Float64", Decimal("0.290"), []),
    (MONEY, "Int32", Decimal(5), [Decimal("5.001")]),
    (REAL, "Float32", 0.1, [1e300, 1e-300]),
    (REAL, "Int32", -2.0, [1.5, 1e30]),
    (REAL, "Int32", 2_000_000.0, [2_000_000.7]),
    (REAL, "Decimal(10, 2)", 0.25, [0.29, 0.255]),
    (REAL, "Decimal(12, 2)", 0.1 + 0.2, [1_234_567.899]),
    (SMALL, "Float64", Decimal("1e-8"), [Decimal("1234567890.12345678")]),
    (array(MONEY), "String", [Decimal("1.230")], []),
    (INTEGER, "SimpleAggregateFunction(max, Nullable(Int32))", 5, [2**31]),
    (INTEGER, "Enum8('a' = 1)", 1, []),
    (INTEGER, "DateTime", 1_777_593_600, []),
    (DAY, "Date", date(2149, 6, 6), [date(1969, 12, 31), date(2149, 6, 7)]),
    (DAY, "DateTime", date(2106, 2, 7), [date(1900, 1, 1), date(2106, 2, 8)]),
    (TIME, "DateTime", NOON + timedelta(microseconds=1), [NOON.replace(year=1969)]),
    (TIME, "Date", NOON.replace(hour=0), [NOON]),
    (TIME, "DateTime64(3)", NOON.replace(year=1900), []),
    (TEXT, "UInt8", "7", ["256"]),
    (TEXT, "Decimal(10, 2)", "1.23", ["1.239", "1234567.891"]),
    (TEXT, "Float32", "0.1", []),
    (TEXT, "Date", "2026-05-01", ["1900-01-01", "2026-05-01 10:00:00"]),
    (TEXT, "DateTime", "2026-05-01 12:00:00", ["1900-01-01 12:00:00"]),
    (TEXT, "LowCardinality(Nullable(String))", "", []),
    (TEXT, "Enum8('a' = 1)", "a", []),
    (TEXT, "UUID", "61F0C404-5CB3-11E7-907B-A6006AD3DBA0", []),
    (TEXT, "IPv6", "::1", []),
    (TEXT, "FixedString(4)", "ab", []),
    (TEXT, "SimpleAggregateFunction(anyLast, Nullable(FixedString(4)))", "ab", []),
]
"""Types of rows and of a column, a value that fits, and others that do not."""

REFUSED = [
    (INTEGER, "Decimal(5, 2)", 10**12),
    (array(INTEGER), "Array(Int64)", [None]),
    (pair(INTEGER), "Tuple(a Int64, b String)", None),
    (MONEY, "Decimal(5, 2)", Decimal(10**8)),
    (REAL, "Int32", math.nan),
    (TEXT, "UInt8", "x"),
    (TEXT, "FixedString(3)", "four"),
    (TEXT, "Enum8('a' = 1)", "b"),
]
"""Values of which ClickHouse itself refuses most, each in a table of its own."""


def test_clickhouse_gets_no_values_that_its_columns_change(tmp_path):
    names = [f"c{at}" for at in range(len(OTHERS))]
    schema = pa.schema(
        [("n", INTEGER), *zip(names, (kind for kind, *_ in OTHERS), strict=True)]
    )
    fits = [0, *(value for _, _, value, _ in OTHERS)]
    nulls = [
        1,
        *(value if pa.types.is_nested(kind) else None for kind, _, value, _ in OTHERS),
    ]

    def rows_of(*rows):
        columns = zip(zip(*rows, strict=True), schema.types, strict=True)
        return pa.table([pa.array(*each) for each in columns], schema=schema)

    def table_of(name, columns):
        engine.query(
            f"CREATE TABLE {name} (n Int64, {columns}) ENGINE = MergeTree ORDER BY n"
        )
        return {"url": server.url, "password": PASSWORD, "table": name}

    with ClickHouseProcess(tmp_path) as engine, LocalServer(engine.forward) as server:
        columns = [
            f"{name} {to}" for name, (_, to, *_) in zip(names, OTHERS, strict=True)
        ]
        sink = ClickHouseSink.parse(table_of("t", ", ".join(columns)), schema)
        for at in range(2):
            wrong = [each[at : at + 1] for *_, each in OTHERS]
            row = [
                each[0] if each else fit
                for each, fit in zip([[], *wrong], fits, strict=True)
            ]
            with pytest.raises(InvalidRequest) as raised:
                write(sink, rows_of(fits, nulls, row))
            found = re.findall(r"the column '(\w+)' of", str(raised.value))
            assert found == [
                name for name, each in zip(names, wrong, strict=True) if each
            ]
        assert engine.query("SELECT * FROM t") == []
        # The batch was not decided, so it is written when its rows fit.
        write(sink, rows_of(fits, nulls))
        assert engine.query("SELECT n, c0, c6 FROM t ORDER BY n") == [
            ["0", "2147483647", "[-32768,7]"],
            ["1", "0", "[-32768,7]"],
        ]
        for at, (kind, to, value) in enumerate(REFUSED):
            rows = pa.table({"n": [1], "v": pa.array([value], kind)})
            sink = ClickHouseSink.parse(table_of(f"t{at}", f"v {to}"), rows.schema)
            with pytest.raises(InvalidRequest, match=r"^ClickHouse: |cannot store"):
                write(sink, rows)
            # No table has a row, nor a commit that every retry would resume.
            assert engine.query(f"SELECT * FROM t{at}") == []
        targets = engine.query("SELECT DISTINCT target FROM danube_commits")
        assert targets == [["t"]]


def test_postgres_gets_no_values_that_its_columns_change():
    others = [
        (INTEGER, "integer", 2**31 - 1, []),
        (INTEGER, "real", 2**24, [2**24 + 1]),
        (INTEGER, "double precision", 2**53, [2**53 + 1]),
        (INTEGER, "text", 1, []),
        (INTEGER, "money", 1, []),
        (REAL, "real", 0.1, []),
        (REAL, "integer", 2.0, [1.5]),
        (REAL, "numeric(10,2)", 0.29, [0.255]),
        (array(REAL), "numeric(10,2)[]", [0.29, None], [[1.0, 0.255]]),
        (MONEY, "numeric(5,2)", Decimal("1.230"), [Decimal("1.239")]),
        (MONEY, "bigint", Decimal(5), [Decimal("5.001")]),
        (MONEY, "double precision", Decimal("0.290"), []),
        (DAY, "timestamp with time zone", date(1, 1, 1), []),
        (TIME, "date", NOON.replace(hour=0), [NOON]),
        (TIME, "timestamp(0) with time zone", NOON + timedelta(microseconds=1), []),
        (TEXT, "character varying(3)", "abc", ["abcd"]),
        (array(TEXT), "character varying(3)[]", ["abc"], [["", "abcd"]]),
        (TEXT, "character varying", "x" * 100, []),
        (TEXT, "numeric(5,2)", "1.23", ["1.239"]),
        (TEXT, "jsonb", '{"a":  1}', []),
        (TEXT, "character(5)", "abc  ", ["abcdef"]),
        (TEXT, "bit(3)", "101", ["10110"]),
        (TEXT, "date", "May 1, 2026", ["2026-05-01 10:00"]),
        (TEXT, "daterange", "[2026-05-01,2026-05-02)", []),
        (TEXT, "date_of_day", "today", []),
        (TEXT, "code", "abc", ["abcd"]),
        (TEXT, "integer[]", "{1, 2}", []),
        (TIME, "character varying(10)", NOON.replace(hour=0), [NOON]),
        (REAL, "numeric(10,2)", 0.1 + 0.2, [1e6 + 0.001]),
        (REAL, "numeric", 1 / 3, []),
        (WHOLE, "double precision", Decimal(2**53), [Decimal(2**53 + 1)]),
        (by_name(INTEGER), "json", [("a", 2**62)], []),
    ]
    refused = [
        (INTEGER, "integer", 2**31),
        (REAL, "real", 1e300),
        (MONEY, "numeric(5,2)", Decimal("1234.25")),
        (TEXT, "numeric(5,2)", "x"),
    ]
    names = [f"c{at}" for at in range(len(others))]
    schema = pa.schema(zip(names, (kind for kind, *_ in others), strict=True))
    fits = [value for _, _, value, _ in others]

    def rows_of(*rows):
        columns = zip(zip(*rows, strict=True), schema.types, strict=True)
        return pa.table([pa.array(*each) for each in columns], schema=schema)

    with PostgresProcess() as server:
        columns = [
            f"{name} {to}" for name, (_, to, *_) in zip(names, others, strict=True)
        ]
        server.execute("CREATE DOMAIN code AS varchar(3)")
        server.execute("CREATE TYPE date_of_day AS ENUM ('today')")
        server.execute(f"CREATE TABLE t ({', '.join(columns)})")
        sink = PostgresSink.parse({"uri": server.uri, "table": "t"}, schema)
        row = [each[0] if each else value for _, _, value, each in others]
        with pytest.raises(InvalidRequest) as raised:
            write(sink, rows_of(fits, [None] * len(fits), row))
        found = re.findall(r"the column '(\w+)' of", str(raised.value))
        assert found == [
            name for name, (*_, each) in zip(names, others, strict=True) if each
        ]
        assert server.query("SELECT * FROM t") == []
        write(sink, rows_of(fits, [None] * len(fits)))
        found = server.query("SELECT c0, c5, c9::text FROM t")
        assert found == [(2**31 - 1, pytest.approx(0.1), "1.23"), (None, None, None)]
        for at, (kind, to, value) in enumerate(refused):
            server.execute(f"CREATE TABLE t{at} (v {to})")
            rows = pa.table({"v": pa.array([value], kind)})
            sink = PostgresSink.parse(
                {"uri": server.uri, "table": f"t{at}"}, rows.schema
            )
            with pytest.raises(
                InvalidRequest, match=r"out of range|overflow|invalid input"
            ):
                write(sink, rows)
