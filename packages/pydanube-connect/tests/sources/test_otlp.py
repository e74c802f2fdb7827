"""Logs of OpenTelemetry's own exporter arrive, and hostile requests are refused."""

import asyncio
import gzip
import json
import logging
import zlib
from contextlib import asynccontextmanager

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from pydanube.aio.tasks import gather
from pydanube_connect.sources.otlp import JSON, PROTOBUF
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.servers.ports import free_port
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/logs"
LOG = {"body": {"stringValue": "hello"}}


def request_of(*records):
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}


@asynccontextmanager
async def listening(options=None, fields=""):
    """A listener; yields a client of it, one of the broker, and its URL."""
    address = f"127.0.0.1:{free_port()}"
    text = f"""
connectors:
  logs:
    kind: otlp-source
    topic: {TOPIC}
    options: {json.dumps({"listen": address, **(options or {})})}
{fields}"""
    async with (
        memory_broker() as broker,
        broker.connect() as client,
        running(declared(text, broker.url)) as until,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as http,
    ):
        await until(lambda all_: all_["logs"].state is State.RUNNING)
        yield http, client, f"http://{address}/v1/logs"


async def values_of(client):
    return [
        json.loads(each)
        async for batch in client.read(TOPIC)
        for each in batch.payloads
    ]


def log_with_sdk(url, compression, count):
    """Log with Python's own module, through OpenTelemetry's SDK and exporter."""
    exporter = OTLPLogExporter(
        endpoint=url, headers={"Authorization": "Bearer k"}, compression=compression
    )
    provider = LoggerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = logging.getLogger(f"orders-{compression.value}")
    logger.addHandler(LoggingHandler(logger_provider=provider))
    for number in range(count):
        logger.error("order %d", number, extra={"amount": 1.5})
    provider.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate]
)
async def test_logs_of_the_official_exporter_are_stored(compression):
    async with listening({"api_keys": ["k"]}) as (_, client, url):
        await asyncio.to_thread(log_with_sdk, url, compression, 3)
        found = await values_of(client)
        [first] = [each async for b in client.read(TOPIC, end=1) for each in b]
    assert [each["body"] for each in found] == ["order 0", "order 1", "order 2"]
    assert found[0]["severity"] == "ERROR"
    assert found[0]["attributes"]["amount"] == 1.5
    assert found[0]["resource"]["service.name"] == "shop"
    assert found[0]["time"].endswith("Z")
    assert first.key == "shop"


async def test_json_is_stored_and_answered_in_json():
    async with listening() as (http, client, _):
        answer = await http.post("/v1/logs", json=request_of(LOG, LOG))
        assert (answer.status_code, answer.json()) == (200, {})
        assert (await http.post("/v1/logs", json={})).json() == {}
        assert len(await values_of(client)) == 2


async def test_records_that_do_not_fit_are_a_partial_success():
    fields = "    deduplicate: 1h\n    mapping: {id: severity}\n"
    async with listening({}, fields) as (http, client, _):
        records = [LOG, LOG | {"severityText": "INFO"}]
        answer = await http.post("/v1/logs", json=request_of(*records))
        assert answer.status_code == 200
        partial = answer.json()["partialSuccess"]
        assert partial["rejectedLogRecords"] == "1"
        assert "no field severity" in partial["errorMessage"]
        assert [each["severity"] for each in await values_of(client)] == ["INFO"]


BOMB = gzip.compress(b" " * 20_000, mtime=0)


GZIP, DEFLATE = {"content-encoding": "gzip"}, {"content-encoding": "deflate"}
REFUSED = [
    (b"{", {}, 400, "not OTLP in JSON"),
    (b"\xff", {"content-type": PROTOBUF}, 400, "not OTLP in Protobuf"),
    (b"{}", {"content-type": "text/plain"}, 415, "content type"),
    (b"{}", {"content-encoding": "br"}, 415, "'br' is not gzip"),
    (b"{}", GZIP, 400, "not gzip"),
    (BOMB, GZIP, 413, "more than 10240 bytes"),
    (BOMB[:-5], GZIP, 413, "more than 10240 bytes"),
    (gzip.compress(b"{}", mtime=0)[:-3], GZIP, 400, "one gzip"),
    (zlib.compress(b"{}") * 2, DEFLATE, 400, "one deflate"),
    (b" " * 5000, {}, 413, "more than 4096 bytes"),
    (b"{}", {"authorization": "Bearer x"}, 401, "no valid API key"),
]


async def test_requests_that_are_no_logs_are_refused():
    options = {
        "body_bytes_max": "4KiB",
        "decoded_bytes_max": "10KiB",
        "api_keys": ["k"],
    }
    async with listening(options) as (http, client, _):
        for body, headers, status, reason in REFUSED:
            usual = {"content-type": JSON, "authorization": "Bearer k"}
            answer = await http.post("/v1/logs", content=body, headers=usual | headers)
            assert (answer.status_code, reason) == (status, reason), answer.text
            assert reason in answer.text
            assert "retry-after" not in answer.headers
        assert await values_of(client) == []


async def test_a_sender_is_told_to_come_again_if_there_are_too_many():
    async with listening({"rate": 1}) as (http, _, _):
        assert (await http.post("/v1/logs", json={})).status_code == 200
        answer = await http.post("/v1/logs", json={})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert "requests in a second" in answer.json()["message"]


async def test_requests_wait_for_the_memory_of_those_before_them():
    """Together they have more bytes than one may have, and all are stored."""
    log = {"body": {"stringValue": "x" * 6000}}
    async with listening({"decoded_bytes_max": "10KiB"}) as (http, client, _):
        requests = [http.post("/v1/logs", json=request_of(log)) for _ in range(20)]
        answers = await gather(requests)
        assert {each.status_code for each in answers} == {200}
        assert len(await values_of(client)) == 20
