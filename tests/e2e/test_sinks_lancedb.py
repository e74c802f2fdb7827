"""The sink danube-lancedb, with real LanceDB and real Spark."""

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import PySparkException  # noqa: E402

from pydanube_spark.formats import check_sink  # noqa: E402
from support.drivers.replays import (  # noqa: E402
    PublishedTopic,
    forget_last_commit,
    run_to_end,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.rotated]

FORMAT = "danube-lancedb"


@pytest.fixture
def topic(spark, broker_url, client):
    return PublishedTopic(spark, broker_url, client)


@pytest.fixture(scope="module")
def lancedb():
    """The package; importing it takes seconds, so only these tests do."""
    return pytest.importorskip("lancedb")


@pytest.fixture
def options(lancedb, tmp_path):
    return {"uri": str(tmp_path / "lance"), "table": "notes"}


@pytest.fixture
def stored(lancedb, options):
    """The rows of the table, as they are now."""

    def rows(*columns):
        table = lancedb.connect(options["uri"]).open_table("notes")
        return table.search().select(list(columns)).to_list()

    return rows


VECTOR = "transform(sequence(0, 3), i -> float((offset + i) % 5)) AS vector"


@pytest.mark.soak
def test_stream_adds_each_batch_once_after_a_lost_commit(
    lancedb, topic, options, stored, tmp_path
):
    topic.publish(map(str, range(100)))
    stream = topic.stream("offset", "payload", VECTOR)
    options |= {"createTable": "true", "vectorColumn": "vector", "dimension": "4"}
    run_to_end(stream, FORMAT, options, tmp_path)
    assert forget_last_commit(tmp_path) == 2
    topic.publish(map(str, range(100, 120)))
    run_to_end(stream, FORMAT, options, tmp_path)
    found = stored("offset", "_batch")
    assert sorted(row["offset"] for row in found) == list(range(120))
    assert len({row["_batch"] for row in found}) == 4
    assert lancedb.connect(options["uri"]).list_tables().tables == ["notes"]


@pytest.mark.soak
def test_stream_upserts_by_key_and_vectors_are_searchable(
    lancedb, topic, options, stored, tmp_path
):
    topic.publish(map(str, range(100)), keys=5)
    stream = topic.stream("key", "payload", VECTOR)
    options |= {"createTable": "true", "vectorColumn": "vector", "dimension": "4"}
    options |= {"keyColumns": "key", "index": "IvfFlat", "indexMinRows": "5"}
    run_to_end(stream, FORMAT, options, tmp_path)
    forget_last_commit(tmp_path)
    run_to_end(stream, FORMAT, options, tmp_path)
    found = {row["key"]: row["payload"] for row in stored("key", "payload")}
    assert found == {f"k{at}": str(95 + at) for at in range(5)}
    table = lancedb.connect(options["uri"]).open_table("notes")
    [index] = table.list_indices()
    assert index.columns == ["vector"]
    [nearest] = table.search([2.0, 3.0, 4.0, 0.0]).limit(1).to_list()
    assert nearest["key"] == "k2"


def test_vector_of_wrong_length_fails_and_leaves_nothing(lancedb, spark, options):
    rows = spark.sql(
        "SELECT 1L id, array(1.0F, 2.0F) v UNION ALL SELECT 2L, array(1.0F)"
    )
    options |= {"createTable": "true", "vectorColumn": "v", "dimension": "2"}
    with pytest.raises(PySparkException, match="has 1 numbers instead of 2"):
        (rows.coalesce(1).write.format(FORMAT).options(**options).mode("append").save())
    assert lancedb.connect(options["uri"]).list_tables().tables == []


def test_check_reports_problems(spark, options):
    rows = spark.sql("SELECT 1L id, array(1.0F) v").schema
    assert check_sink(FORMAT, options, rows) == [
        "there is no table 'notes'; createTable=true creates it"
    ]
    options |= {"vectorColumn": "v", "dimension": "1", "createTable": "true"}
    assert check_sink(FORMAT, options, rows) == []
    (
        spark.createDataFrame([(1, [1.0])], rows)
        .write.format(FORMAT)
        .options(**options)
        .mode("append")
        .save()
    )
    assert check_sink(FORMAT, options, rows) == []
    other = spark.sql("SELECT map(1, 2) id, array(1.0F) v, 1 x").schema
    assert check_sink(FORMAT, options | {"dimension": "3"}, other) == [
        "'notes' has no column 'x'; it has id, v, _batch",
        "the column 'id' is map<int32, int32> and cannot be cast to int64",
        "dimension: 'v' has 1 numbers in the table",
    ]
