"""Merges into tables whose jobs are Spark tasks, started by the commit of a sink."""

from dataclasses import replace
from pathlib import Path

import pytest

from pydanube_spark import driver_jvm
from pydanube_spark.tables.iceberg import IcebergDataSource
from support.drivers.lake_tables import catalog_of, data_files, read, table_in

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]


@pytest.fixture
def eager(spark):
    """The session, with a sink that never merges in its own process."""

    # Local, because the processes of Spark cannot import this module.
    class EagerIceberg(IcebergDataSource):
        @classmethod
        def name(cls):
            return "eager-iceberg"

        def sink(self, schema):
            sink, identity = super().sink(schema)
            return replace(sink, local_bytes_max=-1), identity

    environment = spark.sparkContext.environment
    environment[driver_jvm.VARIABLE] = driver_jvm.publish(spark.sparkContext)
    spark.dataSource.register(EagerIceberg)
    yield spark
    del environment[driver_jvm.VARIABLE]


def upsert(spark, directory, number, rows):
    """Write a batch, and return how many jobs of Spark that took."""
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = set(jobs(None))
    (
        rows.write.format("eager-iceberg")
        .mode("append")
        .options(table="db.table", keyColumns="id", orderColumns="at")
        .options(appId="jobs", batchId=str(number))
        .options(**{f"catalog.{k}": v for k, v in catalog_of(directory).items()})
        .save()
    )
    return len(set(jobs(None)) - before)


def test_jobs_of_a_merge_are_tasks_of_the_application(eager, tmp_path):
    temporary = Path(eager.sparkContext._temp_dir).parent
    before = set(temporary.glob("pyspark-*"))
    columns = "cast(id as string) as text"
    first = eager.range(1000).selectExpr("id", "0 as at", columns)
    # One job writes; the latest keys are found, and the rows are written.
    assert upsert(eager, tmp_path, 0, first) == 3
    second = eager.range(0, 2000, 2).selectExpr("id", "1 as at", columns)
    assert upsert(eager, tmp_path, 1, second) == 4
    table = table_in(tmp_path, "iceberg")
    found = {row["id"]: row["at"] for row in read(table).to_pylist()}
    assert found == {n: n % 2 ^ 1 for n in range(1000)} | dict.fromkeys(
        range(1000, 2000, 2), 1
    )
    files = data_files(tmp_path)
    # The application goes on, and a repeated batch changes nothing.
    assert upsert(eager, tmp_path, 1, second) == 1
    assert data_files(tmp_path) == files
    assert eager.range(3).count() == 3
    assert set(temporary.glob("pyspark-*")) == before
