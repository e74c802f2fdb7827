"""A data directory that changes from one process to several, and back."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest

import pydanube
from pydanube.model.errors import (
    Conflict,
    InconsistentDirectory,
    InvalidConfig,
    TopicNotFound,
)
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import QueryRecord, StagingDecision
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.servers.directories.directory import hold_directory
from pydanube_broker.servers.recovery import process_switch
from pydanube_broker.servers.recovery.recover import recover_directory
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import load_config
from pydanube_broker.servers.settings.process_config import (
    config_of_process,
    has_processes,
)
from pydanube_broker.storage.journal.recovery import keep_unsealed, recover
from support.fakes.directories import PORTS, copied, publish, serving

pytestmark = pytest.mark.slow

SEALED, UNSEALED, GONE = "/default/sealed", "/default/unsealed", "/default/gone"
FEW_SHARDS = {"cluster.shards": 4}


def config_at(path, **settings):
    return load_config(None, {}, {"data_dir": path, **PORTS, **FEW_SHARDS, **settings})


async def change(path, to, **settings):
    """Change the directory *path* to several processes, or to one."""
    config = config_at(path, **settings)
    with hold_directory(path) as directory:
        if to == "several":
            await process_switch.divide_directory(directory, config)
        else:
            await process_switch.unite_directory(directory, config.storage)


@asynccontextmanager
async def several(path, number=1, **settings):
    """A client of one of the processes, which serves all topics."""
    config = config_of_process(config_at(path, **settings), number)
    async with (
        serve(config) as running,
        pydanube.connect(running.stream_url) as client,
    ):
        yield client


async def rest(client, topic, subscription="s"):
    """Return what a subscription has not received, up to a new message."""
    async with client.producer(topic) as producer:
        await producer.send(b"end")
    found = []
    async with client.consumer(
        topic, subscription=subscription, start="earliest"
    ) as consumer:
        async for message in consumer:
            await consumer.ack(message)
            if message.payload == b"end":
                break
            found.append((message.offset, message.payload))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory of one process: segments, unsealed messages, a cursor, a gap."""
    path = tmp_path_factory.mktemp("made") / "data"

    async def make():
        async with serving(
            path, storage__seal_bytes=1, storage__seal_interval_s=0.001
        ) as client:
            await publish(client, SEALED, b"0", b"1", b"2")
            # There is no event for the end of sealing.
            while (await client.topics.describe(SEALED)).sealed_offset != 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with serving(path) as client:
            await publish(client, SEALED, b"3")
            async with client.producer(UNSEALED, name="p") as producer:
                for number in range(4):
                    await producer.send(b"%d" % number)
            await publish(client, GONE, b"x")
            await client.topics.delete(GONE)
            async with client.consumer(
                UNSEALED, subscription="s", start="earliest"
            ) as consumer:
                for number in range(3):
                    message = await consumer.receive(timeout_s=60)
                    if number != 1:
                        await consumer.ack(message)
                await consumer.flush()

    asyncio.run(make())
    return path


@pytest.fixture
def data(made, tmp_path):
    return shutil.copytree(made, tmp_path / "data")


ALL = [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"3")]
LEFT = [(1, b"1"), (3, b"3")]


async def check_contents(client):
    assert await rest(client, UNSEALED) == LEFT
    assert await rest(client, SEALED) == ALL
    with pytest.raises(TopicNotFound):
        await client.topics.describe(GONE)


async def test_directory_of_one_process_becomes_that_of_several(data):
    await change(data, "several")
    async with several(data) as client:
        await check_contents(client)


async def test_directory_of_several_processes_becomes_that_of_one(data):
    await change(data, "several")
    async with several(data) as client:
        await check_contents(client)
        await publish(client, UNSEALED, b"new")
    # Each start of a process has a journal of its own, which takes over the last one.
    async with several(data, 2) as client:
        await publish(client, SEALED, b"new")
    await change(data, "one")
    assert not has_processes(data)
    async with serving(data) as client:
        assert await rest(client, UNSEALED) == [(5, b"new")]
        assert await rest(client, SEALED) == [(5, b"new")]


async def test_directory_that_several_processes_have_not_served_becomes_that_of_one(
    data,
):
    await change(data, "several")
    await change(data, "one")
    async with serving(data) as client:
        await check_contents(client)


