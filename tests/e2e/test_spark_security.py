"""Spark reads and writes topics of a broker with TLS and credentials."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("pyspark")

from pydanube import sync
from support.servers.certificates import tls_settings, write_certificates
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]

SOURCE, TABLE, STREAM, SECRET = (
    *("/default/source", "/default/table", "/default/stream"),
    "/bank/accounts",
)
COUNT = 1000
DEADLINE_S = 240


@pytest.fixture
def files(tmp_path):
    return write_certificates(tmp_path)


@pytest.fixture
def broker_url(tmp_path, files):
    """The URL of a broker with security, and without options."""
    settings = {
        "tls": tls_settings(files),
        "security": {
            "enabled": True,
            "bootstrap_key_file": str(tmp_path / "bootstrap.key"),
        },
    }
    file = tmp_path / "broker.yaml"
    file.write_text(json.dumps(settings))
    options = "--config", str(file)
    log_file = tmp_path / "log"
    with BrokerProcess(tmp_path / "data", *options, log_file=log_file) as broker:
        yield f"danubes://127.0.0.1:{broker.stream_port}"


@pytest.fixture
def admin(broker_url, tmp_path, files):
    key = (tmp_path / "bootstrap.key").read_text().strip()
    with sync.connect(broker_url, ca_file=files["ca"][0], api_key=key) as client:
        client.namespaces.create("bank")
        for topic in (SOURCE, TABLE, STREAM, SECRET):
            client.topics.create(topic)
        for name in ("billing", "localhost"):
            client.security.add_binding(
                f"user:{name}", ["producer", "consumer"], ["/default/*"]
            )
        with client.producer(SOURCE) as producer:
            producer.send_batch([b"%d" % number for number in range(COUNT)])
        yield client


def copy(spark, options, checkpoint, source=SOURCE):
    """Copy a topic as a table and as a stream."""
    rows = spark.read.format("danube").options(subscribe=source, **options).load()
    rows.select("payload").write.format("danube").mode("append").options(
        topic=TABLE, **options
    ).save()
    query = (
        spark.readStream.format("danube")
        .options(subscribe=source, startingOffsets="earliest", **options)
        .load()
        .select("payload")
        .writeStream.format("danube")
        .options(topic=STREAM, checkpointLocation=checkpoint, **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def numbers(client, topic):
    found = [each for batch in client.read(topic) for each in batch.payloads]
    return sorted(map(int, found))


def test_spark_with_credentials_copies_a_topic_over_tls(
    spark, broker_url, admin, files, tmp_path
):
    tls = {"url": broker_url, "tls.caFile": str(files["ca"][0])}
    key = tmp_path / "billing.key"
    key.write_text(admin.security.create_api_key("billing").key)
    certificate_file, key_file = map(str, files["client"])
    by_certificate = {"tls.certificateFile": certificate_file, "tls.keyFile": key_file}
    checkpoint = str(tmp_path / "checkpoint")
    copy(spark, tls | {"auth.apiKeyFile": str(key)}, checkpoint)
    for topic in (TABLE, STREAM):
        assert numbers(admin, topic) == list(range(COUNT))
    # The same query goes on with other credentials.
    copy(spark, tls | by_certificate, checkpoint)
    assert numbers(admin, STREAM) == list(range(COUNT))
    assert len(numbers(admin, TABLE)) == 2 * COUNT
    with pytest.raises(Exception, match=f"not allowed.*{SECRET}"):
        copy(spark, tls | by_certificate, checkpoint, SECRET)
    with pytest.raises(Exception, match="this broker needs credentials"):
        copy(spark, tls, checkpoint)
    assert len(numbers(admin, TABLE)) == 2 * COUNT


@pytest.mark.soak
def test_a_stream_goes_on_with_the_key_that_replaces_its_key(
    spark, broker_url, admin, files, tmp_path
):
    options = {"url": broker_url, "tls.caFile": str(files["ca"][0])}
    key = tmp_path / "billing.key"
    key.write_text(admin.security.create_api_key("billing").key)
    query = (
        spark.readStream.format("danube")
        .options(**options, **{"auth.apiKeyFile": str(key)})
        .options(subscribe=SOURCE, startingOffsets="earliest")
        .load()
        .select("payload")
        .writeStream.format("danube")
        .options(**options, **{"auth.apiKeyFile": str(key)})
        .options(topic=STREAM, checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )

    def wait_for(count):
        give_up_at = time.monotonic() + DEADLINE_S
        while len(numbers(admin, STREAM)) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < give_up_at
            time.sleep(0.1)

    try:
        wait_for(COUNT)
        key.write_text(
            admin.security.create_api_key("billing-2", principal="billing").key
        )
        # Ends the connections of the planner and of all tasks.
        admin.security.revoke_api_key("billing")
        with admin.producer(SOURCE) as producer:
            producer.send_batch([b"%d" % number for number in range(COUNT, COUNT + 9)])
        wait_for(COUNT + 9)
    finally:
        query.stop()
    assert numbers(admin, STREAM) == list(range(COUNT + 9))
