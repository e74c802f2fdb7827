"""Brokers whose journal is in an object store, and whose metadata outlives the disk."""

import asyncio
import shutil
import sqlite3
from contextlib import asynccontextmanager, closing

import pytest
from typer.testing import CliRunner

from pydanube.model.errors import (
    BrokerError,
    DirectoryLocked,
    InconsistentDirectory,
    InvalidConfig,
)
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.servers.directories.identity import MARKER_NAME
from pydanube_broker.servers.directories.journals import open_journal_objects
from pydanube_broker.servers.settings.config import load_config
from pydanube_broker.storage.config import StorageConfig
from pydanube_cli.main import app
from support.fakes.directories import copied, first_error, publish, serving

pytestmark = pytest.mark.slow

TOPIC = "/default/t"


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


class Cluster:
    """A metadata file and a shared directory, for brokers that come and go."""

    def __init__(self, path) -> None:
        self.path = path
        self.store = path / "store"
        self.metadata = path / "metadata" / "metadata.sqlite"
        self.metadata.parent.mkdir()

    @asynccontextmanager
    async def serving(self, name, **settings):
        """A client of a broker with the data directory *name*."""
        chosen = {
            "metadata__path": str(self.metadata),
            "storage__journal__kind": "object",
            "storage__journal__object__linger_ms": 0,
            "storage__remote__url": f"fs://{self.store}",
            **settings,
        }
        async with serving(self.path / name, **chosen) as client:
            yield client

    def groups(self):
        """The objects of the journal that have messages."""
        found = (self.store / ".journal").rglob("0*")
        return sorted(each for each in found if each.is_file())

    async def refused(self, name, kind=InconsistentDirectory, **settings):
        """Start a broker, which has to refuse; return the reason."""
        with pytest.raises((BaseExceptionGroup, BrokerError)) as caught:
            async with self.serving(name, **settings):
                pass
        error = first_error(caught.value)
        assert isinstance(error, kind), error
        return str(error)


async def read(client, topic=TOPIC):
    return [payload async for batch in client.read(topic) for payload in batch.payloads]


async def test_broker_with_a_new_directory_has_everything(cluster):
    async with cluster.serving("first") as client:
        await publish(client, TOPIC, b"0", b"1", b"2")
        async with client.consumer(
            TOPIC, subscription="billing", start="earliest"
        ) as consumer:
            await consumer.ack(await consumer.receive())
        status = await client.storage.describe()
        assert status.journal_kind == "object"
        assert status.journal_url == f"fs://{cluster.store}"
        assert status.journal_bytes > 0
    shutil.rmtree(cluster.path / "first")
    async with cluster.serving("second") as client:
        assert await read(client) == [b"0", b"1", b"2"]
        assert await publish(client, TOPIC, b"3") == [3]
        async with client.consumer(TOPIC, subscription="billing") as consumer:
            assert (await consumer.receive()).payload == b"1"


async def test_sealed_segments_survive_the_disk_without_being_uploaded(cluster):
    # Uploads fail, because there is a directory in place of an object.
    damage = cluster.path / "away" / MARKER_NAME
    damage.mkdir(parents=True)
    settings = {
        "storage__seal_age_s": 0.0,
        "storage__seal_interval_s": 0.001,
        "storage__remote__url": f"fs://{cluster.path / 'away'}",
        "storage__journal__object__url": f"fs://{cluster.store}",
    }
    async with cluster.serving("first", **settings) as client:
        await publish(client, TOPIC, b"0", b"1", b"2")
        await until_sealed(client, 3)
    shutil.rmtree(cluster.path / "first")
    damage.rmdir()
    async with cluster.serving("second", **settings) as client:
        assert await read(client) == [b"0", b"1", b"2"]
        await until_sealed(client, 3)
        await client.storage.upload()
        segments = (await client.storage.segments(TOPIC)).segments
        assert all(each.is_uploaded for each in segments)
    shutil.rmtree(cluster.path / "second")
    async with cluster.serving("third", **settings) as client:
        assert await read(client) == [b"0", b"1", b"2"]


