"""Readers outside the broker, of segments that are only in an S3 server."""

import json
import pickle
import re
import time

import httpx
import pyarrow as pa
import pytest

from pydanube import sync
from pydanube.model.errors import ObjectsUnavailable
from pydanube.objects.addresses import is_secret_option
from pydanube_spark.reader.pure.read_options import Mode
from pydanube_spark.reader.scan_reader import SCHEMA
from pydanube_spark.source import BatchReader, parse_read_options
from support.drivers.commands import danube
from support.servers.object_stores import ACCESS_KEY, SECRET_KEY, SECRETS, S3Server
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/orders"
COUNT = 600


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def store(s3):
    """Return an empty store; credentials are not among its options."""
    url, options = s3.new_store()
    public = {
        name: value
        for name, value in options.items()
        if not is_secret_option(name) and name != "disable_config_load"
    }
    return url, public


@pytest.fixture
def credentials(monkeypatch, tmp_path):
    """Put credentials into the environment, and nothing else of the machine."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


@pytest.fixture
def broker(store, credentials, tmp_path):
    """Run a broker whose history is only in the store, in several segments."""
    url, options = store
    config = {
        "storage": {
            "seal_age_s": 0,
            "seal_interval_s": 0.05,
            "remote": {"url": url, "options": options, "read_cache_bytes_max": 0},
        }
    }
    path = tmp_path / "broker.yaml"
    path.write_text(json.dumps(config))
    with BrokerProcess(tmp_path / "data", "--config", str(path)) as broker:
        fill(broker.url)
        assert not list((tmp_path / "data" / "objects").rglob("*.parquet"))
        yield broker
        assert broker.stop() == 0


def payload(at):
    return b"%06d" % at + bytes(200)


def fill(url):
    """Publish what becomes several segments, and leave them only in the store."""
    with sync.connect(url) as client, client.producer(TOPIC) as producer:
        for end in range(100, COUNT + 1, 100):
            numbers = range(end - 100, end)
            keys = [b"%d" % (at % 7) for at in numbers]
            payloads = [payload(at) for at in numbers]
            producer.send_batch(pa.table({"payload": payloads, "key": keys}))
            deadline = time.monotonic() + 60
            while client.topics.describe(TOPIC).sealed_offset < end:
                # Only the broker knows when.
                assert time.monotonic() < deadline
                time.sleep(0.02)
        client.storage.upload(TOPIC)
        client.storage.evict(TOPIC)


def read(broker, **options):
    """Read like Spark: plan, pickle what tasks need, and run them."""
    given = {"url": broker.url, "subscribe": TOPIC, **options}
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("payload")])
    reader = BatchReader(parse_read_options(given, Mode.BATCH), schema)
    planned = pickle.dumps((reader, reader.partitions()))
    assert not any(secret.encode() in planned for secret in SECRETS)
    again, partitions = pickle.loads(planned)
    batches = [batch for part in partitions for batch in again.read(part)]
    return pa.Table.from_batches(batches, schema).column("payload").to_pylist()


EXPECTED = [payload(at) for at in range(COUNT)]


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_segments_are_read_directly_from_the_store(broker, mode, caplog):
    assert read(broker, readThrough=mode) == EXPECTED
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_segments_are_read_through_the_broker(broker, monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert read(broker, readThrough="always") == EXPECTED
    metrics = httpx.get(f"{broker.http_url}/metrics").text
    (line,) = re.findall(r"^danube_remote_reads_total (.*)$", metrics, re.MULTILINE)
    # The segments are small, so one request reads each of them.
    assert float(line) == len(list_segments(broker))


def list_segments(broker):
    with sync.connect(broker.url) as client:
        return client.storage.segments(TOPIC).segments


def test_without_credentials_the_broker_is_asked(broker, monkeypatch, caplog):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    forget_stores()
    assert read(broker, readThrough="auto") == EXPECTED
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "s3://" in warning.getMessage()
    with pytest.raises(ObjectsUnavailable, match="readThrough"):
        read(broker, readThrough="never")


def forget_stores():
    """Open stores again, with the present environment."""
    from pydanube_spark.reader.remote_files import _store_at

    _store_at.cache_clear()


def maintain(broker, *work):
    done = danube("maintenance", "run", TOPIC, *work, url=broker.url)
    assert done.returncode == 0, done.stderr + done.stdout


def test_maintenance_verifies_merges_and_compacts_uploaded_segments(broker):
    with sync.connect(broker.url) as client:
        before = client.storage.segments(TOPIC).segments
        assert len(before) > 1
        assert all(each.url == each.remote_url for each in before)
        maintain(broker, "--verify", "--merge")
        merged = client.storage.segments(TOPIC).segments
        assert len(merged) == 1
        assert [
            payload for batch in client.read(TOPIC) for payload in batch.payloads
        ] == EXPECTED
        client.storage.upload(TOPIC)
        client.storage.evict(TOPIC)
        maintain(broker, "--compact-keys")
        left = [payload for batch in client.read(TOPIC) for payload in batch.payloads]
        assert left == EXPECTED[-7:]


def test_zero_copy_table_points_to_the_store(broker, store, tmp_path):
    from pyiceberg.catalog import load_catalog

    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }
    words = [word for each in catalog.items() for word in ("--catalog", "=".join(each))]
    target = ("--to", "iceberg", "--table", "shop.history", *words, "--zero-copy")
    done = danube("lakehouse", "export", TOPIC, *target, url=broker.url)
    assert done.returncode == 0, done.stderr + done.stdout
    access = {
        "s3.endpoint": store[1]["endpoint"],
        "s3.region": store[1]["region"],
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
    }
    opened = load_catalog("default", **catalog, **access)
    table = opened.load_table("shop.history")
    files = [task.file.file_path for task in table.scan().plan_files()]
    assert files
    assert all(path.startswith(store[0]) for path in files)
    rows = table.scan().to_arrow().sort_by("offset")
    assert rows.column("payload").to_pylist() == EXPECTED
