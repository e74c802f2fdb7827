"""Spark writes topics and DataFrames into lakehouse tables."""

import pytest

from pydanube_spark.jobs import SparkRunner
from pydanube_spark.tables.export.exporter import Exporter, ExportOptions
from support.drivers.lake_tables import KINDS, catalog_of, data_files, read, table_in

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def sink(kind, tmp_path):
    """The options of the format, for a table in the directory."""
    if kind == "delta":
        return {"path": str(tmp_path / "table")}
    catalog = catalog_of(tmp_path)
    return {"table": "db.table", **{f"catalog.{k}": v for k, v in catalog.items()}}


def numbers(directory, kind):
    return sorted(read(table_in(directory, kind)).column("n").to_pylist())


def test_batch_is_appended_and_replaced(spark, kind, sink, tmp_path):
    rows = spark.range(1000, numPartitions=3).selectExpr(
        "id AS n",
        "named_struct('x', CAST(id AS INT), 'l', array(CAST(id AS STRING))) AS s",
        "timestamp_micros(id) AS t",
        "map('k', CAST(id AS DECIMAL(20, 3))) AS m",
        "CAST(NULL AS BINARY) AS b",
    )
    write = rows.write.format(f"danube-{kind}").options(**sink)
    write.mode("append").save()
    write.mode("append").save()
    assert numbers(tmp_path, kind) == sorted([*range(1000), *range(1000)])
    write.mode("overwrite").save()
    found = read(table_in(tmp_path, kind)).sort_by("n")
    assert found.column("n").to_pylist() == list(range(1000))
    assert found.column("s")[7].as_py() == {"x": 7, "l": ["7"]}


def test_numbered_batch_is_written_once(spark, kind, sink, tmp_path):
    write = spark.range(10).selectExpr("id AS n").write.format(f"danube-{kind}")
    for _ in range(2):
        write.options(**sink, appId="job", batchId="3").mode("append").save()
    assert numbers(tmp_path, kind) == list(range(10))
    assert len(data_files(tmp_path)) == len(set(data_files(tmp_path)))


def test_failed_task_leaves_no_file(spark, kind, sink, tmp_path):
    rows = spark.range(1000, numPartitions=1).selectExpr(
        "IF(id = 999, raise_error('broken'), id) AS n"
    )
    with pytest.raises(Exception, match="broken"):
        rows.write.format(f"danube-{kind}").options(**sink).mode("append").save()
    assert data_files(tmp_path) == []


def test_incompatible_columns_are_named(spark, kind, sink):
    write = {"format": f"danube-{kind}", "mode": "append", **sink}
    spark.range(1).selectExpr("id AS n").write.save(**write)
    wider = spark.range(1).selectExpr("id AS n", "'x' AS more").write
    with pytest.raises(Exception, match="no columns more"):
        wider.save(**write)
    wider.save(**write, mergeSchema="true")
    with pytest.raises(Exception, match="did you mean 'mergeSchema'"):
        wider.save(**write, mergeSchem="true")
    with pytest.raises(Exception, match="n is int64, not string"):
        spark.range(1).selectExpr("'x' AS n").write.save(**write)


def test_topic_is_exported_by_tasks(spark, client, broker_url, kind, tmp_path):
    topic = f"/default/tasks-{kind}"
    with client.producer(topic) as producer:
        for base in (0, 1000):
            producer.send_batch([f"{n:0100}" for n in range(base, base + 1000)])
    options = ExportOptions(url=broker_url, topic=topic, task_bytes_max=1000)
    table = table_in(tmp_path, kind)
    Exporter(options, table, SparkRunner(spark)).export_round()
    assert sorted(read(table).column("offset").to_pylist()) == list(range(2000))


def test_stream_is_written_once(spark, client, broker_url, sink, tmp_path):
    kind = "delta" if "path" in sink else "iceberg"
    topic = f"/default/lake-{kind}"
    with client.producer(topic) as producer:
        for base in range(0, 5000, 1000):
            producer.send_batch([str(n) for n in range(base, base + 1000)])

    def run():
        query = (
            spark.readStream.format("danube")
            .option("url", broker_url)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 2000)
            .option("includeAttributes", "true")
            .load()
            .selectExpr("offset AS n", "publish_time", "payload", "attributes")
            .writeStream.format(f"danube-{kind}")
            .options(**sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert numbers(tmp_path, kind) == list(range(5000))
    # As if the driver had been killed before Spark committed the batch.
    files = data_files(tmp_path)
    last = max(int(each.name) for each in (tmp_path / "checkpoint/commits").glob("?"))
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "checkpoint/commits" / name).unlink(missing_ok=True)
    run()
    assert numbers(tmp_path, kind) == list(range(5000))
    assert data_files(tmp_path) == files