async def until_sealed(client, offset):
    async with asyncio.timeout(60):
        while (await client.storage.segments(TOPIC)).sealed_offset < offset:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


LOCAL = {"storage__journal__kind": "local"}


async def work(client, begin):
    """Publish three messages, acknowledge one, and open a producer with a name."""
    async with client.producer(TOPIC, name="p") as producer:
        for number in range(begin, begin + 3):
            assert (await producer.send(b"%d" % number)).offset == number
    async with client.consumer(
        TOPIC, subscription="billing", start="earliest"
    ) as consumer:
        message = await consumer.receive()
        await consumer.ack(message)
        await consumer.flush()
        return message.offset


async def test_journal_of_another_kind_takes_over_everything(cluster):
    async with cluster.serving("data", **LOCAL) as client:
        assert await work(client, 0) == 0
    async with cluster.serving("data") as client:
        assert await read(client) == [b"0", b"1", b"2"]
        assert await work(client, 3) == 1
    async with cluster.serving("data", **LOCAL) as client:
        assert await work(client, 6) == 2
    async with cluster.serving("data") as client:
        assert await work(client, 9) == 3
    shutil.rmtree(cluster.path / "data")
    async with cluster.serving("new") as client:
        assert await read(client) == [b"%d" % number for number in range(12)]


async def test_switch_that_was_interrupted_is_repeated(cluster):
    data = cluster.path / "data"
    async with cluster.serving("data", **LOCAL) as client:
        assert await work(client, 0) == 0
    copied(data, "before")
    (record,) = journal_records(cluster)
    async with cluster.serving("data"):
        pass
    # As if the broker had been killed just before the metadata names the new journal.
    before = cluster.path / "before" / "journal"
    shutil.copytree(before, data / "journal", dirs_exist_ok=True)
    set_journal_record(cluster, record)
    async with cluster.serving("data") as client:
        assert await read(client) == [b"0", b"1", b"2"]
        assert await work(client, 3) == 1
    # The same in the other direction.
    (record,) = journal_records(cluster)
    async with cluster.serving("data", **LOCAL):
        pass
    # The list of sessions is removed after the record is changed.
    assert not metadata(cluster, "SELECT * FROM entries WHERE path LIKE '/journals/%'")
    assert b'"kind":"local"' in journal_records(cluster)[0]
    async with cluster.serving("data", **LOCAL) as client:
        assert await work(client, 6) == 2


def metadata(cluster, statement, *values):
    with closing(sqlite3.connect(cluster.metadata)) as store, store:
        return store.execute(statement, values).fetchall()


def journal_records(cluster):
    found = metadata(cluster, "SELECT value FROM entries WHERE path = '/journal'")
    return [value for (value,) in found]


def set_journal_record(cluster, value):
    metadata(cluster, "UPDATE entries SET value = ? WHERE path = '/journal'", value)


async def test_store_of_the_old_journal_must_be_known_to_leave_it(cluster):
    async with cluster.serving("data") as client:
        await publish(client, TOPIC, b"0")
    without = LOCAL | {"storage__remote__url": ""}
    reason = await cluster.refused("data", InvalidConfig, **without)
    assert "keep the settings of the old one" in reason
    async with cluster.serving("data") as client:
        assert await read(client) == [b"0"]


async def test_local_journal_needs_the_segments_that_are_not_uploaded(cluster):
    damage = cluster.path / "away" / MARKER_NAME
    damage.mkdir(parents=True)
    settings = {
        "storage__seal_age_s": 0.0,
        "storage__seal_interval_s": 0.001,
        "storage__remote__url": f"fs://{cluster.path / 'away'}",
        "storage__journal__object__url": f"fs://{cluster.store}",
    }
    async with cluster.serving("first", **settings) as client:
        await publish(client, TOPIC, b"0", b"1")
        await until_sealed(client, 2)
    shutil.rmtree(cluster.path / "first")
    reason = await cluster.refused("second", InvalidConfig, **settings, **LOCAL)
    assert "neither in" in reason
    damage.rmdir()
    async with cluster.serving("second", **settings) as client:
        await until_sealed(client, 2)
        await client.storage.upload()
    async with cluster.serving("second", **settings, **LOCAL) as client:
        assert await read(client) == [b"0", b"1"]


