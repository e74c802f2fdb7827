import asyncio
import shutil

import pytest

from pydanube.model.errors import CorruptSegment, InconsistentDirectory, OffsetDropped
from pydanube.model.policy import FailurePolicy
from pydanube_broker.servers.directories.directory import hold_directory
from pydanube_broker.servers.recovery.contents import SKIPPED_OFFSETS
from pydanube_broker.servers.recovery.recover import recover_directory
from pydanube_broker.storage.config import RemoteConfig, StorageConfig
from support.fakes.directories import contents_of, copied, first_error, publish, serving

pytestmark = pytest.mark.slow

TOPIC = "/default/t"
PARTITION = "/shop/orders.eu-part-2"
UNREACHABLE = {
    "endpoint": "http://127.0.0.1:1",
    "region": "us-east-1",
    "access_key_id": "a",
    "secret_access_key": "b",
    "disable_config_load": "true",
}
SEALED = {"storage__seal_bytes": 1, "storage__seal_interval_s": 0.001}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """``new`` has ten messages of a topic, the first five in segments."""
    base = tmp_path_factory.mktemp("directories")

    async def make():
        data = base / "data"
        async with serving(data, **SEALED) as client:
            await client.namespaces.create("shop")
            await publish(client, TOPIC, *(b"%d" % n for n in range(5)))
            await client.topics.create(PARTITION)
            await publish(client, PARTITION, b"p")
            for topic, end in ((TOPIC, 5), (PARTITION, 1)):
                # There is no event for the end of sealing.
                while (await client.topics.describe(topic)).sealed_offset != end:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            async with client.consumer(
                TOPIC, subscription="billing", start="earliest"
            ) as consumer:
                for _ in range(3):
                    await consumer.ack(await consumer.receive(timeout_s=60))
                await consumer.flush()
        copied(data, "old")
        async with serving(data) as client:
            await publish(client, TOPIC, *(b"%d" % n for n in range(5, 10)))
        data.rename(base / "new")

    asyncio.run(make())
    return base


@pytest.fixture
def data(made, tmp_path):
    return shutil.copytree(made / "new", tmp_path / "data")


def recover(path, *, write=True, remote=None, **flags):
    config = StorageConfig(remote=remote or RemoteConfig())
    allowed = {"from_segments": False, "accept_loss": False, **flags}

    async def run():
        with hold_directory(path) as directory:
            return await recover_directory(directory, config, write=write, **allowed)

    return asyncio.run(run())


def read(path, topic=TOPIC, subscription="all"):
    """Return all payloads by offset, and the offset of the next message."""

    async def run():
        async with serving(path) as client:
            (offset,) = await publish(client, topic, b"next")
            found, dropped = {}, 0
            while offset not in found:
                try:
                    async with client.consumer(
                        topic, subscription=subscription, start="earliest"
                    ) as consumer:
                        while offset not in found:
                            message = await consumer.receive(timeout_s=60)
                            found[message.id.offset] = message.payload
                            await consumer.ack(message)
                except OffsetDropped:
                    dropped += 1
            del found[offset]
            return found, offset, dropped

    return asyncio.run(run())


TRUTH = {n: b"%d" % n for n in range(10)}


def test_whole_directory_needs_no_recovery(data):
    findings = recover(data, from_segments=True, accept_loss=True)
    assert (findings.metadata, findings.journal, findings.objects) == ("whole",) * 3
    assert not findings.written
    assert read(data) == (TRUTH, 10, 0)


def test_dry_run_changes_nothing(data):
    (data / "metadata.sqlite").unlink()
    before = contents_of(data)
    findings = recover(data, write=False)
    assert findings.needs_from_segments
    assert not findings.needs_accept_loss
    assert contents_of(data) == before
    with pytest.raises(InconsistentDirectory, match="without --from-segments"):
        recover(data)
    assert contents_of(data) == before


