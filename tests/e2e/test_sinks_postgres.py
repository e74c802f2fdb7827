"""The sink danube-postgres, with a real PostgreSQL and real Spark."""

import datetime
import uuid

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812

from pydanube_spark.formats import check_sink  # noqa: E402
from support.drivers.replays import (  # noqa: E402
    PublishedTopic,
    forget_last_commit,
    run_to_end,
)
from support.servers.postgres import PostgresProcess  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]

FORMAT = "danube-postgres"


@pytest.fixture(scope="module")
def postgres():
    with PostgresProcess() as server:
        yield server


@pytest.fixture
def topic(spark, broker_url, client):
    return PublishedTopic(spark, broker_url, client)


@pytest.fixture
def table():
    return f"t_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def options(postgres, table):
    return {"uri": postgres.uri, "table": table, "retryIntervalMs": "20"}


def numbers(spark, count, partitions=2):
    return spark.range(0, count, 1, partitions).select("id", F.expr("id % 7 AS key"))


def test_batch_is_written_with_all_types(spark, postgres, table, options):
    row = spark.sql(
        "SELECT true b, 7Y i1, 7S i2, 7 i4, 7L i8, 1.5F f4, 2.5D f8, 'é' s, X'00FF' y, "
        "12.34BD d, DATE'2024-02-29' day, TIMESTAMP'2024-02-29 12:00:00Z' at, "
        "TIMESTAMP_NTZ'2024-02-29 12:00:00' local, array('a', null) l, "
        "map('k', 'v') m, named_struct('x', array(1), 'y', null) o, null n"
    ).withColumn("n", F.col("n").cast("string"))
    row.write.format(FORMAT).options(**options, createTable=True).mode("append").save()
    [found] = postgres.query(f"SELECT *, m->>'k', o->'x' FROM {table}")
    assert found[:8] == (True, 7, 7, 7, 7, 1.5, 2.5, "é")
    assert found[8] == b"\x00\xff"
    assert str(found[9]) == "12.34"
    assert found[10] == datetime.date(2024, 2, 29)
    assert found[11] == datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    assert found[12] == datetime.datetime(2024, 2, 29, 12)  # noqa: DTZ001
    assert list(found[13]) == ["a", None]
    assert found[16:] == (None, "v", "[1]")


def test_numbered_batch_is_written_once(spark, postgres, table, options):
    rows = numbers(spark, 1000, partitions=3)
    options |= {"createTable": "true", "appId": "nightly", "batchId": "4"}
    for _ in range(2):
        rows.write.format(FORMAT).options(**options).mode("append").save()
    assert postgres.query(f"SELECT count(*) FROM {table}") == [(1000,)]
    options["batchId"] = "5"
    rows.write.format(FORMAT).options(**options).mode("append").save()
    assert postgres.query(f"SELECT count(*) FROM {table}") == [(2000,)]


def test_new_columns_are_added_with_the_batch(spark, postgres, table, options):
    postgres.execute(f"CREATE TABLE {table} (id bigint)")
    rows = numbers(spark, 3)
    [problem] = check_sink(FORMAT, options, rows.schema)
    assert "has no column 'key'" in problem
    options |= {"mergeSchema": "true"}
    assert check_sink(FORMAT, options, rows.schema) == []
    rows.write.format(FORMAT).options(**options).mode("append").save()
    assert postgres.query(f"SELECT id, key FROM {table} ORDER BY id") == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


def test_stream_upserts_and_deletes_by_key(topic, postgres, table, options, tmp_path):
    postgres.execute(f"CREATE TABLE {table} (key text PRIMARY KEY, value varchar(10))")
    texts = [str(at) for at in range(1000)]
    topic.publish([*texts, *texts[:3], "gone"], keys=10)
    stream = topic.stream(
        "key", "payload value", "payload = 'gone' gone", batch_rows=700
    )
    options |= {"keyColumns": "key", "deleteColumn": "gone"}
    run_to_end(stream, FORMAT, options, tmp_path)
    wanted = [(f"k{at}", str(at if at < 3 else 990 + at)) for at in range(10)]
    wanted.pop(3)
    assert postgres.query(f"SELECT key, value FROM {table} ORDER BY key") == wanted


def test_complete_mode_replaces_all_rows(topic, postgres, table, options, tmp_path):
    topic.publish(map(str, range(100)), keys=4)
    counts = topic.stream("key").groupBy("key").count()
    options |= {"createTable": "true"}
    run_to_end(counts, FORMAT, options, tmp_path, output_mode="complete")
    found = postgres.query(f"SELECT count FROM {table}")
    assert found == [(25,), (25,), (25,), (25,)]


