"""Segments in an S3 server: uploads, evictions, outages and kills."""

import asyncio
import json

import httpx
import pytest

import pydanube
from pydanube.model.errors import InvalidConfig
from pydanube.objects.opening import open_objects
from pydanube_broker.servers.directories.identity import MARKER_NAME
from support.drivers.commands import danube
from support.fakes.directories import first_error, serving
from support.fakes.tiered_brokers import (
    TOPIC,
    local_segments,
    payloads_of,
    publish,
    settings,
    stored,
    until,
    uploaded,
)
from support.servers.object_stores import SECRETS, RedisServer, S3Server
from support.servers.processes import BrokerProcess
from support.servers.tcp_proxy import Fault, tcp_proxy

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def said(broker, *arguments):
    done = danube("storage", *arguments, "--format", "json", url=broker.url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_segments_are_uploaded_evicted_and_read_back(tmp_path, s3):
    store = s3.new_store()
    url, options = store
    expected = payloads_of(200)

    async def fill(broker):
        async with pydanube.connect(broker.url) as client:
            for at in range(0, 200, 40):
                await publish(client, expected[at : at + 40])
            await uploaded(client, 200)

    async def read(broker, subscription):
        async with pydanube.connect(broker.url) as client:
            assert await stored(client) == expected
            async with client.consumer(
                TOPIC, subscription=subscription, start="earliest"
            ) as consumer:
                for payload in expected:
                    message = await consumer.receive(timeout_s=60)
                    assert message.payload == payload
                    await consumer.ack(message)

    path = settings(tmp_path, store)
    with BrokerProcess(tmp_path / "data", "--config", str(path)) as broker:
        asyncio.run(fill(broker))
        status = said(broker, "status")
        assert status["remote_url"] == url
        assert status["uploads"] >= 1
        assert status["uploaded_bytes"] == status["local_bytes"] > 0
        assert (status["backlog_segments"], status["problems"]) == (0, [])
        located = said(broker, "locate", TOPIC)
        assert {each["copies"] for each in located} == {"local, remote"}
        assert all(each["url"].startswith("file://") for each in located)
        assert all(each["remote_url"].startswith(url) for each in located)
        assert said(broker, "upload", TOPIC) == {"topic": TOPIC, "uploaded": True}
        evicted = said(broker, "evict", TOPIC, "--yes")
        assert evicted["evicted_segments"] == len(located)
        assert local_segments(tmp_path / "data") == []
        located = said(broker, "locate", TOPIC)
        assert {each["copies"] for each in located} == {"remote"}
        asyncio.run(read(broker, "first"))
        table = danube("storage", "status", url=broker.url).stdout
        assert "Remote store" in table
        metrics = httpx.get(f"{broker.http_url}/metrics").text
        assert f"danube_evictions_total {float(len(located))}" in metrics
        assert "danube_upload_backlog_segments 0.0" in metrics
        described = danube("topics", "describe", TOPIC, "--segments", url=broker.url)
        assert "remote" in described.stdout
        assert not any(secret in table + described.stdout for secret in SECRETS)
        broker.kill()
        broker.start()
        asyncio.run(read(broker, "second"))
        assert (
            danube("topics", "delete", TOPIC, "--yes", url=broker.url).returncode == 0
        )
        remote = open_objects(url, options)
        asyncio.run(until(lambda: _only_marker(remote), "remote copies are left"))
        assert broker.stop() == 0


async def _only_marker(remote):
    return await remote.names("") == [MARKER_NAME]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_kills_during_uploads_lose_nothing_and_leave_no_orphans(tmp_path, s3, kills):
    store = s3.new_store()
    expected = payloads_of(kills * 50)
    path = settings(tmp_path, store, local_bytes_max=2000, concurrency=2)

    async def run(broker):
        async with pydanube.connect(broker.url) as client:
            for kill in range(kills):
                await publish(client, expected[kill * 50 : kill * 50 + 50])
                # Kill it during the uploads, at a different moment each time.
                await asyncio.sleep(0.02 * kill)
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            await uploaded(client, len(expected))
            segments = (await client.storage.segments(TOPIC)).segments
            assert all(segment.is_uploaded for segment in segments)
            remote = open_objects(*store)
            assert await remote.names("") == sorted(
                [MARKER_NAME, *(segment.object_name for segment in segments)]
            )
            await until(lambda: _is_within_budget(client), "not evicted")
            assert await stored(client) == expected

    with BrokerProcess(tmp_path / "data", "--config", str(path)) as broker:
        asyncio.run(run(broker))
        assert broker.stop() == 0


async def _is_within_budget(client):
    found = await client.storage.describe()
    return found.local_bytes <= found.local_bytes_max


def test_publishing_stops_when_the_budget_is_full_and_resumes_with_the_store(
    tmp_path, s3
):
    async def run():
        async with tcp_proxy(s3.port) as proxy:
            proxy.fault = Fault.REFUSE
            path = settings(
                tmp_path,
                s3.new_store(proxy.port),
                local_bytes_max=3000,
                retries=0,
                timeout_s=2,
            )
            broker = BrokerProcess(tmp_path / "data", "--config", str(path))
            # The broker starts without the store.
            await asyncio.to_thread(broker.start)
            try:
                await without_store(broker, proxy)
                assert await asyncio.to_thread(broker.stop) == 0
            finally:
                if broker._process is not None:
                    broker.kill()

    async def without_store(broker, proxy):
        async with pydanube.connect(broker.url) as client:
            accepted = []

            async def publish(producer):
                while True:
                    payload = b"%06d" % len(accepted)
                    # The client repeats what the broker refuses.
                    await producer.send(payload)
                    accepted.append(payload)

            async def is_refusing():
                return (await client.storage.describe()).is_refusing

            async with client.producer(TOPIC) as producer:
                async with asyncio.TaskGroup() as tasks:
                    publishing = tasks.create_task(publish(producer))
                    await until(is_refusing, "publishing is not refused")
                    publishing.cancel()
                producer._abandon()
            problems = (await client.storage.describe()).problems
            assert "storage.remote.local_bytes_max" in problems[0]
            ready = (
                await asyncio.to_thread(httpx.get, f"{broker.http_url}/readyz")
            ).json()
            assert ready["ready"]
            assert any("publishing is refused" in each for each in ready["problems"])
            # Consuming goes on.
            assert (await stored(client))[: len(accepted)] == accepted
            proxy.fault = Fault.NONE
            async with client.producer(TOPIC) as producer, asyncio.timeout(60):
                await producer.send(b"after")
            assert (await stored(client))[-1] == b"after"
            await uploaded(client, len(accepted) + 1)

    asyncio.run(run())


def test_store_of_another_cluster_is_not_touched(tmp_path, s3):
    store = s3.new_store()

    async def use(name):
        async with serving(
            tmp_path / name,
            storage__seal_age_s=0,
            storage__seal_interval_s=0.05,
            storage__remote__url=store[0],
            storage__remote__options=store[1],
        ) as client:
            await publish(client, [b"x"])
            if name == "one":
                await uploaded(client, 1)
                return

            async def is_refused():
                problems = (await client.storage.describe()).problems
                return any("belongs to cluster" in each for each in problems)

            await until(is_refused, "no problem is reported")
            described = await client.storage.describe()
            assert (described.uploads, described.backlog_segments) in ((0, 0), (0, 1))

    asyncio.run(use("one"))
    before = asyncio.run(_contents(store))
    asyncio.run(use("two"))
    assert asyncio.run(_contents(store)) == before


async def _contents(store):
    remote = open_objects(*store)
    return {name: bytes(await remote.read(name)) for name in await remote.names("")}


def test_broker_does_not_start_with_a_store_that_cannot_be_used(tmp_path):
    async def start():
        async with serving(tmp_path, storage__remote__url="nowhere://bucket"):
            pass

    with pytest.raises((InvalidConfig, ExceptionGroup)) as raised:
        asyncio.run(start())
    error = first_error(raised.value)
    assert isinstance(error, InvalidConfig)
    assert "nowhere" in str(error)


def test_history_of_a_broker_is_uploaded_when_it_gets_a_store(tmp_path):
    data, store = tmp_path / "data", tmp_path / "store"
    sealing = {"storage__seal_age_s": 0, "storage__seal_interval_s": 0.05}

    async def fill():
        async with serving(data, **sealing) as client:
            await publish(client, payloads_of(20))

            async def is_sealed():
                return (await client.topics.describe(TOPIC)).sealed_offset == 20

            await until(is_sealed, "not everything is sealed")

    async def upload():
        url = f"fs://{store}"
        async with serving(data, storage__remote__url=url, **sealing) as client:
            # Nobody uses the topic, so it is not open.
            async def is_uploaded():
                found = await client.storage.describe()
                return found.uploads and not found.backlog_segments

            await until(is_uploaded, "nothing is uploaded")
            await client.storage.evict()
            assert await stored(client) == payloads_of(20)

    asyncio.run(fill())
    segments = {path.name for path in local_segments(data)}
    asyncio.run(upload())
    assert {path.name for path in store.rglob("*.parquet")} == segments
    assert local_segments(data) == []


def test_segments_can_be_in_redis(tmp_path):
    async def use(url, options):
        async with serving(
            tmp_path / "data",
            storage__seal_age_s=0,
            storage__seal_interval_s=0.05,
            storage__remote__url=url,
            storage__remote__options=options,
        ) as client:
            await publish(client, payloads_of(20))
            await uploaded(client, 20)
            await client.storage.evict(TOPIC)
            assert local_segments(tmp_path / "data") == []
            assert await stored(client) == payloads_of(20)
            await client.topics.delete(TOPIC)
            assert (await client.storage.describe()).problems == ()

    with RedisServer(tmp_path) as server:
        asyncio.run(use(*server.new_store()))


def test_local_broker_refuses_to_upload(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        assert said(broker, "status")["remote_url"] == ""
        done = danube("storage", "upload", url=broker.url)
        assert done.returncode != 0
        assert "storage.remote.url" in done.stderr
        assert (
            "danube_upload_seconds" not in httpx.get(f"{broker.http_url}/metrics").text
        )
        assert broker.stop() == 0


def test_upload_on_request_seals_first(tmp_path):
    store = tmp_path / "store"
    path = tmp_path / "broker.yaml"
    path.write_text(json.dumps({"storage": {"remote": {"url": f"fs://{store}"}}}))

    async def fill(broker):
        async with pydanube.connect(broker.url) as client:
            await publish(client, payloads_of(20))

    async def sealed_offset(broker):
        async with pydanube.connect(broker.url) as client:
            return (await client.topics.describe(TOPIC)).sealed_offset

    with BrokerProcess(tmp_path / "data", "--config", str(path)) as broker:
        asyncio.run(fill(broker))
        said(broker, "upload", "--no-seal")
        assert asyncio.run(sealed_offset(broker)) == 0
        said(broker, "upload", TOPIC)
        assert asyncio.run(sealed_offset(broker)) == 20
        (segment,) = store.rglob("*.parquet")
        assert segment.read_bytes() == local_segments(broker.data_dir)[0].read_bytes()
        asyncio.run(fill(broker))
        said(broker, "upload")
        assert asyncio.run(sealed_offset(broker)) == 40
        assert broker.stop() == 0