def test_lost_metadata_is_rebuilt_from_segments_and_journal(data):
    (data / "metadata.sqlite").unlink()
    findings = recover(data, from_segments=True)
    by_name = {topic.topic: topic for topic in findings.topics}
    topic = by_name[TOPIC]
    assert (topic.segments, topic.base, topic.end, topic.next_offset) == (5, 0, 10, 10)
    assert topic.subscriptions == {"billing": 3}
    assert findings.written
    assert read(data) == (TRUTH, 10, 0)
    billing, _, _ = read(data, subscription="billing")
    assert min(billing) == 3
    assert read(data, PARTITION) == ({0: b"p"}, 1, 0)

    async def partitions():
        async with serving(data) as client:
            return await client.topics.existing_partitions("/shop/orders.eu")

    assert asyncio.run(partitions()) == [PARTITION]
    assert not recover(data, write=False).needs_from_segments


@pytest.fixture
def remote(data, tmp_path):
    """Return a remote store that alone has all but one of the segments."""
    target = tmp_path / "remote"
    shutil.copytree(data / "objects", target)
    for path in sorted((data / "objects").rglob("*.parquet"))[1:]:
        path.unlink()
    return RemoteConfig(url=f"fs://{target}")


def test_lost_metadata_is_rebuilt_from_remote_segments(data, remote):
    (data / "metadata.sqlite").unlink()
    findings = recover(data, from_segments=True, remote=remote)
    assert "(5 segments without a local copy)" in findings.remote
    by_name = {topic.topic: topic for topic in findings.topics}
    assert (by_name[TOPIC].segments, by_name[TOPIC].base) == (5, 0)

    async def uploaded():
        async with serving(data, storage__remote__url=remote.url) as client:
            found = (await client.storage.segments(TOPIC)).segments
            payloads = [each async for each in client.read(TOPIC)]
            return [each.is_uploaded for each in found], payloads

    flags, batches = asyncio.run(uploaded())
    assert sum(flags) >= 4
    payloads = [payload for batch in batches for payload in batch.payloads]
    assert payloads == list(TRUTH.values())


def test_lost_directory_is_rebuilt_from_the_remote_store(data, remote):
    cluster_id = recover(data, write=False, remote=remote).cluster_id
    shutil.rmtree(data)
    data.mkdir(mode=0o700)
    findings = recover(data, write=False, remote=remote)
    assert findings.cluster_id == cluster_id
    assert "(6 segments without a local copy)" in findings.remote


def test_metadata_is_not_rebuilt_without_the_remote_segments(data, remote):
    (data / "metadata.sqlite").unlink()
    before = contents_of(data)
    store = RemoteConfig(url="s3://bucket/a", options=UNREACHABLE, retries=0)
    with pytest.raises(InconsistentDirectory, match=r"--accept-loss.*does not answer"):
        recover(data, from_segments=True, remote=store)
    assert contents_of(data) == before


def test_whole_metadata_needs_no_remote_store(data):
    store = RemoteConfig(url="s3://bucket/a", options=UNREACHABLE, retries=0)
    findings = recover(data, write=False, remote=store)
    assert not findings.needs_accept_loss
    assert "the metadata store knows its segments" in findings.remote


@pytest.mark.parametrize("index", [0, -1])
@pytest.mark.parametrize("is_directory", [False, True])
def test_unreadable_segment_of_lost_metadata_fails_its_readers(
    data, index, is_directory
):
    (data / "metadata.sqlite").unlink()
    segment = sorted((data / f"objects{TOPIC}").glob("*.parquet"))[index]
    segment.unlink()
    if is_directory:
        segment.mkdir()
    else:
        segment.touch()
    findings = recover(data, from_segments=True, accept_loss=True)
    assert findings.unreadable == [f"{TOPIC[1:]}/{segment.name}"]
    with pytest.raises(BaseExceptionGroup) as caught:
        read(data)
    error = first_error(caught.value)
    assert isinstance(error, CorruptSegment)
    assert segment.name in str(error)


def test_topic_named_like_a_segment_is_not_an_unreadable_segment(data):
    segment = next((data / f"objects{TOPIC}").glob("*.parquet"))
    topic = data / "objects" / "default" / segment.name
    topic.mkdir()
    (topic / "content").touch()
    assert recover(data, from_segments=True).unreadable == []


def test_metadata_that_was_rolled_back_is_completed(made, data):
    for path in data.glob("metadata*"):
        path.unlink()
    shutil.copy(made / "old" / "metadata.sqlite", data)
    findings = recover(data, from_segments=True)
    assert findings.metadata == "older than the journal"
    assert read(data) == (TRUTH, 10, 0)
    assert list((data / "replaced").iterdir())


