"""The sink danube-http, with a server that fails on command and real Spark."""

import json
from collections import Counter

import pyarrow as pa
import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.errors import PySparkException  # noqa: E402

from pydanube.spark.formats import check_sink  # noqa: E402
from support.http_server import Answer, Broken, LocalServer  # noqa: E402
from support.replays import (  # noqa: E402
    PublishedTopic,
    forget_last_commit,
    run_to_end,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]

FORMAT = "danube-http"


@pytest.fixture
def topic(spark, broker_url, client):
    return PublishedTopic(spark, broker_url, client)


class Receiver:
    """A service that takes each request once, by its Idempotency-Key."""

    def __init__(self):
        self.bodies = {}
        self.calls = Counter()

    def __call__(self, request):
        if request.method == "OPTIONS":
            return Answer(405)
        key = request.headers["idempotency-key"]
        self.calls[key] += 1
        rows = json.loads(request.body)
        if any(row.get("payload") == "bad" for row in rows):
            return Answer(422, b"a bad row; you sent sesame")
        self.bodies.setdefault(key, rows)
        return Answer(200)

    @property
    def rows(self):
        return [row for rows in self.bodies.values() for row in rows]


@pytest.fixture
def receiver():
    return Receiver()


@pytest.fixture
def server(receiver):
    with LocalServer(receiver) as server:
        yield server


@pytest.fixture
def options(server):
    return {"url": f"{server.url}/in", "retryIntervalMs": "20", "timeoutS": "5"}


def test_json_requests_are_bounded(spark, server, receiver, options):
    rows = spark.range(0, 250, 1, 2).selectExpr("id", "cast(id AS string) text")
    options |= {"batchRows": "50", "header.X-Api-Key": "sesame"}
    rows.write.format(FORMAT).options(**options).mode("append").save()
    assert sorted(row["id"] for row in receiver.rows) == list(range(250))
    assert {len(rows) for rows in receiver.bodies.values()} == {50, 25}
    [headers] = {
        (each.headers["content-type"], each.headers["x-api-key"])
        for each in server.requests
    }
    assert headers == ("application/json", "sesame")


@pytest.mark.soak
def test_stream_repeats_idempotency_keys_after_a_lost_commit(
    topic, receiver, options, tmp_path
):
    topic.publish(map(str, range(100)))
    stream = topic.stream("offset", "payload")
    run_to_end(stream, FORMAT, options, tmp_path)
    assert forget_last_commit(tmp_path) == 2
    topic.publish(map(str, range(100, 120)))
    run_to_end(stream, FORMAT, options, tmp_path)
    assert sorted(row["offset"] for row in receiver.rows) == list(range(120))
    assert max(receiver.calls.values()) == 2


def test_transient_failures_are_retried(spark, server, receiver, options):
    server.faults.extend(
        [
            Broken.BEFORE,
            Answer(503),
            Answer(429, headers={"Retry-After": "0"}),
            Broken.AFTER,
            Broken.SILENT,
        ]
    )
    options |= {"timeoutS": "0.5", "batchRows": "10"}
    rows = spark.range(0, 50, 1, 1)
    rows.write.format(FORMAT).options(**options).mode("append").save()
    assert sorted(row["id"] for row in receiver.rows) == list(range(50))


def test_rejected_rows_fail_the_query_without_secrets(spark, options):
    rows = spark.sql("SELECT 'bad' payload")
    options |= {"header.Authorization": "sesame"}
    with pytest.raises(PySparkException) as failed:
        rows.write.format(FORMAT).options(**options).mode("append").save()
    said = str(failed.value)
    assert "422" in said
    assert "a bad row" in said
    assert "sesame" not in said


def test_only_rejected_rows_are_dead_letters(
    topic, client, receiver, options, tmp_path
):
    topic.publish(["bad" if at in (7, 31) else str(at) for at in range(40)])
    letters = f"{topic.name}-letters"
    options |= {"deadLetterTopic": letters, "deadLetterUrl": topic.url}
    run_to_end(topic.stream("offset", "payload"), FORMAT, options, tmp_path)
    wanted = [at for at in range(40) if at not in (7, 31)]
    assert sorted(row["offset"] for row in receiver.rows) == wanted
    found = [message for batch in client.read(letters) for message in batch]
    assert sorted(json.loads(each.payload)["offset"] for each in found) == [7, 31]
    assert found[0].attributes["status"] == "422"
    assert "a bad row" in found[0].attributes["reason"]


def test_rows_are_sent_as_arrow_stream(spark, options):
    tables = []

    def take(request):
        tables.append(pa.ipc.open_stream(request.body).read_all())
        return Answer(204)

    with LocalServer(take) as server:
        options |= {"url": server.url, "format": "arrow", "batchRows": "30"}
        rows = spark.range(0, 100, 1, 1).selectExpr("id", "map('a', id) m")
        rows.write.format(FORMAT).options(**options).mode("append").save()
    assert [table.num_rows for table in tables] == [30, 30, 30, 10]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(100))


def test_check_reports_problems(spark, options):
    rows = spark.range(1).schema
    assert check_sink(FORMAT, options, rows) == []
    [problem] = check_sink(FORMAT, options | {"batchrow": "1"}, rows)
    assert problem == "unknown option 'batchrow'; did you mean 'batchRows'?"
    nobody = options | {"url": "http://u:pssst@127.0.0.1:1/hook/pssst?token=pssst"}
    [problem] = check_sink(FORMAT, nobody, rows)
    assert "Connection refused" in problem
    assert "pssst" not in problem
