"""
The sink danube-clickhouse, with ClickHouse's engine and real Spark.

The engine is the library chdb; the HTTP interface in front of it is the test's own.
"""

import uuid

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import PySparkException  # noqa: E402

from pydanube_spark.formats import check_sink  # noqa: E402
from support.drivers.replays import (  # noqa: E402
    PublishedTopic,
    forget_last_commit,
    run_to_end,
)
from support.servers.clickhouse import PASSWORD, ClickHouseProcess  # noqa: E402
from support.servers.http_server import Answer, Broken, LocalServer  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]

FORMAT = "danube-clickhouse"


@pytest.fixture
def topic(spark, broker_url, client):
    return PublishedTopic(spark, broker_url, client)


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory):
    with ClickHouseProcess(tmp_path_factory.mktemp("clickhouse")) as engine:
        yield engine


@pytest.fixture
def proxy(clickhouse):
    """The way to the engine, which can be told to fail."""
    with LocalServer(clickhouse.forward) as server:
        yield server


@pytest.fixture
def table():
    return f"t_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def options(proxy, table):
    return {
        "url": proxy.url,
        "password": PASSWORD,
        "table": table,
        "retryIntervalMs": "20",
    }


def test_batch_is_written_with_all_types(spark, clickhouse, table, options):
    row = spark.sql(
        "SELECT 7L id, true b, 7Y i1, 1.5F f4, 2.5D f8, 'é' s, X'41' y, 12.34BD d, "
        "DATE'2024-02-29' day, TIMESTAMP'2024-02-29 12:00:00Z' at, "
        "array('a', null) l, map('k', 'v') m, named_struct('x', array(1)) o, "
        "CAST(null AS string) n"
    )
    options |= {"createTable": "true", "orderBy": "id"}
    row.write.format(FORMAT).options(**options).mode("append").save()
    [found] = clickhouse.query(f"SELECT * FROM {table}")
    wanted = ["7", "true", "7", "1.5", "2.5", "é", "A", "12.34", "2024-02-29"]
    assert found[:9] == wanted
    assert found[9:] == [
        "2024-02-29 12:00:00.000000",
        "['a',NULL]",
        "{'k':'v'}",
        "([1])",
        "\\N",
    ]


def test_stream_writes_each_batch_once_after_a_lost_commit(
    topic, clickhouse, table, options, tmp_path
):
    topic.publish(map(str, range(100)))
    stream = topic.stream("offset", "payload")
    options |= {"createTable": "true", "orderBy": "offset"}
    run_to_end(stream, FORMAT, options, tmp_path)
    assert forget_last_commit(tmp_path) == 2
    topic.publish(map(str, range(100, 120)))
    run_to_end(stream, FORMAT, options, tmp_path)
    found = clickhouse.query(f"SELECT offset FROM {table} ORDER BY offset")
    assert [int(offset) for (offset,) in found] == list(range(120))


def test_lost_responses_and_busy_server_are_retried(
    spark, proxy, clickhouse, table, options
):
    options |= {"createTable": "true", "orderBy": "id", "batchRows": "100"}
    # Every statement from first to last; both tasks may run in any order.
    options |= {"retries": "20"}
    proxy.faults.extend([Broken.BEFORE, None, Broken.AFTER, None, Answer(503)] * 12)
    rows = spark.range(0, 1000, 1, 2)
    rows.write.format(FORMAT).options(**options).mode("append").save()
    found = clickhouse.query(f"SELECT count(), uniqExact(id) FROM {table}")
    assert found == [["1000", "1000"]]


def test_batch_is_rewritten_after_a_failed_task(spark, clickhouse, table, options):
    rows = "if(id = 24999, raise_error('out of order'), id) id"
    options |= {"createTable": "true", "batchRows": "1000"}
    options |= {"appId": "nightly", "batchId": "0"}
    with pytest.raises(PySparkException, match="out of order"):
        (
            spark.range(0, 25_000, 1, 1)
            .selectExpr(rows)
            .write.format(FORMAT)
            .options(**options)
            .mode("append")
            .save()
        )
    for _ in range(2):
        whole = spark.range(0, 24_999, 1, 3)
        whole.write.format(FORMAT).options(**options).mode("append").save()
    assert clickhouse.query(f"SELECT count() FROM {table}") == [["24999"]]
    staged = "SELECT name FROM system.tables WHERE startsWith(name, '_danube_')"
    assert clickhouse.query(staged) == []


def test_check_reports_problems(spark, clickhouse, table, options):
    rows = spark.range(1).selectExpr("id", "array(id) ids").schema
    assert check_sink(FORMAT, options | {"createTable": "true"}, rows) == []
    name = f"`default`.`{table}`"
    assert check_sink(FORMAT, options, rows) == [
        f"there is no table {name}; createTable=true creates it"
    ]
    clickhouse.query(f"CREATE TABLE {table} (ids DateTime) ENGINE = Memory")
    assert check_sink(FORMAT, options, rows) == [
        f"{name} has no column 'id'; it has ids",
        "the column 'ids' is Array(Nullable(Int64)) and cannot be cast to DateTime",
    ]
    [problem] = check_sink(FORMAT, options | {"password": "pssst"}, rows)
    assert "Authentication failed" in problem
    assert "pssst" not in problem
    nobody = options | {"url": "http://127.0.0.1:1", "retries": "0"}
    [problem] = check_sink(FORMAT, nobody, rows)
    assert "Connection refused" in problem