def test_lost_journal_is_replaced_and_readers_get_an_error(data):
    shutil.rmtree(data / "journal")
    with pytest.raises(InconsistentDirectory, match="without --accept-loss"):
        recover(data)
    findings = recover(data, accept_loss=True)
    (topic,) = (each for each in findings.topics if each.topic == TOPIC)
    assert (topic.end, topic.next_offset) == (5, 5 + SKIPPED_OFFSETS)
    found, offset, dropped = read(data)
    assert found == {n: TRUTH[n] for n in range(5)}
    assert offset == 5 + SKIPPED_OFFSETS
    assert dropped == 1


def test_messages_of_an_older_journal_are_salvaged(made, data):
    shutil.rmtree(data / "journal")
    shutil.copytree(made / "old" / "journal", data / "journal")
    assert recover(data, accept_loss=True).journal.startswith("older than the metadata")
    found, offset, dropped = read(data)
    assert found == {n: TRUTH[n] for n in range(5)}
    assert (offset, dropped) == (5 + SKIPPED_OFFSETS, 1)


def test_readable_part_of_a_damaged_journal_is_salvaged(data):
    (file,) = (data / "journal").iterdir()
    content = bytearray(file.read_bytes())
    at = content.rindex(b"DjE1", 0, content.rindex(b"DjE1", 0, len(content) - 200))
    content[content.rindex(b"8", 0, at)] ^= 1
    file.write_bytes(content)
    findings = recover(data, accept_loss=True)
    assert findings.journal.startswith("damaged")
    found, offset, dropped = read(data)
    assert found.items() <= TRUTH.items()
    assert len(found) >= 8
    assert offset > SKIPPED_OFFSETS
    assert dropped >= 1
    assert not recover(data, write=False).needs_accept_loss


def test_metadata_and_journal_may_both_be_lost(data):
    (data / "metadata.sqlite").unlink()
    shutil.rmtree(data / "journal")
    recover(data, from_segments=True, accept_loss=True)
    found, offset, dropped = read(data)
    assert found == {n: TRUTH[n] for n in range(5)}
    assert (offset, dropped) == (5 + SKIPPED_OFFSETS, 1)


def test_interrupted_run_is_finished(data):
    (data / "metadata.sqlite").unlink()
    shutil.copytree(data, data.with_name("interrupted"))
    interrupted = data.with_name("interrupted")
    recover(data, from_segments=True)
    # Between the two renames:
    (data / "metadata.sqlite").rename(interrupted / "metadata.sqlite.recovered")
    recover(interrupted, from_segments=True)
    assert read(interrupted) == (TRUTH, 10, 0)


def test_emptied_object_store_is_accepted_and_its_segments_stay_missing(data):
    shutil.rmtree(data / "objects")
    findings = recover(data, accept_loss=True)
    assert findings.objects.startswith("missing or emptied")
    assert findings.journal == "whole"

    async def run():
        async with serving(data) as client:
            return (await client.topics.describe(TOPIC)).end_offset

    assert asyncio.run(run()) == 10


@pytest.mark.parametrize("content", [b"", b'{"cluster_id": "\xb8"}'])
def test_damaged_cluster_id_of_the_object_store_is_refused(data, content):
    (data / "objects" / ".cluster.json").write_bytes(content)
    with pytest.raises(InconsistentDirectory, match="is damaged"):
        recover(data, from_segments=True)


@pytest.mark.parametrize("lost", ["metadata.sqlite", "journal"])
def test_settings_of_a_recovered_topic_can_be_changed_at_once(data, lost):
    path = data / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    recover(data, from_segments=True, accept_loss=True)

    async def change(policy):
        async with serving(data) as client:
            await client.subscriptions.configure(
                TOPIC, "billing", failure_policy=policy
            )
            await client.topics.hold(TOPIC, "lake", "a table")
        async with serving(data) as client:
            return await client.subscriptions.settings(TOPIC, "billing")

    for count in (3, 4):
        policy = FailurePolicy(redeliveries_max=count)
        assert asyncio.run(change(policy)).failure_policy == policy