def test_stream_writes_each_batch_once_after_a_lost_commit(
    topic, postgres, table, options, tmp_path
):
    topic.publish(map(str, range(100)))
    stream = topic.stream("offset", "payload")
    options |= {"createTable": "true"}
    run_to_end(stream, FORMAT, options, tmp_path)
    assert forget_last_commit(tmp_path) == 2
    topic.publish(map(str, range(100, 120)))
    run_to_end(stream, FORMAT, options, tmp_path)
    found = postgres.query(f'SELECT "offset" FROM {table} ORDER BY 1')
    assert [offset for (offset,) in found] == list(range(120))


def test_batch_is_rewritten_after_a_failed_task(spark, postgres, table, options):
    # More than one Arrow batch, so that some are staged before the failure.
    rows = "if(id = 24999, raise_error('out of order'), id) id"
    options |= {"createTable": "true", "appId": "nightly", "batchId": "0"}
    with pytest.raises(PySparkException, match="out of order"):
        (
            spark.range(0, 25_000, 1, 1)
            .selectExpr(rows)
            .write.format(FORMAT)
            .options(**options)
            .mode("append")
            .save()
        )
    whole = spark.range(0, 24_999, 1, 3)
    whole.write.format(FORMAT).options(**options).mode("append").save()
    assert postgres.query(f"SELECT count(*) FROM {table}") == [(24_999,)]
    staged = "SELECT relname::text FROM pg_class WHERE relname LIKE '\\_danube\\_%'"
    assert postgres.query(staged) == []


def test_check_reports_problems(spark, postgres, table, options):
    rows = numbers(spark, 1).schema
    assert check_sink(FORMAT, options | {"createTable": "true"}, rows) == []
    assert check_sink(FORMAT, options, rows) == [
        f'there is no table "{table}"; createTable=true creates it'
    ]
    postgres.execute(f"CREATE TABLE {table} (id uuid, other text NOT NULL)")
    found = check_sink(FORMAT, options | {"keyColumns": "id"}, rows)
    name = f'"{table}"'
    assert found[0] == f"{name} has no column 'key'; it has id, other"
    assert found[1].startswith(f"{name}: the column 'other' must have a value")
    assert found[2].endswith(f'; CREATE UNIQUE INDEX ON {name} ("id")')
    assert found[3] == "the column 'id' is bigint and cannot be cast to uuid"
    nobody = options | {"uri": "postgresql://postgres:pssst@127.0.0.1:1/postgres"}
    [problem] = check_sink(FORMAT, nobody, rows)
    assert "Connection refused" in problem
    assert "pssst" not in problem


CHANGES = (
    "id long, at long, doc string, tags array<string>, gone boolean, "
    "lacks array<string>"
)


def test_values_that_a_change_lacks_are_kept(spark, postgres, table, options):
    def upsert(rows, number, **more):
        given = {
            **options,
            "keyColumns": "id",
            "orderColumns": "at",
            "deleteColumn": "gone",
            "unavailableColumn": "lacks",
            "createTable": "true",
            "appId": table,
            "batchId": str(number),
            **more,
        }
        frame = spark.createDataFrame(rows, CHANGES)
        frame.write.format(FORMAT).options(**given).mode("append").save()

    def found():
        return postgres.query(f"SELECT id, at, doc, tags FROM {table} ORDER BY id")

    first = [(1, 1, "a", ["x"], False, []), (2, 1, None, [], False, [])]
    upsert([*first, (3, 1, "c", None, False, [])], 0)
    upsert(
        [
            (1, 2, "new", None, False, ["tags"]),
            (1, 3, None, None, False, ["doc", "tags"]),
            (2, 2, None, ["y"], None, ["doc"]),
            (3, 2, None, None, True, ["doc"]),
            (4, 1, "d", ["z"], False, None),
            (4, 2, None, None, False, ["doc", "tags"]),
        ],
        1,
    )
    kept = [(1, 3, "new", ["x"]), (2, 2, None, ["y"]), (4, 2, "d", ["z"])]
    assert found() == kept
    lone = [(5, 1, None, ["e"], False, ["doc"])]
    with pytest.raises(PySparkException, match=r"the row \(5\) has no value for .*doc"):
        upsert(lone, 2)
    assert found() == kept
    upsert(lone, 2, unavailableAsNull="true")
    assert found() == [*kept, (5, 1, None, ["e"])]