async def test_change_that_was_interrupted_before_its_transaction_begins_again(data):
    whole = copied(data, "whole")
    await change(whole, "several")
    # The crash: everything but the records was written.
    shutil.copytree(whole / "journals", data / "journals")
    (data / "processes").mkdir()
    other = copied(data, "other")
    await change(data, "several")
    async with several(data) as client:
        await check_contents(client)
    await change(other, "one")
    async with serving(other) as client:
        await check_contents(client)


async def test_change_that_was_interrupted_after_its_transaction_is_finished(data):
    journal = copied(data / "journal", "before")
    await change(data, "several")
    journal.rename(data / "journal")
    other = copied(data, "other")
    await change(data, "several")
    assert not (data / "journal").exists()
    async with several(data) as client:
        await check_contents(client)
    await change(other, "one")
    async with serving(other) as client:
        await check_contents(client)


async def test_change_back_that_was_interrupted_is_finished(data):
    await change(data, "several")
    async with several(data):
        pass
    processes = copied(data / "processes", "before")
    journals = copied(data / "journals", "journals-before")
    await change(data, "one")
    processes.rename(data / "processes")
    journals.rename(data / "journals")
    await change(data, "one")
    assert not has_processes(data)
    async with serving(data) as client:
        await check_contents(client)


async def test_cursors_producers_and_unsealed_messages_survive_both_changes(data):
    def contents():
        found = recover(
            {
                each.name: memoryview(each.read_bytes())
                for each in (data / "journal").iterdir()
            }
        )
        keep_unsealed(found)
        messages = {
            topic_id: [(frame.base, bytes(frame.buffer)) for frame in frames]
            for topic_id, frames in found.frames.items()
        }
        states = {
            topic_id: (topic.name, topic.end_offset, topic.cursors, topic.producers)
            for topic_id, topic in found.state.topics.items()
        }
        return messages, states

    before = contents()
    messages, states = before
    assert messages
    assert any(producer for _, _, _, producer in states.values())
    assert any(cursors for _, _, cursors, _ in states.values())
    await change(data, "several")
    await change(data, "one")
    assert contents() == before


async def test_change_with_a_commit_that_is_not_complete_is_refused(data):
    decision = StagingDecision(version=1, commit_id=1, parts=(), topics=())
    async with open_sqlite(data / "metadata.sqlite") as store:
        await store.put(keys.QUERIES.key("q"), QueryRecord(decision=decision))
    with pytest.raises(Conflict, match="commit of the query 'q' is decided"):
        await change(data, "several")


async def test_change_without_a_segment_is_refused(data):
    for each in (data / "objects").rglob("*.parquet"):
        each.unlink()
    with pytest.raises(InconsistentDirectory, match="is missing in"):
        await change(data, "several")


async def test_segments_are_uploaded_for_several_processes(data, tmp_path):
    url = (tmp_path / "remote").as_uri()
    await change(data, "several", **{"storage.remote.url": url})
    shutil.rmtree(data / "objects")
    async with several(data, **{"storage.remote.url": url}) as client:
        await check_contents(client)


async def test_directory_of_several_processes_is_recovered_without_metadata(data):
    await change(data, "several")
    async with several(data) as client:
        await publish(client, UNSEALED, b"new")
    (data / "metadata.sqlite").unlink()
    with hold_directory(data) as directory:
        config = config_at(data).storage
        assert not await process_switch.gather_directory(directory, config)
        report = await recover_directory(
            directory, config, from_segments=True, accept_loss=False, write=True
        )
    assert report.written
    async with serving(data) as client:
        # The cursors are those of the journals.
        assert await rest(client, UNSEALED) == [*LEFT, (4, b"new")]
        assert await rest(client, SEALED) == ALL


async def test_directory_of_several_processes_with_metadata_needs_no_repair(data):
    await change(data, "several")
    with hold_directory(data) as directory:
        config = config_at(data).storage
        with pytest.raises(InvalidConfig, match="without --dry-run"):
            await recover_directory(
                directory, config, from_segments=False, accept_loss=False, write=False
            )
        assert await process_switch.gather_directory(directory, config)
        report = await recover_directory(
            directory, config, from_segments=False, accept_loss=False, write=False
        )
    assert not report.needs_from_segments
    assert not report.needs_accept_loss
    async with serving(data) as client:
        await check_contents(client)
