"""A pipeline whose topic has its history in S3, and whose tables are in S3."""

import json
import time

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from pydanube import sync
from support.drivers.commands import danube
from support.servers.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from support.servers.processes import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    # pyiceberg raises it.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

TOPIC = "/default/changes"
KEYS = 7

PIPELINE = """
name: lake
sources:
  changes: {{topic: {topic}, start: earliest}}
steps:
  rows:
    sql: >
      SELECT row.* FROM (SELECT from_json(CAST(payload AS STRING),
      'n BIGINT, id BIGINT') AS row FROM changes)
sinks:
  appended:
    input: rows
    format: danube-delta
    path: s3://{bucket}/lake/appended
    options: {storage}
  delta:
    input: rows
    format: danube-delta
    path: s3://{bucket}/lake/current
    options: {storage}
    table: {{key: id, order: n}}
  iceberg:
    input: rows
    format: danube-iceberg
    options: {catalog}
    table: {{key: id, order: n}}
"""


def publish(client, numbers):
    with client.producer(TOPIC) as producer:
        producer.send_batch(
            [json.dumps({"n": n, "id": n % KEYS}).encode() for n in numbers]
        )
    give_up_at = time.monotonic() + 60
    while client.topics.describe(TOPIC).sealed_offset < numbers.stop:
        # Only the broker knows when.
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    client.storage.upload(TOPIC)
    client.storage.evict(TOPIC)


def test_rows_go_from_s3_to_s3_once(tmp_path, monkeypatch):
    with S3Server(tmp_path) as server:
        endpoint = f"http://127.0.0.1:{server.port}"
        url, _ = server.new_store()
        remote = {"endpoint": endpoint, "region": "us-east-1"}
        config = {
            "storage": {
                "seal_age_s": 0,
                "seal_interval_s": 0.05,
                "remote": {"url": url, "options": remote, "read_cache_bytes_max": 0},
            }
        }
        broker_file = tmp_path / "broker.yaml"
        broker_file.write_text(json.dumps(config))
        none = str(tmp_path / "none")
        credentials = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_CONFIG_FILE": none,
            "AWS_SHARED_CREDENTIALS_FILE": none,
        }
        for name, value in credentials.items():
            monkeypatch.setenv(name, value)
        storage = {
            "storage.aws_endpoint_url": endpoint,
            "storage.aws_region": "us-east-1",
            "storage.aws_allow_http": "true",
        }
        catalog = {
            "type": "sql",
            "name": "lake",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"s3://{BUCKET}/lake",
            "s3.endpoint": endpoint,
            "s3.region": "us-east-1",
        }
        of_iceberg = {f"catalog.{name}": value for name, value in catalog.items()}
        file = tmp_path / "lake.yaml"
        file.write_text(
            PIPELINE.format(
                topic=TOPIC,
                bucket=BUCKET,
                storage=json.dumps(storage),
                catalog=json.dumps({"table": "db.current", **of_iceberg}),
            )
        )
        options = {
            name.removeprefix("storage."): each for name, each in storage.items()
        }

        def delta(name):
            table = DeltaTable(f"s3://{BUCKET}/lake/{name}", storage_options=options)
            return table.to_pyarrow_table().column("n").to_pylist()

        data = tmp_path / "data"
        own = {"XDG_STATE_HOME": str(tmp_path)}
        arguments = ("--config", str(broker_file))
        with (
            BrokerProcess(data, *arguments) as broker,
            sync.connect(broker.url) as client,
        ):
            client.topics.create(TOPIC)
            for numbers in (range(500), range(500, 600)):
                publish(client, numbers)
                assert not list((data / "objects").rglob("*.parquet"))
                done = danube("pipeline", "run", str(file), url=broker.url, **own)
                assert done.returncode == 0, done.stderr + done.stdout
                end = numbers.stop
                assert sorted(delta("appended")) == list(range(end))
                latest = list(range(end - KEYS, end))
                assert sorted(delta("current")) == latest
                rows = load_catalog(**catalog).load_table("db.current").scan()
                assert sorted(rows.to_arrow().column("n").to_pylist()) == latest
