"""Backups of a broker under load, and their restoring."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pydanube import connect
from pydanube.aio.tasks import task_scope
from pydanube.model.errors import (
    BackupRunning,
    CorruptBackup,
    InvalidConfig,
    InvalidRequest,
    NotFound,
    TimedOut,
    TopicNotFound,
)
from pydanube.model.findings import FindingKind
from pydanube.model.policy import FailurePolicy, PoisonPolicy, Retention
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.servers.directories.restore import choose_backup, restore_backup
from pydanube_cli.main import app
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.worker import ConnectorWorker
from support.fakes.directories import publish, served, serving
from support.servers.processes import BrokerProcess
from support.servers.redis_servers import DurableRedis

TOPIC = "/default/orders"
SEALING = {"storage__seal_age_s": 0.0, "storage__seal_interval_s": 0.001}


def named(store):
    """The settings of a broker that knows *store* by a name."""
    return {"stores": {"backups": {"url": f"fs://{store}"}}}


async def backed_up(client, name="backups"):
    await client.storage.create_backup(name)
    async with asyncio.timeout(60):
        while (progress := await client.storage.describe_backup()).is_running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return progress


async def until_sealed(client, topic, offset):
    async with asyncio.timeout(60):
        while (await client.storage.segments(topic)).sealed_offset < offset:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def read(client, topic):
    return {
        each.id.offset: each.payload
        async for batch in client.read(topic)
        for each in batch
    }


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def store(tmp_path):
    return tmp_path / "backups"


@pytest.fixture
def restored(tmp_path):
    return tmp_path / "restored"


@pytest.fixture(
    params=["local", "object", pytest.param("redis", marks=pytest.mark.slow)]
)
def journal(request, tmp_path):
    """Return the settings of a broker with a journal of some kind."""
    if request.param == "local":
        yield {}
        return
    settings = {
        "metadata__path": str(tmp_path / "metadata.sqlite"),
        "storage__remote__url": f"fs://{tmp_path}/remote",
        "storage__journal__kind": request.param,
    }
    if request.param == "object":
        yield settings
        return
    (tmp_path / "redis").mkdir()
    with DurableRedis(tmp_path / "redis") as server:
        yield settings | {
            "storage__journal__redis__url": server.new_url(),
            "storage__journal__redis__options": server.options,
        }


def move_metadata(restored, journal):
    """Put the restored metadata store where the settings expect it."""
    if "metadata__path" in journal:
        path = Path(journal["metadata__path"])
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
        (restored / path.name).rename(path)


async def restore(store, path, backup_id=None):
    objects = DirectoryObjects(store)
    await restore_backup(objects, await choose_backup(objects, backup_id), path)


async def test_backup_has_what_was_acknowledged_before_it(
    data, store, restored, journal
):
    async with serving(data, **named(store), **SEALING, **journal) as client:
        await publish(client, TOPIC, b"0", b"1", b"2")
        await until_sealed(client, TOPIC, 3)
    async with serving(data, **named(store), **journal) as client:
        await publish(client, TOPIC, b"3")
        async with client.consumer(
            TOPIC, subscription="billing", start="earliest"
        ) as consumer:
            for _ in range(2):
                await consumer.ack(await consumer.receive())
        progress = await backed_up(client)
        assert progress.error == ""
        assert progress.segments_done == progress.segment_count > 0
        assert progress.bytes_done == progress.byte_count
        await publish(client, TOPIC, b"later")
    await restore(store, restored)
    move_metadata(restored, journal)
    async with serving(restored, **journal) as client:
        assert await read(client, TOPIC) == {0: b"0", 1: b"1", 2: b"2", 3: b"3"}
        async with client.consumer(TOPIC, subscription="billing") as consumer:
            assert (await consumer.receive()).payload == b"2"
        assert await publish(client, TOPIC, b"next") == [4]
    # Also after another start, when nothing is taken over from the backup.
    async with serving(restored, **journal) as client:
        assert list(await read(client, TOPIC)) == list(range(5))


async def test_backups_during_traffic_hold_all_that_was_acknowledged(
    data, store, tmp_path, journal
):
    acknowledged = 0
    at_least = []

    async def produce(client):
        nonlocal acknowledged
        async with client.producer(TOPIC) as producer:
            while True:
                await producer.send(b"%d" % acknowledged)
                acknowledged += 1

    async with (
        serving(data, **named(store), **SEALING, **journal) as client,
        asyncio.TaskGroup() as tasks,
    ):
        await client.topics.create(TOPIC)
        producing = tasks.create_task(produce(client))
        before = 0
        for _ in range(5):
            while acknowledged <= before:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            before = acknowledged
            progress = await backed_up(client)
            assert progress.error == ""
            at_least.append((progress.id, before))
        producing.cancel()
    for backup_id, before in at_least:
        path = tmp_path / backup_id
        await restore(store, path, backup_id)
        move_metadata(path, journal)
        async with serving(path, **journal) as client:
            found = await read(client, TOPIC)
        assert found == {at: b"%d" % at for at in range(len(found))}
        assert len(found) >= before


async def test_second_backup_shares_the_segments_of_the_first(data, store):
    async with serving(data, **named(store), **SEALING) as client:
        await publish(client, TOPIC, b"0")
        await until_sealed(client, TOPIC, 1)
        first = await backed_up(client)
        await publish(client, TOPIC, b"1")
        await until_sealed(client, TOPIC, 2)
        second = await backed_up(client)
    assert first.segments_shared == 0
    assert (second.segments_shared, second.segment_count) == (1, 2)


async def test_no_segment_is_removed_during_a_backup(data, store):
    settings = SEALING | {"storage__retention_interval_s": 0.001}
    stores = {str(number): {"url": f"fs://{store}/{number}"} for number in range(5)}
    async with serving(data, stores=stores, **settings) as client:
        await client.topics.create(TOPIC, retention=Retention(bytes_max=1))
        for number in range(5):
            await publish(client, TOPIC, b"%d" % number)
            progress = await backed_up(client, f"{number}")
            assert (progress.error, progress.damaged) == ("", ())


async def test_topic_is_not_deleted_during_a_backup(data, store):
    async with serving(data, **named(store), **SEALING) as client:
        await publish(client, TOPIC, b"0")
        await until_sealed(client, TOPIC, 1)
        await client.storage.create_backup("backups")
        with pytest.raises(BackupRunning):
            await client.storage.create_backup("backups")
        with pytest.raises(BackupRunning):
            await client.topics.delete(TOPIC)


async def test_damaged_segment_is_named_and_left_out(data, store, restored):
    async with serving(data, **named(store), **SEALING) as client:
        await publish(client, TOPIC, b"0")
        await until_sealed(client, TOPIC, 1)
        (segment,) = (data / "objects/default/orders").glob("*.parquet")
        segment.write_bytes(b"x" * segment.stat().st_size)
        progress = await backed_up(client)
    assert progress.error == ""
    assert progress.damaged == (f"default/orders/{segment.name}",)
    await restore(store, restored)


async def test_store_of_another_cluster_is_refused(data, store, tmp_path):
    async with serving(data, **named(store)) as client:
        await backed_up(client)
    async with serving(tmp_path / "other", **named(store)) as client:
        progress = await backed_up(client)
    assert "backups of another cluster" in progress.error


async def test_damaged_backup_is_not_restored(data, store, restored):
    async with serving(data, **named(store)) as client:
        await publish(client, TOPIC, b"0")
        await backed_up(client)
    (journal,) = store.glob("backups/*/files/journal/*")
    content = bytearray(journal.read_bytes())
    content[-1] ^= 1
    journal.write_bytes(content)
    with pytest.raises(CorruptBackup, match="is not as the backup"):
        await restore(store, restored)
    assert list(restored.iterdir()) == []


async def test_unfinished_backup_is_not_found(data, store, restored):
    async with serving(data, **named(store)) as client:
        progress = await backed_up(client)
    (store / "backups" / progress.id / "backup.json").unlink()
    with pytest.raises(NotFound):
        await restore(store, restored)


def test_commands_make_list_and_restore_a_backup(tmp_path, store, restored):
    config = tmp_path / "broker.yaml"
    config.write_text(json.dumps(named(store)))

    def run(*words):
        done = CliRunner().invoke(app, ["backup", *words, "--format", "json"])
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    with BrokerProcess(tmp_path / "data", "--config", str(config)) as broker:
        made = run("create", "backups", "--url", broker.url)
        assert run("status", "--url", broker.url)["id"] == made["id"]
    (listed,) = run("list", str(store))
    assert run("list", "backups", "--config", str(config)) == [listed]
    assert listed["id"] == made["id"]
    assert datetime.fromisoformat(listed["created_at"]).tzinfo is UTC
    restore = ("restore", f"fs://{store}", "--data-dir", str(restored))
    assert run(*restore)["id"] == made["id"]
    refused = CliRunner().invoke(app, ["backup", *restore])
    assert refused.exit_code == 2
    assert "is not empty" in refused.stderr


async def test_store_that_the_broker_cannot_open_or_does_not_know_is_refused(
    data, tmp_path
):
    (tmp_path / "file").touch()
    unknown = f"fs://{tmp_path}/elsewhere"
    async with serving(data, **named(tmp_path / "file")) as client:
        with pytest.raises(InvalidConfig):
            await client.storage.create_backup("backups")
        with pytest.raises(InvalidRequest, match="they name backups"):
            await client.storage.create_backup(unknown)
        assert (await client.storage.describe_backup()).id == ""
    assert not (tmp_path / "elsewhere").exists()


async def test_backup_of_any_journal_can_be_restored_to_a_local_one(
    data, store, restored, journal
):
    async with serving(data, **named(store), **SEALING, **journal) as client:
        await publish(client, TOPIC, b"0")
        await until_sealed(client, TOPIC, 1)
    async with serving(data, **named(store), **journal) as client:
        await publish(client, TOPIC, b"1")
        assert (await backed_up(client)).error == ""
    await restore(store, restored)
    async with serving(restored) as client:
        assert await read(client, TOPIC) == {0: b"0", 1: b"1"}
        assert await publish(client, TOPIC, b"2") == [2]


async def test_failed_messages_and_failure_policies_are_restored(
    data, store, restored, journal
):
    blocking = FailurePolicy(
        redeliveries_max=0, redelivery_delay_s=0.0, poison=PoisonPolicy.BLOCK
    )
    copying = replace(
        blocking, poison=PoisonPolicy.DEAD_LETTER, dead_letter_topic="/default/dead"
    )

    async def fail(client, subscription):
        async with client.consumer(TOPIC, subscription=subscription) as consumer:
            message = await consumer.receive(timeout_s=60)
            await consumer.nack(message)
            return message.payload

    async def findings(client):
        return [
            (e.subscription, e.kind)
            for e in (await client.cluster.list_findings()).subscriptions
        ]

    async def until(check):
        async with asyncio.timeout(60):
            while not await check():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def dead(client):
        try:
            return list((await read(client, "/default/dead")).values())
        except TopicNotFound:
            return []

    blocked = [("blocked", FindingKind.BLOCKED)]
    async with serving(data, **named(store), **journal) as client:
        await publish(client, TOPIC, b"0", b"1")
        for name, policy in {"blocked": blocking, "dead": copying}.items():
            await client.subscriptions.create(TOPIC, name, start="earliest")
            await client.subscriptions.configure(TOPIC, name, failure_policy=policy)
            assert await fail(client, name) == b"0"

        async def is_blocked():
            return await findings(client) == blocked and await dead(client) == [b"0"]

        await until(is_blocked)
        assert (await backed_up(client)).error == ""
    await restore(store, restored)
    move_metadata(restored, journal)
    async with serving(restored, **journal) as client:
        # Nothing has opened the topic.
        assert await findings(client) == blocked
        for name, policy in {"blocked": blocking, "dead": copying}.items():
            settings = await client.subscriptions.settings(TOPIC, name)
            assert settings.failure_policy == policy
        assert await fail(client, "dead") == b"1"

        async def has_both():
            return await dead(client) == [b"0", b"1"]

        await until(has_both)
        async with client.consumer(TOPIC, subscription="blocked") as consumer:
            with pytest.raises(TimedOut):
                await consumer.receive(timeout_s=0.1)
            await client.subscriptions.skip(TOPIC, "blocked", 1)
            assert (await consumer.receive(timeout_s=60)).payload == b"1"


@asynccontextmanager
async def working(broker, directory):
    """Run a worker of the stored connectors of the broker at an address."""
    stop = asyncio.Event()
    runs = ConnectorRuns([], lambda _: None, is_open=True)
    worker = ConnectorWorker(
        "w",
        runs,
        broker=broker,
        directory=directory,
        environment={},
        poll_s=0.05,
        absent_s=0.3,
    )
    async with task_scope() as tasks:
        tasks.run(runs.run(stop))
        ending = tasks.start(worker.run(stop))
        yield
        stop.set()
        await ending


async def test_stored_connectors_go_on_from_the_positions_in_a_backup(
    data, store, restored
):
    def definition(topic):
        fields = {"kind": "generator-source", "topic": topic, "options": {"rate": 1000}}
        return json.dumps(fields)

    async def end(client):
        found = await client.topics.list_offsets([TOPIC])
        return found[TOPIC].end_offset if TOPIC in found else 0

    async def until_more_than(client, count):
        async with asyncio.timeout(60):
            while await end(client) <= count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async with served(data, **named(store)) as url, connect(url) as client:
        await client.connectors.set("n", TOPIC, definition(TOPIC))
        idle = definition("/default/idle")
        await client.connectors.set("idle", "/default/idle", idle, is_paused=True)
        async with working(url, data):
            await until_more_than(client, 20)
            assert (await backed_up(client)).error == ""
            await until_more_than(client, await end(client))
    await restore(store, restored)
    async with served(restored) as url, connect(url) as client:
        found = (await client.connectors.list()).connectors
        assert [(each.name, each.is_paused) for each in found] == [
            ("idle", True),
            ("n", False),
        ]
        async with working(url, restored):
            await until_more_than(client, await end(client))
        numbers = [json.loads(each) for each in (await read(client, TOPIC)).values()]
        assert [each["number"] for each in numbers] == list(range(len(numbers)))
        assert "/default/idle" not in await client.topics.list()
