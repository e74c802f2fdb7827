"""Numbers that a column of a database cannot have; without Spark."""

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


def write(sink, rows):
    batches = iter(rows.to_batches())
    sink.commit(KEY, [sink.write(TaskKey(KEY, 0, 0), batches)])


def test_clickhouse_gets_no_integers_beyond_its_columns(tmp_path):
    """It would store their low bits."""

    def rows_of(*rows):
        kinds = (pa.int64(), pa.int32(), pa.list_(pa.int64()))
        columns = [
            pa.array(each, kind)
            for each, kind in zip(zip(*rows, strict=True), kinds, strict=True)
        ]
        return pa.table(columns, names=["n", "small", "many"])

    fits = (2**31 - 1, None, [-(2**15), 7])
    with ClickHouseProcess(tmp_path) as engine, LocalServer(engine.forward) as server:
        engine.query(
            "CREATE TABLE t (n Int32, small Nullable(UInt8), many Array(Int16)) "
            "ENGINE = MergeTree ORDER BY tuple()"
        )
        options = {"url": server.url, "password": PASSWORD, "table": "t"}
        sink = ClickHouseSink.parse(options, rows_of(fits).schema)
        for row, value in [
            ((2**31, 1, []), 2**31),
            ((1, -1, []), -1),
            ((1, 1, [2**15, None]), 2**15),
        ]:
            with pytest.raises(InvalidRequest, match=f"a row has {value}: widen"):
                write(sink, rows_of(fits, row))
        assert engine.query("SELECT * FROM t") == []
        # The batch was not decided, so it is written when its rows fit.
        write(sink, rows_of(fits))
        found = engine.query("SELECT * FROM t")
    assert found == [["2147483647", "\\N", "[-32768,7]"]]


def test_postgres_gets_wider_numbers_if_they_fit():
    def rows_of(number, real, money):
        return pa.table(
            {
                "n": pa.array([number], pa.int64()),
                "real": pa.array([real], pa.float64()),
                "money": pa.array([Decimal(money)], pa.decimal128(12, 2)),
            }
        )

    fits = rows_of(2**31 - 1, 0.5, "123.25")
    with PostgresProcess() as server:
        server.execute("CREATE TABLE t (n integer, real real, money numeric(5,2))")
        options = {"uri": server.uri, "table": "t"}
        sink = PostgresSink.parse(options, fits.schema)
        for rows in (
            rows_of(2**31, 0.5, "1.25"),
            rows_of(1, 1e300, "1.25"),
            rows_of(1, 0.5, "1234.25"),
        ):
            with pytest.raises(InvalidRequest, match=r"out of range|overflow"):
                write(sink, rows)
        write(sink, fits)
        found = server.query("SELECT n, real, money::text FROM t")
    assert found == [(2**31 - 1, 0.5, "123.25")]