async def test_recover_leaves_the_journal_in_a_store_alone(cluster):
    async with cluster.serving("data") as client:
        await publish(client, TOPIC, b"0")
    settings = cluster.path / "broker.yaml"
    settings.write_text(
        f"metadata: {{path: {cluster.metadata}}}\n"
        f"storage: {{remote: {{url: 'fs://{cluster.store}'}}, "
        "journal: {kind: object}}\n"
    )
    for options in ((), ("--config", str(settings))):
        data = ("--data-dir", str(cluster.path / "data"))
        environment = {"DANUBE_METADATA__PATH": str(cluster.metadata)}
        arguments = ["recover", *data, *options, "--accept-loss", "--yes"]
        runner = CliRunner(env=environment)
        refused = await asyncio.to_thread(runner.invoke, app, arguments)
        assert refused.exit_code == 2
        assert "journal" in refused.stderr
    async with cluster.serving("data") as client:
        assert await read(client) == [b"0"]


async def test_store_of_another_cluster_is_refused(cluster, tmp_path):
    async with cluster.serving("data") as client:
        await publish(client, TOPIC, b"0")
    groups = cluster.groups()
    other = tmp_path / "other.sqlite"
    reason = await cluster.refused("other", metadata__path=str(other))
    assert "belongs to cluster" in reason
    assert "metadata.path" in reason
    assert cluster.groups() == groups


async def test_another_store_is_refused(cluster, tmp_path):
    async with cluster.serving("data") as client:
        await publish(client, TOPIC, b"0")
    elsewhere = {"storage__journal__object__url": f"fs://{tmp_path}/elsewhere"}
    reason = await cluster.refused("data", **elsewhere)
    assert "storage.journal.object.url" in reason


async def test_missing_end_of_the_journal_is_reported(cluster):
    async with cluster.serving("data") as client:
        await publish(client, TOPIC, b"0", b"1", b"2")
    for group in cluster.groups()[2:]:
        group.unlink()
    reason = await cluster.refused("data")
    assert "objects of the journal are missing" in reason


async def test_metadata_outside_of_the_directory_has_one_broker(tmp_path):
    settings = {"metadata__path": str(tmp_path / "metadata.sqlite")}
    async with serving(tmp_path / "first", **settings) as client:
        await publish(client, TOPIC, b"0")
        with pytest.raises((BaseExceptionGroup, DirectoryLocked)) as caught:
            async with serving(tmp_path / "second", **settings):
                pass
        assert isinstance(first_error(caught.value), DirectoryLocked)
    assert not (tmp_path / "first" / "metadata.sqlite").exists()
    async with serving(tmp_path / "first", **settings) as client:
        assert await read(client) == [b"0"]


async def test_directory_of_the_metadata_must_exist(tmp_path):
    missing = {"metadata__path": str(tmp_path / "mount" / "metadata.sqlite")}
    with pytest.raises(InvalidConfig, match="mount or create it"):
        async with serving(tmp_path / "data", **missing):
            pass


def test_object_journal_needs_a_remote_store():
    with pytest.raises(InvalidConfig, match=r"journal.kind: .* storage.remote.url"):
        load_config(None, {}, {"storage.journal.kind": "object"})


def test_journal_has_a_store_of_its_own_if_one_is_set(tmp_path):
    remote = {"storage.remote.url": "fs:///remote", "storage.journal.kind": "object"}
    config = load_config(None, {}, remote).storage
    assert open_journal_objects(config).url("x") == "file:///remote/x"
    own = {"storage.journal.object.url": f"fs://{tmp_path}"}
    config = load_config(None, {}, remote | own).storage
    assert isinstance(config, StorageConfig)
    assert isinstance(open_journal_objects(config), DirectoryObjects)
    assert open_journal_objects(config).url("x") == f"file://{tmp_path}/x"
