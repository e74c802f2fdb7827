"""Topics as Iceberg tables, read with pyiceberg, Polars and DuckDB."""

import json

import httpx
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import GreaterThanOrEqual

import pydanube.sync
from support.drivers.duckdb_iceberg import connect_duckdb
from support.fakes.tiered_brokers import settings
from support.servers.object_stores import ACCESS_KEY, SECRET_KEY, S3Server
from support.servers.processes import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    # Polars recommends a package that plans faster.
    pytest.mark.filterwarnings("ignore:Iceberg scan planning"),
]

TOPIC = "/default/orders"
PARTITIONED = "/default/clicks"
COUNT = 200
SEALED_AT_ONCE = {"storage": {"seal_age_s": 0, "seal_interval_s": 0.05}}


def publish(url, topic, payloads):
    """Publish messages in several segments, and return when all are sealed."""
    with pydanube.sync.connect(url) as client:
        for begin in range(0, len(payloads), 50):
            with client.producer(topic) as producer:
                for at, payload in enumerate(payloads[begin : begin + 50], begin):
                    attributes = {"source": "test"} if at % 2 else None
                    producer.send(payload, key=b"%d" % at, attributes=attributes)
            names = client.topics.partitions(topic)
            wait_until_sealed(client, names)


def wait_until_sealed(client, names):
    while True:
        found = [client.topics.describe(name) for name in names]
        if all(each.sealed_offset == each.end_offset for each in found):
            return


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A broker whose topics are all sealed."""
    directory = tmp_path_factory.mktemp("iceberg")
    path = directory / "broker.yaml"
    path.write_text(json.dumps(SEALED_AT_ONCE))
    with BrokerProcess(directory / "data", "--config", str(path)) as broker:
        with pydanube.sync.connect(broker.url) as client:
            client.topics.create(PARTITIONED, partitions=3)
            client.topics.create("/default/empty")
        publish(broker.url, TOPIC, [b"%06d" % at for at in range(COUNT)])
        publish(broker.url, PARTITIONED, [b"%d" % at for at in range(90)])
        yield broker


def uri(broker):
    return f"http://127.0.0.1:{broker.http_port}/iceberg"


@pytest.fixture
def catalog(filled):
    return load_catalog("danube", type="rest", uri=uri(filled))


def test_pyiceberg_lists_the_topics_and_reads_their_messages(catalog):
    assert ("default",) in catalog.list_namespaces()
    assert catalog.list_tables("default") == [
        ("default", "clicks"),
        ("default", "empty"),
        ("default", "orders"),
    ]
    table = catalog.load_table("default.orders")
    assert table.metadata_location.startswith("file:///")
    rows = table.scan().to_arrow().sort_by("offset")
    assert rows["offset"].to_pylist() == list(range(COUNT))
    assert rows["payload"].to_pylist() == [b"%06d" % at for at in range(COUNT)]
    assert rows["key"].to_pylist() == [b"%d" % at for at in range(COUNT)]
    assert rows["attributes"][1].as_py() == [("source", "test")]
    assert rows["publish_time"].type == pa.timestamp("us", tz="UTC")


def test_pyiceberg_reads_only_the_segments_of_a_range(catalog):
    table = catalog.load_table("default.orders")
    files = table.scan().plan_files()
    later = table.scan(row_filter=GreaterThanOrEqual("offset", COUNT - 1))
    assert len(list(later.plan_files())) == 1 < len(list(files))
    assert later.to_arrow()["offset"].to_pylist() == [COUNT - 1]


def test_a_partitioned_topic_is_a_table_with_a_partition_column(catalog, filled):
    table = catalog.load_table("default.clicks")
    rows = table.scan().to_arrow()
    assert sorted(rows["payload"].to_pylist()) == sorted(b"%d" % n for n in range(90))
    with pydanube.sync.connect(filled.url) as client:
        ends = {
            number: client.topics.describe(name).end_offset
            for number, name in enumerate(client.topics.partitions(PARTITIONED))
        }
    counts = pc.value_counts(rows["partition"]).to_pylist()
    assert {each["values"]: each["counts"] for each in counts} == ends
    only = table.scan(row_filter="partition = 1").to_arrow()
    assert only.num_rows == ends[1]
    assert set(only["partition"].to_pylist()) == {1}


def test_a_partition_is_a_table_as_well(catalog):
    rows = catalog.load_table("default.clicks-part-1").scan().to_arrow()
    assert "partition" not in rows.column_names
    assert rows["offset"].to_pylist() == list(range(rows.num_rows))


def test_a_topic_without_segments_is_an_empty_table(catalog):
    rows = catalog.load_table("default.empty").scan().to_arrow()
    assert rows.num_rows == 0
    assert rows.schema.field("offset").type == pa.int64()


def test_the_metadata_file_can_be_read_without_the_catalog(catalog):
    found = polars.scan_iceberg(
        catalog.load_table("default.orders").metadata_location
    ).collect()
    assert sorted(found["offset"]) == list(range(COUNT))


def test_polars_reads_a_table(catalog):
    table = catalog.load_table("default.orders")
    found = polars.scan_iceberg(table).filter(polars.col("offset") < 10).collect()
    assert sorted(found["offset"]) == list(range(10))
    clicks = polars.scan_iceberg(catalog.load_table("default.clicks")).collect()
    assert set(clicks["partition"]) == {0, 1, 2}


def test_duckdb_attaches_the_catalog(filled, tmp_path):
    with connect_duckdb(tmp_path) as database:
        database.execute(
            f"ATTACH '' AS danube (TYPE iceberg, ENDPOINT '{uri(filled)}', "
            "AUTHORIZATION_TYPE 'none')"
        )
        found = database.sql(
            'SELECT count(*), min("offset"), max("offset") FROM danube.default.orders '
            'WHERE "offset" >= 100'
        ).fetchone()
        assert found == (100, 100, 199)
        numbers = database.sql(
            "SELECT partition, count(*) FROM danube.default.clicks "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        assert [number for number, _ in numbers] == [0, 1, 2]
        assert sum(count for _, count in numbers) == 90


def test_writing_is_refused_with_the_error_of_the_api(catalog, filled):
    answer = httpx.post(
        f"{uri(filled)}/v1/namespaces/default/tables", json={"name": "new"}
    )
    assert answer.status_code == 406
    assert answer.json()["error"]["type"] == "UnsupportedOperationException"
    # It knows from the list of endpoints.
    with pytest.raises(NotImplementedError):
        catalog.create_namespace("new")


def test_a_table_that_does_not_exist_is_not_found(catalog):
    assert catalog.table_exists("default.orders")
    assert not catalog.table_exists("default.nothing")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("default.nothing")


def test_uploaded_segments_are_read_from_the_object_store(tmp_path):
    with S3Server(tmp_path) as s3:
        path = settings(tmp_path, s3.new_store())
        with BrokerProcess(tmp_path / "data", "--config", str(path)) as broker:
            publish(broker.url, TOPIC, [b"%d" % at for at in range(100)])
            with pydanube.sync.connect(broker.url) as client:
                while client.storage.describe().backlog_segments:
                    pass
            catalog = load_catalog(
                "danube",
                type="rest",
                uri=uri(broker),
                **{"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY},
            )
            table = catalog.load_table("default.orders")
            assert table.metadata_location.startswith("s3://")
            rows = table.scan().to_arrow()
            assert sorted(rows["offset"].to_pylist()) == list(range(100))
