"""Native tables whose segments are in an object store, and nowhere else."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pydanube_spark
from pydanube import sync
from support.project import ROOT
from support.servers.object_stores import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    S3Server,
    VersityServer,
)
from support.servers.processes import BrokerProcess
from support.servers.programs import skip_without

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.rotated,
    pytest.mark.timeout(600),
]

SEALED, COUNT = 2_000, 2_100
TOPIC = "/default/orders"
LOGGER = "pydanube_spark.topic_table"
JARS = ROOT / ".venv" / "hadoop-aws"
OTHER = "other"
"""A bucket for which the session has a wrong key."""

SPARK = """
import json, logging, pathlib, sys
import pydanube_spark

topic, log, config, url, refused_url = sys.argv[1:]
logging.basicConfig(level="INFO", stream=sys.stdout)
spark = pydanube_spark.session(
    master="local[2]", config=json.loads(config), log_file=pathlib.Path(log)
)

def rows_of(rows):
    return rows.orderBy("partition", "offset").collect()

rows = pydanube_spark.table(spark, topic, url)
assert rows.inputFiles()
assert all(each.startswith("s3a://danube/") for each in rows.inputFiles())
options = {"url": url, "subscribe": topic, "readThrough": "always"}
options["columns"] = ",".join(rows.columns)
expected = rows_of(spark.read.format("danube").options(**options).load())
assert rows_of(rows) == expected
assert rows.count() == len(expected)
assert rows.where("partition = 1 AND offset < 7").count() == 7
start = json.dumps({topic: {"0": 1005, "1": 1999}})
cut = pydanube_spark.table(spark, topic, url, options={"startingOffsets": start})
bounds = {0: 1005, 1: 1999}
after = [each for each in expected if each.offset >= bounds[each.partition]]
assert rows_of(cut) == after
refused = pydanube_spark.table(spark, topic, refused_url)
assert not refused.inputFiles()
print("rows", len(expected), refused.count())
"""


@contextmanager
def broker(directory, remote):
    """Run a broker whose topic has segments in *remote* only, and a tail."""
    directory.mkdir()
    file = directory / "broker.yaml"
    storage = {"seal_interval_s": 0.05, "merge_bytes": 0, "remote": remote}
    file.write_text(json.dumps({"storage": storage}))
    options = ("--config", str(file))
    with (
        BrokerProcess(
            directory / "data", *options, log_file=directory / "log"
        ) as process,
        sync.connect(process.url) as client,
    ):
        client.topics.create(TOPIC, partitions=2)
        for base, end in ((0, SEALED), (SEALED, COUNT)):
            for number in range(2):
                publish(client, f"{TOPIC}-part-{number}", base, end)
            if end == SEALED:
                client.storage.upload(TOPIC)
                assert client.storage.evict(TOPIC) != (0, 0)
        yield process


def publish(client, topic, base, end):
    rng = random.Random(base)
    payloads = [rng.randbytes(100) for _ in range(base, end)]
    with client.producer(topic) as producer:
        producer.send_batch(pa.record_batch({"payload": pa.array(payloads)}))


def offsets(rows):
    found = rows.select("partition", "offset").collect()
    return sorted((row.partition, row.offset) for row in found)


ALL = [(partition, offset) for partition in range(2) for offset in range(COUNT)]


def test_a_native_table_reads_a_store_that_is_a_directory(spark, tmp_path, caplog):
    store = tmp_path / "a store%20of history"
    caplog.set_level("INFO", logger=LOGGER)
    with broker(tmp_path / "broker", {"url": f"fs://{store}"}) as process:
        rows = pydanube_spark.table(spark, TOPIC, process.url)
        paths = [unquote(urlsplit(each).path) for each in rows.inputFiles()]
        assert paths
        assert all(each.startswith(f"{store}/") for each in paths)
        assert offsets(rows) == ALL
    assert not [each for each in caplog.messages if "in Python" in each]


@pytest.mark.soak
def test_a_session_without_hadoops_package_for_s3_reads_in_python(
    spark, tmp_path, caplog
):
    with S3Server(tmp_path) as server:
        url, options = server.new_store()
        remote = {"url": url, "options": options}
        with broker(tmp_path / "broker", remote) as process:
            rows = pydanube_spark.table(spark, TOPIC, process.url)
            assert offsets(rows) == ALL
    [reason] = [each for each in caplog.messages if "in Python" in each]
    assert "org.apache.hadoop:hadoop-aws" in reason


@pytest.mark.soak
def test_a_native_table_reads_s3_with_the_credentials_of_the_session(tmp_path):
    """The broker says where the bucket is; the session knows only keys."""
    if not JARS.exists():
        skip_without("hadoop-aws", "tools/object-stores")
    config = {
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.ui.enabled": "false",
        f"spark.hadoop.fs.s3a.bucket.{BUCKET}.access.key": ACCESS_KEY,
        f"spark.hadoop.fs.s3a.bucket.{BUCKET}.secret.key": SECRET_KEY,
        f"spark.hadoop.fs.s3a.bucket.{OTHER}.access.key": ACCESS_KEY,
        f"spark.hadoop.fs.s3a.bucket.{OTHER}.secret.key": "wrong",
    }
    store = tmp_path / "store"
    (store / OTHER).mkdir(parents=True)
    with VersityServer(store) as server:
        url, options = server.new_store()
        other = url.replace(f"//{BUCKET}/", f"//{OTHER}/")
        with (
            broker(tmp_path / "one", {"url": url, "options": options}) as one,
            broker(tmp_path / "two", {"url": other, "options": options}) as two,
        ):
            log = os.fspath(tmp_path / "spark.log")
            given = (TOPIC, log, json.dumps(config), one.url, two.url)
            environment = {
                name: value
                for name, value in os.environ.items()
                if not name.startswith("AWS_")
            }
            done = subprocess.run(
                [sys.executable, "-c", SPARK, *given],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
    lines = done.stdout.splitlines()
    assert f"rows {2 * COUNT} {2 * COUNT}" in lines, done.stdout
    [reason] = [each for each in lines if "in Python" in each]
    assert f"s3a://{OTHER}/" in reason
    assert "spark.hadoop.fs.s3a.secret.key" in reason
    assert SECRET_KEY not in done.stdout
